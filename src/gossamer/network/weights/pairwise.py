"""Weights of pairs: a device averages with at most one neighbour per round."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gossamer import draws
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network.base import IntArray, Links
from gossamer.network.weights.base import LinkWeight, Sums, WeightRule, Weights, check_symmetric

_MATCHING_DRAW = "weights/matching"


def one_pair(links: Links, t: int, seed: int) -> Weights:
    """Return the weights of SwarmSGD: the two devices of one random link average.

    Args:
        links: Symmetric links; each is equally likely.
        t: Number of the round.
        seed: Seed of the draw.

    Returns:
        The weights. All other devices are inactive.

    Raises:
        InputError: If the links are directed.
    """
    check_symmetric(links)
    if not len(links):
        return _halves(links, np.empty(0, dtype=np.int64))
    return _halves(links, np.atleast_1d(draws.below(len(links), seed, "weights/one-pair", t)))


def matching(links: Links, t: int, seed: int) -> Weights:
    """Return weights of pairs that form without a coordinator.

    A link is active if its random draw is the lowest one at both of its ends. The draw of a link
    is a function of (seed, t, a, b) alone. So each device finds the lowest draw among its own
    links and tells its neighbours; a link that both ends choose is active. Of equal draws
    (probability 2⁻⁶⁴) the lower (a, b) counts as lower.

    Args:
        links: Symmetric links.
        t: Number of the round.
        seed: Seed of the draws.

    Returns:
        The weights: 1/2 on active links. Devices without an active link are inactive.

    Raises:
        InputError: If the links are directed.
    """
    check_symmetric(links)
    order = np.argsort(draws.bits(seed, _MATCHING_DRAW, t, links.a, links.b), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    lowest = np.full(links.devices, len(links))
    np.minimum.at(lowest, links.a, rank)
    np.minimum.at(lowest, links.b, rank)
    return _halves(links, np.flatnonzero((rank == lowest[links.a]) & (rank == lowest[links.b])))


def _halves(links: Links, chosen: IntArray) -> Weights:
    """Return weight 1/2 on the chosen links, which share no device; only their ends are active."""
    a = links.a[chosen]
    b = links.b[chosen]
    active = np.zeros(links.devices, dtype=bool)
    active[a] = True
    active[b] = True
    return Weights(links.devices, a, b, np.full(len(a), 0.5), np.where(active, 0.5, 1.0), active)


@register("weights", "one-pair")
@dataclass(frozen=True)
class OnePair(WeightRule):
    """One random link of the round averages (SwarmSGD).

    All devices must agree on the link, so that it runs in simulations only.

    Example:
        >>> OnePair()(Links.of(4, [(0, 1), (2, 3)]), t=0, seed=0).active.sum().item()
        2
    """

    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        return one_pair(links, t, seed)

    def link_weight(self) -> LinkWeight:
        accepted = (
            'pairs = "matching", which devices find among themselves;'
            " one pair of all needs a clock that all share"
        )
        raise InputError("weights", "OnePair", accepted)


@register("weights", "matching")
@dataclass(frozen=True)
class Matching(WeightRule):
    """Pairs that form without a coordinator; see `matching`.

    Example:
        >>> Matching()(Links.of(4, [(0, 1), (2, 3)]), t=0, seed=0).active.sum().item()
        4
    """

    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"
    paired: ClassVar[bool] = True

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        return matching(links, t, seed)

    def link_weight(self) -> LinkWeight:
        return lambda own, other: 0.5

    def proposal(self, device: int, neighbours: Collection[int], t: int, seed: int) -> int:
        others = np.array(sorted(neighbours))
        a = np.minimum(others, device)
        b = np.maximum(others, device)
        draw = draws.bits(seed, _MATCHING_DRAW, t, a, b)
        # Sorted by neighbour, the links are sorted too: of equal draws the lower link is first.
        return int(others[np.argmin(draw)])
