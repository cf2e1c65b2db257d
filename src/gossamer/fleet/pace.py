"""When a device takes part in rounds: in slots of a shared clock, or as fast as it meets others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from gossamer.engines.plan import Plan
from gossamer.errors import Unavailable
from gossamer.fleet.machine import SYSTEM_CLOCK, Clock, StopSignal
from gossamer.fleet.methods import scheduled_neighbours
from gossamer.fleet.mix import DeviceMix, MeetingMix, PeerMix
from gossamer.fleet.protocol.edges import Edges, alone_rounds
from gossamer.fleet.protocol.journal import Checkpoint, Journal
from gossamer.fleet.protocol.meetings import Meetings
from gossamer.fleet.protocol.wire import Expected
from gossamer.fleet.schedule import EXCHANGE_SHARE, RoundClock, Schedule
from gossamer.fleet.settings import Fleet
from gossamer.fleet.transport.base import Transport

_WAIT_SECONDS = 1.0  # period of reading the clock
# Missed rounds at the end of a run up to which a device is done at once: it was just away. After
# more the likely reason is a clock that is ahead.
_FEW_MISSED = 2
# Time after the end of the run for which a wrong clock is the likely reason of starting too late.
END_SECONDS = 86400.0
# Slots in which a late device asks for a model: neighbours respond at the end of a round.
_JOIN_SLOTS = 3


class Pace(Protocol):
    """When the rounds of a device are, and with whom it exchanges in them."""

    @property
    def edges(self) -> Edges:
        """The device's ends of its links."""

    def now(self) -> float:
        """Return the time in seconds, by the clock of the edges."""

    def check_clock(self, checkpoint: Checkpoint | None) -> None:
        """Raise an error if the clock is likely to be wrong, before the device starts.

        Args:
            checkpoint: What the device resumes from; None: it is new.

        Raises:
            Unavailable: If so.
        """

    def first_round(self) -> int:
        """Return the first round that a device can take part in if it starts now."""

    def may_join_others(self) -> bool:
        """Return True if the others may have begun, so that a new device asks for a model."""

    def join_until(self) -> float:
        """Return until when a new device asks for a model."""

    def mix(self, t: int) -> DeviceMix:
        """Return the mix of round t."""

    def rounds(self, stopped: StopSignal) -> Iterator[int]:
        """Yield the rounds to take part in, each when it begins."""

    def log_entry(self, done: int) -> dict[str, float]:
        """Return what is logged about the time of the round that was the `done`th."""


