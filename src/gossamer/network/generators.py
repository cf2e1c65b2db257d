"""Networks from rules: fixed shapes, random graphs, given graphs, and any function of the round.

`every` is the number of rounds that a random graph stays: 1 draws a new graph every round, k every
k rounds, 0 only once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import BoolArray, IntArray, Links, Network

if TYPE_CHECKING:
    import networkx


_FEW_PAIRS = 2**20  # pairs; up to this number, one draw per pair is cheap
_REPAIR_STEPS = 100  # swaps of all bad links of a regular graph before it is drawn again


def pair_count(devices: int) -> int:
    """Return the number of pairs of devices.

    Args:
        devices: Number of devices.
    """
    return devices * (devices - 1) // 2


@lru_cache(maxsize=4)
def _row_starts(devices: int) -> IntArray:
    """Return the number of the first pair of each row of the upper triangle."""
    row = np.arange(devices)
    return row * (2 * devices - 1 - row) // 2


def pair_of(number: IntArray, devices: int) -> tuple[IntArray, IntArray]:
    """Return the pairs with the given numbers.

    Pairs are numbered row by row in the upper triangle of the adjacency matrix, so that sorted
    numbers give sorted pairs.

    Args:
        number: Numbers of pairs, from 0 to pair_count(devices) - 1.
        devices: Number of devices.

    Returns:
        The pairs as two arrays a and b with a < b.

    Example:
        >>> [array.tolist() for array in pair_of(np.arange(3), 3)]
        [[0, 0, 1], [1, 2, 2]]
    """
    starts = _row_starts(devices)
    a = np.searchsorted(starts, number, side="right") - 1
    return a, number - starts[a] + a + 1


def number_of(a: IntArray, b: IntArray, devices: int) -> IntArray:
    """Return the numbers of pairs; the inverse of `pair_of`.

    Args:
        a: First device of each pair.
        b: Second device of each pair; a < b.
        devices: Number of devices.
    """
    return _row_starts(devices)[a] + b - a - 1


def _links_from_numbers(devices: int, numbers: IntArray) -> Links:
    """Return the links with these sorted pair numbers."""
    return Links(devices, *pair_of(numbers, devices))


def _complement(devices: int, numbers: IntArray) -> IntArray:
    """Return all pair numbers except these."""
    rest: BoolArray = np.ones(pair_count(devices), dtype=bool)
    rest[numbers] = False
    return np.flatnonzero(rest)


class Static(Network):
    """A network whose links never change."""

    @property
    def period(self) -> int | None:
        return 1


@register("network", "full")
@dataclass(frozen=True)
class Full(Static):
    """Every device is linked to every other one.

    Args:
        devices: Number of devices.

    Example:
        >>> len(Full(10).links(0))
        45
    """

    devices: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        limits.check_links("devices", self.devices, pair_count(self.devices))

    def links(self, t: int) -> Links:
        return _links_from_numbers(self.devices, np.arange(pair_count(self.devices)))


@register("network", "star")
@dataclass(frozen=True)
class Star(Static):
    """Every device is linked to device 0 only.

    Args:
        devices: Number of devices, device 0 included.

    Example:
        >>> Star(4).links(0).degrees.tolist()
        [3, 1, 1, 1]
    """

    devices: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)

    def links(self, t: int) -> Links:
        b = np.arange(1, self.devices)
        return Links(self.devices, np.zeros_like(b), b)


def _ring(order: IntArray) -> Links:
    """Link devices that follow each other in `order`, and the last to the first."""
    m = len(order)
    code = _code(order, np.roll(order, -1), m)
    if m <= 2:  # two devices have one link, one device has none
        code = code[: m - 1]
    code = np.sort(code)
    return Links(m, code // m, code % m)


@register("network", "ring")
@dataclass(frozen=True)
class Ring(Static):
    """Device i is linked to i - 1 and i + 1, and the last device to the first.

    Args:
        devices: Number of devices.

    Example:
        >>> Ring(4).links(0).pairs.tolist()
        [[0, 1], [0, 3], [1, 2], [2, 3]]
    """

    devices: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)

    def links(self, t: int) -> Links:
        return _ring(np.arange(self.devices))


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

    def links(self, t: int) -> Links:
        if self.every == 0:
            return self._draw(0)
        return self._draw(t // self.every)

    @abstractmethod
    def _draw(self, draw: int) -> Links:
        """Return the graph with this number in the sequence of graphs."""


@register("network", "random-ring")
@dataclass(frozen=True)
class RandomRing(Redrawn):
    """A ring in a random order.

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
        return _ring(draws.permutation(self.devices, self.seed, "links/random-ring", draw))


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
        if count > 0 and 8 * count >= pairs and pairs <= _FEW_PAIRS:
            # The pairs with the lowest draws. No two draws are equal, since a draw is a bijection
            # of its last argument.
            key = draws.row(self.seed, "links/random/key", draw, pairs)
            largest = np.partition(key, count - 1)[count - 1]
            numbers = np.flatnonzero(key <= largest)
        elif 2 * count <= pairs:
            numbers = self._subset(draw, count, pairs)
        else:
            numbers = _complement(self.devices, self._subset(draw, pairs - count, pairs))
        return _links_from_numbers(self.devices, numbers)

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
            number = draws.row(self.seed, "links/random", draw, size) % np.uint64(pairs)
            different, first = np.unique(number, return_index=True)
            if len(different) >= count:
                last = np.partition(first, count - 1)[count - 1]
                chosen: IntArray = different[first <= last].astype(np.int64)
                return chosen
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
        if self.probability * pairs == 0:
            return _links_from_numbers(self.devices, np.arange(0))
        if self.probability == 1:
            return _links_from_numbers(self.devices, np.arange(pairs))
        # The gaps between links are geometric, so that only links are drawn and not all pairs
        # (Batagelj and Brandes 2005).
        mean = pairs * self.probability
        rate = -math.log1p(-self.probability)
        size = int(mean + 5 * math.sqrt(mean) + 5)
        while True:
            u = draws.as_uniform(draws.row(self.seed, "links/erdos-renyi", draw, size))
            bounded = np.minimum(-np.log1p(-u), 2 * pairs * rate)  # fits in int64 after division
            gap = (bounded / rate).astype(np.int64)
            number = np.cumsum(gap + 1) - 1
            if number[-1] >= pairs:
                numbers = number[: np.searchsorted(number, pairs)]
                return _links_from_numbers(self.devices, numbers)
            size *= 2


