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
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gossamer import draws
from gossamer.engines.plan import Plan
from gossamer.errors import DataError, InputError
from gossamer.network.base import FloatArray, IntArray, Links
from gossamer.network.timing import Timing

# Steps of one device per round of the network, at most: more would not end in reasonable time.
_MAX_STEPS = 1_000_000

# The phases of a device. Of those that end at the same time the lower number comes first: a device
# gives up waiting only if no neighbour has become ready at that moment.
_COMPUTING = 0
_EXCHANGING = 1
_WAITING = 2

PREFIX = "engine/events/"  # of the timeline's tensors in a snapshot


@dataclass(frozen=True)
class Meetings:
    """The rounds of single devices and pairs that end in one round of the network, in their order.

    Attributes:
        time: When each of them ends, in seconds since the start; ascending.
        a: The device, or the lower one of a pair.
        b: The higher one of a pair; -1 for a device alone.
        a_round: How many rounds of its own device a has ended before.
        b_round: The same of device b.
        cut_bytes: Bytes that were sent in contacts that were cut.
    """

    time: FloatArray
    a: IntArray
    b: IntArray
    a_round: IntArray
    b_round: IntArray
    cut_bytes: int

    def __len__(self) -> int:
        return len(self.time)


class Timeline:
    """The state of all devices in time: what each of them does, and until when.

    Args:
        plan: The run: its network, timing and seed are used, no model and no data.
        message_bytes: Bytes that two devices send each other, in each direction.
        seconds_per_round: How long the links of a round of the network last.
        patience: How long a device waits for a neighbour, in steps of its own.

    Raises:
        InputError: If the plan has no timing.
    """

    def __init__(
        self, plan: Plan, message_bytes: float, seconds_per_round: float, patience: float
    ) -> None:
        if plan.timing is None:
            accepted = (
                "durations of steps and messages, which the events engine needs, such as "
                "compute = 0.1, rate = 1e6"
            )
            raise InputError("timing", None, accepted)
        self._network = plan.network
        self._timing: Timing = plan.timing
        self._seed = plan.seed
        self._message_bytes = message_bytes
        self._seconds = seconds_per_round
        self._patience = patience
        devices = plan.task.devices
        self._phase = [_COMPUTING] * devices
        self._due = self._step_seconds(0).tolist()  # when the phase ends
        self._since = [0.0] * devices  # when the device became ready, or began the exchange
        self._partner = [-1] * devices
        self._rounds = [0] * devices  # of the device's own that have ended

    def advance(self, t: int) -> Meetings:
        """Return what ends in round t of the network. Rounds are asked for one after the other.

        Args:
            t: The round.
        """
        return _Tick(self, t).run()

    def _step_seconds(self, t: int) -> FloatArray:
        """Return how long a step of each device takes in round t, after checking it."""
        seconds = self._timing.of("compute", t, np.arange(self._network.devices))
        shortest = float(seconds.min())
        if shortest * _MAX_STEPS < self._seconds:
            device = int(seconds.argmin())
            accepted = (
                f"at least {self._seconds / _MAX_STEPS:g} s per step (device {device}, round {t}), "
                f"for at most {_MAX_STEPS:,} steps in the {self._seconds:g} s of a round"
            )
            raise InputError("timing.compute", shortest, accepted)
        return seconds

    # -- snapshots --------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return the state, one row per device, by names that begin with PREFIX."""
        return {
            PREFIX + "phase": torch.tensor(self._phase, dtype=torch.int64),
            PREFIX + "due": torch.tensor(self._due, dtype=torch.float64),
            PREFIX + "since": torch.tensor(self._since, dtype=torch.float64),
            PREFIX + "partner": torch.tensor(self._partner, dtype=torch.int64),
            PREFIX + "rounds": torch.tensor(self._rounds, dtype=torch.int64),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over the state of a snapshot.

        Args:
            tensors: What `tensors` returned; others are ignored.

        Raises:
            DataError: If they are missing: the snapshot is of another engine.
        """
        names = ("phase", "due", "since", "partner", "rounds")
        for name in names:
            found = tensors.get(PREFIX + name)
            if found is None or found.shape != (self._network.devices,):
                raise DataError(
                    "the checkpoint is not of the events engine: it does not say what the devices "
                    "are doing; resume it on the engine that wrote it"
                )
            setattr(self, f"_{name}", found.tolist())


@dataclass
class _Tick:
    """One round of the network: its links, and the devices that do something in it."""

    line: Timeline
    t: int
    # Due time, phase, rank and number of a device.
    queue: list[tuple[float, int, int, int]] = field(default_factory=list)
    ended: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    cut_bytes: float = 0.0

    def __post_init__(self) -> None:
        line = self.line
        links = line._network.links(self.t)
        self.begin = self.t * line._seconds
        self.end = (self.t + 1) * line._seconds
        # Devices that are due at the same time take turns in an order that changes by round.
        order = draws.permutation(links.devices, line._seed, "events/order", self.t)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        self.rank = rank.tolist()
        self.step_seconds = line._step_seconds(self.t).tolist()
        self._make_neighbours(links)
        self._cut_contacts(links)
        self._pause(links)

    def _make_neighbours(self, links: Links) -> None:
        """List the neighbours of every device, with the seconds that an exchange takes."""
        line = self.line
        seconds = line._timing.carrying(self.t, links.a, links.b, line._message_bytes)
        receiver = np.concatenate([links.a, links.b])
        order = np.argsort(receiver, kind="stable")
        self.neighbour = np.concatenate([links.b, links.a])[order].tolist()
        self.exchange_seconds = np.concatenate([seconds, seconds])[order].tolist()
        first = np.zeros(links.devices + 1, dtype=np.int64)
        np.cumsum(np.bincount(receiver, minlength=links.devices), out=first[1:])
        self.first = first.tolist()

    def _cut_contacts(self, links: Links) -> None:
        """End the exchanges of devices that are no longer linked: both end their rounds alone."""
        line = self.line
        linked = set((links.a * links.devices + links.b).tolist())
        for i, partner in enumerate(line._partner):
            if i < partner and i * links.devices + partner not in linked:
                self._count_cut(i, partner)
                for device in (i, partner):
                    self._end_round(self.begin, device, -1)

    def _count_cut(self, i: int, j: int) -> None:
        """Count the bytes that had been sent when a contact ended, in both directions."""
        line = self.line
        ends = (np.array([i]), np.array([j]))
        before = self.t - 1
        latency = float(line._timing.of("latency", before, *ends)[0])
        rate = float(line._timing.of("rate", before, *ends)[0])
        sent = max(0.0, self.begin - line._since[i] - latency) * rate
        self.cut_bytes += 2 * min(sent, line._message_bytes)

    def _pause(self, links: Links) -> None:
        """Let the devices that are away do nothing in this round."""
        if links.active is None:
            return
        for device in np.flatnonzero(~links.active).tolist():
            self.line._due[device] += self.line._seconds

    def run(self) -> Meetings:
        """Play the round."""
        line = self.line
        for device in range(len(line._due)):
            self._push(device)
        self._match_waiting()
        while self.queue:
            due, phase, _, device = heapq.heappop(self.queue)
            if due != line._due[device] or phase != line._phase[device]:
                continue  # it has met a neighbour in the meantime
            if phase == _COMPUTING:
                self._ready(due, device)
            elif phase == _WAITING:
                self._end_round(due, device, -1)
            elif device < line._partner[device]:
                self._end_round(due, device, line._partner[device])
        columns = list(zip(*self.ended, strict=True)) or [(), (), (), (), ()]
        time = np.array(columns[0], dtype=np.float64)
        a, b, a_round, b_round = (np.array(column, dtype=np.int64) for column in columns[1:])
        return Meetings(time, a, b, a_round, b_round, int(self.cut_bytes))

    def _push(self, device: int) -> None:
        line = self.line
        if line._due[device] <= self.end:
            entry = (line._due[device], line._phase[device], self.rank[device], device)
            heapq.heappush(self.queue, entry)

    def _match_waiting(self) -> None:
        """Let devices that wait meet if the new links have brought them into contact."""
        line = self.line
        waiting = [device for device, phase in enumerate(line._phase) if phase == _WAITING]
        for device in sorted(waiting, key=lambda i: (line._since[i], self.rank[i])):
            if line._phase[device] == _WAITING:
                self._meet(self.begin, device)

    def _ready(self, now: float, device: int) -> None:
        """Meet a neighbour that waits, or begin to wait."""
        line = self.line
        if self._meet(now, device):
            return
        line._phase[device] = _WAITING
        line._since[device] = now
        line._due[device] = now + line._patience * self.step_seconds[device]
        self._push(device)

    def _meet(self, now: float, device: int) -> bool:
        """Begin an exchange with the neighbour that has waited longest. Return False if none."""
        line = self.line
        best = -1
        best_key = (0.0, 0)
        seconds = 0.0
        for entry in range(self.first[device], self.first[device + 1]):
            other = self.neighbour[entry]
            if line._phase[other] == _WAITING:
                key = (line._since[other], self.rank[other])
                if best < 0 or key < best_key:
                    best = other
                    best_key = key
                    seconds = self.exchange_seconds[entry]
        if best < 0:
            return False
        for one, other in ((device, best), (best, device)):
            line._phase[one] = _EXCHANGING
            line._partner[one] = other
            line._since[one] = now
            line._due[one] = now + seconds
        self._push(min(device, best))
        return True

    def _end_round(self, now: float, a: int, b: int) -> None:
        """End a round of one device, or of two that have exchanged; both begin the next."""
        line = self.line
        b_round = 0 if b < 0 else line._rounds[b]
        self.ended.append((now, a, b, line._rounds[a], b_round))
        for device in (a, b):
            if device < 0:
                continue
            line._phase[device] = _COMPUTING
            line._partner[device] = -1
            line._rounds[device] += 1
            line._due[device] = now + self.step_seconds[device]
            self._push(device)
