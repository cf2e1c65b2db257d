"""Batteries that run empty: how long a device is away until it is charged."""

from __future__ import annotations

from gossamer.network.energy import Energy


class Batteries:
    """What is left in the batteries after steps and messages.

    Args:
        energy: What they cost; None, or one without a battery: nothing ever runs empty.
        message_bytes: Bytes of a message.

    Example:
        >>> batteries = Batteries(Energy(step=1.0, byte=0.0, battery=2.0, charge=0.5), 100)
        >>> left = batteries.after_step(batteries.full)
        >>> batteries.seconds_away(left), batteries.seconds_away(batteries.after_step(left))
        (0.0, 4.0)
    """

    def __init__(self, energy: Energy | None, message_bytes: float) -> None:
        self.exist = energy is not None and energy.battery > 0
        self.full = 0.0
        self.step = 0.0
        self.message = 0.0
        self.charging_seconds = 0.0
        if energy is not None and self.exist:
            self.full = energy.battery
            self.step = energy.step
            self.message = energy.byte * message_bytes
            self.charging_seconds = energy.seconds_to_charge

    def after_step(self, joules: float) -> float:
        """Return what is left after a gradient step.

        Args:
            joules: What was left before.
        """
        return joules - self.step

    def after_message(self, joules: float) -> float:
        """Return what is left after a message was sent.

        Args:
            joules: What was left before.
        """
        return joules - self.message

    def seconds_away(self, joules: float) -> float:
        """Return how long a device is away now: 0 unless its battery is empty.

        Args:
            joules: What is left.
        """
        if self.exist and joules <= 0:
            return self.charging_seconds
        return 0.0
