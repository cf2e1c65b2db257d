"""Clocks that drift and jump, and the signal to stop."""

from __future__ import annotations

from gossamer.fleet.simulation.scheduler import Scheduler

EPOCH = 1_800_000_000.0
"""Seconds since 1970 at simulated time 0, where the clock is right."""


class SimulatedClock:
    """The clocks of one machine.

    Args:
        scheduler: The simulated time.
        rate: Seconds of this clock per simulated second.
        offset: Seconds by which the time since 1970 is wrong at first.
        booted: The monotonic clock at simulated time 0.
    """

    def __init__(
        self, scheduler: Scheduler, rate: float = 1.0, offset: float = 0.0, booted: float = 0.0
    ) -> None:
        self.rate = rate
        self._scheduler = scheduler
        self._offset = offset
        self._booted = booted

    def time(self) -> float:
        return EPOCH + self._offset + self.rate * self._scheduler.now

    def monotonic(self) -> float:
        return self._booted + self.rate * self._scheduler.now

    def set_right(self) -> None:
        """Set the time since 1970 as NTP would."""
        self._offset = (1.0 - self.rate) * self._scheduler.now

    def jump(self, seconds: float) -> None:
        """Set the time since 1970 forward, or back.

        Args:
            seconds: How far.
        """
        self._offset += seconds

    def simulated(self, seconds: float) -> float:
        """Return how long a wait of this machine takes, in simulated seconds.

        Args:
            seconds: The wait by its monotonic clock.
        """
        return seconds / self.rate


class SimulatedStop:
    """The signal for one process to stop: the interface of `threading.Event`.

    Args:
        scheduler: The simulated time.
        clock: The clock of the machine.
    """

    def __init__(self, scheduler: Scheduler, clock: SimulatedClock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._set = False

    def is_set(self) -> bool:
        self._scheduler.current()
        return self._set

    def wait(self, timeout: float) -> bool:
        if not self._set:
            self._scheduler.sleep(self._clock.simulated(timeout))
        return self._set

    def set(self) -> None:
        """Tell the process to stop; the caller wakes it."""
        self._set = True
