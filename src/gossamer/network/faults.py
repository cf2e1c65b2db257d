"""Faults on top of a network, added with `&`: `Ring(10) & LinkFailure(0.1) & Churn(0.05, 0.5)`.

Two faults of the same kind and seed draw the same random values. To put two of them on one
network, give each its own seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer._core.sorting import distinct
from gossamer.network import limits
from gossamer.network.base import BoolArray, Fault, IntArray, Links, Network
from gossamer.network.parts import Part

_DRAWS_AT_ONCE = 2**15  # draws per step back in time; small enough to stay in cache


def chain(
    seed: int, purpose: str, t: int, ids: tuple[IntArray, ...], fail: float, recover: float
) -> BoolArray:
    """Return the states in round t of independent two-state Markov chains.

    A good chain turns bad with probability `fail`, a bad one turns good with `recover`.

    One uniform draw per chain and round, by name, moves both states at once. Below both bounds the
    chain is bad, above both it is good, whatever it was before; between them it stays (or, where
    fail + recover > 1, flips). So the state of any round follows from the last draw that forces
    it, at the earliest that of round 0. The chain is stationary: before round 0 the share
    fail / (fail + recover) is bad. Where nothing recovers, that would be all chains, so all begin
    good.

    Args:
        seed: Seed of the draws.
        purpose: Name of the draws.
        t: Number of the round, from 0.
        ids: Columns of numbers that identify each chain.
        fail: Probability per round that a good chain turns bad.
        recover: Probability per round that a bad chain turns good.

    Returns:
        True for each chain that is bad.
    """
    size = len(ids[0])
    bad: BoolArray = np.zeros(size, dtype=bool)
    if fail == 0:
        return bad
    low, high = sorted((fail, 1 - recover))
    flipped: BoolArray = np.zeros(size, dtype=bool)
    undecided = np.arange(size)
    now = t
    while len(undecided) and now >= 0:
        # Look back over many rounds at once for few chains, over one round for many chains.
        expected = math.ceil(3 / max(low + 1 - high, 1e-9))
        depth = min(now + 1, expected, 1 + _DRAWS_AT_ONCE // len(undecided))
        rounds = now - np.arange(depth)[:, None]
        u = draws.uniform(seed, purpose, rounds, *(column[undecided] for column in ids))
        forced = (u < low) | (u >= high)
        # Rounds, going back, until one that forces the state.
        passed = np.where(forced.any(axis=0), forced.argmax(axis=0), depth)
        if fail + recover > 1:
            flipped[undecided] ^= passed % 2 == 1
        found = passed < depth
        bad[undecided[found]] = u[passed[found], np.flatnonzero(found)] < low
        undecided = undecided[~found]
        now -= depth
    if len(undecided) and recover > 0:
        start = draws.uniform(seed, purpose + "/start", *(column[undecided] for column in ids))
        bad[undecided] = start < fail / (fail + recover)
    return bad ^ flipped


class PairFault(Fault):
    """A fault that decides on each link by its two ends and the round alone."""

    def apply_of(self, network: Network, t: int, part: Part) -> Links:
        return self.apply(network.links_of(t, part), t)


@register("faults", "link-failure")
@dataclass(frozen=True)
class LinkFailure(PairFault):
    """Independent failures: each link of each round fails with the same probability.

    Args:
        probability: Probability that a link fails in a round.
        seed: Seed of the failures.

    Example:
        >>> from gossamer.network import Full
        >>> len((Full(10) & LinkFailure(1.0)).links(0))
        0
    """

    probability: float
    seed: int = 0

    def __post_init__(self) -> None:
        checks.probability("probability", self.probability)
        limits.check_drawn(self.seed)

    def apply(self, links: Links, t: int) -> Links:
        u = draws.uniform(self.seed, "links/failure", t, links.a, links.b)
        return links.keep(u >= self.probability)


@register("faults", "gilbert-elliott")
@dataclass(frozen=True)
class GilbertElliott(PairFault):
    """Failures in bursts: each pair of devices is in a good or a bad state.

    Bursts last 1 / recover rounds on average and cover the share fail / (fail + recover) of all
    rounds. The state belongs to the pair, whether or not it is linked.

    Args:
        fail: Probability per round that a good pair turns bad.
        recover: Probability per round that a bad pair turns good.
        loss_good: Probability that a link fails while its pair is good.
        loss_bad: Probability that a link fails while its pair is bad.
        seed: Seed of the states and failures.

    Example:
        >>> from gossamer.network import Ring
        >>> bursty = Ring(10) & GilbertElliott(fail=0.05, recover=0.25)
        >>> len(bursty.links(0)) <= 10
        True
    """

    fail: float
    recover: float
    loss_good: float = 0.0
    loss_bad: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("fail", "recover", "loss_good", "loss_bad"):
            checks.probability(name, getattr(self, name))
        limits.check_drawn(self.seed)

    def apply(self, links: Links, t: int) -> Links:
        pair = (np.minimum(links.a, links.b), np.maximum(links.a, links.b))
        bad = chain(self.seed, "links/gilbert-elliott", t, pair, self.fail, self.recover)
        if self.loss_good == 0 and self.loss_bad == 1:
            return links.keep(~bad)
        u = draws.uniform(self.seed, "links/gilbert-elliott/loss", t, links.a, links.b)
        return links.keep(u >= np.where(bad, self.loss_bad, self.loss_good))


@register("faults", "churn")
@dataclass(frozen=True)
class Churn(Fault):
    """Devices that leave and come back; while away they have no links and keep their state.

    Args:
        leave: Probability per round that a device leaves.
        come_back: Probability per round that a device that is away comes back.
        seed: Seed of the draws.

    Example:
        >>> from gossamer.network import Full
        >>> len((Full(10) & Churn(leave=1.0, come_back=0.0)).links(0))
        0
    """

    leave: float
    come_back: float
    seed: int = 0

    def __post_init__(self) -> None:
        checks.probability("leave", self.leave)
        checks.probability("come_back", self.come_back)
        limits.check_drawn(self.seed)

    def apply(self, links: Links, t: int) -> Links:
        return self._apply(links, t, np.arange(links.devices))

    def apply_of(self, network: Network, t: int, part: Part) -> Links:
        links = network.links_of(t, part)
        involved = distinct(np.concatenate([part.devices, links.a, links.b]))
        return self._apply(links, t, involved)

    def _apply(self, links: Links, t: int, devices: IntArray) -> Links:
        """Return the links that remain, where only some devices have links."""
        away = chain(self.seed, "devices/churn", t, (devices,), self.leave, self.come_back)
        present: BoolArray = np.ones(links.devices, dtype=bool)
        present[devices] = ~away
        return links.keep(present[links.a] & present[links.b], present)
