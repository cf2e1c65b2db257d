"""Networks from logs of real fleets: who met whom (`ContactTrace`), or who was where (`PositionTrace`).

Lines have fields separated by spaces or commas; blank lines and what follows a `#` are passed over. Devices are named
by whole numbers, which are then their numbers 0 … m-1, or by words, which are numbered in sorted order.
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
from gossamer.network._finite import Recorded
from gossamer.network.base import IntArray, Links
from gossamer.network.mobility import FloatArray, within

MAX_BYTES = 2**30
EARTH_RADIUS = 6_371_008.8  # metres, the mean
_SNAP = 1e-9  # a time this close to the edge of a round is on it: 0.3 s is in round 3 of 0.1 s, although 0.3 / 0.1 < 3


class Log:
    """A text file read line by line; every refusal names the file and the line."""

    def __init__(
        self, path: str | Path, start: float = 0.0, seconds_per_round: float = 1.0
    ) -> None:
        self.path, self.start, self.seconds = Path(path), start, seconds_per_round
        self.line = 0
        self.first_line: dict[str, int] = {}  # of each device's name
        self.number: dict[str, int] = {}  # in the order of appearance

    def wrong(self, what: str, line: int | None = None) -> DataError:
        return DataError(f"{self.path}, line {line or self.line}: {what}")

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
            raise DataError(
                f"{self.path} cannot be read: {error.strerror or error}; give a text file"
            ) from error
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path} is not UTF-8 text after line {self.line}; give a text file"
            ) from error

    def number_in(self, word: str, name: str) -> float:
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.wrong(f"{name} {word!r} is not a finite number")
        return value

    def rounds_in(self, word: str) -> float:
        """A time, in rounds since `start`."""
        value = self.number_in(word, "the time")
        if value < self.start:
            raise self.wrong(
                f"the time {word} is negative"
                if self.start == 0
                else f"the time {word} is before start"
            )
        if (value - self.start) / self.seconds >= limits.MAX_ROUNDS:
            raise self.wrong(
                f"the time {word} is past {limits.MAX_ROUNDS:,} rounds; set start to the time of round 0, "
                "or a larger seconds_per_round"
            )
        return (value - self.start) / self.seconds

    def device_in(self, word: str) -> int:
        """The device's number in the order of appearance; `names` gives the final ones."""
        if word[0] == "0" and word.isdecimal():
            word = word.lstrip("0") or "0"  # 007 and 7 are one device
        known = self.number.get(word)
        if known is not None:
            return known
        if word.startswith("-") and word[1:].isdecimal():
            raise self.wrong(f"device {word} is negative; devices are numbered from 0")
        if len(self.number) >= limits.MAX_DEVICES:
            raise self.wrong(f"there are more than {limits.MAX_DEVICES:,} devices")
        self.first_line[word] = self.line
        return self.number.setdefault(word, len(self.number))

    def names(self, devices: int) -> tuple[tuple[str, ...], IntArray]:
        """The names of all devices, and for each in the order of appearance its final number."""
        words = list(self.number)
        if not words:
            raise DataError(f"{self.path} has no lines with devices; give at least one")
        plain = [word.isascii() and word.isdecimal() for word in words]
        if not any(plain):
            names = tuple(sorted(words))
            if devices not in (0, len(names)):
                accepted = (
                    f"{len(names)}, the number of devices that {self.path} names, or leave it out"
                )
                raise InputError("devices", devices, accepted)
            place = {word: i for i, word in enumerate(names)}
            return names, np.array([place[word] for word in words])
        limit = devices or limits.MAX_DEVICES
        for word, is_number in zip(words, plain, strict=True):
            if not is_number:
                accepted = "devices must be all whole numbers or all words"
                raise self.wrong(
                    f"device {word!r} is a word and others are numbers; {accepted}",
                    self.first_line[word],
                )
            if len(word) > 18 or int(word) >= limit:
                accepted = f"devices are numbered 0 to {limit - 1}"
                raise self.wrong(
                    f"device {word} is out of range; {accepted}", self.first_line[word]
                )
        number = np.array([int(word) for word in words])
        return tuple(map(str, range(devices or int(number.max()) + 1))), number


def _first_round(time: FloatArray) -> IntArray:
    return np.floor(time + _SNAP).astype(np.int64)


