"""Links from a log of contacts."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network.base import IntArray, Links
from gossamer.network.traces.reader import SNAP, Trace, TraceReader, round_of


@register("network", "contacts")
@dataclass(frozen=True)
class ContactTrace(Trace):
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
        checks.one_of("format", self.format, ("auto", "contacts", "intervals"))
        checks.one_of("symmetric", self.symmetric, ("assume", "require"))
        reader = self._reader()
        contacts, is_intervals = self._read(reader)
        first = round_of(np.array(contacts.begin))
        last = _last_rounds(contacts, first) if is_intervals else first
        names, number = reader.device_numbers(self.devices)
        if self.symmetric == "require":
            _require_both_ways(reader, contacts, first)
        a = number[np.array(contacts.a)]
        b = number[np.array(contacts.b)]
        order = np.argsort(first, kind="stable")
        code = np.minimum(a, b) * len(names) + np.maximum(a, b)
        self._set(devices=len(names), names=names, recorded=int(last.max()) + 1)
        self._set(_code=code[order], _first=first[order], _last=last[order])
        self._set(_longest=int((last - first).max()))

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
    last = np.ceil(np.where(is_open, contacts.latest, end) - SNAP).astype(np.int64) - 1
    last = np.where(is_open, math.floor(contacts.latest + SNAP), last)
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
