"""One round's mixing on one device: the links as an algorithm sees them, over a real network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gossamer import draws
from gossamer.algorithms import Algorithm, Neighbours
from gossamer.algorithms.wrapper import Wrapper
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.errors import InputError
from gossamer.fleet.protocol.edges import Edges, LinkWeight
from gossamer.fleet.protocol.journal import Transfer
from gossamer.fleet.protocol.ledger import Exchanged
from gossamer.fleet.protocol.messages import ExchangeId
from gossamer.mirror import IdentityMap, MirrorMap, blockwise, power_mean
from gossamer.network.base import Links, Network
from gossamer.network.weights import (
    BestConstant,
    Clients,
    Laplacian,
    Matching,
    Metropolis,
    OnePair,
    WeightRule,
)

_ALL = (
    "a method whose devices need their neighbours alone; this one needs an average over all devices"
)


@dataclass(eq=False)
class PeerMix:
    """`algorithms.Mix` for a stack of the one row that this device holds. Every mix of a round is an exchange of its own.

    `until` says by when the exchange (round, part) is over, by the clock of the edges. What arrives too late, or not both
    ways, is left out by both ends alike: see `edges`.
    """

    edges: Edges
    rule: WeightRule
    t: int
    seed: int
    until: Callable[[ExchangeId], float]
    _part: int = 0
    _partner: frozenset[int] | None = None

    @property
    def devices(self) -> Tensor:
        return torch.tensor([self.edges.device])

    @property
    def active(self) -> Tensor | None:
        """Whether this device takes part in the round: in a matching only if it has found a partner."""
        return torch.tensor([bool(self._among())]) if isinstance(self.rule, Matching) else None

    def _among(self) -> frozenset[int] | None:
        """With whom to exchange: in a matching the partner, who is looked for once a round; else all neighbours (None)."""
        if isinstance(self.rule, Matching) and self._partner is None:
            self._partner = self._pair()
        return self._partner

    def _pair(self) -> frozenset[int]:
        """The other end of this device's link with the lowest draw, if that one names this device too."""
        i, near, exchange = self.edges.device, self.edges.neighbours(self.t), self._next()
        if not near:
            return frozenset()
        links = [(min(i, j), max(i, j)) for j in near]
        drawn = draws.bits(self.seed, "weights/matching", self.t, *np.array(links).T).tolist()
        named = min(zip(drawn, links, near, strict=True))[
            2
        ]  # the lower link where two draws are equal
        return (
            frozenset({named})
            if self.edges.agree_on_pair(exchange, near, named, self.until(exchange))
            else frozenset()
        )

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Tensor:
        return self.mean(x, IdentityMap())  # every sum is taken in float64

    def mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        if mirror.power is None:
            raise InputError("mirror", mirror.label, "a power map, or the identity, on devices")
        exchanged = self._exchange(w, mirror.power)
        result = _moved(w, exchanged.committed)
        for (
            flow
        ) in exchanged.late:  # each in the dual that it was sent for: p may have changed since
            result = _moved(result, [flow])
        return result

    def neighbours(self, x: Tensor) -> Neighbours:
        """What is committed; a weighted sum may be of no use to who asks so, so nothing is added late."""
        flows = self._exchange(x, 1).committed
        rows = {flow.neighbour: (flow.weight, flow.other.to(x)) for flow in flows}
        rows[self.edges.device] = 1 - sum(flow.weight for flow in flows), x[0]
        order, others = sorted(rows), [flow.neighbour for flow in flows]
        return Neighbours(
            torch.zeros(len(order), dtype=torch.int64),
            torch.tensor([0 if j == self.edges.device else 1 + others.index(j) for j in order]),
            torch.tensor([rows[j][0] for j in order], dtype=x.dtype),
            torch.stack([rows[j][1] for j in order]),
        )

    def with_message_size(self, message: int, first: int) -> PeerMix:
        return self  # whole vectors are sent: a neighbour that missed a change could not follow

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        raise InputError("algorithm", "an average over all devices", _ALL)

    def _next(self) -> ExchangeId:
        self._part += 1
        return self.t, self._part - 1

    def _exchange(self, x: Tensor, p: float) -> Exchanged:
        among, exchange = self._among(), self._next()
        return self.edges.exchange(
            exchange, x[0], self.until(exchange), link_weight(self.rule), p, among
        )


