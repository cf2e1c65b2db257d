"""Weights of methods that push: to one random neighbour, along directed links, or to a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network.base import FloatArray, IntArray, Links
from gossamer.network.weights.base import LinkWeight, Sums, WeightRule, Weights


@register("weights", "random-peer")
@dataclass(frozen=True)
class RandomPeer(WeightRule):
    """Gossip learning: each device sends to one random neighbour.

    A device takes the mean of its own model and those that it received. Rows sum to 1, columns
    need not, so that the mean over all devices changes. In expectation it is kept if all devices
    have the same number of neighbours, but not on a star, for example. Directed links are used in
    their direction.

    Example:
        >>> RandomPeer()(Links.of(2, [(0, 1)]), t=0, seed=0).dense().tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """

    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = True
    sums: ClassVar[Sums] = "rows"

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        sender, receiver = _messages(links)
        order = np.lexsort((receiver, sender))
        sender = sender[order]
        receiver = receiver[order]
        first = np.searchsorted(sender, np.arange(links.devices))
        count = np.bincount(sender, minlength=links.devices)
        senders = np.flatnonzero(count)
        offset = draws.below(count[senders], seed, "weights/random-peer", t, senders)
        chosen = first[senders] + offset
        sender = sender[chosen]
        receiver = receiver[chosen]
        share = 1.0 / (1 + np.bincount(receiver, minlength=links.devices))
        return _from_messages(links, sender, receiver, share[receiver], share)


@register("weights", "received-mean")
@dataclass(frozen=True)
class ReceivedMean(WeightRule):
    """Each device takes the plain mean of its own value and all that it receives.

    The aggregation of Epidemic Learning (see `Epidemic`). Rows sum to 1, columns need not, so that
    the mean over all devices changes; in expectation it is kept if all devices receive alike.
    Directed links are used in their direction.

    Example:
        >>> ReceivedMean()(Links.of(2, [(0, 1)], directed=True)).dense().tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """

    fixed: ClassVar[bool] = True
    local: ClassVar[bool] = True
    one_way: ClassVar[bool] = True
    sums: ClassVar[Sums] = "rows"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        sender, receiver = _messages(links)
        share = 1.0 / (1 + np.bincount(receiver, minlength=links.devices))
        return _from_messages(links, sender, receiver, share[receiver], share)


@dataclass(frozen=True)
class PushSum(WeightRule):
    """Each device splits its value equally among itself and those that it can send to.

    For directed links. Columns sum to 1, rows need not: the mean is kept, and a method divides by
    the mix of ones to remove the bias of the rows. If the network carries weights, those are used:
    a device keeps what it does not send.
    """

    fixed: ClassVar[bool] = True
    local: ClassVar[bool] = True
    one_way: ClassVar[bool] = True
    sums: ClassVar[Sums] = "columns"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        sender, receiver = _messages(links)
        if links.weight is None:
            share = 1.0 / (1 + links.degrees)
            return _from_messages(links, sender, receiver, share[sender], share)
        weight = links.weight
        if not links.directed:
            weight = np.tile(weight, 2)
        sent = np.bincount(sender, weights=weight, minlength=links.devices)
        kept = (1.0 - sent).astype(np.float64, copy=False)
        return _from_messages(links, sender, receiver, weight, kept)


@dataclass(frozen=True)
class Clients(WeightRule):
    """No links, and a random fraction of the devices in every round: the clients of a server.

    For methods that average all active devices. At least one device takes part; only the server
    needs to know which.

    Args:
        fraction: Share of the devices that take part in a round, above 0 and at most 1.
    """

    fraction: float = 1.0
    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = True
    sums: ClassVar[Sums] = "nothing"

    def __post_init__(self) -> None:
        checks.number("fraction", self.fraction, above=0, most=1)

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        active = links.active
        if self.fraction < 1:
            present = np.flatnonzero(links.active_mask)
            order = np.argsort(draws.bits(seed, "weights/clients", t, present), kind="stable")
            count = max(1, round(self.fraction * len(present)))
            active = np.zeros(links.devices, dtype=bool)
            active[present[order[:count]]] = True
        empty = np.empty(0, dtype=np.int64)
        return Weights(links.devices, empty, empty, np.empty(0), np.ones(links.devices), active)

    def link_weight(self) -> LinkWeight:
        accepted = (
            "a method whose devices need only their neighbours;"
            " this one needs an average over all devices"
        )
        raise InputError("weights", "Clients", accepted)


def _messages(links: Links) -> tuple[IntArray, IntArray]:
    """Return sender and receiver of each message that the links allow."""
    if links.directed:
        return links.a, links.b
    return np.concatenate([links.a, links.b]), np.concatenate([links.b, links.a])


def _from_messages(
    links: Links, sender: IntArray, receiver: IntArray, weight: FloatArray, own: FloatArray
) -> Weights:
    """Return the weights with which each receiver takes `weight` of its sender."""
    low = np.minimum(sender, receiver)
    high = np.maximum(sender, receiver)
    code, link = np.unique(low * links.devices + high, return_inverse=True)
    value = np.zeros(len(code))
    back = np.zeros(len(code))
    to_lower = receiver < sender
    value[link[to_lower]] = weight[to_lower]
    back[link[~to_lower]] = weight[~to_lower]
    a = code // links.devices
    b = code % links.devices
    return Weights(links.devices, a, b, value, own, links.active, back)
