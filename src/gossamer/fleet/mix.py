"""The `Mix` of one device: an algorithm's links in one round, over a real network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from gossamer.algorithms import Neighbours
from gossamer.backend.powers import blockwise
from gossamer.errors import InputError
from gossamer.fleet.protocol.edges import Edges
from gossamer.fleet.protocol.journal import Transfer
from gossamer.fleet.protocol.ledger import Exchanged
from gossamer.fleet.protocol.meetings import Meetings
from gossamer.fleet.protocol.messages import ExchangeId
from gossamer.mirror import IdentityMap, MirrorMap, power_mean
from gossamer.network.weights import WeightRule


class DeviceMix(ABC):
    """`algorithms.Mix` for a stack of the one row that a device holds.

    Every mix of a round is an exchange of its own. Both ends leave out vectors that arrive late or
    in one direction only: see `protocol.edges`.
    """

    edges: Edges

    @property
    @abstractmethod
    def active(self) -> Tensor | None:
        """False if the rule pairs devices and this one has no partner in the round."""

    @abstractmethod
    def exchange(self, x: Tensor, p: float) -> Exchanged:
        """Exchange the one row of x."""

    @property
    def devices(self) -> Tensor:
        return torch.tensor([self.edges.device])

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Tensor:
        return self.mean(x, IdentityMap())  # all sums are in float64

    def mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        if mirror.power is None:
            exchanged = self.exchange(w, 1)
            return _apply_in_dual(w, [*exchanged.committed, *exchanged.late], mirror)
        exchanged = self.exchange(w, mirror.power)
        result = _apply(w, exchanged.committed)
        for transfer in exchanged.late:  # p may have changed since each of them
            result = _apply(result, [transfer])
        return result

    def neighbours(self, x: Tensor) -> Neighbours:
        """Return the committed vectors. Late ones would be meaningless link by link."""
        own = self.edges.device
        transfers = self.exchange(x, 1).committed
        senders = {own: 0}  # row of the stack, or a number beyond it
        weights = {own: 1 - sum(transfer.weight for transfer in transfers)}
        values = {own: x[0]}
        for number, transfer in enumerate(transfers, start=1):
            senders[transfer.neighbour] = number
            weights[transfer.neighbour] = transfer.weight
            values[transfer.neighbour] = transfer.other.to(x)
        order = sorted(senders)
        return Neighbours(
            torch.zeros(len(order), dtype=torch.int64),
            torch.tensor([senders[j] for j in order]),
            torch.tensor([weights[j] for j in order], dtype=x.dtype),
            torch.stack([values[j] for j in order]),
        )

    def with_message_size(self, message: int, first: int) -> Self:
        return self  # whole vectors are sent: a neighbour that missed a change could not follow

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        accepted = "a method whose devices need only their neighbours"
        raise InputError("algorithm", "an average over all devices", accepted)


@dataclass(eq=False)
class PeerMix(DeviceMix):
    """The mix of a round on a shared clock, with all neighbours or those of a schedule.

    Args:
        edges: The device's ends of its links.
        rule: The weights.
        t: The round.
        seed: Seed of the run.
        deadline: Returns by when an exchange is over, by the clock of the edges.
        scheduled: The neighbours of the device in this round and the weights that the network
            carries on these links; None: the device exchanges with all that it has a link to.
    """

    edges: Edges
    rule: WeightRule
    t: int
    seed: int
    deadline: Callable[[ExchangeId], float]
    scheduled: Mapping[int, float] | None = None
    _exchanges: int = 0  # exchanges so far
    _partner: frozenset[int] | None = None  # in a matching, once it is known

    @property
    def active(self) -> Tensor | None:
        if not self.rule.paired:
            return None
        return torch.tensor([bool(self._partners())])

    def _partners(self) -> frozenset[int] | None:
        """Return the neighbours to exchange with: in a matching the partner; None: all."""
        if self.rule.paired and self._partner is None:
            self._partner = self._find_partner()
        if self._partner is None and self.scheduled is not None:
            return self._neighbours()
        return self._partner

    def _neighbours(self) -> frozenset[int]:
        """Return the neighbours of the round: with a schedule, those that it has."""
        neighbours = self.edges.neighbours(self.t)
        if self.scheduled is None:
            return neighbours
        return neighbours & self.scheduled.keys()

    def _find_partner(self) -> frozenset[int]:
        """Propose to a neighbour; return it if it proposes to this device too."""
        exchange = self._next_exchange()
        neighbours = self._neighbours()
        if not neighbours:
            return frozenset()
        named = self.rule.proposal(self.edges.device, neighbours, self.t, self.seed)
        if self.edges.agree_on_pair(exchange, neighbours, named, self.deadline(exchange)):
            return frozenset({named})
        return frozenset()

    def exchange(self, x: Tensor, p: float) -> Exchanged:
        partners = self._partners()
        exchange = self._next_exchange()
        weight = self.rule.peer_weight(self.scheduled)
        return self.edges.exchange(exchange, x[0], self.deadline(exchange), weight, p, partners)

    def _next_exchange(self) -> ExchangeId:
        self._exchanges += 1
        return self.t, self._exchanges - 1


@dataclass(eq=False)
class MeetingMix(DeviceMix):
    """The mix of a round that is a meeting of two, or a step alone.

    The device looks for a partner when the method first asks for a mix: then it is ready.

    Args:
        edges: The device's ends of its links.
        rule: The weights; the weight of the meeting is that of two devices with one link.
        clock: The clock of the edges.
        patience: Seconds to wait for a partner.
        timeout: Seconds after which an exchange is given up.
    """

    edges: Meetings
    rule: WeightRule
    clock: Callable[[], float]
    patience: float
    timeout: float
    _exchanges: int = 0  # exchanges so far
    _searched: bool = False
    _partner: int | None = None

    @property
    def active(self) -> Tensor | None:
        if not self.rule.paired:
            return None
        self._search()
        return torch.tensor([self._partner is not None])

    def _search(self) -> None:
        if not self._searched:
            self._searched = True
            self._partner = self.edges.find_partner(self.clock() + self.patience)

    def exchange(self, x: Tensor, p: float) -> Exchanged:
        self._search()
        self._exchanges += 1
        weight = self.rule.link_weight()(1, 1)
        until = self.clock() + self.timeout
        return self.edges.meet(self._exchanges - 1, x[0], until, weight, p)


def _apply_in_dual(x: Tensor, transfers: Sequence[Transfer], mirror: MirrorMap) -> Tensor:
    """Return ∇φ⁻¹(∇φ(x) + Σ weight·(∇φ(other) − ∇φ(own))) for a mirror map that is no power.

    Args:
        x: A stack of one row.
        transfers: Transfers of this and of earlier exchanges, all with the same map.
        mirror: The mirror map.

    Returns:
        A new tensor.
    """
    if not transfers:
        return x.clone()
    z = mirror.to_dual(x).clone()
    for transfer in transfers:
        other = transfer.other.to(x).view_as(x)
        own = transfer.own.to(x).view_as(x)
        z += transfer.weight * (mirror.to_dual(other) - mirror.to_dual(own))
    return mirror.to_primal(z, x.dtype)


def _apply(x: Tensor, transfers: Sequence[Transfer]) -> Tensor:
    """Return (x^[p] + Σ weight·(other^[p] − own^[p]))^[1/p] for transfers of one exchange.

    `own` is the vector that was sent: x itself, x rounded to the dtype of the wire, or an earlier
    vector. The sum is scaled by the largest of them, so that no power overflows or underflows.

    Args:
        x: A stack of one row.
        transfers: Transfers of one exchange.

    Returns:
        A new tensor.
    """
    if not transfers:
        return x.clone()
    p = transfers[0].p
    total = sum(transfer.weight for transfer in transfers)
    own = transfers[0].own.to(x).view_as(x)
    rows = [x]
    weights = [1 - total]
    for transfer in transfers:
        rows.append(transfer.other.to(x).view_as(x))
        weights.append(transfer.weight)
    if not torch.equal(own, x):
        weights[0] = 1.0
        rows.append(own)
        weights.append(-total)
    shares = torch.tensor(weights, dtype=torch.float64)

    def mean(out: Tensor, *columns: Tensor) -> None:
        out.copy_(power_mean(torch.stack(columns), shares, p))

    return blockwise(mean, x, *rows)