def _moved(x: Tensor, flows: Sequence[Transfer]) -> Tensor:
    """(x^[p] + Σ weight·(other^[p] − own^[p]))^[1/p] of a stack of one row, for flows of one exchange: a new tensor.

    `own` is what was sent: x itself, or x rounded to what goes over the wire, or an earlier one. The sum is scaled by the
    largest of them, so that no power leaves the numbers.
    """
    if not flows:
        return x.clone()
    total, own = sum(flow.weight for flow in flows), flows[0].own.to(x).view_as(x)
    others = [flow.other.to(x).view_as(x) for flow in flows]
    rows, weights = [x, *others], [1 - total, *(flow.weight for flow in flows)]
    if not torch.equal(own, x):
        rows, weights = [*rows, own], [1.0, *weights[1:], -total]
    shares = torch.tensor(weights, dtype=torch.float64)
    return blockwise(
        lambda out, *parts: out.copy_(power_mean(torch.stack(parts), shares, flows[0].p)), x, *rows
    )


def link_weight(rule: WeightRule) -> LinkWeight:
    """The weight of a link from the degrees that its two ends announce."""
    match rule:
        case Metropolis():
            return lambda own, other: 1.0 / (1 + max(own, other))
        case Matching():
            return lambda own, other: 0.5
        case Laplacian(alpha=alpha) if alpha:
            return lambda own, other: alpha
        case OnePair():
            needs = 'pairs = "matching", which devices find out among themselves; one pair of all needs a clock that all share'
        case Clients():
            needs = _ALL
        case Laplacian() | BestConstant():
            needs = "weights that two devices can work out, such as Metropolis; these need the links of the whole network"
        case _:
            needs = "weights that are the same for both ends of a link, such as Metropolis"
    raise InputError("weights", type(rule).__name__, needs)


def check_runs_on_devices(algorithm: Algorithm) -> None:
    """Refuse, by name, a method that needs more than a device and its neighbours can know.

    >>> from gossamer.algorithms import SwarmSGD
    >>> check_runs_on_devices(SwarmSGD(pairs="matching"))
    """
    inner = algorithm
    while isinstance(inner, Wrapper):
        inner = inner.algorithm
    try:
        link_weight(inner.weights)
        if inner.connected_rounds:
            raise InputError(
                "algorithm",
                inner.label,
                "a method that does not need all devices connected in every round",
            )
        algorithm.check(_Field())
    except InputError as error:
        links = (
            "a method for links as they come and go; this one is for "
            if error.field == "network"
            else ""
        )
        raise InputError("algorithm", algorithm.label, links + error.accepted) from None


@dataclass(frozen=True)
class _Field(Network):
    """Links as they are outside: nobody knows them before, and they change."""

    devices: int = 1 << 32

    def links(self, t: int) -> Links:
        raise NotImplementedError


def shapes(algorithm: Algorithm, w0: Tensor) -> tuple[tuple[int, ...], ...]:
    """The shape of what is sent in each part of a round, from a start w0 [1, parameters]: for `wire.Expected`.

    >>> from gossamer.algorithms import Tracking
    >>> shapes(Tracking(), torch.zeros(1, 5))
    ((5,), (5,))
    """
    mix = _Rehearsal(Matching()(Links.of(1, []), 0, 0), torch.tensor([0]), 0, Traffic())
    paired = isinstance(algorithm.weights, Matching)
    algorithm.round(algorithm.init(w0), _Flat(), mix, 0)
    return (*(((1,),) if paired else ()), *mix.shapes)


@dataclass(eq=False)
class _Rehearsal(StackedMix):
    """A round without links, to see what is mixed."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def count(self, x: Tensor) -> None:
        self.shapes.append(tuple(x.shape[1:]))


class _Flat:
    """`algorithms.Gradient` of nothing to learn."""

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        return torch.zeros_like(w)

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        return torch.zeros_like(w[:, 0])

    def conjugate(self, z: Tensor) -> Tensor:
        return torch.zeros_like(z)
