"""Who meets whom and when: decided by durations and links alone, before any model is computed.

Every device repeats the same cycle, without regard to the others:

    compute     a gradient step; it takes `timing.compute` seconds
    wait        for a neighbour in contact that waits too, for at most `patience` steps of its own
    exchange    with that neighbour; it takes latency + bytes/rate seconds
    end         its own round: with the neighbour, or alone if none came or the contact was cut

Links are those of the network: those of round t hold after t·seconds_per_round, up to and including
(t + 1)·seconds_per_round. A contact that is
cut before the messages have arrived is lost: both devices end their rounds alone.
"""

from __future__ import annotations

import heapq

import numpy as np
from torch import Tensor

from gossamer.backend import CompiledTimeline, compiled_timeline
from gossamer.engines.events.compiled import play
from gossamer.engines.events.contacts import Contacts, ContactSource, ContactTable
from gossamer.engines.events.event_list import ROUND, Event, EventList
from gossamer.engines.events.timeline_state import arrays_of, restore, tensors_of, use_arrays
from gossamer.engines.plan import Plan
from gossamer.network.base import FloatArray, Links

# The phases of a device. Of those that end at the same time the lower number comes first: a device
# gives up waiting only if no neighbour has become ready at that moment.
COMPUTING = 0
EXCHANGING = 1
_WAITING = 2

_STATE = {
    "phase": int,
    "due": float,
    "since": float,
    "partner": int,
    "rounds": int,
    "joules": float,
}


