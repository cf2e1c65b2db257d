"""Reads the lines of a log: numbers, times and devices.

Fields of a line are separated by spaces or commas. Empty lines, and everything after a `#`, are
ignored. Devices are named by whole numbers, which are then their numbers 0 … m-1, or by words,
which are numbered in sorted order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gossamer._core import checks
from gossamer.errors import DataError, InputError
from gossamer.network import limits
from gossamer.network.base import FloatArray, IntArray
from gossamer.network.recorded import Recorded

MAX_BYTES = 2**30  # of a file
# Rounds. A time this close to the beginning of a round counts as that beginning: 0.3 s is in round
# 3 of 0.1 s each, although 0.3 / 0.1 < 3 in floating point.
SNAP = 1e-9


class TraceReader:
    """Reads a text file line by line; every error names the file and the line.

    Args:
        path: The file.
        start: Time of round 0, in seconds.
        seconds_per_round: Seconds per round.
    """

    def __init__(
        self, path: str | Path, start: float = 0.0, seconds_per_round: float = 1.0
    ) -> None:
        self.path = Path(path)
        self.start = start
        self.seconds_per_round = seconds_per_round
        self.line = 0
        self.first_line: dict[str, int] = {}  # in which each device is named first
        self.number: dict[str, int] = {}  # of each device, in the order of appearance

    def error(self, reason: str, line: int | None = None) -> DataError:
        """Return an error about a line; the current one by default."""
        return DataError(f"{self.path}, line {line or self.line}: {reason}")

    def __iter__(self) -> Iterator[list[str]]:
        try:
            size = self.path.stat().st_size
            if size > MAX_BYTES:
                raise DataError(f"{self.path} has {size:,} bytes: a trace may have {MAX_BYTES:,}")
            with open(self.path, encoding="utf-8") as file:
                for self.line, text in enumerate(file, 1):
                    words = text.partition("#")[0].replace(",", " ").split()
                    if words:
                        yield words
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"{self.path} cannot be read: {reason}; give a text file") from error
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path} is not UTF-8 text after line {self.line}; give a text file"
            ) from error

    def parse_number(self, word: str, name: str) -> float:
        """Return a finite number; `name` is what an error calls it."""
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.error(f"{name} {word!r} is not a finite number")
        return value

    def parse_time(self, word: str) -> float:
        """Return a time, in rounds since `start`."""
        value = self.parse_number(word, "the time")
        if value < self.start:
            reason = "negative" if self.start == 0 else "before start"
            raise self.error(f"the time {word} is {reason}")
        rounds = (value - self.start) / self.seconds_per_round
        if rounds >= limits.MAX_ROUNDS:
            raise self.error(
                f"the time {word} is past {limits.MAX_ROUNDS:,} rounds; set start to the time of "
                "round 0, or a larger seconds_per_round"
            )
        return rounds

    def parse_device(self, word: str) -> int:
        """Return the number of a device in the order of appearance; see `device_numbers`."""
        if word[0] == "0" and word.isdecimal():
            word = word.lstrip("0") or "0"  # 007 and 7 are the same device
        known = self.number.get(word)
        if known is not None:
            return known
        if word.startswith("-") and word[1:].isdecimal():
            raise self.error(f"device {word} is negative; devices are numbered from 0")
        if len(self.number) >= limits.MAX_DEVICES:
            raise self.error(f"there are more than {limits.MAX_DEVICES:,} devices")
        self.first_line[word] = self.line
        return self.number.setdefault(word, len(self.number))

    def device_numbers(self, devices: int) -> tuple[tuple[str, ...], IntArray]:
        """Return the final numbers of the devices, after all lines are read.

        Args:
            devices: Number of devices, or 0 for as many as the file names.

        Returns:
            The names of all devices by final number, and the final number of each device in the
            order of appearance.
        """
        words = list(self.number)
        if not words:
            raise DataError(f"{self.path} has no lines with devices; give at least one")
        is_number = [word.isascii() and word.isdecimal() for word in words]
        if any(is_number):
            return self._numbers_of_numbers(words, is_number, devices)
        names = tuple(sorted(words))
        if devices not in (0, len(names)):
            accepted = (
                f"{len(names)}, the number of devices that {self.path} names, or leave it out"
            )
            raise InputError("devices", devices, accepted)
        index = {word: i for i, word in enumerate(names)}
        return names, np.array([index[word] for word in words])

    def _numbers_of_numbers(
        self, words: list[str], is_number: list[bool], devices: int
    ) -> tuple[tuple[str, ...], IntArray]:
        """`device_numbers` of devices that are named by numbers."""
        limit = devices or limits.MAX_DEVICES
        for k, word in enumerate(words):
            if not is_number[k]:
                raise self.error(
                    f"device {word!r} is a word and others are numbers; "
                    "devices must be all whole numbers or all words",
                    self.first_line[word],
                )
            if len(word) > 18 or int(word) >= limit:
                raise self.error(
                    f"device {word} is out of range; devices are numbered 0 to {limit - 1}",
                    self.first_line[word],
                )
        number = np.array([int(word) for word in words])
        count = devices or int(number.max()) + 1
        return tuple(map(str, range(count))), number


class Trace(Recorded):
    """Base class of networks that are read from a log of times.

    Subclasses are frozen dataclasses with these fields.

    Attributes:
        path: The log.
        seconds_per_round: Seconds per round.
        start: Time of round 0, in seconds.
    """

    path: str | Path
    seconds_per_round: float
    start: float

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("devices", self.devices, 0, limits.MAX_DEVICES)
        checks.positive("seconds_per_round", self.seconds_per_round)
        checks.not_negative("start", self.start)

    def _reader(self) -> TraceReader:
        return TraceReader(self.path, self.start, self.seconds_per_round)

    def _set(self, **values: object) -> None:
        """Set fields that are read from the log."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def round_of(time: FloatArray) -> IntArray:
    """Return the rounds that contain some times.

    Args:
        time: Times, in rounds.
    """
    return np.floor(time + SNAP).astype(np.int64)
