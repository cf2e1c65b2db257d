"""Links and networks: who is linked to whom in round t.

A `Network` gives the links of any round, pure in (its own fields, t). A `Fault` thins the links of a network out:
`Ring(10) & LinkFailure(0.1) & Churn(0.05, 0.5)` is a network again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.errors import InputError

if TYPE_CHECKING:
    import networkx

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Links:
    """The links of one round as an edge list, each link once.

    Symmetric links have a < b; directed ones go from a to b. Sorted by (a, b). `active` marks the devices that take
    part in the round (None: all); a device that is away has no links and keeps its state.

    >>> Links.of(3, [(2, 0), (0, 1)]).pairs.tolist()
    [[0, 1], [0, 2]]
    """

    devices: int
    a: IntArray
    b: IntArray
    directed: bool = False
    active: BoolArray | None = None

    @classmethod
    def of(
        cls, devices: int, pairs: ArrayLike | Iterable[tuple[int, int]], directed: bool = False
    ) -> Links:
        """Links from pairs in any order; loops and repeats are dropped, devices out of range refused."""
        given: Any = pairs if isinstance(pairs, np.ndarray) else list(pairs)  # type: ignore[arg-type]
        try:
            array = np.asarray(given) if len(given) else np.empty((0, 2), dtype=np.int64)
        except ValueError:  # pairs of different lengths
            array = np.empty(0)
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
            raise InputError("links", given, "pairs (a, b) of whole numbers")
        array = array.astype(np.int64)
        outside = (array < 0) | (array >= devices)
        if outside.any():
            pair = array[outside.any(axis=1)][0].tolist()
            raise InputError("link", tuple(pair), f"devices numbered 0 to {devices - 1}")
        a, b = array[:, 0], array[:, 1]
        if not directed:
            a, b = np.minimum(a, b), np.maximum(a, b)
        code = np.unique((a * devices + b)[a != b])
        return cls(devices, code // devices, code % devices, directed)

    @property
    def pairs(self) -> IntArray:
        return np.stack([self.a, self.b], axis=1)

    def __len__(self) -> int:
        return len(self.a)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Links):
            return NotImplemented
        everyone = np.ones(self.devices, dtype=bool)
        return (
            (self.devices, self.directed) == (other.devices, other.directed)
            and np.array_equal(self.a, other.a)
            and np.array_equal(self.b, other.b)
            and np.array_equal(
                everyone if self.active is None else self.active,
                everyone if other.active is None else other.active,
            )
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def degrees(self) -> IntArray:
        """How many neighbours each device has (out-degree where links are directed)."""
        degree = np.bincount(self.a, minlength=self.devices)
        return degree if self.directed else degree + np.bincount(self.b, minlength=self.devices)

    @property
    def density(self) -> float:
        """The share of possible links that are there."""
        possible = self.devices * (self.devices - 1) / (1 if self.directed else 2)
        return len(self) / possible if possible else 0.0

    def keep(self, mask: BoolArray, active: BoolArray | None = None) -> Links:
        """The links where `mask` holds, and `active` devices joined with those already marked."""
        if self.active is not None:
            active = self.active if active is None else self.active & active
        return Links(self.devices, self.a[mask], self.b[mask], self.directed, active)

    def to_networkx(self) -> networkx.Graph[int]:
        """As a networkx graph on 0 … devices-1."""
        import networkx

        graph: networkx.Graph[int] = networkx.DiGraph() if self.directed else networkx.Graph()
        graph.add_nodes_from(range(self.devices))
        graph.add_edges_from(self.pairs.tolist())
        return graph


class Network(ABC):
    """A sequence of rounds of links. Subclasses are frozen dataclasses with a field or property `devices`."""

    devices: int
    directed: bool = False

    @abstractmethod
    def links(self, t: int) -> Links:
        """The links of round t (counted from 0), the same whenever and in whatever order they are asked for."""

    @property
    def period(self) -> int | None:
        """Rounds after which the sequence repeats (1: it never changes; None: it does not repeat)."""
        return None

    @property
    def rounds(self) -> int | None:
        """How many rounds there are (None: without end)."""
        return None

    def __iter__(self) -> Iterator[Links]:
        t = 0
        while self.rounds is None or t < self.rounds:
            yield self.links(t)
            t += 1

    def __and__(self, fault: Fault) -> Network:
        return Faulty(self, fault)

    def _repr_html_(self) -> str:
        """In a notebook: facts, and the links of the first rounds."""
        from gossamer.network.notebook import show

        return show(self)


class Fault(ABC):
    """What goes wrong on top of a network: `apply` keeps some of a round's links."""

    @abstractmethod
    def apply(self, links: Links, t: int) -> Links: ...


@dataclass(frozen=True)
class Faulty(Network):
    """A network with a fault on top; made by `network & fault`."""

    network: Network
    fault: Fault

    @property
    def devices(self) -> int:  # type: ignore[override]
        return self.network.devices

    @property
    def directed(self) -> bool:  # type: ignore[override]
        return self.network.directed

    @property
    def rounds(self) -> int | None:
        return self.network.rounds

    def links(self, t: int) -> Links:
        return self.fault.apply(self.network.links(t), t)
