"""Random graphs, drawn again every `every` rounds.

`every` is the number of rounds that a graph stays: 1 draws a new graph every round, k every k
rounds, 0 only once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer._core.sorting import contains, distinct
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import IntArray, Links, Network
from gossamer.network.generators.fixed import ring
from gossamer.network.generators.pairs import (
    complement,
    is_first,
    links_from_numbers,
    number_of,
    pair_code,
    pair_count,
    pair_of,
)
from gossamer.network.parts import Part, links_of_ends, own_range

FEW_PAIRS = 2**20  # pairs; up to this number, one draw per pair is cheap
_REPAIR_STEPS = 100  # swaps of all bad links of a regular graph before it is drawn again


class Redrawn(Network):
    """Base class of random graphs that are drawn again every `every` rounds; 0: only once."""

    seed: int
    every: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        limits.check_drawn(self.seed, self.every)

    @property
    def period(self) -> int | None:
        if self.every == 0:
            return 1
        return None

    @property
    def structured(self) -> bool:
        return self.every == 0

    def links(self, t: int) -> Links:
        if self.every == 0:
            return self._draw(0)
        return self._draw(t // self.every)

    def links_of(self, t: int, part: Part) -> Links:
        if self.every == 0:
            return self._draw_of(0, part)
        return self._draw_of(t // self.every, part)

    def _draw_of(self, draw: int, part: Part) -> Links:
        """Return the links of one process in the graph with this number."""
        return self._draw(draw).of_part(part)

    @abstractmethod
    def _draw(self, draw: int) -> Links:
        """Return the graph with this number in the sequence of graphs."""


def chosen(count: int, probability: float, seed: int, purpose: str, draw: int) -> IntArray:
    """Choose each of the numbers below `count` independently with the same probability.

    The gaps between chosen numbers are geometric, so that only those are drawn (Batagelj and
    Brandes 2005).

    Args:
        count: How many numbers there are.
        probability: Probability that a number is chosen.
        seed: Seed of the draws.
        purpose: Name of the draws.
        draw: Number of the draw.

    Returns:
        The chosen numbers, sorted.
    """
    if count * probability == 0:
        return np.arange(0)
    if probability == 1:
        return np.arange(count)
    size = _first_size(count, probability)
    while True:
        number = np.cumsum(_gaps(draws.row(seed, purpose, draw, size), count, probability)) - 1
        if number[-1] >= count:
            return number[: np.searchsorted(number, count)]
        size *= 2


def chosen_of(
    count: int, probability: float, seed: int, purpose: str, draw: int, part: Part
) -> IntArray:
    """Return some of the numbers that `chosen` returns: each process draws other ones.

    Args:
        count: How many numbers there are.
        probability: Probability that a number is chosen.
        seed: Seed of the draws.
        purpose: Name of the draws.
        draw: Number of the draw.
        part: The process. All call this at the same time.

    Returns:
        The numbers of this process, sorted.
    """
    if count * probability == 0:
        return np.arange(0)
    if probability == 1:
        return own_range(count, part)
    size = _first_size(count, probability)
    while True:
        u = draws.bits(seed, purpose, draw, own_range(size, part))
        gap = _gaps(u, count, probability)
        totals = np.zeros(part.count, dtype=np.int64)
        totals[part.number] = gap.sum()
        totals = part.sum(totals)
        if totals.sum() - 1 >= count:
            number: IntArray = totals[: part.number].sum() + np.cumsum(gap) - 1
            return number[: np.searchsorted(number, count)]
        size *= 2


def _first_size(count: int, probability: float) -> int:
    """Return how many draws nearly always choose from all numbers."""
    mean = count * probability
    return int(mean + 5 * math.sqrt(mean) + 5)


def _gaps(bits: NDArray[np.uint64], count: int, probability: float) -> IntArray:
    """Return geometric distances from one chosen number to the next."""
    rate = -math.log1p(-probability)
    u = draws.as_uniform(bits)
    bounded = np.minimum(-np.log1p(-u), 2 * count * rate)  # fits in int64 after division
    return (bounded / rate).astype(np.int64) + 1


@register("network", "random-ring")
@dataclass(frozen=True)
class RandomRing(Redrawn):
    """A ring in a random order.

    On a cluster every shard draws and sorts the whole order.

    Args:
        devices: Number of devices.
        seed: Seed of the orders.
        every: Number of rounds that an order stays; 0 for one order throughout.

    Example:
        >>> set(RandomRing(10).links(7).degrees.tolist())
        {2}
    """

    devices: int
    seed: int = 0
    every: int = 1

    def _draw(self, draw: int) -> Links:
        return ring(draws.permutation(self.devices, self.seed, "links/random-ring", draw))


@register("network", "random")
@dataclass(frozen=True)
class Random(Redrawn):
    """The network of the WPM paper: each round links a given share of all pairs.

    Every choice of that many pairs is equally likely. The number of links is density · m(m-1)/2,
    rounded to the nearest whole number (halves up). The paper calls density 0.1 of 10 devices a
    ring; but a ring of 10 devices has 10 of 45 links, density 0.22, while density 0.1 is 5 links.

    Args:
        devices: Number of devices m.
        density: Share of all pairs that are linked, from 0 to 1.
        seed: Seed of the links.
        every: Number of rounds that links stay; 0 for the same links throughout.

    Example:
        >>> from gossamer import Ring
        >>> len(Random(10, density=0.1).links(0)), round(Ring(10).links(0).density, 2)
        (5, 0.22)
    """

    devices: int
    density: float
    seed: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.probability("density", self.density)
        limits.check_links("density", self.density, self.density * pair_count(self.devices))

    def _draw(self, draw: int) -> Links:
        pairs = pair_count(self.devices)
        count = math.floor(self.density * pairs + 0.5)
        if count > 0 and 8 * count >= pairs and pairs <= FEW_PAIRS:
            # The pairs with the lowest draws. No two draws are equal, since a draw is a bijection
            # of its last argument.
            key = draws.row(self.seed, "links/random/key", draw, pairs)
            largest = np.partition(key, count - 1)[count - 1]
            numbers = np.flatnonzero(key <= largest)
        elif 2 * count <= pairs:
            numbers = self._subset(draw, count, pairs)
        else:
            numbers = complement(self.devices, self._subset(draw, pairs - count, pairs))
        return links_from_numbers(self.devices, numbers)

    def _draw_of(self, draw: int, part: Part) -> Links:
        pairs = pair_count(self.devices)
        count = math.floor(self.density * pairs + 0.5)
        few = 8 * count >= pairs and pairs <= FEW_PAIRS
        if count == 0 or few or 2 * count > pairs:
            return self._draw(draw).of_part(part)
        numbers = self._subset_of(draw, count, pairs, part)
        return links_of_ends(self.devices, *pair_of(numbers, self.devices), part)

    def _subset_of(self, draw: int, count: int, pairs: int, part: Part) -> IntArray:
        """Return some of the numbers of `_subset`: those of the processes are all of them.

        Each process draws its share of the first `count`. The process of a pair's first device
        finds the repeats, and all draw the few that replace them.
        """
        drawn = self._numbers(draw, own_range(count, part), pairs)
        different = distinct(part.send(drawn, part.owner[pair_of(drawn, self.devices)[0]]))
        missing = count - int(part.sum(np.array([len(different)]))[0])
        extra = missing
        while missing:
            extra = 2 * extra + 4
            others = self._numbers(draw, np.arange(count, count + extra), pairs)
            taken = part.sum(contains(different, others).astype(np.int64)) > 0
            others = others[~taken]
            added = others[is_first(others)][:missing]
            if len(added) == missing:
                here = part.owner[pair_of(added, self.devices)[0]] == part.number
                return np.concatenate([different, added[here]])
        return different

    def _numbers(self, draw: int, number: IntArray, pairs: int) -> IntArray:
        """Return pair numbers by the numbers of their draws, as `_subset` draws them."""
        remainder = draws.bits(self.seed, "links/random", draw, number) % np.uint64(pairs)
        found: IntArray = remainder.view(np.int64)
        return found

    def _subset(self, draw: int, count: int, pairs: int) -> IntArray:
        """Return `count` of the numbers below `pairs`, sorted.

        Numbers are drawn with repeats, and the first `count` different ones are taken.
        """
        if count == 0:
            return np.empty(0, dtype=np.int64)
        # The number of draws that gives `count` different ones on average, plus a margin with
        # which one attempt is nearly always enough.
        size = int(-pairs * math.log1p(-count / (pairs + 1)) + 4 * math.sqrt(count) + 4)
        while True:
            # The remainder of 64 bits favours small numbers by less than pairs / 2⁶⁴.
            remainder = draws.row(self.seed, "links/random", draw, size) % np.uint64(pairs)
            number = remainder.view(np.int64)
            # Sparse links rarely repeat: most are among the first `count` draws.
            different = distinct(number[:count])
            missing = count - len(different)
            others = number[count:]
            others = others[~contains(different, others)]
            added = others[is_first(others)][:missing]
            if len(added) == missing:
                return np.sort(np.concatenate([different, added]), kind="stable")
            size *= 2


@register("network", "erdos-renyi")
@dataclass(frozen=True)
class ErdosRenyi(Redrawn):
    """Each pair is linked with the same probability, independently of all others.

    Args:
        devices: Number of devices.
        probability: Probability of a link.
        seed: Seed of the links.
        every: Number of rounds that links stay; 0 for the same links throughout.

    Example:
        >>> from gossamer import Full
        >>> ErdosRenyi(10, probability=1.0).links(0) == Full(10).links(0)
        True
    """

    devices: int
    probability: float
    seed: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.probability("probability", self.probability)
        limits.check_links(
            "probability", self.probability, self.probability * pair_count(self.devices)
        )

    def _draw(self, draw: int) -> Links:
        pairs = pair_count(self.devices)
        numbers = chosen(pairs, self.probability, self.seed, "links/erdos-renyi", draw)
        return links_from_numbers(self.devices, numbers)

    def _draw_of(self, draw: int, part: Part) -> Links:
        pairs = pair_count(self.devices)
        purpose = "links/erdos-renyi"
        numbers = chosen_of(pairs, self.probability, self.seed, purpose, draw, part)
        return links_of_ends(self.devices, *pair_of(numbers, self.devices), part)


@register("network", "regular")
@dataclass(frozen=True)
class Regular(Redrawn):
    """A random graph in which every device has the same number of neighbours.

    The distribution is close to uniform among all such graphs. On a cluster every shard draws the
    whole graph, since all ends of links are shuffled together.

    Args:
        devices: Number of devices.
        degree: Number of neighbours of each device. It must be even if `devices` is odd.
        seed: Seed of the graphs.
        every: Number of rounds that a graph stays; 0 for one graph throughout.

    Example:
        >>> set(Regular(10, degree=3).links(5).degrees.tolist())
        {3}
    """

    devices: int
    degree: int
    seed: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("degree", self.degree, 0, self.devices - 1)
        if self.devices * self.degree % 2:
            accepted = f"an even number, since the number of devices ({self.devices}) is odd"
            raise InputError("degree", self.degree, accepted)
        limits.check_links("degree", self.degree, self.devices * self.degree / 2)

    def _draw(self, draw: int) -> Links:
        complement_degree = self.devices - 1 - self.degree
        if self.degree <= complement_degree:
            numbers = self._pairing(draw, self.degree)
        else:  # drawing the links that do not exist is cheaper
            numbers = complement(self.devices, self._pairing(draw, complement_degree))
        return links_from_numbers(self.devices, numbers)

    def _pairing(self, draw: int, degree: int) -> IntArray:
        """Return the pair numbers of a regular graph with degree ≤ (m - 1)/2.

        The ends of all links are paired at random; then loops and repeated links are repaired.
        """
        ends = np.repeat(np.arange(self.devices), degree)
        attempt = 0
        while True:
            order = draws.permutation(len(ends), self.seed, "links/regular", draw, attempt)
            u, v = ends[order].reshape(2, -1)
            repaired = self._repair(u, v, draw, attempt)
            if repaired is not None:
                return repaired
            attempt += 1  # only very small graphs can get stuck

    def _repair(self, u: IntArray, v: IntArray, draw: int, attempt: int) -> IntArray | None:
        """Swap ends of each loop or repeated link (a, b) with those of a good link (c, d).

        A swap is made only if (a, d) and (c, b) are new links. Returns None if some bad link
        remains after all steps.
        """
        m = self.devices
        known, first = np.unique(pair_code(u, v, m), return_index=True)
        good = np.zeros(len(u), dtype=bool)
        good[first] = u[first] != v[first]
        bad = np.flatnonzero(~good)
        added = np.empty(0, dtype=np.int64)
        for step in range(_REPAIR_STEPS):
            if not len(bad):
                code = np.sort(pair_code(u, v, m)) if step else known
                return number_of(code // m, code % m, m)
            number = attempt * _REPAIR_STEPS + step
            partner = draws.below(len(u), self.seed, "links/regular/partner", draw, number, bad)
            c = u[partner]
            d = v[partner]
            new = np.stack([pair_code(u[bad], d, m), pair_code(c, v[bad], m)], axis=1)
            # Links that were swapped away still count as known. That refuses a swap now and then,
            # and saves sorting in every step.
            taken = contains(known, new) | np.isin(new, added)
            is_loop = new // m == new % m
            accepted = good[partner] & ~(taken | is_loop).any(axis=1)
            # Of swaps with the same partner, or that make the same link, only the first is made.
            accepted &= is_first(partner)
            accepted &= is_first(new.ravel()).reshape(-1, 2).all(axis=1)
            moved = v[bad[accepted]]
            v[bad[accepted]] = d[accepted]
            v[partner[accepted]] = moved
            good[bad[accepted]] = True
            added = np.concatenate([added, new[accepted].ravel()])
            bad = bad[~accepted]
        return None