@dataclass
class Slots:
    """Rounds in slots of a clock that all devices share.

    Args:
        plan: The plan.
        edges: The device's ends of its links.
        schedule: When rounds and exchanges are.
        clock: The clock of the edges.
    """

    plan: Plan
    edges: Edges
    schedule: Schedule
    clock: RoundClock

    def now(self) -> float:
        return self.clock()

    def check_clock(self, checkpoint: Checkpoint | None) -> None:
        """Raise an error if the last round seems to be over and the device has missed many.

        Args:
            checkpoint: What the device resumes from; None: it is new.

        Raises:
            Unavailable: If so. The clock may be wrong, as on a board that has just booted.
        """
        missed = self.plan.rounds
        if checkpoint is not None:
            missed = alone_rounds(checkpoint).missed(self.plan.rounds)
        if missed > _FEW_MISSED:
            self._check_not_over(missed)

    def first_round(self) -> int:
        t = max(0, self.schedule.round_at(self.now()) + 1)
        return t if t < self.plan.rounds else 0

    def may_join_others(self) -> bool:
        return self.now() >= self.schedule.begin(0) + EXCHANGE_SHARE * self.schedule.slot

    def join_until(self) -> float:
        return self.now() + _JOIN_SLOTS * self.schedule.slot

    def mix(self, t: int) -> DeviceMix:
        scheduled = scheduled_neighbours(self.plan.network, self.edges.device, t)
        return PeerMix(
            self.edges,
            self.plan.algorithm.weights,
            t,
            self.plan.seed,
            self.schedule.deadline,
            scheduled,
        )

    def rounds(self, stopped: StopSignal) -> Iterator[int]:
        """Yield the rounds to take part in, each when it begins. A round nearly over is skipped.

        A wait is divided, so that a clock that is corrected meanwhile is noticed. A clock that has
        jumped beyond the last round does not end the run: the device waits for its correction.
        A device that was ahead of all others goes back.

        Raises:
            Unavailable: If the last round is over by the clock, and since the device last met
                another one it has missed more rounds than it has run: the clock may be wrong.
        """
        schedule = self.schedule
        ahead = self._ahead_of_monotonic()
        beyond = False  # True if a jump has brought the clock beyond the last round
        while not stopped.is_set():
            now = schedule.now()
            before = ahead
            ahead = self._ahead_of_monotonic()
            jumped = abs(ahead - before) > schedule.slot
            beyond = self._seconds_over() >= 0 and (beyond or jumped)
            t = self.edges.next_round(schedule.round_at(now))
            if now >= schedule.deadline((t, 0)):
                t = self.edges.next_round(t + 1)
            if t >= self.plan.rounds:
                missed = self.edges.alone.missed(self.plan.rounds)
                doubtful = missed > max(_FEW_MISSED, self.edges.alone.ran)
                by_jump = beyond and missed > _FEW_MISSED
                if by_jump or (doubtful and self._seconds_over() < 0):
                    stopped.wait(_WAIT_SECONDS)
                    continue
                if doubtful:
                    self._check_not_over(missed)
                self.edges.round = max(self.edges.round, self.plan.rounds)
                return
            left = schedule.begin(t) - now
            if left > _WAIT_SECONDS:
                stopped.wait(_WAIT_SECONDS)
                continue
            # Before the wait, in which the clock may jump: deadlines are by that which chose t.
            self.clock.set()
            if not stopped.wait(max(0.0, left)):
                self.edges.counts["missed"] += max(0, t - self.edges.round)
                yield t

    def _seconds_over(self) -> float:
        """Return for how long the last round has been over by the clock."""
        return self.schedule.now() - self.schedule.begin(self.plan.rounds)

    def _check_not_over(self, missed: int) -> None:
        over = self._seconds_over()
        if 0 <= over < END_SECONDS:
            raise Unavailable(
                f"by the clock of this device the last round ended {over:,.0f} s ago, and it has"
                f" missed {missed:,} of {self.plan.rounds:,} rounds: if the clock is wrong,"
                " correct it and start the device again"
            )

    def _ahead_of_monotonic(self) -> float:
        """Return the difference of the two clocks, which changes when one of them jumps."""
        return self.schedule.now() - self.schedule.clock.monotonic()

    def log_entry(self, done: int) -> dict[str, float]:
        return {"late": self.now() > self.schedule.begin(done)}


@dataclass
class Contacts:
    """Rounds of the device's own, each a meeting of two or a step alone. No clock is shared.

    Args:
        plan: The plan.
        edges: The device's ends of its links.
        fleet: The settings that all devices share.
        before: Seconds that the device ran before it was restarted.
        clock: The clock of the edges.
    """

    plan: Plan
    edges: Meetings
    fleet: Fleet
    before: float = 0.0
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._began = self.now()

    def now(self) -> float:
        return self.clock.monotonic()

    def check_clock(self, checkpoint: Checkpoint | None) -> None:
        """No clock is needed.

        Args:
            checkpoint: What the device resumes from.
        """

    def first_round(self) -> int:
        return 0

    def may_join_others(self) -> bool:
        return True

    def join_until(self) -> float:
        return self.now() + self.fleet.patience + self.fleet.timeout

    def mix(self, t: int) -> DeviceMix:
        return MeetingMix(
            self.edges,
            self.plan.algorithm.weights,
            self.now,
            self.fleet.patience,
            self.fleet.timeout,
        )

    def rounds(self, stopped: StopSignal) -> Iterator[int]:
        """Yield the rounds, one after the other."""
        while self.edges.round < self.plan.rounds and not stopped.is_set():
            yield self.edges.round

    def log_entry(self, done: int) -> dict[str, float]:
        return {"seconds": round(self.before + self.now() - self._began, 3)}


def make_pace(
    plan: Plan,
    transport: Transport,
    journal: Journal,
    expected: Expected,
    fleet: Fleet,
    schedule: Schedule,
    before: float,
) -> Pace:
    """Return the pace that the settings of a fleet ask for.

    Args:
        plan: The plan.
        transport: The device's links.
        journal: Its journal.
        expected: The messages to accept.
        fleet: The settings that all devices share.
        schedule: When rounds are, in slots, and the clock.
        before: Seconds that the device ran before it was restarted.
    """
    if fleet.pace == "contacts":
        meetings = Meetings(transport, journal, expected, schedule.clock.monotonic)
        return Contacts(plan, meetings, fleet, before, schedule.clock)
    round_clock = RoundClock(schedule)
    return Slots(plan, Edges(transport, journal, expected, round_clock), schedule, round_clock)
