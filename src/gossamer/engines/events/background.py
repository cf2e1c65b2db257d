"""When devices step and exchange messages that travel while they compute.

Every device computes one step after the other and never waits. When it has taken enough steps and
takes part in no exchange, it begins one with a random neighbour in contact, or with each of them in
turn; a method in which both devices send needs a neighbour that takes part in none either. Messages
take latency + bytes/rate seconds. A contact that is cut before they have arrived loses them, or the
devices keep them until they meet again: that is the method's matter.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gossamer import draws
from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.backend import CompiledTimeline, compiled_timeline
from gossamer.engines.events.compiled import play
from gossamer.engines.events.contacts import Contacts, ContactSource, ContactTable
from gossamer.engines.events.event_list import (
    EXCHANGE,
    FORGET,
    KEEP,
    RECEIVE,
    RESUME,
    SEND,
    STEP,
    UNDO,
    Event,
    EventList,
)
from gossamer.engines.events.kept import KeptMessages
from gossamer.engines.events.timeline_state import arrays_of, restore, tensors_of, use_arrays
from gossamer.engines.plan import Plan
from gossamer.network.base import Links

# What a device is due for. Of the same time the lower number comes first: steps that end together
# have all ended when the first device begins to send.
_ARRIVAL = 0
_STEP = 1
_SEND = 2

_NEVER = math.inf
_STATE = {
    "step_due": float,
    "arrival_due": float,
    "began": float,
    "partner": int,
    "steps": int,
    "steps_since": int,
    "messages": int,
    "joules": float,
    "away_until": float,
}
_STATE_OF_TURNS = {"messages_since": int, "last_partner": int}
# A device that sends all the time begins at most so many exchanges per round of the network, not
# counting those that follow a step: with instant links it would never end.
_MAX_EXCHANGES = 1_000_000


class BackgroundTimeline:
    """The state of all devices in time: when each ends its step, and when its message arrives.

    Args:
        plan: The run, whose method is `Asynchronous`.
        message_bytes: Bytes of a message.
        seconds_per_round: How long the links of a round of the network last.
        compiled: Play rounds in compiled code if there is any. False: in Python, which gives the
            same result.

    Attributes:
        source: The contacts and durations.

    Raises:
        InputError: If the plan has no timing.
    """

    def __init__(
        self,
        plan: Plan,
        message_bytes: float,
        seconds_per_round: float,
        compiled: bool = True,
    ) -> None:
        method = plan.algorithm
        assert isinstance(method, Asynchronous)
        self._method = method
        self.source = ContactSource(plan, message_bytes, seconds_per_round)
        devices = plan.task.devices
        self._step_due = self.source.step_seconds(0).tolist()
        # Of the device that began an exchange, until it ends:
        self._arrival_due = [_NEVER] * devices
        self._began = [0.0] * devices
        # Of each device that sends in an exchange:
        self._partner = [-1] * devices
        self._steps = [0] * devices  # steps that the device has ended
        self._steps_since = [0] * devices  # steps since the device last began to send
        self._messages = [0] * devices  # messages that the device has begun to send
        self._joules = [self.source.batteries.full] * devices  # charge left in the battery
        self._away_until = [0.0] * devices  # until its empty battery is charged
        # Of methods that send to each neighbour in turn:
        self._messages_since = [0] * devices  # messages begun since the device's last step
        self._last_partner = [-1] * devices
        self._names = _STATE | _STATE_OF_TURNS if method.sending == "each" else _STATE
        self._kept: KeptMessages | None = None
        if method.on_cut == "keep":
            self._kept = KeptMessages(devices, method.exchange == "both")
        # The compiled code neither keeps messages nor sends to one neighbour after the other.
        compiled = compiled and self._kept is None and method.sending != "each"
        self._compiled = compiled_timeline("background_events") if compiled else None
        if self._compiled is not None:
            use_arrays(self, _STATE)

    @property
    def total_steps(self) -> int:
        """Number of steps that all devices have ended."""
        return int(np.sum(self._steps))

    def advance(self, t: int) -> EventList:
        """Return what happens in round t of the network. Rounds are asked for one after the other.

        Args:
            t: The round.
        """
        if self._compiled is not None:
            return self._play(self._compiled, t)
        return _Tick(self, t).run()

    def links(self, t: int) -> Links:
        """Return the links of a round; those of the last one without computing them again.

        Args:
            t: The round.
        """
        return self.source.links(t)

    def _play(self, compiled: CompiledTimeline, t: int) -> EventList:
        """Do what `_Tick` does, in compiled code."""
        both = self._method.exchange == "both"
        values = {
            "bits": _random_bits(self.source, t),
            "both": both,
            "wanted": _steps_wanted(self._method),
            "max_exchanges": _MAX_EXCHANGES if self._method.sending == "always" else 0,
        }
        table = ContactTable.of(self.source, t)
        state = arrays_of(self, _STATE)
        return play(compiled, self.source, table, t, state, values, senders=2 if both else 1)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state, one row per device, by names that begin with PREFIX."""
        found = tensors_of(self, self._names)
        if self._kept is not None:
            found |= self._kept.tensors()
        return found

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over the state of a snapshot.

        Args:
            tensors: What `tensors` returned; others are ignored.

        Raises:
            DataError: If they are missing: the snapshot is of another engine.
        """
        restore(self, self._names, tensors)
        if self._kept is not None:
            self._kept.restore(tensors)


def _random_bits(source: ContactSource, t: int) -> NDArray[np.uint64]:
    """Return random bits by device: the seed of its choices in a round."""
    return draws.bits(source.seed, "events/peer", t, np.arange(source.devices))


def _steps_wanted(method: Asynchronous) -> int:
    """Return how many steps a device takes before it begins an exchange."""
    return method.steps_between_messages if method.sending == "one" else 0


class _Tick:
    """One round of the network."""

    def __init__(self, line: BackgroundTimeline, t: int) -> None:
        source = line.source
        self.line = line
        self.t = t
        self.contacts = Contacts(source, t)
        self.both = line._method.exchange == "both"
        # Due time, what is due, rank and number of a device.
        self.queue: list[tuple[float, int, int, int]] = []
        self.events: list[Event] = []
        self.cut_bytes = 0.0
        self.bits = _random_bits(source, t).tolist()
        self._cut_contacts()
        for device in self.contacts.away:
            line._step_due[device] += source.seconds_per_round

    def _cut_contacts(self) -> None:
        """End the exchanges of devices that are no longer linked."""
        line = self.line
        begin = self.contacts.begin
        for i, due in enumerate(line._arrival_due):
            if due == _NEVER or self.contacts.linked(i, line._partner[i]):
                continue
            j = line._partner[i]
            sent = line.source.bytes_sent(self.t, i, j, begin - line._began[i])
            senders = (i, j) if self.both else (i,)
            line._arrival_due[i] = _NEVER
            for device in senders:
                line._partner[device] = -1
            if line._kept is not None:
                self._keep(line._kept, i, j, sent)
                continue
            for device in senders:
                self.cut_bytes += sent
                self.events.append((begin, UNDO, device, -1, line._messages[device], 0))

    def _keep(self, kept: KeptMessages, i: int, j: int, sent: float) -> None:
        """Keep an exchange that was cut, in place of what its devices kept before."""
        begin = self.contacts.begin
        senders = (i, j) if self.both else (i,)
        for sender in senders:
            for device in kept.keepers(sender):
                self.cut_bytes += kept.forget(device)
                self.events.append((begin, FORGET, device, -1, 0, 0))
        sent = min(sent + kept.sent_before(i), self.line.source.message_bytes)
        kept.keep((i, j), sent)
        for device in senders:
            self.events.append((begin, KEEP, device, -1, 0, 0))

    def run(self) -> EventList:
        """Play the round."""
        line = self.line
        contacts = self.contacts
        end = contacts.end
        batteries = line.source.batteries
        wanted = _steps_wanted(line._method)
        for due in (line._step_due, line._arrival_due):
            what = _STEP if due is line._step_due else _ARRIVAL
            for device, time in enumerate(due):
                if time <= end:
                    self.queue.append((time, what, contacts.rank[device], device))
        heapq.heapify(self.queue)
        if line._kept is not None:
            for device in line._kept.devices():
                self._resume(contacts.begin, device)
        while self.queue:
            now, what, rank, device = heapq.heappop(self.queue)
            if what == _ARRIVAL:
                self._end_exchange(now, device)
                continue
            if what == _SEND:
                if line._steps_since[device] >= wanted:  # else a neighbour was faster
                    self._begin_exchange(now, device)
                continue
            self.events.append((now, STEP, device, -1, line._steps[device], 0))
            line._steps[device] += 1
            line._steps_since[device] += 1
            line._messages_since[device] = 0
            line._joules[device] = batteries.after_step(line._joules[device])
            away = batteries.seconds_away(line._joules[device])
            if away:
                line._joules[device] = batteries.full
                line._away_until[device] = now + away
            line._step_due[device] = due_next = now + away + contacts.step_seconds[device]
            if due_next <= end:
                heapq.heappush(self.queue, (due_next, _STEP, rank, device))
            if line._steps_since[device] >= wanted:
                heapq.heappush(self.queue, (now, _SEND, rank, device))
        return EventList.of(self.events, self.cut_bytes)

    def _begin_exchange(self, now: float, i: int) -> None:
        """Let a device send to a random neighbour, if it is free and there is one."""
        line = self.line
        contacts = self.contacts
        if line._partner[i] >= 0 or line._away_until[i] > now:
            return
        if self._resume(now, i):
            return
        entries = []
        for entry in range(contacts.first[i], contacts.first[i + 1]):
            other = contacts.neighbour[entry]
            busy = self.both and line._partner[other] >= 0
            if not busy and line._away_until[other] <= now:
                entries.append(entry)
        if not entries:
            return
        if line._method.sending == "each":
            if line._messages_since[i] >= contacts.first[i + 1] - contacts.first[i]:
                return
            entry = self._next_in_turn(i, entries)
        else:
            entry = entries[self._choose(i, len(entries))]
        j = contacts.neighbour[entry]
        line._began[i] = now
        line._arrival_due[i] = due = now + contacts.exchange_seconds[entry]
        for sender, receiver in ((i, j), (j, i)) if self.both else ((i, j),):
            line._partner[sender] = receiver
            line._steps_since[sender] = 0
            self.events.append((now, SEND, sender, -1, line._messages[sender], 0))
            line._messages[sender] += 1
            line._messages_since[sender] += 1
            line._last_partner[sender] = receiver
            line._joules[sender] = line.source.batteries.after_message(line._joules[sender])
        if due <= contacts.end:
            heapq.heappush(self.queue, (due, _ARRIVAL, contacts.rank[i], i))

    def _resume(self, now: float, i: int) -> bool:
        """Continue the exchange that a device keeps. Return False if that is not possible now."""
        line = self.line
        kept = line._kept
        if kept is None or kept.partner(i) < 0:
            return False
        j = kept.partner(i)
        keepers = kept.keepers(i)
        busy = any(line._partner[device] >= 0 for device in keepers)
        away = max(line._away_until[i], line._away_until[j]) > now
        if busy or away or not self.contacts.linked(i, j):
            return False
        left = line.source.message_bytes - kept.resume(keepers)
        line._began[i] = now
        line._arrival_due[i] = due = now + line.source.seconds_of(self.t, i, j, left)
        for sender, receiver in ((i, j), (j, i)) if self.both else ((i, j),):
            line._partner[sender] = receiver
            self.events.append((now, RESUME, sender, -1, 0, 0))
        if due <= self.contacts.end:
            heapq.heappush(self.queue, (due, _ARRIVAL, self.contacts.rank[i], i))
        return True

    def _choose(self, device: int, count: int) -> int:
        """Return a random number below `count`, another one at every call."""
        drawn = draws.finalise(self.bits[device])
        self.bits[device] = drawn
        return (drawn * count) >> 64

    def _next_in_turn(self, device: int, entries: list[int]) -> int:
        """Return the entry of the neighbour that follows the last one, by number."""
        last = self.line._last_partner[device]
        devices = len(self.contacts.rank)
        return min(entries, key=lambda e: (self.contacts.neighbour[e] - last - 1) % devices)

    def _sends_again(self, seconds: float) -> bool:
        """Return True if a device sends on after an exchange that took so many seconds."""
        if self.line._method.sending == "always":
            return seconds * _MAX_EXCHANGES >= self.line.source.seconds_per_round
        return self.line._method.sending == "each"

    def _end_exchange(self, now: float, i: int) -> None:
        line = self.line
        j = line._partner[i]
        kind = EXCHANGE if self.both else RECEIVE
        self.events.append((now, kind, i, j, line._steps[i], line._steps[j]))
        line._arrival_due[i] = _NEVER
        for device in (i, j) if self.both else (i,):
            line._partner[device] = -1
            if line._kept is not None:
                line._kept.arrived(device)
        if self._sends_again(now - line._began[i]):
            heapq.heappush(self.queue, (now, _SEND, self.contacts.rank[i], i))
