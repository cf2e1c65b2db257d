"""An exchange of vectors with the neighbours that keeps the mean exact, whatever is lost on the way.

If a device used whatever arrived, i might take j's vector while j never got i's: the weights would no longer be doubly
stochastic, and the mean would drift. So in every exchange:

1. The neighbours are those whose link is alive now; their number is the degree that is announced.
2. MODEL goes to each: degree, vector, and which exchanges on this link are applied. Who receives one writes it to its journal
   beside the vector that it sent itself, and *then* answers READY: that is a promise which outlives a crash.
3. All wait for MODEL and READY of all neighbours, or for the deadline. What comes later changes nothing.
4. A link with both is committed, by a weight that both ends know. A link without falls back to the device's own weight: the
   weights stay symmetric and doubly stochastic without being counted anew.
5. With MODEL but no READY the exchange is in doubt: the neighbour may have committed it. It is pending until a message of a
   later round says which exchanges the neighbour has applied; then its flow is applied late, or dropped.

Why the two ends always come to agree: who has committed has a READY, so the other end has the exchange in its journal, and
applies it at the latest when it hears of it. If neither has committed, each hears from the other that it has not. That an
exchange is applied is said only once it is on disk, with the state that it is applied to; and a device that was killed in a
round does not join that round again, so that there is one vector of a device in an exchange, ever.

Until a device has heard that an exchange is applied, it has answered no later MODEL of that neighbour, so the neighbour has
applied no later one: a short list of the last is enough, and what is pending is bounded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.algorithms import State
from gossamer.fleet.journal import Exchange, Flow, Journal, Kept
from gossamer.fleet.transport import Transport
from gossamer.fleet.wire import Expected, Kind, Message, Refused, pack, unpack

Weight = Callable[[int, int], float]  # of a link, from the degrees that its two ends announce

_APPLIED = 16  # exchanges that are listed for a neighbour: those of one round would do, were it not for crash upon crash
_PENDING = 64  # exchanges in doubt that are kept, for neighbours that may never be met again
_LOOK = 0.2  # seconds after which to look for new neighbours
_IGNORED = 10  # rounds for which a device is ignored after a message that made no sense


class Exchanged(NamedTuple):
    """What an exchange has brought: the flows that both ends commit now, by neighbour, and earlier ones that are settled."""

    committed: list[Flow]
    late: list[Flow]


class Edges:
    """One device's ends of its links; `counts` says what happened so far. A device's life:

    edges = Edges(transport, Journal(folder), Expected(run, frozenset(Kind), shapes(algorithm, w0), torch.float32, 1e6))
    state = edges.start(lambda: algorithm.init(w0))
    for t in range(edges.round, rounds):
        state = algorithm.round(state, grad, PeerMix(edges, algorithm.weights, t, seed, until), t)
        edges.finish(t, state)
        edges.give(algorithm.models(state)[0])
    edges.leave()
    """

    def __init__(
        self,
        transport: Transport,
        journal: Journal,
        expected: Expected,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.device, self.round, self.counts = transport.device, 0, Counter[str]()
        self._transport, self._journal, self._expected, self._clock = (
            transport,
            journal,
            expected,
            clock,
        )
        self._applied: dict[int, tuple[Exchange, ...]] = {}  # on disk, so neighbours may be told
        self._new: list[tuple[int, Exchange]] = []  # applied in this round
        self._pending: list[Flow] = []
        self._early: dict[
            Exchange, dict[int, Message]
        ] = {}  # one of a sender: at most those of this round and the next
        self._ignored: dict[int, int] = {}  # until which round
        self._asked: set[int] = set()  # who wants a model to start from
        self._offered: Tensor | None = None  # one that was given

    # -- a device's life -------------------------------------------------------------------------------------------

    def start(self, new: Callable[[], State], round: int = 0) -> State:
        """The state to go on from: what the journal has, or a new one. `self.round` is the first round to take part in."""
        kept = self._journal.read()
        # A device that was there before may have been killed in that very round, after it had sent its vector.
        kept = (
            Kept(round, new()) if kept is None else replace(kept, round=max(round, kept.round + 1))
        )
        self._journal.write(kept)
        self.round, self._applied, self._pending = (
            kept.round,
            dict(kept.applied),
            list(kept.pending),
        )
        return kept.state

    def finish(self, t: int, state: State) -> None:
        """Round t is over: keep the state, and what is applied to it, on disk."""
        for j, exchange in self._new:
            self._applied[j] = tuple(sorted({*self._applied.get(j, ()), exchange}))[-_APPLIED:]
        self.counts["forgotten"] += max(0, len(self._pending) - _PENDING)
        self._new, self._pending, self.round = [], self._pending[-_PENDING:], t + 1
        self._journal.write(Kept(self.round, state, self._applied, tuple(self._pending)))

    def ask(self, until: float) -> Tensor | None:
        """A neighbour's model to start from; None if nobody has given one by then."""
        asked: set[int] = set()
        self._offered = None
        while self._offered is None and (left := until - self._clock()) > 0:
            new = self.near(self.round) - asked
            for j in sorted(new):
                self._send(j, self._message(Kind.ASK, (self.round, 0)))
            asked |= new
            data = self._transport.receive(min(left, _LOOK))
            if data is not None:
                self._taken((self.round, 0), *data)
        self._early = {}
        return self._offered

    def give(self, model: Tensor) -> None:
        """Answer those who have asked in this round."""
        vector = model.detach().to("cpu", self._expected.dtype)
        for j in sorted(self._asked):
            self._send(j, self._message(Kind.START, (self.round, 0), vector=vector))
        self._asked.clear()

    def leave(self) -> None:
        """Tell the neighbours, so that they can settle what is in doubt."""
        self._tell(self._transport.neighbours(), self._message(Kind.BYE, (self.round, 0)))

    @property
    def met(self) -> frozenset[int]:
        """Those with whom an exchange was committed in the round that is under way."""
        return frozenset(j for j, _ in self._new)

    @property
    def pending(self) -> tuple[Flow, ...]:
        """The exchanges that are in doubt, or settled and not yet applied."""
        return tuple(self._pending)

    # -- exchanges -------------------------------------------------------------------------------------------------

    def near(self, t: int) -> frozenset[int]:
        """The neighbours in round t: those whose link is alive now and who are not ignored."""
        return frozenset(j for j in self._transport.neighbours() if self._ignored.get(j, 0) <= t)

    def exchange(
        self,
        exchange: Exchange,
        x: Tensor,
        until: float,
        weight: Weight,
        p: float = 1.0,
        among: frozenset[int] | None = None,
    ) -> Exchanged:
        """Exchange x with all neighbours, or with those `among` them, until a deadline by the clock at the latest.

        `p` says in which dual the flows are. Flows of the same part of earlier rounds that were settled since come along.
        """
        near = self.near(exchange[0]) if among is None else among
        own = x.detach().to("cpu", self._expected.dtype, copy=True)
        held: dict[int, Flow] = {}
        ready: set[int] = set()
        if near and self._clock() < until:
            model = self._message(Kind.MODEL, exchange, degree=len(near), vector=own)
            self._tell(near, model)
            self._journal.sent(exchange, own, model.checksum)  # while the others' are on their way
            for arrived in self._arrivals(exchange, until):
                fresh: dict[int, Message] = {}
                for (j, kind), message in arrived.items():
                    if kind == Kind.READY and j in near and message.checksum == model.checksum:
                        ready.add(j)
                    elif kind == Kind.MODEL and j in near and j not in held:
                        fresh[j] = message
                    else:
                        self.counts["unexpected"] += 1
                if fresh:
                    flows = {
                        j: _flow(model, m, weight(len(near), m.degree), p) for j, m in fresh.items()
                    }
                    self._journal.promise(list(flows.values()))
                    held |= flows
                    for j, message in fresh.items():
                        self._send(
                            j, self._message(Kind.READY, exchange, checksum=message.checksum)
                        )
                if near <= held.keys() & ready:
                    break
        return self._commit(exchange, held, ready, len(near))

    def pair(self, exchange: Exchange, near: frozenset[int], named: int, until: float) -> bool:
        """Whether the one of these neighbours that this device names names it too: all tell all. What is lost makes no pair."""
        yes, no = (torch.tensor([word], dtype=self._expected.dtype) for word in (1.0, 0.0))
        self._tell(
            near & {named}, self._message(Kind.MODEL, exchange, degree=len(near), vector=yes)
        )
        self._tell(near - {named}, self._message(Kind.MODEL, exchange, degree=len(near), vector=no))
        for arrived in self._arrivals(exchange, until):
            if answer := arrived.get((named, Kind.MODEL)):
                return answer.vector is not None and torch.equal(answer.vector, yes)
        return False

    def _commit(
        self, exchange: Exchange, held: dict[int, Flow], ready: set[int], near: int
    ) -> Exchanged:
        """The deadline has come, or all have answered: what is committed, what is in doubt, and what is owed from before."""
        committed = [held[j] for j in sorted(held.keys() & ready)]
        in_doubt = [held[j] for j in sorted(held.keys() - ready)]
        late = [flow for flow in self._pending if flow.settled and flow.exchange[1] == exchange[1]]
        self._new += [(flow.neighbour, exchange) for flow in committed]
        self._pending = [flow for flow in self._pending if flow not in late] + in_doubt
        self.counts.update(
            {"committed": len(committed), "in doubt": len(in_doubt), "failed": near - len(held)}
        )
        return Exchanged(committed, late)

    def _settled_by(self, message: Message) -> Message:
        """The message, once what was in doubt with its sender is decided: it says which of the earlier rounds' it applied."""
        doubts = [
            flow for flow in self._pending if flow.neighbour == message.sender and not flow.settled
        ]
        for flow in doubts if message.kind != Kind.READY else []:  # READY says nothing of it
            if flow.exchange[0] < message.round:
                self._pending.remove(flow)
                applied = flow.exchange in message.applied
                self.counts["settled" if applied else "dropped"] += 1
                if applied:
                    self._pending.append(replace(flow, settled=True))
        return message

    # -- messages --------------------------------------------------------------------------------------------------

    def _message(self, kind: Kind, exchange: Exchange, **fields: Any) -> Message:
        return Message(kind, self._expected.run, self.device, *exchange, **fields)

    def _tell(self, devices: frozenset[int], message: Message) -> None:
        """A message for each, with what is applied on the link to it."""
        for j in sorted(devices):
            self._send(j, replace(message, applied=self._applied.get(j, ())))

    def _send(self, to: int, message: Message) -> None:
        data = pack(message)
        self.counts.update({"sent": 1, "bytes sent": len(data)})
        self._transport.send(to, data)

    def _arrivals(
        self, exchange: Exchange, until: float
    ) -> Iterator[dict[tuple[int, Kind], Message]]:
        """What arrives for an exchange until its deadline, as many messages at a time as are there: one of a kind and sender.

        They are looked at together so that the disk has to be waited for once.
        """
        early = self._early.pop(exchange, {})
        self._early = {
            later: messages for later, messages in self._early.items() if later > exchange
        }
        if early:
            yield {(j, Kind.MODEL): self._settled_by(message) for j, message in early.items()}
        while (left := until - self._clock()) > 0:
            arrived: dict[tuple[int, Kind], Message] = {}
            data = self._transport.receive(left)
            while data is not None:
                if message := self._taken(exchange, *data):
                    arrived.setdefault((message.sender, message.kind), self._settled_by(message))
                data = self._transport.receive(0) if self._clock() < until else None
            if arrived:
                yield arrived

    def _taken(self, exchange: Exchange, sender: int, data: bytes | bytearray) -> Message | None:
        """A message of this exchange; what is of a later one is put by, what is of an earlier one only heard."""
        if exchange[0] < self._ignored.get(sender, 0):
            self.counts["ignored"] += 1
            return None
        try:
            message = unpack(data, replace(self._expected, sender=sender))
        except Refused as refusal:
            self.counts[f"refused: {refusal.reason}"] += 1
            self._ignored[sender] = exchange[0] + _IGNORED
            return None
        self.counts.update({"received": 1, "bytes received": len(data)})
        its = (message.round, message.part)
        if message.kind == Kind.BYE:
            self._settled_by(message)
        elif message.kind == Kind.ASK:
            self._asked.add(sender)
        elif message.kind == Kind.START:
            self._offered = message.vector
        elif its == exchange:
            return message
        elif its < exchange:
            self.counts["late"] += 1
            self._settled_by(message)
        elif message.kind == Kind.MODEL and message.round <= exchange[0] + 1:
            self._early.setdefault(its, {}).setdefault(sender, message)
        else:
            self.counts["unexpected"] += 1
        return None


def _flow(sent: Message, come: Message, weight: float, p: float) -> Flow:
    assert sent.vector is not None
    assert come.vector is not None
    checksums = sent.checksum, come.checksum
    return Flow(
        come.sender,
        (come.round, come.part),
        weight,
        p,
        sent.vector,
        come.vector,
        checksums=checksums,
    )
