"""Assumption 1: what the rounds of a network show about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import InputError
from gossamer.network.base import Links, Network
from gossamer.network.weights import NetworkWeights, PushSum, Weights

SUM_TOLERANCE = 1e-6  # largest error of the sum of a row or column of float32 weights


@dataclass(frozen=True)
class SmallestB:
    """The smallest B of Assumption 1, for two readings.

    Attributes:
        aligned: For the paper's blocks of rounds 0…B-1, B…2B-1, …
        sliding: For every window of B rounds.
    """

    aligned: int
    sliding: int


@dataclass(frozen=True)
class Assumption1:
    """What the rounds of a network show about Assumption 1.

    Attributes:
        zeta: ζ, the smallest weight.
        b: The smallest B; None if all links together do not connect the devices.
        error: Largest difference of the sum of a row or column from 1.
    """

    zeta: float
    b: SmallestB | None
    error: float

    @property
    def holds(self) -> bool:
        """True if the assumption holds in these rounds."""
        return self.zeta > 0 and self.b is not None and self.error <= SUM_TOLERANCE


def smallest_weight(rounds: Iterable[Weights]) -> float:
    """Return ζ, the smallest weight of a link or of a device itself in all rounds.

    Args:
        rounds: The weights of each round. A link of weight 0 counts as no link.
    """
    smallest = math.inf
    for weights in rounds:
        own = weights.own.min()
        smallest = min(smallest, float(own))
        for link in (weights.value, weights.backward):
            smallest = min(smallest, float(link[link != 0].min(initial=1.0)))
    return smallest


def doubly_stochastic_error(weights: Weights) -> float:
    """Return the largest difference of the sum of a row or column from 1.

    Args:
        weights: The weights of one round.
    """
    largest = 0.0
    for of_a, of_b in ((weights.value, weights.backward), (weights.backward, weights.value)):
        to_a = np.bincount(weights.a, of_a, weights.devices)
        to_b = np.bincount(weights.b, of_b, weights.devices)
        largest = max(largest, float(np.abs(weights.own + to_a + to_b - 1.0).max()))
    return largest


def smallest_b(rounds: Iterable[Links]) -> SmallestB | None:
    """Return the smallest B such that the links of B consecutive rounds connect all devices.

    Only whole blocks and windows within the given rounds count. The bounds use the aligned B. It is
    not monotone, since the blocks move with B, so that B = 1, 2, … are tried in turn.

    Args:
        rounds: The links of each round. Directed links must connect the devices strongly.

    Returns:
        The smallest B, or None if all rounds together do not connect the devices.

    Raises:
        InputError: If there are no rounds.

    Example:
        >>> smallest_b(Links.of(3, [pair]) for pair in [(0, 1), (1, 2), (1, 2), (0, 1)])
        SmallestB(aligned=2, sliding=3)
    """
    edges: list[NDArray[Any]] = []
    devices = 0
    directed = False
    for links in rounds:
        devices = links.devices
        directed = links.directed
        edges.append(links.pairs if directed else _forest(links))
    if not edges:
        raise InputError("rounds", 0, "at least one round")
    total = len(edges)

    def connected(start: int, end: int) -> bool:
        return _components(devices, np.concatenate(edges[start:end]), directed)[0] == 1

    if not connected(0, total):
        return None
    # reach[t] is the first `end` such that rounds t…end-1 connect all devices. It never decreases
    # with t, so that both only move forward.
    reach = np.full(total, total + 1)
    end = 1
    for t in range(total):
        end = max(end, t + 1)
        while end <= total and not connected(t, end):
            end += 1
        if end > total:
            break
        reach[t] = end

    def smallest(aligned: bool) -> int:
        for b in range(1, total):
            starts = np.arange(0, total - b + 1, b if aligned else 1)
            if (reach[starts] <= starts + b).all():
                return b
        return total

    return SmallestB(smallest(aligned=True), smallest(aligned=False))


def check_assumption1(
    network: Network,
    rounds: int,
    weights: Callable[[Links, int, int], Weights] | None = None,
    seed: int = 0,
) -> Assumption1:
    """Check Assumption 1 over the first rounds of a network.

    Args:
        network: The network.
        rounds: Number of rounds to check.
        weights: A rule of `gossamer.network.weights`. None: those that the network carries, else
            Metropolis weights, or those of push-sum if links go one way.
        seed: Seed of the weights.

    Returns:
        ζ, B and the error of the sums; `holds` is True if the assumption holds.

    Raises:
        InputError: If the network has fewer rounds.

    Example:
        >>> from gossamer.network import Ring
        >>> check_assumption1(Ring(10), rounds=50).holds
        True
    """
    if network.rounds is not None and rounds > network.rounds:
        accepted = f"at most {network.rounds}, the rounds that the network has"
        raise InputError("rounds", rounds, accepted)
    if weights is None:
        weights = PushSum() if network.directed else NetworkWeights()
    rule = weights
    zeta = 1.0
    error = 0.0

    def used_links() -> Iterator[Links]:  # one round in memory at a time
        nonlocal zeta, error
        for t in range(rounds):
            w = rule(network.links(t), t, seed)
            zeta = min(zeta, smallest_weight([w]))
            error = max(error, doubly_stochastic_error(w))
            yield _used(w, network.directed)

    b = smallest_b(used_links())
    return Assumption1(zeta, b, error)


def _used(weights: Weights, directed: bool) -> Links:
    """Return the links whose weight is not 0."""
    to_a = weights.value != 0
    if not directed:
        return Links(weights.devices, weights.a[to_a], weights.b[to_a])
    to_b = weights.backward != 0
    sender = np.concatenate([weights.b[to_a], weights.a[to_b]])
    receiver = np.concatenate([weights.a[to_a], weights.b[to_b]])
    return Links.of(weights.devices, np.stack([sender, receiver], axis=1), directed=True)


def _components(devices: int, pairs: NDArray[Any], directed: bool) -> tuple[int, NDArray[Any]]:
    """Return the number of connected components, and that of each device."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(devices, devices))
    count, label = connected_components(graph, directed=directed, connection="strong")
    return int(count), label


def _forest(links: Links) -> NDArray[Any]:
    """Return fewer links that connect the same devices: each one to the first of its component."""
    label = _components(links.devices, links.pairs, directed=False)[1]
    first = np.unique(label, return_index=True)[1][label]
    moved = np.flatnonzero(first != np.arange(links.devices))
    return np.stack([first[moved], moved], axis=1)
