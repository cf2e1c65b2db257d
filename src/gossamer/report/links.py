"""A network as a page draws it: where the devices are, and who was linked to whom in each round that is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.network import Links, Network
from gossamer.report import pack

MAX_DRAWN = 300  # devices; of more, an even sample
_AWAY = 65535  # the place of a device that is not there
_DENSE = 0.4  # of the pairs that ever meet: beyond it a layout by springs is a ball of wool, and a circle says as much


class Drawn:
    """A network as it is drawn. What was drawn once is kept: a live page asks for the same rounds again and again.

    `looked_at` are the rounds from which devices get their places, where they have none of their own. `halfway`: models are
    measured in the middle of a round, when they have met over its links; else those of the round before were the last.
    """

    def __init__(self, network: Network, looked_at: Sequence[int], halfway: bool = False) -> None:
        self.network, self._halfway = network, halfway
        self._shown = pack.evenly(network.devices, MAX_DRAWN)
        self._moving = positions_of(network)
        self._kept: dict[int, tuple[bytes, bytes, bool, NDArray[np.float64]]] = {}
        seen = (
            [links for t in looked_at if (links := self._used(t)) is not None]
            if self._moving is None
            else []
        )
        self._still = _layout(network.devices, self._shown, seen)

    def frames(self, rounds: Sequence[int]) -> dict[str, Any]:
        """All that is drawn: `rounds` are numbers of rounds that were done."""
        flags, here, away, places = zip(*(self._frame(t) for t in rounds), strict=True)
        where = _scaled(self._upright(np.stack(places)) if self._moving else self._still[None])
        return {
            "devices": self.network.devices,
            "shown": None if len(self._shown) == self.network.devices else self._shown.tolist(),
            "directed": self.network.directed,
            "moving": self._moving is not None,
            "rounds": [int(t) for t in rounds],
            "places": pack.text(where.astype("<u2").tobytes()),
            "links": pack.text(b"".join(flags)),
            "here": pack.text(b"".join(here)) if any(away) else None,
        }

    def forget(self, t: int) -> None:
        """What is known of a round has changed."""
        self._kept.pop(t, None)

    def _last(self, t: int) -> int:
        return t if self._halfway else t - 1

    def _used(self, t: int) -> Links | None:
        """The links over which models that are measured after t rounds last met; None: nobody has met yet."""
        return None if self._last(t) < 0 else self.network.links(self._last(t))

    def _frame(self, t: int) -> tuple[bytes, bytes, bool, NDArray[np.float64]]:
        if t not in self._kept:
            links = self._used(t)
            active = np.ones(len(self._shown), dtype=bool)
            if links is not None and links.active is not None:
                active = links.active[self._shown]
            places = (
                self._moving.positions(max(0, self._last(t)))[self._shown]
                if self._moving
                else self._still
            )
            bits = flags(links, self._shown, self.network.directed)
            self._kept[t] = bits, pack.bits(active), not active.all(), places
        return self._kept[t]

    def _upright(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        if not getattr(self._moving, "geographic", False):
            return places
        return places[..., ::-1] * (
            np.cos(np.radians(np.nanmean(places[..., 0]))),
            1,
        )  # latitude is upwards


def flags(links: Links | None, shown: NDArray[np.int64], directed: bool) -> bytes:
    """A bit for every pair of the devices shown: (0, 1), (0, 2), …, (1, 2), …; with directed links for every ordered pair."""
    n = len(shown)
    matrix = np.zeros((n, n), dtype=bool)
    if links is not None:
        place = np.full(links.devices, -1)
        place[shown] = np.arange(n)
        a, b = place[links.a], place[links.b]
        inside = (a >= 0) & (b >= 0)
        matrix[a[inside], b[inside]] = True
    return pack.bits(matrix.reshape(-1) if directed else matrix[np.triu_indices(n, 1)])


def positions_of(network: Network) -> Any:
    """The network's own `positions(t)`, below its faults, if it has them."""
    while not hasattr(network, "positions"):
        if not hasattr(network, "network"):
            return None
        network = network.network
    return network


def _layout(devices: int, shown: NDArray[np.int64], seen: Sequence[Links]) -> NDArray[np.float64]:
    """One place for all rounds: springs between those that ever meet, or a circle where nearly everybody does."""
    angle = 2 * np.pi * np.arange(len(shown)) / len(shown)
    circle = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    place = np.full(devices, -1)
    place[shown] = np.arange(len(shown))
    met: dict[tuple[int, int], int] = {}
    for links in {id(s): s for s in seen}.values():
        ends = place[links.pairs]
        for a, b in ends[(ends >= 0).all(axis=1)].tolist():
            met[a, b] = met.get((a, b), 0) + 1
    if not met or len(met) > _DENSE * len(shown) * (len(shown) - 1) / 2:
        return circle
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(range(len(shown)))
    graph.add_weighted_edges_from((a, b, count) for (a, b), count in met.items())
    found = networkx.spring_layout(graph, pos=dict(enumerate(circle)), iterations=100)
    return np.array([found[i] for i in range(len(shown))])


def _scaled(places: NDArray[np.float64]) -> NDArray[np.int64]:
    """From 0 to 65534, y upwards, both axes to one scale."""
    if np.isnan(places).all():  # nobody is there
        return np.full(places.shape, _AWAY)
    low, high = np.nanmin(places, axis=(0, 1)), np.nanmax(places, axis=(0, 1))
    size = max(float((high - low).max()), 1e-12)
    unit = (places - (low + high) / 2) / size + 0.5
    return np.where(np.isnan(unit), _AWAY, (unit * (_AWAY - 1)).round()).astype(np.int64)
