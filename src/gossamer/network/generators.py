"""Networks made by rule: fixed shapes, random graphs drawn anew, given graphs, and any function of the round.

`every` says how many rounds a drawn graph stays: 1 draws each round anew, k every k rounds, 0 once and for all.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from collections.abc import Sequence as Listed
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


_FEW_PAIRS = 2**20  # up to so many, a draw for each pair is cheap
_STEPS = 100  # of mending, until a new start


def pair_count(devices: int) -> int:
    """How many pairs of devices there are."""
    return devices * (devices - 1) // 2


@lru_cache(maxsize=4)
def _row_starts(devices: int) -> IntArray:
    """The number of the first pair of each row of the upper triangle."""
    row = np.arange(devices)
    return row * (2 * devices - 1 - row) // 2


def pair_of(number: IntArray, devices: int) -> tuple[IntArray, IntArray]:
    """The pairs (a < b) with these numbers: the upper triangle counted row by row, so that order is kept.

    >>> [array.tolist() for array in pair_of(np.arange(3), 3)]
    [[0, 0, 1], [1, 2, 2]]
    """
    starts = _row_starts(devices)
    a = np.searchsorted(starts, number, side="right") - 1
    return a, number - starts[a] + a + 1


def number_of(a: IntArray, b: IntArray, devices: int) -> IntArray:
    """The numbers of the pairs (a < b); `pair_of` is its inverse."""
    return _row_starts(devices)[a] + b - a - 1


def _numbered(devices: int, numbers: IntArray) -> Links:
    """Links from sorted pair numbers."""
    return Links(devices, *pair_of(numbers, devices))


def _others(devices: int, numbers: IntArray) -> IntArray:
    """All pair numbers but these."""
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
    """Every device is linked to every other.

    >>> len(Full(10).links(0))
    45
    """

    devices: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        limits.check_links("devices", self.devices, pair_count(self.devices))

    def links(self, t: int) -> Links:
        return _numbered(self.devices, np.arange(pair_count(self.devices)))


@register("network", "star")
@dataclass(frozen=True)
class Star(Static):
    """Every device is linked to device 0 and to no other.

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
    """The links between devices that follow each other in `order`, and between the last and the first."""
    m = len(order)
    after = np.roll(order, -1)
    code = np.sort(
        _code(order, after, m)[: m if m > 2 else m - 1]
    )  # two devices have one link, one has none
    return Links(m, code // m, code % m)


@register("network", "ring")
@dataclass(frozen=True)
class Ring(Static):
    """Device i is linked to i - 1 and i + 1, and the last to the first.

    >>> Ring(4).links(0).pairs.tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    """

    devices: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)

    def links(self, t: int) -> Links:
        return _ring(np.arange(self.devices))


