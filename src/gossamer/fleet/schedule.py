"""When rounds and exchanges are, by a clock that all devices share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.fleet.machine import SYSTEM_CLOCK, Clock
from gossamer.fleet.protocol.messages import ExchangeId

# Share of a slot for exchanges; the rest is for the step.
EXCHANGE_SHARE = 0.9


@dataclass(frozen=True)
class Schedule:
    """The schedule of a run: round t begins at start + t·slot.

    Args:
        start: When round 0 begins, in seconds since 1970.
        slot: Seconds per round.
        parts: Exchanges per round.
        clock_offset: Seconds added to this device's clock.
        clock: The clock.

    Example:
        >>> schedule = Schedule(start=1000.0, slot=2.0, parts=2)
        >>> schedule.begin(3), schedule.round_at(1007.9)
        (1006.0, 3)
        >>> schedule.deadline((3, 0)), schedule.deadline((3, 1))
        (1006.9, 1007.8)
    """

    start: float
    slot: float
    parts: int
    clock_offset: float = 0.0
    clock: Clock = SYSTEM_CLOCK

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self.clock.time() + self.clock_offset

    def begin(self, t: int) -> float:
        """Return when round t begins."""
        return self.start + t * self.slot

    def round_at(self, when: float) -> int:
        """Return the round at a time; negative before the start."""
        return math.floor((when - self.start) / self.slot)

    def deadline(self, exchange: ExchangeId) -> float:
        """Return by when an exchange is over."""
        t, part = exchange
        return self.begin(t) + EXCHANGE_SHARE * self.slot * (part + 1) / self.parts


class RoundClock:
    """The time within a round: the clock may jump, and the round goes on to its deadline.

    Args:
        schedule: The schedule with the clock.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.set()

    def set(self) -> None:
        """Set it by the clock, when a round begins."""
        self._ahead = self._schedule.now() - self._schedule.clock.monotonic()

    def __call__(self) -> float:
        return self._schedule.clock.monotonic() + self._ahead
