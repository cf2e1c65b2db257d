"""Energy: what steps and messages cost, and batteries that run empty."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer.errors import InputError


@checked
@dataclass(frozen=True)
class Energy:
    """What computing and sending cost in joules; every device has the same costs.

    Args:
        step: Joules per gradient step.
        byte: Joules per byte sent.
        battery: Joules that a battery holds; it is full at the start. A device whose battery is
            empty is away until it is full again. 0: never empty. Only the events engine has
            batteries.
        charge: Watts at which an empty battery is charged.

    Raises:
        InputError: If a value is not accepted.

    Example:
        >>> Energy(step=0.5, byte=1e-6).joules(steps=10, bytes=2_000_000)
        7.0
    """

    step: float
    byte: float
    battery: float = 0.0
    charge: float = 0.0

    def __post_init__(self) -> None:
        for name in ("step", "byte", "battery", "charge"):
            checks.not_negative(name, getattr(self, name))
        if self.battery and not self.charge:
            raise InputError("charge", self.charge, "watts above 0, since there is a battery")

    def joules(self, steps: float, bytes: float) -> float:
        """Return what steps and messages cost.

        Args:
            steps: Number of gradient steps.
            bytes: Number of bytes sent.
        """
        return steps * self.step + bytes * self.byte

    @property
    def seconds_to_charge(self) -> float:
        """How long an empty battery takes until it is full."""
        return self.battery / self.charge if self.battery else 0.0
