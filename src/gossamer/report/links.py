"""A network as a page draws it: the positions of the devices, and the links of each drawn round."""

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
_AWAY = 65535  # the coordinates of a device that is not there
# Share of the pairs that ever meet above which a circle is as clear as a layout by springs.
_DENSE = 0.4
_SPRING_STEPS = 100


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
        self._frames: dict[int, _Frame] = {}
        seen = []
        if not network.has_positions:
            for t in layout_rounds:
                links = self._links_before(t)
                if links is not None:
                    seen.append(links)
        self._still = _layout(network.devices, self._shown, seen)

    def frames(self, rounds: Sequence[int]) -> dict[str, Any]:
        """Return all that is drawn, as `network.js` reads it.

        Args:
            rounds: Numbers of rounds done.
        """
        frames = [self._frame(t) for t in rounds]
        places = self._still[None]
        if self.network.has_positions:
            places = np.stack([frame.places for frame in frames])
            if self.network.geographic:
                latitude = np.radians(np.nanmean(places[..., 1]))
                places = places * (np.cos(latitude), 1)
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
            "rounds": [int(t) for t in rounds],
            "places": pack.text(_scaled(places).astype("<u2").tobytes()),
            "links": pack.text(b"".join(frame.links for frame in frames)),
            "here": active,
        }

    def forget(self, t: int) -> None:
        """Draw a round anew when it is next asked for: its links have changed.

        Args:
            t: The number of rounds done.
        """
        self._frames.pop(t, None)

    def _round_before(self, t: int) -> int:
        """Return the round in which models measured after t rounds last met."""
        return t if self._halfway else t - 1

    def _links_before(self, t: int) -> Links | None:
        """Return the links over which models measured after t rounds last met, if any."""
        last = self._round_before(t)
        return None if last < 0 else self.network.links(last)

    def _frame(self, t: int) -> _Frame:
        if t not in self._frames:
            self._frames[t] = self._draw(t)
        return self._frames[t]

    def _draw(self, t: int) -> _Frame:
        links = self._links_before(t)
        active = np.ones(len(self._shown), dtype=bool)
        if links is not None:
            active = links.active_mask[self._shown]
        places = self._still
        if self.network.has_positions:
            places = self.network.layout(max(0, self._round_before(t)))[self._shown]
        packed = flags(links, self._shown, self.network.directed)
        return _Frame(packed, pack.bits(active), not active.all(), places)


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
    size = max(float((high - low).max()), 1e-12)
    unit = (places - (low + high) / 2) / size + 0.5
    return np.where(np.isnan(unit), _AWAY, (unit * (_AWAY - 1)).round()).astype(np.int64)