class Timeline:
    """The state of all devices in time: what each of them does, and until when.

    Args:
        plan: The run: its network, timing and seed are used, no model and no data.
        message_bytes: Bytes that two devices send each other, in each direction.
        seconds_per_round: How long the links of a round of the network last.
        patience: How long a device waits for a neighbour, in steps of its own.
        compiled: Play rounds in compiled code if there is any. False: in Python, which gives the
            same result.
        patience_seconds: How long a device waits, in seconds; 0: `patience` steps.

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
        patience: float,
        compiled: bool = True,
        patience_seconds: float = 0.0,
    ) -> None:
        self.source = ContactSource(plan, message_bytes, seconds_per_round)
        self._patience = patience
        self._patience_seconds = patience_seconds
        devices = plan.task.devices
        self._phase = [COMPUTING] * devices
        self._due = self.source.step_seconds(0).tolist()  # when the phase ends
        self._since = [0.0] * devices  # when the device became ready, or began the exchange
        self._partner = [-1] * devices
        self._rounds = [0] * devices  # rounds that the device has ended
        self._joules = [self.source.batteries.full] * devices  # charge left in the battery
        self._compiled = compiled_timeline("pair_events") if compiled else None
        if self._compiled is not None:
            use_arrays(self, _STATE)

    @property
    def total_steps(self) -> int:
        """Number of rounds, each of one step, that all devices have ended."""
        return int(np.sum(self._rounds))

    def advance(self, t: int) -> EventList:
        """Return what ends in round t of the network. Rounds are asked for one after the other.

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

    def wait_seconds(self, step_seconds: FloatArray) -> FloatArray:
        """Return how long devices wait for a neighbour.

        Args:
            step_seconds: How long their steps take.
        """
        if self._patience_seconds:
            return np.full_like(step_seconds, self._patience_seconds)
        return self._patience * step_seconds

    def _play(self, compiled: CompiledTimeline, t: int) -> EventList:
        """Do what `_Tick` does, in compiled code."""
        state = arrays_of(self, _STATE)
        table = ContactTable.of(self.source, t)
        waits = np.flatnonzero(state["phase"] == _WAITING)
        waits = waits[np.lexsort((table.rank[waits], state["since"][waits]))]
        values = {
            "wait_seconds": self.wait_seconds(table.step_seconds),
            "waiting": len(waits),
            "waits": waits,
        }
        return play(compiled, self.source, table, t, state, values, senders=2)

    # -- snapshots --------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return the state, one row per device, by names that begin with PREFIX."""
        return tensors_of(self, _STATE)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over the state of a snapshot.

        Args:
            tensors: What `tensors` returned; others are ignored.

        Raises:
            DataError: If they are missing: the snapshot is of another engine.
        """
        restore(self, _STATE, tensors)


class _Tick:
    """One round of the network: its contacts, and the devices that do something in it."""

    def __init__(self, line: Timeline, t: int) -> None:
        self.line = line
        self.t = t
        self.contacts = Contacts(line.source, t)
        step_seconds = np.array(self.contacts.step_seconds)
        self.wait_seconds = line.wait_seconds(step_seconds).tolist()
        # Due time, phase, rank and number of a device.
        self.queue: list[tuple[float, int, int, int]] = []
        self.ended: list[Event] = []
        self.cut_bytes = 0.0
        self._cut_contacts()
        for device in self.contacts.away:
            line._due[device] += line.source.seconds_per_round

    def _cut_contacts(self) -> None:
        """End the exchanges of devices that are no longer linked: both end their rounds alone."""
        line = self.line
        begin = self.contacts.begin
        for i, partner in enumerate(line._partner):
            if i < partner and not self.contacts.linked(i, partner):
                elapsed = begin - line._since[i]
                sent = line.source.bytes_sent(self.t, i, partner, elapsed)
                for device in (i, partner):
                    self.cut_bytes += sent
                    self._end_round(begin, device, -1)

    def run(self) -> EventList:
        """Play the round."""
        line = self.line
        for device in range(len(line._due)):
            self._push(device)
        self._match_waiting()
        while self.queue:
            due, phase, _, device = heapq.heappop(self.queue)
            if due != line._due[device] or phase != line._phase[device]:
                continue  # it has met a neighbour in the meantime
            if phase == COMPUTING:
                self._ready(due, device)
            elif phase == _WAITING:
                self._end_round(due, device, -1)
            elif device < line._partner[device]:
                self._end_round(due, device, line._partner[device])
        return EventList.of(self.ended, self.cut_bytes)

    def _push(self, device: int) -> None:
        line = self.line
        if line._due[device] <= self.contacts.end:
            entry = (line._due[device], line._phase[device], self.contacts.rank[device], device)
            heapq.heappush(self.queue, entry)

    def _match_waiting(self) -> None:
        """Let devices that wait meet if the new links have brought them into contact."""
        line = self.line
        waiting = [device for device, phase in enumerate(line._phase) if phase == _WAITING]
        for device in sorted(waiting, key=lambda i: (line._since[i], self.contacts.rank[i])):
            if line._phase[device] == _WAITING:
                self._meet(self.contacts.begin, device)

    def _ready(self, now: float, device: int) -> None:
        """Meet a neighbour that waits, or begin to wait."""
        line = self.line
        if self._meet(now, device):
            return
        line._phase[device] = _WAITING
        line._since[device] = now
        line._due[device] = now + self.wait_seconds[device]
        self._push(device)

    def _meet(self, now: float, device: int) -> bool:
        """Begin an exchange with the neighbour that has waited longest. Return False if none."""
        line = self.line
        best = -1
        best_key = (0.0, 0)
        seconds = 0.0
        for entry in range(self.contacts.first[device], self.contacts.first[device + 1]):
            other = self.contacts.neighbour[entry]
            if line._phase[other] == _WAITING:
                key = (line._since[other], self.contacts.rank[other])
                if best < 0 or key < best_key:
                    best = other
                    best_key = key
                    seconds = self.contacts.exchange_seconds[entry]
        if best < 0:
            return False
        for one, other in ((device, best), (best, device)):
            line._phase[one] = EXCHANGING
            line._partner[one] = other
            line._since[one] = now
            line._due[one] = now + seconds
        self._push(min(device, best))
        return True

    def _end_round(self, now: float, a: int, b: int) -> None:
        """End a round of one device, or of two that have exchanged; both begin the next."""
        line = self.line
        b_round = 0 if b < 0 else line._rounds[b]
        self.ended.append((now, ROUND, a, b, line._rounds[a], b_round))
        for device in (a, b):
            if device < 0:
                continue
            line._phase[device] = COMPUTING
            line._partner[device] = -1
            line._rounds[device] += 1
            away = self._discharge(device, sent=b >= 0)
            line._due[device] = now + away + self.contacts.step_seconds[device]
            self._push(device)

    def _discharge(self, device: int, sent: bool) -> float:
        """Take a step and a message from a battery. Return how long the device is away then."""
        line = self.line
        batteries = line.source.batteries
        left = batteries.after_step(line._joules[device])
        if sent:
            left = batteries.after_message(left)
        away = batteries.seconds_away(left)
        line._joules[device] = batteries.full if away else left
        return away
