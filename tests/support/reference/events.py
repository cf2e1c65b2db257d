"""The events engine, slowly: one event after the other, found by looking at all devices.

Nothing here is shared with `gossamer.engines.events`. There are no queues, tables, compiled code or
waves: at any moment the next event is the least of all that are due, and a method is called for one
device, or for the two that meet. What is shared are the named draws, the durations, the learner's
gradient, and the mix of two devices.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gossamer import draws
from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.engines import Plan
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.network import Links

ARRIVAL, STEP, SEND = 0, 1, 2  # what is due; of the same time the lower number comes first


class NaiveEvents:
    """What both forms of methods have in common.

    Args:
        plan: What to run.
        seconds_per_round: How long the links of a round of the network last.
    """

    def __init__(self, plan: Plan, seconds_per_round: float = 1.0) -> None:
        assert plan.timing is not None
        self.plan = plan
        self.timing = plan.timing
        self.round_seconds = seconds_per_round
        self.count = plan.task.devices
        self.devices = range(self.count)
        self.dtype = getattr(torch, plan.dtype)
        self.worker = plan.task.worker(
            np.arange(self.count), plan.seed, self.dtype, torch.device("cpu"), plan.measure.test
        )
        self.start = self.worker.start().expand(self.count, -1).clone()
        self.message_bytes = 0.0
        self.messages = 0
        self.bytes = 0
        self.cut_bytes = 0.0
        self.round = 0
        self.steps = [0] * self.count
        self.joules = [0.0] * self.count
        if plan.energy is not None:
            self.joules = [plan.energy.battery] * self.count

    def run(self, rounds: int) -> None:
        """Run some rounds of the network."""
        with torch.no_grad():
            for _ in range(rounds):
                self.cut_bytes = 0.0
                self.links = self.plan.network.links(self.round)
                self.order = draws.permutation(
                    self.count, self.plan.seed, "events/order", self.round
                ).tolist()
                self.run_round()
                self.bytes += int(self.cut_bytes)
                self.round += 1

    def run_round(self) -> None:
        raise NotImplementedError

    @property
    def begin(self) -> float:
        return self.round * self.round_seconds

    @property
    def end(self) -> float:
        return (self.round + 1) * self.round_seconds

    @property
    def total_joules(self) -> float:
        assert self.plan.energy is not None
        return self.plan.energy.joules(sum(self.steps), self.bytes)

    # -- contacts and durations -------------------------------------------------------------------

    def linked(self, i: int, j: int) -> bool:
        return (min(i, j), max(i, j)) in set(map(tuple, self.links.pairs.tolist()))

    def neighbours(self, i: int) -> list[int]:
        """Return those in contact: larger numbers first, for the draw among them."""
        larger = [j for j in self.devices if j > i and self.linked(i, j)]
        return larger + [j for j in self.devices if j < i and self.linked(i, j)]

    def away(self, i: int) -> bool:
        return self.links.active is not None and not self.links.active[i]

    def rank(self, i: int) -> int:
        """Return the place of a device among those that are due at the same time."""
        return int(self.order.index(i))

    def step_seconds(self, i: int) -> float:
        return float(self.timing.of("compute", self.round, np.array([i]))[0])

    def message_seconds(self, i: int, j: int, size: float) -> float:
        latency = self.timing.of("latency", self.round, np.array([i]), np.array([j]))
        rate = self.timing.of("rate", self.round, np.array([i]), np.array([j]))
        return float(latency[0] + size / rate[0])

    def carried(self, i: int, j: int, seconds: float) -> float:
        """Return how much of a message a contact of the last round has carried before its cut."""
        latency = self.timing.of("latency", self.round - 1, np.array([i]), np.array([j]))
        rate = self.timing.of("rate", self.round - 1, np.array([i]), np.array([j]))
        return min(max(0.0, seconds - float(latency[0])) * float(rate[0]), self.message_bytes)

    # -- batteries and streams --------------------------------------------------------------------

    def use(self, i: int, steps: int, messages: int) -> None:
        """Take steps and messages from a battery."""
        energy = self.plan.energy
        if energy is not None and energy.battery > 0:
            for _ in range(steps):
                self.joules[i] -= energy.step
            for _ in range(messages):
                self.joules[i] -= energy.byte * self.message_bytes

    def charge(self, i: int) -> float:
        """Charge an empty battery. Return how long that takes; 0 if it is not empty."""
        energy = self.plan.energy
        if energy is None or energy.battery == 0 or self.joules[i] > 0:
            return 0.0
        self.joules[i] = energy.battery
        return energy.battery / energy.charge

    def arrived(self, now: float, rows: list[int]) -> np.ndarray | None:
        if self.plan.stream is None:
            return None
        sizes = self.plan.task.split.sizes[np.array(rows)]
        return self.plan.stream.arrived(np.full(len(rows), now), sizes)

    # -- models -----------------------------------------------------------------------------------

    def rows(self, state: dict[str, Tensor], rows: list[int]) -> dict[str, Tensor]:
        """Return copies of the rows of some devices, and what all devices share."""
        found = {}
        for name, x in state.items():
            found[name] = x[rows].clone() if len(x) == self.count else x
        return found

    def set_rows(
        self, state: dict[str, Tensor], rows: list[int], values: dict[str, Tensor]
    ) -> None:
        for name, x in values.items():
            if name in state and len(state[name]) == self.count:
                for row, value in zip(rows, x, strict=True):
                    state[name][row] = value
            else:
                state[name] = x


@dataclass
class _Cycle:
    """What a device with rounds does: it computes, waits, exchanges, and begins again."""

    due: float
    doing: str = "computes"
    since: float = 0.0
    partner: int = -1


class NaivePairs(NaiveEvents):
    """Methods with rounds: a meeting of two devices is a round of both.

    Args:
        plan: What to run.
        seconds_per_round: How long the links of a round of the network last.
        patience: How long a device waits for a neighbour, in steps of its own.
        patience_seconds: The same in seconds; 0: `patience` counts.
    """

    def __init__(
        self,
        plan: Plan,
        seconds_per_round: float = 1.0,
        patience: float = 1.0,
        patience_seconds: float = 0.0,
    ) -> None:
        super().__init__(plan, seconds_per_round)
        self.patience = patience
        self.patience_seconds = patience_seconds
        self.state = plan.algorithm.first_state(self.start)
        with torch.no_grad():
            _, traffic = self._after_round([0, 1], 0, 0.0)
        self.message_bytes = float(traffic.link_bytes)
        self.cycles = [_Cycle(self.step_seconds(i)) for i in self.devices]

    @property
    def models(self) -> Tensor:
        return self.plan.algorithm.models(self.state)

    def run_round(self) -> None:
        for i in self.devices:
            j = self.cycles[i].partner
            if i < j and not self.linked(i, j):
                sent = self.carried(i, j, self.begin - self.cycles[i].since)
                for device in (i, j):
                    self.cut_bytes += sent
                    self._end(self.begin, [device])
        for i in self.devices:
            if self.away(i):
                self.cycles[i].due += self.round_seconds
        waiting = [i for i in self.devices if self.cycles[i].doing == "waits"]
        for i in sorted(waiting, key=lambda i: (self.cycles[i].since, self.rank(i))):
            if self.cycles[i].doing == "waits":
                self._meet(self.begin, i)
        while (first := self._next()) is not None:
            cycle = self.cycles[first]
            now = cycle.due
            if cycle.doing == "computes":
                if not self._meet(now, first):
                    seconds = self.patience_seconds or self.patience * self.step_seconds(first)
                    self.cycles[first] = _Cycle(now + seconds, "waits", now)
            elif cycle.doing == "waits":
                self._end(now, [first])
            else:
                self._end(now, [first, cycle.partner])
        self.state = self.plan.algorithm.compact(self.state, lambda holds: holds)

    def _next(self) -> int | None:
        """Return the device that is due next in this round. Of a pair it is the first."""
        found = []
        for i in self.devices:
            cycle = self.cycles[i]
            if cycle.due <= self.end and (cycle.doing != "exchanges" or i < cycle.partner):
                kind = ("computes", "exchanges", "waits").index(cycle.doing)
                found.append((cycle.due, kind, self.rank(i), i))
        return min(found)[3] if found else None

    def _meet(self, now: float, i: int) -> bool:
        """Begin an exchange with the neighbour that has waited longest."""
        ready = [j for j in self.neighbours(i) if self.cycles[j].doing == "waits"]
        if not ready:
            return False
        j = min(ready, key=lambda j: (self.cycles[j].since, self.rank(j)))
        due = now + self.message_seconds(min(i, j), max(i, j), self.message_bytes)
        self.cycles[i] = _Cycle(due, "exchanges", now, j)
        self.cycles[j] = _Cycle(due, "exchanges", now, i)
        return True

    def _end(self, now: float, rows: list[int]) -> None:
        """End a round of one device, or of two that have exchanged."""
        after, traffic = self._after_round(rows, self.round, now)
        self.set_rows(self.state, rows, after)
        self.messages += traffic.messages
        self.bytes += traffic.bytes
        for i in rows:
            self.steps[i] += 1
            self.use(i, steps=1, messages=len(rows) - 1)
            self.cycles[i] = _Cycle(now + self.charge(i) + self.step_seconds(i))

    def _after_round(
        self, rows: list[int], t: int, now: float
    ) -> tuple[dict[str, Tensor], Traffic]:
        """Return the state of one or two devices after a round of the method, and its traffic."""
        pairs = [(0, 1)] if len(rows) == 2 else []
        method = self.plan.algorithm
        weights = method.weights(Links.of(len(rows), pairs), 0, self.plan.seed)
        traffic = Traffic()
        numbers = torch.tensor(rows)
        mix = StackedMix(weights, numbers, self.dtype.itemsize, traffic)
        own_rounds = np.array([self.steps[i] for i in rows])
        gradient = BatchGradient(
            self.worker, own_rounds, devices=numbers, arrived=self.arrived(now, rows)
        )
        return method.next_state(self.rows(self.state, rows), gradient, mix, t), traffic


@dataclass
class _Exchange:
    """An exchange on its way, or one that was cut and is kept.

    Attributes:
        i: The device that has begun it, or has taken it up again.
        j: Its partner.
        senders: Who sends.
        messages: What they send.
        began: When it began, or was taken up again.
        due: When it has arrived.
        before: Bytes of a message that earlier contacts have carried.
    """

    i: int
    j: int
    senders: tuple[int, ...]
    messages: dict[int, Tensor]
    began: float
    due: float
    before: float = 0.0


@dataclass
class _Talker:
    """What a device without rounds does: it computes all the time, and may send meanwhile."""

    step_due: float
    read: Tensor  # the model at which it computes
    bits: int = 0
    sends: _Exchange | None = None
    keeps: _Exchange | None = None
    steps_since: int = 0
    messages_since: int = 0
    number: int = 0  # messages that it has begun to send
    last_partner: int = -1
    away_until: float = 0.0
    stale: int = 0  # exchanges that changed its model since it began to compute
    wants: list[float] = field(default_factory=list)  # when it wants to send


class NaiveBackground(NaiveEvents):
    """Methods without rounds.

    Args:
        plan: What to run; its method is `Asynchronous`.
        seconds_per_round: How long the links of a round of the network last.
    """

    def __init__(self, plan: Plan, seconds_per_round: float = 1.0) -> None:
        super().__init__(plan, seconds_per_round)
        assert isinstance(plan.algorithm, Asynchronous)
        self.method = plan.algorithm
        self.both = self.method.exchange == "both"
        self.keep = self.method.on_cut == "keep"
        self.state = self.method.first_asynchronous_state(self.start)
        first = torch.tensor([0])
        _, message = self.method.send(self.rows(self.state, [0]), first, torch.tensor([0]))
        self.message_bytes = float(message.shape[1] * self.dtype.itemsize)
        self.all_stale = 0
        self.talkers = []
        for i in self.devices:
            self.talkers.append(_Talker(self.step_seconds(i), self.models[i].clone()))

    @property
    def models(self) -> Tensor:
        return self.method.models(self.state)

    @property
    def staleness(self) -> float:
        return self.all_stale / max(1, sum(self.steps))

    def run_round(self) -> None:
        for i in self.devices:
            self.talkers[i].bits = int(
                draws.bits(self.plan.seed, "events/peer", self.round, np.array([i]))[0]
            )
        for i in self.devices:
            exchange = self.talkers[i].sends
            if exchange is not None and exchange.i == i and not self.linked(i, exchange.j):
                self._cut(exchange)
        for i in self.devices:
            if self.away(i):
                self.talkers[i].step_due += self.round_seconds
        for i in self.devices:
            self._resume(self.begin, i)
        while (found := self._next()) is not None:
            now, what, _, i = found
            if what == ARRIVAL:
                self._arrive(now, i)
            elif what == STEP:
                self._step(now, i)
            else:
                self.talkers[i].wants.remove(now)
                if self.talkers[i].steps_since >= self._wanted:
                    self._begin(now, i)
        self.state = self.plan.algorithm.compact(self.state, lambda holds: holds)

    def _next(self) -> tuple[float, int, int, int] | None:
        found = []
        for i in self.devices:
            device = self.talkers[i]
            found.append((device.step_due, STEP, self.rank(i), i))
            if device.sends is not None and device.sends.i == i:
                found.append((device.sends.due, ARRIVAL, self.rank(i), i))
            for when in device.wants:
                found.append((when, SEND, self.rank(i), i))
        first = min(found)
        return first if first[0] <= self.end else None

    @property
    def _wanted(self) -> int:
        """The number of steps that a device takes before it begins an exchange."""
        return self.method.steps_between_messages if self.method.sending == "one" else 0

    # -- events -----------------------------------------------------------------------------------

    def _step(self, now: float, i: int) -> None:
        device = self.talkers[i]
        gradient = BatchGradient(
            self.worker,
            np.array([self.steps[i]]),
            devices=torch.tensor([i]),
            arrived=self.arrived(now, [i]),
        )
        before = self.rows(self.state, [i])
        read = device.read[None].clone()
        after = self.method.next_step(before, read, gradient, torch.tensor([i]), self.round)
        self.set_rows(self.state, [i], after)
        device.read = self.method.models(self.rows(self.state, [i]))[0].clone()
        self.all_stale += device.stale
        device.stale = 0
        self.steps[i] += 1
        device.steps_since += 1
        device.messages_since = 0
        self.use(i, steps=1, messages=0)
        away = self.charge(i)
        if away:
            device.away_until = now + away
        device.step_due = now + away + self.step_seconds(i)
        if device.steps_since >= self._wanted:
            device.wants.append(now)

    def _begin(self, now: float, i: int) -> None:
        """Let a device send to a neighbour, if it is free and there is one that is."""
        device = self.talkers[i]
        if device.sends is not None or device.away_until > now or self._resume(now, i):
            return
        free = [j for j in self.neighbours(i) if self._is_free(now, j)]
        if not free:
            return
        if self.method.sending == "each":
            if device.messages_since >= len(self.neighbours(i)):
                return
            j = min(free, key=lambda j: (j - device.last_partner - 1) % self.count)
        else:
            device.bits = draws.finalise(device.bits)
            j = free[(device.bits * len(free)) >> 64]
        due = now + self.message_seconds(min(i, j), max(i, j), self.message_bytes)
        senders = (i, j) if self.both else (i,)
        exchange = _Exchange(i, j, senders, {}, now, due)
        for sender, receiver in zip(senders, (j, i), strict=False):
            one = self.talkers[sender]
            after, message = self.method.send(
                self.rows(self.state, [sender]), torch.tensor([sender]), torch.tensor([one.number])
            )
            self.set_rows(self.state, [sender], after)
            exchange.messages[sender] = message.clone()
            one.sends = exchange
            one.steps_since = 0
            one.number += 1
            one.messages_since += 1
            one.last_partner = receiver
            self.use(sender, steps=0, messages=1)

    def _is_free(self, now: float, j: int) -> bool:
        busy = self.both and self.talkers[j].sends is not None
        return not busy and self.talkers[j].away_until <= now

    def _arrive(self, now: float, i: int) -> None:
        exchange = self.talkers[i].sends
        assert exchange is not None
        j = exchange.j
        for sender in exchange.senders:
            self.talkers[sender].sends = None
        for sender, receiver in ((j, i), (i, j)) if self.both else ((i, j),):
            received = exchange.messages[sender]
            own = exchange.messages.get(receiver, received)
            after = self.method.receive(
                self.rows(self.state, [receiver]), received.clone(), own.clone()
            )
            self.set_rows(self.state, [receiver], after)
            self.talkers[receiver].stale += 1
            self.messages += 1
            self.bytes += int(self.message_bytes)
        if self.method.sending != "one":
            self.talkers[i].wants.append(now)

    # -- cut contacts -----------------------------------------------------------------------------

    def _cut(self, exchange: _Exchange) -> None:
        i, j = exchange.i, exchange.j
        sent = self.carried(min(i, j), max(i, j), self.begin - exchange.began)
        for sender in exchange.senders:
            self.talkers[sender].sends = None
        if not self.keep:
            for sender in exchange.senders:
                self.cut_bytes += sent
                self._undo(sender, exchange)
            return
        exchange.before = min(sent + exchange.before, self.message_bytes)
        for sender in exchange.senders:
            earlier = self.talkers[sender].keeps
            if earlier is not None:
                for device in (sender, *(d for d in earlier.senders if d != sender)):
                    self.cut_bytes += earlier.before
                    self._undo(device, earlier)
                    self.talkers[device].keeps = None
        for sender in exchange.senders:
            self.talkers[sender].keeps = exchange

    def _undo(self, sender: int, exchange: _Exchange) -> None:
        message = exchange.messages[sender].clone()
        after = self.method.undo_send(self.rows(self.state, [sender]), message)
        self.set_rows(self.state, [sender], after)

    def _resume(self, now: float, i: int) -> bool:
        """Take up the exchange that a device keeps, if both are there and free."""
        kept = self.talkers[i].keeps
        if kept is None:
            return False
        j = kept.j if kept.i == i else kept.i
        busy = any(self.talkers[device].sends is not None for device in kept.senders)
        away = max(self.talkers[i].away_until, self.talkers[j].away_until) > now
        if busy or away or not self.linked(i, j):
            return False
        left = self.message_bytes - kept.before
        due = now + self.message_seconds(min(i, j), max(i, j), left)
        taken_up = _Exchange(i, j, kept.senders, kept.messages, now, due, kept.before)
        for sender in kept.senders:
            self.talkers[sender].keeps = None
            self.talkers[sender].sends = taken_up
        return True
