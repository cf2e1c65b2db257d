"""Links and networks: which devices are linked in round t.

A `Network` returns the links of any round as a pure function of its own fields and t. A `Fault`
removes some of them: `Ring(10) & LinkFailure(0.1) & Churn(0.05, 0.5)` is a network again.
"""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer._core import checks
from gossamer._core.sorting import distinct
from gossamer.errors import InputError

if TYPE_CHECKING:
    import networkx

    from gossamer.network.parts import Part

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Links:
    """The links of one round as an edge list that contains each link once.

    Symmetric links have a < b; directed links go from a to b. They are sorted by (a, b).

    Args:
        devices: Number of devices.
        a: First device of each link.
        b: Second device of each link.
        directed: True if links go one way, from a to b.
        active: Mask of the devices that take part in the round; None if all do. An inactive
            device has no links and keeps its state.
        weight: Mixing weight of each link, if the network carries its own: the share that b takes
            of a, and a of b if links are symmetric. None: the method's rule computes the weights.
        known_degrees: The degrees, if these are only some of the links of the round. None: they
            are counted.

    Example:
        >>> Links.of(3, [(2, 0), (0, 1)]).pairs.tolist()
        [[0, 1], [0, 2]]
    """

    devices: int
    a: IntArray
    b: IntArray
    directed: bool = False
    active: BoolArray | None = None
    weight: FloatArray | None = None
    known_degrees: IntArray | None = None

    @classmethod
    def of(
        cls, devices: int, pairs: ArrayLike | Iterable[tuple[int, int]], directed: bool = False
    ) -> Links:
        """Create links from pairs in any order.

        Args:
            devices: Number of devices.
            pairs: Pairs of device numbers. Self-loops and repeated pairs are dropped.
            directed: True if a pair (a, b) is a link from a to b only.

        Returns:
            The links, sorted.

        Raises:
            InputError: If these are not pairs of whole numbers from 0 to devices - 1.

        Example:
            >>> len(Links.of(4, [(0, 1), (1, 0), (2, 2)]))
            1
        """
        given: Any = pairs
        if not isinstance(pairs, Iterable):
            raise InputError("pairs", pairs, "pairs (a, b) of whole numbers")
        if not isinstance(pairs, np.ndarray):
            given = list(pairs)
        try:
            array = np.asarray(given) if len(given) else np.empty((0, 2), dtype=np.int64)
        except ValueError:  # pairs of different lengths
            array = np.empty(0)
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
            raise InputError("pairs", given, "pairs (a, b) of whole numbers")
        array = array.astype(np.int64)
        outside = (array < 0) | (array >= devices)
        if outside.any():
            pair = array[outside.any(axis=1)][0].tolist()
            raise InputError("link", tuple(pair), f"devices numbered 0 to {devices - 1}")
        if not directed:
            array = np.sort(array, axis=1)
        a = array[:, 0]
        b = array[:, 1]
        code = distinct((a * devices + b)[a != b])
        return cls(devices, code // devices, code % devices, directed)

    @property
    def pairs(self) -> IntArray:
        """The links as an array [links, 2]."""
        return np.stack([self.a, self.b], axis=1)

    def __len__(self) -> int:
        return len(self.a)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Links):
            return NotImplemented
        return (
            self.devices == other.devices
            and self.directed == other.directed
            and np.array_equal(self.a, other.a)
            and np.array_equal(self.b, other.b)
            and np.array_equal(self.active_mask, other.active_mask)
            and (not len(self) or _equal(self.weight, other.weight))
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def active_mask(self) -> BoolArray:
        """Mask of the devices that take part in the round, also where `active` is None."""
        if self.active is None:
            return np.ones(self.devices, dtype=bool)
        return self.active

    @property
    def degrees(self) -> IntArray:
        """Number of neighbours of each device; the out-degree if links are directed."""
        if self.known_degrees is not None:
            return self.known_degrees
        degree = np.bincount(self.a, minlength=self.devices)
        if self.directed:
            return degree
        return degree + np.bincount(self.b, minlength=self.devices)

    @property
    def density(self) -> float:
        """Number of links divided by the number of possible links."""
        possible = self.devices * (self.devices - 1)
        if possible == 0:
            return 0.0
        if self.directed:
            return len(self) / possible
        return len(self) / (possible / 2)

    def keep(self, mask: BoolArray, active: BoolArray | None = None) -> Links:
        """Return some of the links.

        Args:
            mask: True for each link that is kept.
            active: Mask of devices that stay active, in addition to the mask that is set already.

        Returns:
            New links; a device is active only if both masks say so.
        """
        if self.active is not None:
            active = self.active if active is None else self.active & active
        weight = self.weight
        if weight is not None:
            weight = weight[mask]
        return Links(self.devices, self.a[mask], self.b[mask], self.directed, active, weight)

    def of_part(self, part: Part) -> Links:
        """Return the links that have an end among the devices of a process.

        Args:
            part: The process.
        """
        mask: BoolArray = part.owner[self.a] == part.number
        mask |= part.owner[self.b] == part.number
        return self.keep(mask)

    def to_networkx(self) -> networkx.Graph[int]:
        """Return the links as a networkx graph with the nodes 0 … devices-1."""
        import networkx

        graph: networkx.Graph[int] = networkx.DiGraph() if self.directed else networkx.Graph()
        graph.add_nodes_from(range(self.devices))
        graph.add_edges_from(self.pairs.tolist())
        return graph


def _equal(one: FloatArray | None, other: FloatArray | None) -> bool:
    """True if both are missing, or both have the same values."""
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _with_whole_round(links: Callable[[Any, int], Links]) -> Callable[[Any, int], Links]:
    """Return a network's `links` for whole numbers of NumPy and torch too; it refuses others."""

    @functools.wraps(links)
    def checked_links(self: Any, t: int) -> Links:
        if type(t) is not int:
            try:
                t = operator.index(t)
            except TypeError:
                raise InputError("round", t, "a whole number") from None
        if t.bit_length() > _ROUND_BITS:
            raise InputError("round", t, f"a whole number of at most {_ROUND_BITS} bits")
        return links(self, t)

    return checked_links


_ROUND_BITS = 62  # of the number of a round, which draws hash as 64 bits
# What `network & …` takes.
_ACCEPTED_FAULTS = (
    "a fault, such as gs.Churn(leave=…, come_back=…) or gs.LinkFailure(probability=…)"
)


class Network(ABC):
    """A sequence of rounds of links.

    Subclasses are frozen dataclasses with a field or property `devices`, and implement `links`.

    Attributes:
        devices: Number of devices, the same in all rounds.
        directed: True if links go one way.
        has_positions: True if devices have positions, which `layout` then returns.
        geographic: True if the positions are degrees of longitude and latitude.
        names: Names of the devices in the order of their numbers; None if they have no names.
        weighted: True if links carry mixing weights, in some rounds at least.
        round_seconds: Seconds from one round to the next; None if rounds have no length.
        groups: What else is known of the devices, such as their class or ward: by name of the
            property, one value per device. Empty by default.
    """

    endless: ClassVar[bool] = True  # an iteration over the rounds need not end

    devices: int
    directed: bool = False
    has_positions: bool = False
    geographic: bool = False
    weighted: bool = False
    round_seconds: float | None = None
    names: tuple[str, ...] | None = None
    groups: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "links" in vars(cls):
            setattr(cls, "links", _with_whole_round(cls.links))  # noqa: B010

    @abstractmethod
    def links(self, t: int) -> Links:
        """Return the links of a round.

        Args:
            t: Number of the round, from 0.

        Returns:
            The links. They depend on the network's fields and t only, not on which rounds were
            asked for before.
        """

    def links_of(self, t: int, part: Part) -> Links:
        """Return the links of a round that have an end among the devices of one process.

        All processes call it at the same time. By default each computes all links and drops those
        of others; generators that draw much share the draws.

        Args:
            t: Number of the round, from 0.
            part: The process, its devices, and how it speaks with the others.

        Returns:
            The links, sorted. `active` is right for the devices of the process and the neighbours
            that they have.
        """
        return self.links(t).of_part(part)

    @property
    def period(self) -> int | None:
        """Number of rounds after which the links repeat; 1 if they never change, None if never."""
        return None

    @property
    def rounds(self) -> int | None:
        """Number of rounds; None if there is no last one."""
        return None

    def known_links(self, rounds: int) -> int | None:
        """Return the number of links in the first rounds, if it takes no drawing of them.

        Args:
            rounds: Number of rounds.

        Returns:
            The sum over the rounds; None if the rounds would have to be looked at one by one.
        """
        if self.period == 1:
            return len(self.links(0)) * rounds
        return None

    @property
    def structured(self) -> bool:
        """False if devices are as likely to be linked to any device as to any other one.

        Then no division of the devices into groups has fewer links between the groups.
        """
        return True

    @property
    def link_radius(self) -> float | None:
        """Largest distance of a link, in the unit of the positions or in metres; None if none."""
        return None

    @property
    def schedule(self) -> Network | None:
        """The network that real devices follow by themselves; None: they use the links they have.

        It is the network without its simulated faults, if links carry weights in all rounds.
        """
        return self if self.weighted else None

    def layout(self, t: int) -> FloatArray:
        """Return where to draw the devices in round t.

        Args:
            t: Number of the round, from 0.

        Returns:
            Coordinates [devices, 2], NaN for a device that is nowhere. By default the devices are
            on a circle.
        """
        angle = np.pi / 2 - 2 * np.pi * np.arange(self.devices) / self.devices
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def describe(self) -> tuple[str, ...]:
        """Return what the network is, in at most two lines of plain text.

        Example:
            >>> from gossamer.network import Ring
            >>> Ring(10).describe()
            ('10 devices, the same links in every round',)
        """
        devices = f"{self.devices:,} devices"
        if self.period == 1:
            return (f"{devices}, the same links in every round",)
        if self.period is not None:
            return (f"{devices}, links that repeat after {self.period:,} rounds",)
        if self.rounds is not None:
            return (f"{devices}, {self.rounds:,} rounds",)
        return (f"{devices}, links that change from round to round",)

    def __iter__(self) -> Iterator[Links]:
        t = 0
        while self.rounds is None or t < self.rounds:
            yield self.links(t)
            t += 1

    def __and__(self, fault: Fault) -> Network:
        if not isinstance(fault, Fault):
            raise InputError("network & …", fault, _ACCEPTED_FAULTS)
        return Faulty(self, fault)

    def __rand__(self, other: object) -> Network:
        raise InputError("… & network", other, f"the network first, and then {_ACCEPTED_FAULTS}")

    def _repr_html_(self) -> str:
        """Return what a notebook shows: some statistics and pictures of the first rounds."""
        from gossamer.network.notebook import show

        return show(self)


def check_own_network(network: Network) -> None:
    """Raise InputError if a network that is defined outside of gossamer does not work.

    Args:
        network: A network. Those of gossamer are not looked at: drawing the links of many devices
            takes time.
    """
    cls = type(network)
    if cls.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return
    devices = getattr(network, "devices", None)
    checks.whole(f"{cls.__name__}.devices", devices, 1)
    links = network.links(0)
    if not isinstance(links, Links):
        raise InputError(f"{cls.__name__}.links(0)", links, "gs.Links.of(devices, pairs)")


class Fault(ABC):
    """A fault on top of a network: it removes some links of every round."""

    @abstractmethod
    def apply(self, links: Links, t: int) -> Links:
        """Return the links of round t that remain.

        Args:
            links: The links of the network in this round.
            t: Number of the round, from 0.
        """

    def apply_of(self, network: Network, t: int, part: Part) -> Links:
        """Return the links of round t that remain, of the devices of one process.

        By default each process computes all links, since a fault may look at all of them.

        Args:
            network: The network without the fault.
            t: Number of the round, from 0.
            part: The process.
        """
        return self.apply(network.links(t), t).of_part(part)


@dataclass(frozen=True)
class Faulty(Network):
    """A network with a fault on top, as created by `network & fault`.

    Args:
        network: The network without the fault.
        fault: The fault.
    """

    network: Network
    fault: Fault

    @property
    def devices(self) -> int:  # type: ignore[override]
        return self.network.devices

    @property
    def directed(self) -> bool:  # type: ignore[override]
        return self.network.directed

    @property
    def has_positions(self) -> bool:  # type: ignore[override]
        return self.network.has_positions

    @property
    def geographic(self) -> bool:  # type: ignore[override]
        return self.network.geographic

    @property
    def weighted(self) -> bool:  # type: ignore[override]
        return self.network.weighted

    @property
    def schedule(self) -> Network | None:
        return self.network.schedule

    @property
    def structured(self) -> bool:
        return self.network.structured

    @property
    def link_radius(self) -> float | None:
        return self.network.link_radius

    @property
    def names(self) -> tuple[str, ...] | None:  # type: ignore[override]
        return self.network.names

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:  # type: ignore[override]
        return self.network.groups

    @property
    def rounds(self) -> int | None:
        return self.network.rounds

    @property
    def round_seconds(self) -> float | None:  # type: ignore[override]
        return self.network.round_seconds

    def describe(self) -> tuple[str, ...]:
        *lines, last = self.network.describe()
        return (*lines, f"{last}; with {self.fault!r}")

    def links(self, t: int) -> Links:
        return self.fault.apply(self.network.links(t), t)

    def links_of(self, t: int, part: Part) -> Links:
        return self.fault.apply_of(self.network, t, part)

    def layout(self, t: int) -> FloatArray:
        return self.network.layout(t)
