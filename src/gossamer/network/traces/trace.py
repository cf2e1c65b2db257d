"""Base class of networks from a log of times."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import numpy as np

from gossamer._core import checks
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import FloatArray, IntArray
from gossamer.network.recorded import Recorded
from gossamer.network.traces import clock

# Rounds. A time this close to the beginning of a round counts as that beginning: 0.3 s is in round
# 3 of 0.1 s each, although 0.3 / 0.1 < 3 in floating point.
SNAP = 1e-9
RELATIVE_ROUND = 1.0  # seconds per round, if times are relative
ABSOLUTE_ROUND = 300.0  # seconds per round, if times are dates


class Trace(Recorded):
    """Base class of networks that are read from a log of times.

    Subclasses are frozen dataclasses with these fields.

    Attributes:
        path: The log.
        seconds_per_round: Seconds per round as given; see `round_seconds`.
        start: Time of round 0 as given; see `start_time`.
        round_seconds: Seconds per round.
        start_time: Time of round 0: seconds since 1970 if the log has dates.
    """

    path: str | Path
    seconds_per_round: float | None
    start: float | str | datetime | None
    round_seconds: float
    start_time: float

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("devices", self.devices, 0, limits.MAX_DEVICES)
        if self.seconds_per_round is not None:
            checks.positive("seconds_per_round", self.seconds_per_round)
        if self.start is not None:
            clock.seconds_of("start", self.start)

    def _set(self, **values: object) -> None:
        """Set fields that are read from the log."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _set_clock(self, first: float, last: float, absolute: bool) -> None:
        """Set the time of round 0 and the length of a round.

        Args:
            first: First time of the log.
            last: Last time of the log.
            absolute: True if they are dates.
        """
        start = first
        if self.start is not None:
            start, is_date = clock.seconds_of("start", self.start)
            fits = start <= last and (absolute or not is_date)
            if not fits or (absolute and start < clock.MIN_UNIX and not is_date):
                period = clock.in_words(first, last, absolute)
                raise InputError("start", self.start, f"a time of {self.path}, {period}")
        seconds = self.seconds_per_round
        if seconds is None:
            seconds = ABSOLUTE_ROUND if absolute else RELATIVE_ROUND
        rounds = (last - start) / seconds
        if rounds >= limits.MAX_ROUNDS:
            least = math.ceil((last - start) / limits.MAX_ROUNDS)
            accepted = (
                f"at least {least:,} s: {self.path} has {last - start:,.0f} s, "
                f"and at most {limits.MAX_ROUNDS:,} rounds are possible; or set a later start"
            )
            raise InputError("seconds_per_round", self.seconds_per_round, accepted)
        self._set(start_time=start, round_seconds=float(seconds))

    def _in_rounds(self, time: FloatArray) -> FloatArray:
        """Return times in rounds since the beginning of round 0."""
        return (time - self.start_time) / self.round_seconds


def round_of(time: FloatArray) -> IntArray:
    """Return the rounds that contain some times.

    Args:
        time: Times, in rounds.
    """
    return np.floor(time + SNAP).astype(np.int64)
