"""The weights a_ij by each rule, from what its paper says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gossamer import draws
from gossamer.network import (
    BestConstant,
    Laplacian,
    Links,
    Matching,
    Metropolis,
    NetworkWeights,
    OnePair,
    PushSum,
    RandomPeer,
    ReceivedMean,
)

Number = Callable[[float], Any]
Neighbours = dict[int, list[int]]  # per device, ascending
Shares = dict[int, dict[int, Any]]  # a[i][j]: what device i takes of j, itself included


def shares(rule: Any, links: Links, t: int, seed: int, active: list[int], number: Number) -> Shares:
    """Return the weights of the active devices.

    Args:
        rule: The weight rule.
        links: The links of the round.
        t: The round.
        seed: Seed of the draws.
        active: The devices that are not away.
        number: Converts a float to the numbers of the computation.
    """
    one = number(1)
    match rule:
        case NetworkWeights() if links.weight is not None:
            a = _carried(links, active, number)
        case Metropolis() | NetworkWeights():
            a = metropolis(links, active, one)
        case Laplacian() | BestConstant():
            neighbours = neighbours_of(links)
            alpha = _laplacian_weight(rule, neighbours, one)
            a = {i: dict.fromkeys(neighbours[i], alpha) for i in active}
        case OnePair():
            a = _halves(one_pair(links, t, seed), active, one)
        case Matching():
            a = _halves(matching(links, t, seed), active, one)
        case RandomPeer():
            a = _equal_shares_of_senders(links, t, seed, active, one)
        case ReceivedMean():
            neighbours = neighbours_of(links)
            a = {i: dict.fromkeys(neighbours[i], one / (1 + len(neighbours[i]))) for i in active}
        case PushSum():
            return _push_sum(links, active, one)
        case _:
            raise NotImplementedError(rule)
    for i in active:  # a device keeps what is left of 1
        a[i][i] = one - sum(a[i][j] for j in sorted(a[i]))
    return a


def metropolis(links: Links, active: list[int], one: Any) -> Shares:
    """Return a_ij = min(1/(|N_i|+1), 1/(|N_j|+1)) for linked i and j."""
    neighbours = neighbours_of(links)
    a: Shares = {}
    for i in active:
        a[i] = {}
        for j in neighbours[i]:
            a[i][j] = min(one / (len(neighbours[i]) + 1), one / (len(neighbours[j]) + 1))
    return a


def _carried(links: Links, active: list[int], number: Number) -> Shares:
    """Return the weights that the network carries."""
    assert links.weight is not None
    a: Shares = {i: {} for i in active}
    for i, j, weight in zip(links.a, links.b, links.weight, strict=True):
        a[int(i)][int(j)] = a[int(j)][int(i)] = number(float(weight))
    return a


def _laplacian_weight(rule: Any, neighbours: Neighbours, one: Any) -> Any:
    """Return α of W = I − α·L: as set, 1/(1 + largest degree), or the best constant."""
    devices = len(neighbours)
    L = np.zeros((devices, devices))
    for i in neighbours:
        L[i, i] = len(neighbours[i])
        for j in neighbours[i]:
            L[i, j] = -1
    if isinstance(rule, BestConstant):
        positive = []
        for value in np.linalg.eigvalsh(L):
            if value > 1e-9:
                positive.append(value)
        if positive:
            return 2 / (min(positive) + max(positive))
        return one / (1 + L.diagonal().max())
    return rule.alpha or one / (1 + L.diagonal().max())


def _halves(pairs: list[tuple[int, int]], active: list[int], one: Any) -> Shares:
    """Return 1/2 for the two devices of each pair."""
    a: Shares = {i: {} for i in active}
    for i, j in pairs:
        a[i][j] = one / 2
        a[j][i] = one / 2
    return a


def one_pair(links: Links, t: int, seed: int) -> list[tuple[int, int]]:
    """Return one of the links, drawn at random."""
    pairs = [(a, b) for a, b in sorted(links.pairs.tolist())]
    if not pairs:
        return []
    return [pairs[int(draws.below(len(pairs), seed, "weights/one-pair", t))]]


def matching(links: Links, t: int, seed: int) -> list[tuple[int, int]]:
    """Return the links that both of their ends name.

    Each device names the one of its links that has the lowest draw.
    """
    pairs = [(a, b) for a, b in links.pairs.tolist()]
    named = {}
    for i in range(links.devices):
        own = [pair for pair in pairs if i in pair]
        if own:
            drawn = {}
            for p in own:
                drawn[p] = int(draws.bits(seed, "weights/matching", t, *p))
            named[i] = min(own, key=lambda pair: (drawn[pair], pair))
    return [(a, b) for a, b in pairs if named[a] == named[b] == (a, b)]


def random_peers(links: Links, t: int, seed: int) -> dict[int, int]:
    """Return the device that each device sends to, drawn from those that it can send to."""
    peers = {}
    for i, receivers in receivers_of(links).items():
        if receivers:
            drawn = draws.below(len(receivers), seed, "weights/random-peer", t, i)
            peers[i] = receivers[int(drawn)]
    return peers


def _equal_shares_of_senders(
    links: Links, t: int, seed: int, active: list[int], one: Any
) -> Shares:
    """Return equal shares of a device's own vector and those that it receives."""
    peers = random_peers(links, t, seed)
    a: Shares = {}
    for i in active:
        senders = []
        for j in active:
            if peers.get(j) == i:
                senders.append(j)
        a[i] = dict.fromkeys(senders, one / (1 + len(senders)))
    return a


def _push_sum(links: Links, active: list[int], one: Any) -> Shares:
    """Return a_ij = 1/(1 + number of receivers of j): columns sum to 1, rows need not."""
    receivers = receivers_of(links)
    a: Shares = {i: {} for i in active}
    for i in active:
        for j in active:
            if j == i or i in receivers[j]:
                a[i][j] = one / (1 + len(receivers[j]))
    return a


def receivers_of(links: Links) -> Neighbours:
    """Return the devices that each device can send to."""
    if not links.directed:
        return neighbours_of(links)
    receivers: Neighbours = {i: [] for i in range(links.devices)}
    for a, b in sorted(links.pairs.tolist()):
        receivers[a].append(b)
    return receivers


def neighbours_of(links: Links) -> Neighbours:
    """Return the devices that each device is linked to, in either direction."""
    neighbours: Neighbours = {i: [] for i in range(links.devices)}
    for a, b in links.pairs.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    return {i: sorted(others) for i, others in neighbours.items()}
