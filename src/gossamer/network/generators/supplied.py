"""Graphs that the caller supplies, several networks in turn, and any function of the round."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gossamer._core.arguments import checked, conversion
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import Links, Network
from gossamer.network.generators.fixed import Static

if TYPE_CHECKING:
    import networkx

    from gossamer.network.parts import Part


@checked
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
        >>> from gossamer import Full, Ring
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
    def weighted(self) -> bool:  # type: ignore[override]
        return any(network.weighted for network in self.networks)

    @property
    def schedule(self) -> Network | None:
        schedules = []
        for network in self.networks:
            if network.schedule is None:
                return None
            schedules.append(network.schedule)
        return Cycle(tuple(schedules))

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

    def links_of(self, t: int, part: Part) -> Links:
        inner_round, turn = divmod(t, len(self.networks))
        return self.networks[turn].links_of(inner_round, part)


@checked
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


@checked
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


@conversion(Network)
def _network_of(field: str, value: Any) -> Any:
    """Make a network from a networkx graph; name the wrapper of a function and of pairs."""
    if callable(value) and not isinstance(value, type):
        raise InputError(field, value, "gs.Callback(devices=…, function=…)")
    if isinstance(value, list | tuple | np.ndarray):
        raise InputError(field, value, "gs.Graph(devices=…, pairs=…), or a networkx graph")
    if "networkx" in sys.modules:
        import networkx

        if isinstance(value, networkx.Graph):
            return from_networkx(value)
    return value


def _graph(graph: networkx.Graph[Any], first: networkx.Graph[Any]) -> Graph:
    if not all(hasattr(each, "edges") and hasattr(each, "is_directed") for each in (graph, first)):
        raise InputError("graphs", graph, "a networkx graph, or a list of them")
    nodes = list(first)
    if set(graph) != set(nodes):
        raise InputError("graphs", graph, "graphs that all have the same nodes")
    if set(nodes) == set(range(len(nodes))):
        nodes.sort()
    number = {node: i for i, node in enumerate(nodes)}
    pairs = tuple((number[a], number[b]) for a, b in graph.edges())
    return Graph(len(nodes), pairs, graph.is_directed())