class Redrawn(Network):
    """A random graph that is drawn anew every so many rounds (`every`; 0: once)."""

    seed: int
    every: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        limits.check_drawn(self.seed, self.every)

    @property
    def period(self) -> int | None:
        return None if self.every else 1

    def links(self, t: int) -> Links:
        return self._draw(t // self.every if self.every else 0)

    @abstractmethod
    def _draw(self, draw: int) -> Links:
        """The graph of draw number `draw`."""


@register("network", "random-ring")
@dataclass(frozen=True)
class RandomRing(Redrawn):
    """A ring in a new random order each round.

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
    """The paper's network: each round a given share of all pairs is linked, every choice of them equally likely.

    The number of links is density · m(m-1)/2 rounded to the nearest whole number (halves up). The paper calls density
    0.1 of 10 devices a ring; but a ring of 10 has 10 of 45 links, density 0.22, while density 0.1 is 5 links.

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
            # The pairs with the lowest draws; no two draws are equal, since a draw is a bijection of its last field.
            key = draws.row(self.seed, "links/random/key", draw, pairs)
            return _numbered(
                self.devices, np.flatnonzero(key <= np.partition(key, count - 1)[count - 1])
            )
        if 2 * count <= pairs:
            return _numbered(self.devices, self._subset(draw, count, pairs))
        return _numbered(
            self.devices, _others(self.devices, self._subset(draw, pairs - count, pairs))
        )

    def _subset(self, draw: int, count: int, pairs: int) -> IntArray:
        """`count` of the numbers below `pairs`, sorted: draw with repeats, keep the first ones that differ."""
        if not count:
            return np.empty(0, dtype=np.int64)
        # As many draws as give `count` different ones on average, and some more: one try is nearly always enough.
        size = int(-pairs * math.log1p(-count / (pairs + 1)) + 4 * math.sqrt(count) + 4)
        while True:
            # The remainder of 64 bits favours small numbers by less than pairs / 2⁶⁴, which nobody can measure.
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
        if self.probability == 1 or self.probability * pairs == 0:
            return _numbered(self.devices, np.arange(pairs if self.probability else 0))
        # The gaps between links are geometric, so only links are drawn and not all pairs (Batagelj and Brandes 2005).
        mean, rate = pairs * self.probability, -math.log1p(-self.probability)
        size = int(mean + 5 * math.sqrt(mean) + 5)
        while True:
            u = draws.as_uniform(draws.row(self.seed, "links/erdos-renyi", draw, size))
            gap = (np.minimum(-np.log1p(-u), 2 * pairs * rate) / rate).astype(
                np.int64
            )  # no number out of bounds
            number = np.cumsum(gap + 1) - 1
            if number[-1] >= pairs:
                return _numbered(self.devices, number[: np.searchsorted(number, pairs)])
            size *= 2


@register("network", "regular")
@dataclass(frozen=True)
class Regular(Redrawn):
    """A random graph in which every device has exactly `degree` neighbours (close to uniform among all such graphs).

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
            raise InputError(
                "degree",
                self.degree,
                f"an even number, since the number of devices ({self.devices}) is odd",
            )
        limits.check_links("degree", self.degree, self.devices * self.degree / 2)

    def _draw(self, draw: int) -> Links:
        m, other = self.devices, self.devices - 1 - self.degree
        if self.degree <= other:
            return _numbered(m, self._pairing(draw, self.degree))
        return _numbered(
            m, _others(m, self._pairing(draw, other))
        )  # the graph of the links that are not there

    def _pairing(self, draw: int, degree: int) -> IntArray:
        """The pair numbers of a regular graph with degree ≤ (m - 1)/2: pair the ends at random, then mend."""
        ends = np.repeat(np.arange(self.devices), degree)
        attempt = 0
        while True:
            order = draws.permutation(len(ends), self.seed, "links/regular", draw, attempt)
            u, v = ends[order].reshape(2, -1)
            mended = self._mend(u, v, draw, attempt)
            if mended is not None:
                return mended
            attempt += 1  # only very small graphs can get stuck

    def _mend(self, u: IntArray, v: IntArray, draw: int, attempt: int) -> IntArray | None:
        """Swap ends of each loop or repeated link (a, b) with a good one (c, d), where (a, d) and (c, b) are new."""
        m = self.devices
        known, first = np.unique(_code(u, v, m), return_index=True)
        good = np.zeros(len(u), dtype=bool)
        good[first] = u[first] != v[first]
        bad = np.flatnonzero(~good)
        added = np.empty(0, dtype=np.int64)
        for step in range(_STEPS):
            if not len(bad):
                code = np.sort(_code(u, v, m)) if step else known
                return number_of(code // m, code % m, m)
            partner = draws.below(
                len(u), self.seed, "links/regular/partner", draw, attempt * _STEPS + step, bad
            )
            c, d = u[partner], v[partner]
            new = np.stack([_code(u[bad], d, m), _code(c, v[bad], m)], axis=1)
            # Links that were swapped away still count as known: that refuses a swap now and then, and saves a sort.
            taken = (
                known[np.minimum(np.searchsorted(known, new), len(known) - 1)] == new
            ) | np.isin(new, added)
            fine = good[partner] & ~(taken | (new // m == new % m)).any(axis=1)
            # Of swaps that would use the same partner or make the same link, only the first is done.
            fine &= _first_come(partner) & _first_come(new.ravel()).reshape(-1, 2).all(axis=1)
            v[bad[fine]], v[partner[fine]] = d[fine], v[bad[fine]]
            good[bad[fine]] = True
            added = np.concatenate([added, new[fine].ravel()])
            bad = bad[~fine]
        return None


def _code(u: IntArray, v: IntArray, devices: int) -> IntArray:
    """Links as single numbers that sort like (smaller end, larger end)."""
    code: IntArray = np.minimum(u, v) * devices + np.maximum(u, v)
    return code


def _first_come(values: IntArray) -> BoolArray:
    """Where a value occurs for the first time."""
    mask = np.zeros(len(values), dtype=bool)
    mask[np.unique(values, return_index=True)[1]] = True
    return mask


@dataclass(frozen=True)
class Graph(Static):
    """The same given links in every round.

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
    """Several networks in turn: round t has the links that network t mod k has in its own round t div k.

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
        periods = [network.period for network in self.networks]
        return None if None in periods else len(periods) * math.lcm(*(p for p in periods if p))

    @property
    def rounds(self) -> int | None:
        k = len(self.networks)
        ends = [
            network.rounds * k + i
            for i, network in enumerate(self.networks)
            if network.rounds is not None
        ]
        return min(ends, default=None)

    def links(self, t: int) -> Links:
        turn, part = divmod(t, len(self.networks))
        return self.networks[part].links(turn)


@dataclass(frozen=True)
class Callback(Network):
    """Links from a function of the round that gives pairs, an [n, 2] array, a networkx graph on 0 … m-1, or `Links`.

    The function must give the same answer whenever it is asked for the same round.

    >>> Callback(5, lambda t: [(0, 1 + t % 4)]).links(2).pairs.tolist()
    [[0, 3]]
    """

    devices: int
    function: Callable[[int], Links | networkx.Graph[int] | ArrayLike | Listed[tuple[int, int]]]
    directed: bool = False

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        if not callable(self.function):
            raise InputError("function", self.function, "a function of the round")

    def links(self, t: int) -> Links:
        given: Any = self.function(t)
        if isinstance(given, Links):
            if (given.devices, given.directed) != (self.devices, self.directed):
                accepted = f"links of {self.devices} {'directed' if self.directed else 'undirected'} devices"
                raise InputError(f"function({t})", given, accepted)
            return given
        if hasattr(given, "is_directed"):
            if given.is_directed() and not self.directed:
                raise InputError(
                    f"function({t})", given, "an undirected graph, or set directed = true"
                )
            given = list(given.edges())
        return Links.of(self.devices, given, self.directed)


def from_networkx(graphs: networkx.Graph[Any] | Listed[networkx.Graph[Any]]) -> Network:
    """A network from a networkx graph (the same in every round) or from a list of graphs (taken in turn).

    Nodes that are the numbers 0 … m-1 keep them; others are numbered in the order of the (first) graph.

    >>> import networkx
    >>> len(from_networkx(networkx.petersen_graph()).links(0))
    15
    """
    if isinstance(graphs, Listed):
        if not graphs:
            raise InputError("graphs", graphs, "one or more graphs")
        return Cycle(tuple(_graph(graph, graphs[0]) for graph in graphs))
    return _graph(graphs, graphs)


def _graph(graph: networkx.Graph[Any], first: networkx.Graph[Any]) -> Graph:
    nodes = list(first)
    if set(graph) != set(nodes):
        raise InputError("graphs", graph, "graphs that all have the same nodes")
    number = {
        node: i
        for i, node in enumerate(sorted(nodes) if set(nodes) == set(range(len(nodes))) else nodes)
    }
    pairs = tuple((number[a], number[b]) for a, b in graph.edges())
    return Graph(len(nodes), pairs, graph.is_directed())
