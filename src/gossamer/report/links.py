"""A network as a page draws it: where the devices are, and who was linked to whom in each round that is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.network import Links, Network
from gossamer.report import pack

MAX_DRAWN = 300  # devices; of more, an even sample
_AWAY = 65535  # the place of a device that is not there
_DENSE = 0.4  # of the pairs that ever meet: beyond it a layout by springs is a ball of wool, and a circle says as much


def used(network: Network, t: int, halfway: bool) -> Links | None:
    """The links over which the models measured after t rounds last met: round t's own if it is measured halfway through it."""
    last = t if halfway else t - 1
    return None if last < 0 else network.links(last)


def frames(network: Network, rounds: Sequence[int], halfway: bool = False) -> dict[str, Any]:
    """All that is drawn of a network: `rounds` are numbers of rounds that were done."""
    shown = pack.evenly(network.devices, MAX_DRAWN)
    seen = [used(network, t, halfway) for t in rounds]
    moving = positions_of(network)
    places = _moving(moving, rounds, halfway, shown) if moving else _still(network.devices, shown, [s for s in seen if s])
    away = [s is not None and s.active is not None and not s.active.all() for s in seen]
    return {
        "devices": network.devices,
        "shown": None if len(shown) == network.devices else shown.tolist(),
        "directed": network.directed,
        "moving": moving is not None,
        "rounds": [int(t) for t in rounds],
        "places": pack.text(places.astype("<u2").tobytes()),
        "links": pack.text(b"".join(flags(links, shown, network.directed) for links in seen)),
        "here": pack.text(b"".join(_here(links, shown) for links in seen)) if any(away) else None,
    }


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


def _here(links: Links | None, shown: NDArray[np.int64]) -> bytes:
    everyone = np.ones(len(shown), dtype=bool)
    return pack.bits(everyone if links is None or links.active is None else links.active[shown])


def positions_of(network: Network) -> Any:
    """The network's own `positions(t)`, below its faults, if it has them."""
    while not hasattr(network, "positions"):
        if not hasattr(network, "network"):
            return None
        network = network.network
    return network


def _moving(network: Any, rounds: Iterable[int], halfway: bool, shown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the devices are in each round: [rounds, devices, 2] from 0 to 65534, y upwards, both axes to one scale."""
    places = np.stack([network.positions(max(0, t if halfway else t - 1))[shown] for t in rounds])
    if getattr(network, "geographic", False):
        places = places[..., ::-1] * (np.cos(np.radians(np.nanmean(places[..., 0]))), 1)  # latitude is upwards
    return _scaled(places)


def _still(devices: int, shown: NDArray[np.int64], seen: Sequence[Links]) -> NDArray[np.int64]:
    """One layout for all rounds: springs between those that ever meet, or a circle where nearly everybody does."""
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
        return _scaled(circle[None])
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(range(len(shown)))
    graph.add_weighted_edges_from((a, b, count) for (a, b), count in met.items())
    found = networkx.spring_layout(graph, pos=dict(enumerate(circle)), iterations=100)
    return _scaled(np.array([found[i] for i in range(len(shown))])[None])


def _scaled(places: NDArray[np.float64]) -> NDArray[np.int64]:
    low, high = np.nanmin(places, axis=(0, 1)), np.nanmax(places, axis=(0, 1))
    size = max(float((high - low).max()), 1e-12)
    unit = (places - (low + high) / 2) / size + 0.5
    return np.where(np.isnan(unit), _AWAY, (unit * (_AWAY - 1)).round()).astype(np.int64)
