"""Links from a log of contacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.network.base import BoolArray, IntArray, Links
from gossamer.network.parts import Part
from gossamer.network.traces import clock
from gossamer.network.traces.ids import with_count
from gossamer.network.traces.logs import ContactLog
from gossamer.network.traces.read import FORMATS, read_contacts
from gossamer.network.traces.spans import Spans, union
from gossamer.network.traces.trace import SNAP, Trace, round_of


@register("network", "contacts")
@dataclass(frozen=True)
class ContactTrace(Trace):
    """Links from a log of contacts.

    Most logs are read as they are: see `read_contacts` for the accepted formats. Two devices are
    linked in every round that a contact of theirs overlaps; a contact at a moment is in the round
    that contains it. Round k begins at the start + k · seconds per round.

    A device without a contact in a round has no links in it. With `absent = "alone"` it trains
    nevertheless; with `absent = "away"` it takes no part in the round and keeps its model, unless
    it has a contact at most `seen_within` seconds before or after the round, to whole rounds.

    Args:
        path: The log.
        devices: Number of devices; 0 for as many as the log names. A larger number is accepted if
            the log names devices by numbers below it.
        seconds_per_round: Seconds per round; by default 300 if the log has dates or unix times,
            1 if its times are relative.
        start: Time of round 0: a number of seconds, as in the log, or an ISO date; the first
            contact by default. Contacts that end earlier are left out.
        format: "contacts" or "intervals" (`time CONN a b up`) to refuse other formats.
        symmetric: "assume", or "require" to refuse contacts that are not listed in both directions
            in their round.
        beyond: What follows the last round: "error", "repeat" or "empty".
        columns: What the columns of the log are, if that is not clear: a name per column such as
            `["time", "a", "b"]`, or by role the name in the header.
        absent: What a device does that the log does not see: "alone" or "away".
        seen_within: Seconds before and after a contact in which the log sees its devices.
        skip_empty: True to drop the rounds in which nobody meets, such as nights.

    Raises:
        DataError: If the log cannot be read, has a wrong line, or is not clear.

    Example:
        A log of contacts with unix times, in rounds of a minute::

            trace = ContactTrace("contacts.csv", seconds_per_round=60.0, skip_empty=True)
            trace.devices, trace.rounds, trace.names, trace.links(0)
            print("\\n".join(trace.describe()))
    """

    path: str | Path
    devices: int = 0
    seconds_per_round: float | None = None
    start: float | str | datetime | None = None
    format: str = "auto"
    symmetric: str = "assume"
    beyond: str = "error"
    columns: tuple[str, ...] | dict[str, str] = field(default=(), hash=False)
    absent: str = "alone"
    seen_within: float = 0.0
    skip_empty: bool = False
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    groups: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    recorded: int = field(init=False, compare=False)
    round_seconds: float = field(init=False, repr=False, compare=False)
    start_time: float = field(init=False, repr=False, compare=False)
    # Contacts as a · devices + b.
    _links: Spans = field(init=False, repr=False, compare=False)
    # The processes of all devices, the number of one, and its contacts.
    _own: tuple[IntArray, int, Spans] | None = field(init=False, repr=False, compare=False)
    # Rounds in which the log sees each device.
    _seen: Spans | None = field(init=False, repr=False, compare=False)
    # The rounds of the log in which devices meet: periods, and how many rounds are before each.
    _busy: IntArray = field(init=False, repr=False, compare=False)
    _busy_before: IntArray = field(init=False, repr=False, compare=False)
    _described: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("format", self.format, FORMATS)
        checks.one_of("symmetric", self.symmetric, ("assume", "require"))
        checks.one_of("absent", self.absent, ("alone", "away"))
        checks.not_negative("seen_within", self.seen_within, "a number of seconds")
        if not isinstance(self.skip_empty, bool):
            raise InputError("skip_empty", self.skip_empty, "true or false")
        columns: Any = self.columns
        if isinstance(columns, list):
            self._set(columns=tuple(columns))
        log = read_contacts(self.path, self.columns, self.format)
        names, number = with_count(self.path, log.names, self.devices)
        self._set_clock(float(log.begin.min()), float(log.end.max()), log.absolute)
        first, last, kept = self._rounds_of(log)
        a = number[log.a[kept]]
        b = number[log.b[kept]]
        groups = {}
        if len(names) == len(log.names):
            groups = dict(log.groups)
        code = np.minimum(a, b) * len(names) + np.maximum(a, b)
        self._set(devices=len(names), names=names, groups=groups)
        if self.symmetric == "require":
            self._require_both_ways(log, a, b, first)
        self._set(
            _own=None, _links=Spans(code, first, last), _seen=self._spans_seen(a, b, first, last)
        )
        self._set_rounds(first, last)
        self._set(_described=self._description(log, len(first)))

    def _require_both_ways(
        self, log: ContactLog, a: IntArray, b: IntArray, rounds: IntArray
    ) -> None:
        """Refuse a contact that is not listed in the other direction in the same round."""
        if log.listed_once:
            accepted = '"assume": this log lists a contact once for both ways'
            raise InputError("symmetric", "require", accepted)
        low = np.minimum(a, b)
        pairs, pair = np.unique(low * self.devices + np.maximum(a, b), return_inverse=True)
        moments, moment = np.unique(rounds, return_inverse=True)
        meeting = 2 * (moment * len(pairs) + pair)
        missing = np.flatnonzero(~np.isin(meeting + (a > b), meeting + (a < b)))
        if len(missing):
            k = missing[0]
            contact = f"{self.names[a[k]]} {self.names[b[k]]} of round {moments[moment[k]]}"
            raise DataError(
                f"{self.path}: the contact {contact} is not listed the other way round too"
            )

    def _rounds_of(self, log: ContactLog) -> tuple[IntArray, IntArray, BoolArray]:
        """Return the first and last rounds of the contacts, and which contacts these are."""
        begin = self._in_rounds(log.begin)
        end = self._in_rounds(log.end)
        first = round_of(begin)
        # A contact that ends at the beginning of a round is not in that round. It is always in the
        # round in which it begins.
        last = np.maximum(first, np.ceil(end - SNAP).astype(np.int64) - 1)
        kept = last >= 0
        if not kept.any():
            raise InputError("start", self.start, f"a time before the last contact of {self.path}")
        return np.maximum(first[kept], 0), last[kept], kept

    def _spans_seen(
        self, a: IntArray, b: IntArray, first: IntArray, last: IntArray
    ) -> Spans | None:
        """Return the rounds in which the log sees each device; None if that does not matter."""
        if self.absent == "alone":
            return None
        margin = int(np.floor(self.seen_within / self.round_seconds + SNAP))
        device = np.concatenate([a, b])
        begins = np.concatenate([first, first]) - margin
        return Spans(device, begins, np.concatenate([last, last]) + margin)

    def _set_rounds(self, first: IntArray, last: IntArray) -> None:
        """Set the number of rounds, and which of them are not empty."""
        begins, ends = union(first, last)
        before = np.concatenate([[0], np.cumsum(ends - begins + 1)])
        recorded = int(ends[-1]) + 1
        if self.skip_empty:
            recorded = int(before[-1])
        self._set(_busy=begins, _busy_before=before, recorded=recorded)

    def _description(self, log: ContactLog, contacts: int) -> tuple[str, ...]:
        period = clock.in_words(float(log.begin.min()), float(log.end.max()), log.absolute)
        devices = clock.count(self.devices, "device")
        parts = [f"{devices}, {clock.count(len(log), 'contact')}, {period}", *log.notes]
        if contacts < len(log):
            before = clock.count(len(log) - contacts, "contact")
            parts.append(f"{before} before start left out")
        if self.groups:
            parts.append(f"groups: {', '.join(self.groups)}")
        return "; ".join(parts), self._described_rounds()

    def _described_rounds(self) -> str:
        length = f"{clock.count(self.recorded, 'round')} of {self.round_seconds:,.10g} s"
        if self.skip_empty:
            return f"{length} in which devices meet; all others are skipped"
        empty = 1 - self._busy_before[-1] / self.recorded
        return f"{length}, {empty:.0%} of them empty".replace("%", " %")

    def describe(self) -> tuple[str, ...]:
        return self._described

    def _round_of_log(self, t: int) -> int:
        """Return the number of a round, counted with those that are skipped."""
        if not self.skip_empty:
            return t
        period = int(np.searchsorted(self._busy_before[:-1], t, side="right")) - 1
        return int(self._busy[period] + t - self._busy_before[period])

    def _links_before(self, t: int) -> int | None:
        return self._links.count_before(self._round_of_log(t))

    def _recorded_links(self, t: int) -> Links:
        return self._linked_in(self._links, t)

    def _recorded_links_of(self, t: int, part: Part) -> Links:
        known = self._own
        if known is None or known[0] is not part.owner or known[1] != part.number:
            contacts = self._links
            own = part.owner[contacts.code // self.devices] == part.number
            own |= part.owner[contacts.code % self.devices] == part.number
            kept = Spans(contacts.code[own], contacts.first[own], contacts.last[own])
            known = (part.owner, part.number, kept)
            self._set(_own=known)
        return self._linked_in(known[2], t)

    def _linked_in(self, contacts: Spans, t: int) -> Links:
        """Return the links that some contacts are in a round."""
        t = self._round_of_log(t)
        code = contacts.at(t)
        active = None
        if self._seen is not None:
            active = np.zeros(self.devices, dtype=bool)
            active[self._seen.at(t)] = True
        return Links(self.devices, code // self.devices, code % self.devices, active=active)

    def _links_beyond(self) -> Links:
        links = super()._links_beyond()
        if self._seen is None:
            return links
        return links.keep(np.ones(0, dtype=bool), np.zeros(self.devices, dtype=bool))
