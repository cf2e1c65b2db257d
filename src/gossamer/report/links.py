"""A network as a page draws it: the positions of the devices, and the links of each round.

Links are a pure function of the study and the round, so a run does not record them: they are drawn
when the page is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.network import Links, Network
from gossamer.report import pack

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MAX_DRAWN = 300  # devices; of more, an even sample is drawn
MAX_BYTES = 4_000_000
"""Bytes of the links and positions of all networks of a page, before they are packed."""

MAX_LOOKED = 20_000
"""Rounds of all networks of a page whose links are looked at."""

_MAX_FRAMES = 2048
_AWAY = 65535  # the coordinates of a device that is not there
# Share of the pairs that ever meet above which a circle is as clear as a layout by springs.
_DENSE = 0.4
_SPRING_STEPS = 100
_METRES_PER_DEGREE = 111_195.0  # per degree of latitude

Span = tuple[int, int]  # rounds (begin, end]: those after begin, until end


@dataclass(frozen=True)
class _Frame:
    """One round as it is drawn."""

    links: bytes  # a bit per pair of devices
    active: bytes  # a bit per device
    someone_away: bool
    places: FloatArray


class Drawn:
    """A network as it is drawn; rounds that were drawn once are kept.

    A live page asks for the same rounds again and again.
    """

    def __init__(
        self, network: Network, layout_rounds: Sequence[int], halfway: bool = False
    ) -> None:
        """Give the devices their places.

        Args:
            network: The network.
            layout_rounds: The rounds whose links give the devices their places, where the network
                has no positions of its own.
            halfway: True if models are measured in the middle of a round, after they have met over
                its links; otherwise they last met over the links of the round before.
        """
        self.network = network
        self._halfway = halfway
        self._shown = pack.evenly(network.devices, MAX_DRAWN)
        self._frames: dict[Span, _Frame] = {}
        seen = []
        if not network.has_positions:
            for t in layout_rounds:
                links = self._links_after(t)
                if links is not None:
                    seen.append(links)
        self._still = _layout(network.devices, self._shown, seen)

    def frames(self, plan: FramePlan) -> dict[str, Any]:
        """Return all that is drawn, as `network.js` reads it.

        Args:
            plan: Which rounds are drawn.
        """
        frames = [self._frame(span) for span in plan.spans]
        places = self._still[None]
        stretch = 1.0
        if self.network.has_positions:
            places = np.stack([frame.places for frame in frames])
            if self.network.geographic:
                stretch = float(np.cos(np.radians(np.nanmean(places[..., 1]))))
                places = places * (stretch, 1)
        shown = None
        if len(self._shown) < self.network.devices:
            shown = self._shown.tolist()
        active = None
        if any(frame.someone_away for frame in frames):
            active = pack.text(b"".join(frame.active for frame in frames))
        return {
            "devices": self.network.devices,
            "shown": shown,
            "directed": self.network.directed,
            "moving": self.network.has_positions,
            "map": self._map_facts(places),
            "rounds": [end for _, end in plan.spans],
            "every": plan.every,
            "joined": plan.joined,
            "places": pack.text(_scaled(places).astype("<u2").tobytes()),
            "links": pack.text(b"".join(frame.links for frame in frames)),
            "here": active,
        }

    def forget(self, t: int) -> None:
        """Draw a round anew when it is next asked for: its links have changed.

        Args:
            t: The number of rounds done.
        """
        for begin, end in list(self._frames):
            if begin < t <= end:
                del self._frames[begin, end]

    def _map_facts(self, places: FloatArray) -> dict[str, Any] | None:
        """Return the size of the picture and the radius of links, in the unit of the positions."""
        if not self.network.has_positions or np.isnan(places).all():
            return None
        size = _size_of(places)
        if self.network.geographic:
            size *= _METRES_PER_DEGREE
        unit = "m" if self.network.geographic else ""
        return {"size": pack.drawn_number(size), "radius": self.network.link_radius, "unit": unit}

    def _links_after(self, t: int) -> Links | None:
        """Return the links over which models measured after t rounds last met, if any."""
        last = t if self._halfway else t - 1
        return None if last < 0 else self.network.links(last)

    def _frame(self, span: Span) -> _Frame:
        if span not in self._frames:
            self._frames[span] = self._draw(span)
        return self._frames[span]

    def _draw(self, span: Span) -> _Frame:
        """Draw the links of some rounds together; devices are where they were in the last."""
        begin, end = span
        first = end - 1 if self.network.period == 1 else begin
        packed = flags(None, self._shown, self.network.directed)
        active = np.ones(len(self._shown), dtype=bool)
        for t in range(first + 1, end + 1):
            links = self._links_after(t)
            if links is None:
                continue
            own = flags(links, self._shown, self.network.directed)
            packed = bytes(np.frombuffer(packed, np.uint8) | np.frombuffer(own, np.uint8))
            active = links.active_mask[self._shown]
        places = self._still
        if self.network.has_positions:
            places = self.network.layout(max(0, end if self._halfway else end - 1))[self._shown]
        return _Frame(packed, pack.bits(active), not active.all(), places)


@dataclass(frozen=True)
class FramePlan:
    """Which rounds of a network are drawn.

    Attributes:
        spans: The rounds of each picture; (0, 1) is the first round alone.
        every: Number of rounds from one picture to the next.
        joined: Number of rounds whose links a picture shows together.
    """

    spans: tuple[Span, ...]
    every: int
    joined: int


def frame_plan(
    network: Network, rounds: int, max_bytes: int = MAX_BYTES, max_looked: int = MAX_LOOKED
) -> FramePlan:
    """Return which rounds of a network fit into a page: each, or several in one picture.

    Pictures are a power of two of rounds apart, so that they stay the same while a run goes on.

    Args:
        network: The network.
        rounds: Number of rounds done.
        max_bytes: Bytes of its links and positions, before they are packed.
        max_looked: Number of rounds that are looked at.

    Example:
        >>> from gossamer.network import Ring
        >>> frame_plan(Ring(10), 2).spans
        ((-1, 0), (0, 1), (1, 2))
    """
    shown = min(network.devices, MAX_DRAWN)
    pairs_per_byte = 8 if network.directed else 16
    bytes_per_frame = shown**2 // pairs_per_byte + 1
    if network.has_positions:
        bytes_per_frame += 4 * shown
    most = max(2, min(_MAX_FRAMES, max_bytes // bytes_per_frame))
    every = 1
    while rounds / every > most - 1:
        every *= 2
    ends = [*range(0, rounds, every), rounds]
    looked = max(1, max_looked // len(ends))
    joined = min(every, looked)
    spans = []
    for k, end in enumerate(ends):
        begin = ends[k - 1] if k else -1
        spans.append((max(begin, end - joined), end))
    return FramePlan(tuple(spans), every, joined)


def flags(links: Links | None, shown: IntArray, directed: bool) -> bytes:
    """Return a bit for every pair of the devices shown: (0, 1), (0, 2), …, (1, 2), …

    Args:
        links: The links of a round; None if there are none.
        shown: The devices that are drawn.
        directed: True for a bit per ordered pair.
    """
    n = len(shown)
    matrix = np.zeros((n, n), dtype=bool)
    if links is not None:
        index = np.full(links.devices, -1)
        index[shown] = np.arange(n)
        a = index[links.a]
        b = index[links.b]
        inside = (a >= 0) & (b >= 0)
        matrix[a[inside], b[inside]] = True
    if directed:
        return pack.bits(matrix.reshape(-1))
    return pack.bits(matrix[np.triu_indices(n, 1)])


def _layout(devices: int, shown: IntArray, seen: Sequence[Links]) -> FloatArray:
    """Return places for all rounds: by springs between devices that ever meet, or on a circle."""
    n = len(shown)
    angle = 2 * np.pi * np.arange(n) / n
    circle = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    meetings = _count_meetings(devices, shown, seen)
    if not meetings or len(meetings) > _DENSE * n * (n - 1) / 2:
        return circle
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from((a, b, count) for (a, b), count in meetings.items())
    places = networkx.spring_layout(graph, pos=dict(enumerate(circle)), iterations=_SPRING_STEPS)
    return np.array([places[i] for i in range(n)])


def _count_meetings(
    devices: int, shown: IntArray, seen: Sequence[Links]
) -> dict[tuple[int, int], int]:
    """Return how often pairs of the devices shown are linked; the same links count once."""
    index = np.full(devices, -1)
    index[shown] = np.arange(len(shown))
    meetings: dict[tuple[int, int], int] = {}
    for links in {id(links): links for links in seen}.values():
        ends = index[links.pairs]
        for a, b in ends[(ends >= 0).all(axis=1)].tolist():
            meetings[a, b] = meetings.get((a, b), 0) + 1
    return meetings


def _scaled(places: FloatArray) -> IntArray:
    """Return places from 0 to 65534, y upwards, with one scale for both axes."""
    if np.isnan(places).all():  # all devices are away
        return np.full(places.shape, _AWAY)
    low = np.nanmin(places, axis=(0, 1))
    high = np.nanmax(places, axis=(0, 1))
    unit = (places - (low + high) / 2) / _size_of(places) + 0.5
    return np.where(np.isnan(unit), _AWAY, (unit * (_AWAY - 1)).round()).astype(np.int64)


def _size_of(places: FloatArray) -> float:
    """Return the larger side of the rectangle around all places."""
    sides = np.nanmax(places, axis=(0, 1)) - np.nanmin(places, axis=(0, 1))
    return max(float(sides.max()), 1e-12)
