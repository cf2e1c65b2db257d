"""Networks from logs of real fleets: contacts (`ContactTrace`) or positions (`PositionTrace`).

Fields of a line are separated by spaces or commas. Empty lines, and everything after a `#`, are
ignored. Devices are named by whole numbers, which are then their numbers 0 … m-1, or by words,
which are numbered in sorted order.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.network import limits
from gossamer.network.base import FloatArray, IntArray, Links
from gossamer.network.mobility import within
from gossamer.network.recorded import Recorded

MAX_BYTES = 2**30  # of a file
EARTH_RADIUS = 6_371_008.8  # metres; the mean radius
# Rounds. A time this close to the beginning of a round counts as that beginning: 0.3 s is in round
# 3 of 0.1 s each, although 0.3 / 0.1 < 3 in floating point.
_SNAP = 1e-9


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


def _round_of(time: FloatArray) -> IntArray:
    """Return the rounds that contain these times, which are in rounds."""
    return np.floor(time + _SNAP).astype(np.int64)


class _Contacts:
    """The contacts of a log, one row per contact, while the log is being read."""

    def __init__(self) -> None:
        self.a = array("q")
        self.b = array("q")
        self.line = array("q")
        self.begin = array("d")
        self.end = array("d")
        self.latest = 0.0  # the latest time of the log
        self.open: dict[tuple[int, int], int] = {}  # the row of each contact that has not ended

    def add(self, a: int, b: int, line: int, begin: float, end: float) -> None:
        """Add a contact; devices are numbered in the order of appearance, times are in rounds."""
        self.a.append(a)
        self.b.append(b)
        self.line.append(line)
        self.begin.append(begin)
        self.end.append(end)

    def __len__(self) -> int:
        return len(self.line)


@register("network", "contacts")
@dataclass(frozen=True)
class ContactTrace(Recorded):
    """Links from a log of contacts.

    There are two formats. In "contacts", a line is `t a b`: a and b are linked in the round that
    contains the time t. In "intervals", lines are `t CONN a b up` and `t CONN a b down`, as the ONE
    simulator writes: a and b are linked in every round that the contact overlaps; a contact that
    has not ended lasts until the end of the log.

    Round k begins at start + k · seconds_per_round.

    Args:
        path: The log.
        devices: Number of devices; 0 for as many as the log names.
        seconds_per_round: Seconds per round.
        start: Time of round 0, in seconds.
        format: "contacts", "intervals", or "auto" to tell by the first line.
        symmetric: "assume", or "require" to refuse contacts that are not listed in both directions
            in their round.
        beyond: What follows the last round: "error", "repeat" or "empty".

    Raises:
        DataError: If the log cannot be read or has a wrong line.

    Example:
        A log of contacts every 20 seconds::

            trace = ContactTrace("contacts.txt", seconds_per_round=20.0)
            trace.devices, trace.rounds, trace.names, trace.links(0)
    """

    path: str | Path
    devices: int = 0
    seconds_per_round: float = 1.0
    start: float = 0.0
    format: str = "auto"
    symmetric: str = "assume"
    beyond: str = "error"
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    recorded: int = field(init=False, compare=False)
    # Contacts as a · devices + b, with the first and last round of each, sorted by the first.
    _code: IntArray = field(init=False, repr=False, compare=False)
    _first: IntArray = field(init=False, repr=False, compare=False)
    _last: IntArray = field(init=False, repr=False, compare=False)
    _longest: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_times(self.devices, self.seconds_per_round, self.start)
        checks.one_of("format", self.format, ("auto", "contacts", "intervals"))
        checks.one_of("symmetric", self.symmetric, ("assume", "require"))
        reader = TraceReader(self.path, self.start, self.seconds_per_round)
        contacts, is_intervals = self._read(reader)
        first = _round_of(np.array(contacts.begin))
        last = _last_rounds(contacts, first) if is_intervals else first
        names, number = reader.device_numbers(self.devices)
        if self.symmetric == "require":
            _require_both_ways(reader, contacts, first)
        a = number[np.array(contacts.a)]
        b = number[np.array(contacts.b)]
        order = np.argsort(first, kind="stable")
        code = np.minimum(a, b) * len(names) + np.maximum(a, b)
        _set(self, devices=len(names), names=names, recorded=int(last.max()) + 1)
        _set(self, _code=code[order], _first=first[order], _last=last[order])
        _set(self, _longest=int((last - first).max()))

    def _recorded_links(self, t: int) -> Links:
        low, high = np.searchsorted(self._first, [t - self._longest, t + 1])
        code = np.unique(self._code[low:high][self._last[low:high] >= t])
        return Links(self.devices, code // self.devices, code % self.devices)

    def _read(self, reader: TraceReader) -> tuple[_Contacts, bool]:
        """Return the contacts of the log, and True if it has intervals."""
        contacts = _Contacts()
        is_intervals = self.format == "intervals"
        for words in reader:
            if not len(contacts) and self.format == "auto":
                is_intervals = len(words) == 5
            if is_intervals:
                _read_interval(reader, contacts, words)
            else:
                _read_contact(reader, contacts, words)
        if is_intervals and self.symmetric == "require":
            accepted = '"assume": intervals are listed once for both ways'
            raise InputError("symmetric", "require", accepted)
        return contacts, is_intervals


def _read_contact(reader: TraceReader, contacts: _Contacts, words: list[str]) -> None:
    """Add the contact of a line `t a b`."""
    if len(words) != 3:
        raise reader.error(f"expected lines `t a b`, not {' '.join(words)[:60]!r}")
    time, a, b = _parse_contact(reader, contacts, words[0], words[1:])
    contacts.add(a, b, reader.line, time, time)


def _read_interval(reader: TraceReader, contacts: _Contacts, words: list[str]) -> None:
    """Add or end the contact of a line `t CONN a b up|down`."""
    if len(words) != 5 or words[1].upper() != "CONN":
        shown = " ".join(words)[:60]
        raise reader.error(f"expected lines `t CONN a b up|down`, not {shown!r}")
    time, a, b = _parse_contact(reader, contacts, words[0], words[2:4])
    pair = (min(a, b), max(a, b))
    event = words[4].lower()
    if event == "up":
        if pair in contacts.open:
            raise reader.error("this contact is up already; expected its `down` first")
        contacts.open[pair] = len(contacts)
        contacts.add(a, b, reader.line, time, math.inf)
    elif event == "down":
        row = contacts.open.pop(pair, None)
        if row is None:
            raise reader.error("`down` without an `up` before it")
        if time < contacts.begin[row]:
            raise reader.error(f"this `down` is before its `up` in line {contacts.line[row]}")
        contacts.end[row] = time
    else:
        raise reader.error(f"expected `up` or `down`, not {words[4]!r}")


def _parse_contact(
    reader: TraceReader, contacts: _Contacts, time: str, ends: list[str]
) -> tuple[float, int, int]:
    """Return the time (in rounds) and the two devices of a line."""
    rounds = reader.parse_time(time)
    contacts.latest = max(contacts.latest, rounds)
    a, b = map(reader.parse_device, ends)
    if a == b:
        raise reader.error(f"device {ends[0]} is linked to itself")
    return rounds, a, b


def _last_rounds(contacts: _Contacts, first: IntArray) -> IntArray:
    """Return the last round of each interval, whose first rounds are given."""
    end = np.array(contacts.end)
    is_open = np.isinf(end)
    # A contact that ends at the beginning of a round is not in that round. It is always in the
    # round in which it begins.
    last = np.ceil(np.where(is_open, contacts.latest, end) - _SNAP).astype(np.int64) - 1
    last = np.where(is_open, math.floor(contacts.latest + _SNAP), last)
    return np.maximum(first, last)


def _require_both_ways(reader: TraceReader, contacts: _Contacts, rounds: IntArray) -> None:
    """Refuse a contact that is not listed in the other direction in the same round."""
    rows = list(zip(rounds.tolist(), contacts.a, contacts.b, strict=True))
    listed = set(rows)
    words = list(reader.number)
    for (t, a, b), line in zip(rows, contacts.line, strict=True):
        if (t, b, a) not in listed:
            raise reader.error(
                f"the contact {words[a]} {words[b]} of round {t} "
                "is not listed the other way round too",
                line,
            )


@register("network", "positions")
@dataclass(frozen=True)
class PositionTrace(Recorded):
    """Links from a log of positions, with lines `t device x y`.

    Two devices are linked if they are at most `radius` apart. Between two fixes a device moves in a
    straight line at constant speed; before its first and after its last fix it is away. Round k
    has the positions at the time start + k · seconds_per_round.

    Args:
        path: The log.
        radius: Largest distance of a link, in the unit of the positions, or in metres along the
            surface of the Earth if `geographic`.
        devices: Number of devices; 0 for as many as the log names.
        geographic: True if the positions are latitude and longitude in degrees.
        seconds_per_round: Seconds per round.
        start: Time of round 0, in seconds.
        beyond: What follows the last round: "error", "repeat" or "empty".

    Raises:
        DataError: If the log cannot be read or has a wrong line.

    Example:
        A log of GPS fixes, with a round every 10 seconds::

            trace = PositionTrace(
                "fixes.csv",
                radius=150.0,
                geographic=True,
                seconds_per_round=10.0,
                start=1_700_000_000,
            )
            trace.links(0).active
    """

    path: str | Path
    radius: float
    devices: int = 0
    geographic: bool = False
    seconds_per_round: float = 1.0
    start: float = 0.0
    beyond: str = "error"
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    recorded: int = field(init=False, compare=False)
    # Time (in rounds) and position of each fix, sorted by device, then time.
    _time: FloatArray = field(init=False, repr=False, compare=False)
    _position: FloatArray = field(init=False, repr=False, compare=False)
    # All times that occur, sorted.
    _times: FloatArray = field(init=False, repr=False, compare=False)
    # Per fix: device · (len(_times) + 1) + index in `_times`.
    _key: IntArray = field(init=False, repr=False, compare=False)
    # Per device: one past its last fix.
    _ends: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_times(self.devices, self.seconds_per_round, self.start)
        checks.not_negative("radius", self.radius)
        reader = TraceReader(self.path, self.start, self.seconds_per_round)
        device_column, time, x, y = self._read(reader)
        names, number = reader.device_numbers(self.devices)
        device = number[device_column]
        order = np.lexsort((time, device))
        times = np.unique(time)
        key = device * (len(times) + 1) + np.searchsorted(times, time)
        recorded = int(_round_of(times[-1:])[0]) + 1
        _set(self, devices=len(names), names=names, recorded=recorded, _times=times)
        _set(self, _time=time[order], _position=np.stack([x, y], axis=1)[order], _key=key[order])
        _set(self, _ends=np.cumsum(np.bincount(device, minlength=len(names))))

    def _read(self, reader: TraceReader) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Return device (in the order of appearance), time (in rounds), x and y of each fix."""
        device = array("q")
        time = array("d")
        x_column = array("d")
        y_column = array("d")
        for words in reader:
            if len(words) != 4:
                raise reader.error(f"expected lines `t device x y`, not {' '.join(words)[:60]!r}")
            x = reader.parse_number(words[2], "the position")
            y = reader.parse_number(words[3], "the position")
            if self.geographic and (abs(x) > 90 or abs(y) > 180):
                raise reader.error(
                    f"latitude {x} or longitude {y} is out of range; "
                    "give -90 to 90 and -180 to 180 degrees"
                )
            time.append(reader.parse_time(words[0]))
            x_column.append(x)
            y_column.append(y)
            device.append(reader.parse_device(words[1]))
        return np.array(device), np.array(time), np.array(x_column), np.array(y_column)

    def positions(self, t: int) -> FloatArray:
        """Return where the devices are in round t.

        Args:
            t: Number of the round, from 0.

        Returns:
            Coordinates [devices, 2] as in the log; NaN for devices that are away.
        """
        now = float(t)
        size = len(self._times) + 1
        # A fix within _SNAP of now counts as now.
        first_now, after_now = np.searchsorted(self._times, [now - _SNAP, now + _SNAP])
        device = np.arange(self.devices)
        latest = np.searchsorted(self._key, device * size + after_now) - 1
        first = np.concatenate([[0], self._ends[:-1]])
        has_next = latest < self._ends - 1
        is_now = self._key[latest] >= device * size + first_now
        present = (latest >= first) & (has_next | is_now)

        latest = latest[present]
        following = np.minimum(latest + 1, self._ends[present] - 1)
        step = self._position[following] - self._position[latest]
        if self.geographic:
            step[:, 1] = (step[:, 1] + 180) % 360 - 180  # the shorter way around the Earth
        gap = self._time[following] - self._time[latest]
        done = np.divide(now - self._time[latest], gap, out=np.zeros_like(gap), where=gap > 0)
        position: FloatArray = np.full((self.devices, 2), np.nan)
        position[present] = self._position[latest] + np.clip(done, 0, 1)[:, None] * step
        return position

    @property
    def has_positions(self) -> bool:  # type: ignore[override]
        return True

    def layout(self, t: int) -> FloatArray:
        if self.beyond == "repeat":
            t %= self.recorded
        position = self.positions(t)
        if self.geographic:
            return position[:, ::-1]  # the latitude is the vertical coordinate
        return position

    def _recorded_links(self, t: int) -> Links:
        position = self.positions(t)
        present = ~np.isnan(position[:, 0])
        device = np.flatnonzero(present)
        points = position[present]
        radius = self.radius
        if self.geographic:
            # The chord of a sphere grows with the distance along its surface, so that points in
            # space and a shorter radius give the same pairs.
            points = _on_sphere(points)
            radius = 2 * math.sin(min(radius / EARTH_RADIUS, math.pi) / 2)
        a, b = within(points, radius)
        return Links(self.devices, device[a], device[b], active=present)


def _on_sphere(degrees: FloatArray) -> FloatArray:
    """Return points on the unit sphere from latitude and longitude in degrees."""
    latitude, longitude = np.radians(degrees).T
    horizontal = np.cos(latitude)
    x = horizontal * np.cos(longitude)
    y = horizontal * np.sin(longitude)
    return np.stack([x, y, np.sin(latitude)], axis=1)


def _check_times(devices: int, seconds_per_round: float, start: float) -> None:
    checks.whole("devices", devices, 0, limits.MAX_DEVICES)
    checks.positive("seconds_per_round", seconds_per_round)
    checks.not_negative("start", start)


def _set(network: Recorded, **values: object) -> None:
    """Set fields of a frozen dataclass that are read from the file."""
    for name, value in values.items():
        object.__setattr__(network, name, value)