@register("network", "regular")
@dataclass(frozen=True)
class Regular(Redrawn):
    """A random graph in which every device has the same number of neighbours.

    The distribution is close to uniform among all such graphs.

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
            numbers = _complement(self.devices, self._pairing(draw, complement_degree))
        return _links_from_numbers(self.devices, numbers)

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
        known, first = np.unique(_code(u, v, m), return_index=True)
        good = np.zeros(len(u), dtype=bool)
        good[first] = u[first] != v[first]
        bad = np.flatnonzero(~good)
        added = np.empty(0, dtype=np.int64)
        for step in range(_REPAIR_STEPS):
            if not len(bad):
                code = np.sort(_code(u, v, m)) if step else known
                return number_of(code // m, code % m, m)
            number = attempt * _REPAIR_STEPS + step
            partner = draws.below(len(u), self.seed, "links/regular/partner", draw, number, bad)
            c = u[partner]
            d = v[partner]
            new = np.stack([_code(u[bad], d, m), _code(c, v[bad], m)], axis=1)
            # Links that were swapped away still count as known. That refuses a swap now and then,
            # and saves sorting in every step.
            nearest = np.minimum(np.searchsorted(known, new), len(known) - 1)
            taken = (known[nearest] == new) | np.isin(new, added)
            is_loop = new // m == new % m
            accepted = good[partner] & ~(taken | is_loop).any(axis=1)
            # Of swaps with the same partner, or that make the same link, only the first is made.
            accepted &= _is_first(partner)
            accepted &= _is_first(new.ravel()).reshape(-1, 2).all(axis=1)
            moved = v[bad[accepted]]
            v[bad[accepted]] = d[accepted]
            v[partner[accepted]] = moved
            good[bad[accepted]] = True
            added = np.concatenate([added, new[accepted].ravel()])
            bad = bad[~accepted]
        return None


def _code(u: IntArray, v: IntArray, devices: int) -> IntArray:
    """Return links as single numbers that sort like (smaller end, larger end)."""
    code: IntArray = np.minimum(u, v) * devices + np.maximum(u, v)
    return code


def _is_first(values: IntArray) -> BoolArray:
    """Return a mask of the first occurrence of each value."""
    mask = np.zeros(len(values), dtype=bool)
    mask[np.unique(values, return_index=True)[1]] = True
    return mask


@dataclass(frozen=True)
class Graph(Static):
    """The same given links in every round.

    Args:
        devices: Number of devices.
        pairs: The links as pairs of device numbers.
        directed: True if a pair (a, b) is a link from a to b only.

    Example:
        >>> Graph(3, pairs=((0, 1), (1, 2))).links(5).degrees.tolist()
        [1, 2, 1]
    """

    devices: int
    pairs: tuple[tuple[int, int], ...]
    directed: bool = False
    _links: Links = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        object.__setattr__(self, "_links", Links.of(self.devices, self.pairs, self.directed))

    def links(self, t: int) -> Links:
        return self._links


@register("network", "cycle")
@dataclass(frozen=True)
class Cycle(Network):
    """Several networks in turn: of k networks, round t has round t div k of network t mod k.

    Args:
        networks: One or more networks with the same number of devices, all directed or none.

    Example:
        >>> day_and_night = Cycle((Ring(10), Full(10)))
        >>> [len(day_and_night.links(t)) for t in range(4)]
        [10, 45, 10, 45]
    """

    networks: tuple[Network, ...]

    def __post_init__(self) -> None:
        kinds = {(network.devices, network.directed) for network in self.networks}
        if len(kinds) != 1:
            accepted = "one or more networks with the same number of devices, all directed or none"
            raise InputError("networks", self.networks, accepted)

    @property
    def devices(self) -> int:  # type: ignore[override]
        return self.networks[0].devices

    @property
    def directed(self) -> bool:  # type: ignore[override]
        return self.networks[0].directed

    @property
    def period(self) -> int | None:
        least_common = 1
        for network in self.networks:
            if network.period is None:
                return None
            least_common = math.lcm(least_common, network.period)
        return len(self.networks) * least_common

    @property
    def rounds(self) -> int | None:
        ends = []
        for turn, network in enumerate(self.networks):
            if network.rounds is not None:
                ends.append(network.rounds * len(self.networks) + turn)
        return min(ends, default=None)

    def links(self, t: int) -> Links:
        inner_round, turn = divmod(t, len(self.networks))
        return self.networks[turn].links(inner_round)


@dataclass(frozen=True)
class Callback(Network):
    """Links from a function of the round.

    Args:
        devices: Number of devices.
        function: A function of the round that returns pairs, an array [links, 2], a networkx
            graph with the nodes 0 … devices-1, or `Links`. It must return the same links whenever
            it is called with the same round.
        directed: True if links go one way.

    Example:
        >>> Callback(5, lambda t: [(0, 1 + t % 4)]).links(2).pairs.tolist()
        [[0, 3]]
    """

    devices: int
    function: Callable[[int], Links | networkx.Graph[int] | ArrayLike | Sequence[tuple[int, int]]]
    directed: bool = False

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        if not callable(self.function):
            raise InputError("function", self.function, "a function of the round")

    def links(self, t: int) -> Links:
        given: Any = self.function(t)
        if isinstance(given, Links):
            if given.devices != self.devices or given.directed != self.directed:
                kind = "directed" if self.directed else "undirected"
                accepted = f"links of {self.devices} {kind} devices"
                raise InputError(f"function({t})", given, accepted)
            return given
        if hasattr(given, "is_directed"):  # a networkx graph, without importing networkx
            if given.is_directed() and not self.directed:
                accepted = "an undirected graph, or set directed = true"
                raise InputError(f"function({t})", given, accepted)
            given = list(given.edges())
        return Links.of(self.devices, given, self.directed)


def from_networkx(graphs: networkx.Graph[Any] | Sequence[networkx.Graph[Any]]) -> Network:
    """Create a network from networkx graphs.

    Args:
        graphs: One graph, which is the same in every round, or several, which are taken in turn.
            Nodes that are the numbers 0 … m-1 keep them; other nodes are numbered in the order of
            the (first) graph.

    Returns:
        A `Graph`, or a `Cycle` of several.

    Raises:
        InputError: If there is no graph, or if graphs have different nodes.

    Example:
        >>> import networkx
        >>> len(from_networkx(networkx.petersen_graph()).links(0))
        15
    """
    if isinstance(graphs, Sequence):
        if not graphs:
            raise InputError("graphs", graphs, "one or more graphs")
        return Cycle(tuple(_graph(graph, graphs[0]) for graph in graphs))
    return _graph(graphs, graphs)


def _graph(graph: networkx.Graph[Any], first: networkx.Graph[Any]) -> Graph:
    nodes = list(first)
    if set(graph) != set(nodes):
        raise InputError("graphs", graph, "graphs that all have the same nodes")
    if set(nodes) == set(range(len(nodes))):
        nodes.sort()
    number = {node: i for i, node in enumerate(nodes)}
    pairs = tuple((number[a], number[b]) for a, b in graph.edges())
    return Graph(len(nodes), pairs, graph.is_directed())
