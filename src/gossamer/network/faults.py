"""What goes wrong on top of a network, put on with `&`: `Ring(10) & LinkFailure(0.1) & Churn(0.05, 0.5)`.

Faults with the same seed and purpose draw the same numbers: give each of two equal faults on one network its own seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.network import limits
from gossamer.network.base import BoolArray, Fault, IntArray, Links


def chain(
    seed: int, purpose: str, t: int, ids: tuple[IntArray, ...], fail: float, recover: float
) -> BoolArray:
    """The state in round t of one two-state Markov chain for each of `ids`: True is bad.

    Good turns bad with probability `fail`, bad turns good with `recover`. One uniform draw u by name for each chain and
    round moves both states at once: below both bounds the chain is bad, above both good, whatever it was before;
    between them it stays (or, where fail + recover > 1, flips). So the state of any round is found by looking back to
    the last draw that forces it, at the latest to round 0. The chain is stationary: before round 0 the share
    fail / (fail + recover) is bad. Where nothing recovers that would be all, so there all begin good.
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
        # Many rounds at once for few chains, one for many: the same answer in fewer steps.
        enough = math.ceil(3 / max(low + 1 - high, 1e-9))
        depth = min(now + 1, enough, 1 + 2**15 // len(undecided))
        u = draws.uniform(
            seed, purpose, now - np.arange(depth)[:, None], *(column[undecided] for column in ids)
        )
        forced = (u < low) | (u >= high)
        passed = np.where(
            forced.any(axis=0), forced.argmax(axis=0), depth
        )  # rounds that do not force, going back
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


@register("faults", "link-failure")
@dataclass(frozen=True)
class LinkFailure(Fault):
    """Each link of each round fails with the same probability, independently.

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
        return links.keep(
            draws.uniform(self.seed, "links/failure", t, links.a, links.b) >= self.probability
        )


@register("faults", "gilbert-elliott")
@dataclass(frozen=True)
class GilbertElliott(Fault):
    """Failures in bursts: each pair of devices is in a good or a bad state, and loses more of its links in the bad one.

    Good turns bad with probability `fail` a round, bad turns good with `recover`: bursts last 1 / recover rounds and
    cover the share fail / (fail + recover) of all rounds. The state belongs to the pair, whether or not it is linked.

    >>> from gossamer.network import Ring
    >>> bursty = Ring(10) & GilbertElliott(fail=0.05, recover=0.25)
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
        if (self.loss_good, self.loss_bad) == (0, 1):
            return links.keep(~bad)
        lost = draws.uniform(self.seed, "links/gilbert-elliott/loss", t, links.a, links.b)
        return links.keep(lost >= np.where(bad, self.loss_bad, self.loss_good))


@register("faults", "churn")
@dataclass(frozen=True)
class Churn(Fault):
    """Devices that go away (probability `leave` a round) and come back (`come_back`); while away they have no links.

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
        here = ~chain(
            self.seed, "devices/churn", t, (np.arange(links.devices),), self.leave, self.come_back
        )
        return links.keep(here[links.a] & here[links.b], here)