@register("network", "contacts")
@dataclass(frozen=True)
class ContactTrace(Recorded):
    """Links from a log of contacts.

    Two formats, told apart by the first line (`format = "auto"`):
    "contacts", lines `t a b`: a and b are linked in the round that has the time t;
    "intervals", lines `t CONN a b up` and `t CONN a b down` as the ONE simulator writes: linked in every round that the
    contact overlaps; one that is still up at the end lasts until the end.

    Round k is the time from start + k · seconds_per_round to the next. `symmetric = "require"` refuses contacts that
    are not listed both ways in their round. `beyond` is what comes after the last round: "error", "repeat" or "empty".
    `devices = 0` takes as many as the file names.

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
    # Contacts by (a · devices + b), with the first and the last round of each, sorted by the first.
    _code: IntArray = field(init=False, repr=False, compare=False)
    _first: IntArray = field(init=False, repr=False, compare=False)
    _last: IntArray = field(init=False, repr=False, compare=False)
    _longest: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_times(self.devices, self.seconds_per_round, self.start)
        checks.one_of("format", self.format, ("auto", "contacts", "intervals"))
        checks.one_of("symmetric", self.symmetric, ("assume", "require"))
        log = Log(self.path, self.start, self.seconds_per_round)
        a, b, first, last, line = self._read(log)
        names, number = log.names(self.devices)
        if self.symmetric == "require":
            self._require_both_ways(log, a, b, first, line)
        a, b = number[a], number[b]
        order = np.argsort(first, kind="stable")
        _set(self, devices=len(names), names=names, recorded=int(last.max()) + 1)
        _set(self, _code=(np.minimum(a, b) * len(names) + np.maximum(a, b))[order])
        _set(self, _first=first[order], _last=last[order], _longest=int((last - first).max()))

    def _recorded_links(self, t: int) -> Links:
        low, high = np.searchsorted(self._first, [t - self._longest, t + 1])
        code = np.unique(self._code[low:high][self._last[low:high] >= t])
        return Links(self.devices, code // self.devices, code % self.devices)

    def _read(self, log: Log) -> tuple[IntArray, ...]:
        """The columns a, b (devices in the order of appearance), first and last round, line."""
        a, b, line, begin, end = array("q"), array("q"), array("q"), array("d"), array("d")
        up: dict[tuple[int, int], int] = {}  # the row of each contact that has not ended
        latest, intervals = 0.0, self.format == "intervals"
        shape = "lines `t CONN a b up|down`"
        for words in log:
            if not line and self.format == "auto":
                intervals = len(words) == 5
            if len(words) != (5 if intervals else 3) or (intervals and words[1].upper() != "CONN"):
                raise log.wrong(
                    f"expected {shape if intervals else 'lines `t a b`'}, not {' '.join(words)[:60]!r}"
                )
            time = log.rounds_in(words[0])
            latest = max(latest, time)
            ends = words[2:4] if intervals else words[1:]
            one, other = map(log.device_in, ends)
            if one == other:
                raise log.wrong(f"device {ends[0]} is linked to itself")
            if not intervals or words[4].lower() == "up":
                pair = (min(one, other), max(one, other))
                if intervals and up.setdefault(pair, len(line)) != len(line):
                    raise log.wrong("this contact is up already; expected its `down` first")
                for column, value in ((a, one), (b, other), (line, log.line)):
                    column.append(value)
                begin.append(time)
                end.append(math.inf if intervals else time)
            elif words[4].lower() == "down":
                row = up.pop((min(one, other), max(one, other)), None)
                if row is None:
                    raise log.wrong("`down` without an `up` before it")
                if time < begin[row]:
                    raise log.wrong(f"this `down` is before its `up` in line {line[row]}")
                end[row] = time
            else:
                raise log.wrong(f"expected `up` or `down`, not {words[4]!r}")
        if intervals and self.symmetric == "require":
            raise InputError(
                "symmetric", "require", '"assume": intervals are listed once for both ways'
            )
        first, stop = _first_round(np.array(begin)), np.array(end)
        still = np.isinf(stop)
        # A contact that ends on the edge of a round is not in that round; it is always in the one in which it began.
        last = np.ceil(np.where(still, latest, stop) - _SNAP).astype(np.int64) - 1
        last = np.maximum(first, np.where(still, math.floor(latest + _SNAP), last))
        return np.array(a), np.array(b), first, last if intervals else first, np.array(line)

    def _require_both_ways(
        self, log: Log, a: IntArray, b: IntArray, round_: IntArray, line: IntArray
    ) -> None:
        listed = set(zip(round_.tolist(), a.tolist(), b.tolist(), strict=True))
        words = list(log.number)
        for t, one, other, row in zip(
            round_.tolist(), a.tolist(), b.tolist(), line.tolist(), strict=True
        ):
            if (t, other, one) not in listed:
                link = f"{words[one]} {words[other]}"
                raise log.wrong(
                    f"the contact {link} of round {t} is not listed the other way round too", row
                )


@register("network", "positions")
@dataclass(frozen=True)
class PositionTrace(Recorded):
    """Links from a log of positions, lines `t device x y`: two devices at most `radius` apart are linked.

    Between two fixes a device moves in a straight line at an even speed; before its first and after its last it is
    away. Round k looks at the time start + k · seconds_per_round. With `geographic = true` the two columns are latitude
    and longitude in degrees and the radius is in metres, along the surface of the Earth.

        trace = PositionTrace("fixes.csv", radius=150.0, geographic=True, seconds_per_round=10.0, start=1_700_000_000)
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
    _time: FloatArray = field(
        init=False, repr=False, compare=False
    )  # in rounds; fixes are sorted by device, then time
    _place: FloatArray = field(init=False, repr=False, compare=False)
    _times: FloatArray = field(init=False, repr=False, compare=False)  # all that occur, once each
    _key: IntArray = field(
        init=False, repr=False, compare=False
    )  # device and place in `_times` as one number
    _ends: IntArray = field(
        init=False, repr=False, compare=False
    )  # for each device, one past its last fix

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_times(self.devices, self.seconds_per_round, self.start)
        checks.not_negative("radius", self.radius)
        log = Log(self.path, self.start, self.seconds_per_round)
        device, columns = array("q"), (array("d"), array("d"), array("d"))
        for words in log:
            if len(words) != 4:
                raise log.wrong(f"expected lines `t device x y`, not {' '.join(words)[:60]!r}")
            x, y = log.number_in(words[2], "the position"), log.number_in(words[3], "the position")
            if self.geographic and (abs(x) > 90 or abs(y) > 180):
                raise log.wrong(
                    f"latitude {x} or longitude {y} is out of range; give -90 to 90 and -180 to 180 degrees"
                )
            for column, value in zip(columns, (log.rounds_in(words[0]), x, y), strict=True):
                column.append(value)
            device.append(log.device_in(words[1]))
        names, number = log.names(self.devices)
        who = number[np.array(device)]
        time, *place = (np.array(column) for column in columns)
        order = np.lexsort((time, who))
        times = np.unique(time)
        key = who * (len(times) + 1) + np.searchsorted(times, time)
        _set(
            self,
            devices=len(names),
            names=names,
            recorded=int(_first_round(times[-1:])[0]) + 1,
            _times=times,
        )
        _set(self, _time=time[order], _place=np.stack(place, axis=1)[order], _key=key[order])
        _set(self, _ends=np.cumsum(np.bincount(who, minlength=len(names))))

    def positions(self, t: int) -> FloatArray:
        """Where the devices are in round t: [m, 2], NaN for those that are away."""
        now = float(t)
        size, near = len(self._times) + 1, np.searchsorted(self._times, [now - _SNAP, now + _SNAP])
        device = np.arange(self.devices)
        # The last fix of each device up to now (a fix within _SNAP of now counts as now), and the next one.
        at = np.searchsorted(self._key, device * size + near[1]) - 1
        begin = np.concatenate([[0], self._ends[:-1]])
        here = (at >= begin) & ((at < self._ends - 1) | (self._key[at] >= device * size + near[0]))
        place: FloatArray = np.full((self.devices, 2), np.nan)
        at = at[here]
        after = np.minimum(at + 1, self._ends[here] - 1)
        step = self._place[after] - self._place[at]
        if self.geographic:
            step[:, 1] = (step[:, 1] + 180) % 360 - 180  # the short way round
        gap = self._time[after] - self._time[at]
        done = np.divide(now - self._time[at], gap, out=np.zeros_like(gap), where=gap > 0)
        place[here] = self._place[at] + np.clip(done, 0, 1)[:, None] * step
        return place

    def _recorded_links(self, t: int) -> Links:
        place = self.positions(t)
        here = ~np.isnan(place[:, 0])
        who, points, radius = np.flatnonzero(here), place[here], self.radius
        if self.geographic:
            # The straight way through a sphere grows with the way along its surface, so a tree in space will do.
            points, radius = (
                _on_sphere(points),
                2 * math.sin(min(radius / EARTH_RADIUS, math.pi) / 2),
            )
        a, b = within(points, radius)
        return Links(self.devices, who[a], who[b], active=here)


def _on_sphere(degrees: FloatArray) -> FloatArray:
    latitude, longitude = np.radians(degrees).T
    flat = np.cos(latitude)
    return np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)], axis=1)


def _check_times(devices: int, seconds_per_round: float, start: float) -> None:
    checks.whole("devices", devices, 0, limits.MAX_DEVICES)
    checks.positive("seconds_per_round", seconds_per_round)
    checks.not_negative("start", start)


def _set(network: Recorded, **values: object) -> None:
    """Fields that are read from the file, in a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(network, name, value)
