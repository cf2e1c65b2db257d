"""The partition of the devices into shards: linked devices together, so that few rows travel."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gossamer import draws
from gossamer.network.base import IntArray, Links, Network

_SAMPLED_ROUNDS = 16
_SAMPLED_LINKS = 2_000_000  # number of links after which no further round is sampled
_FEW_ROWS = 0.05  # rows per device and round: below, a better partition has nothing to save
_WORTHWHILE = 0.9  # a partition must send at most this share of what the plain one sends
# Largest number for a spectral partition: an eigenvector of 100,000 took four seconds.
_SPECTRAL_DEVICES = 10_000
_SMALL_PART = 1000  # size of a connected component whose order hardly matters
# Largest number for which a dense eigenvalue problem is faster than an iteration.
_DENSE_DEVICES = 200


def partition(network: Network, shards: int, rounds: int) -> IntArray:
    """Assign the devices to shards of equal size.

    The devices are bisected recursively along the second eigenvector of the Laplacian of the links
    in some sampled rounds (spectral partitioning); many devices along their distance from one at
    the edge of the graph. Other rounds show whether this saves messages. If it does not, and where
    links are drawn anew in every round, devices are assigned in the order of their numbers.

    Args:
        network: The network.
        shards: Number of shards. Their sizes differ by at most one device.
        rounds: Number of rounds of the run.

    Returns:
        The shard of each device.

    Example:
        >>> from gossamer.network import Ring
        >>> partition(Ring(6), 2, rounds=10).tolist()
        [0, 0, 0, 1, 1, 1]
    """
    devices = network.devices
    plain = np.arange(devices) * shards // devices
    if shards == 1 or not network.structured:
        return plain
    links = _sampled_links(network, rounds)
    fitted = links[::2]
    validation = links[1::2] or links
    plain_rows = sum(boundary_rows(x, plain) for x in validation)
    if plain_rows < _FEW_ROWS * devices * len(validation):
        return plain
    owner = np.zeros(devices, dtype=np.int64)
    _bisect(_link_counts(fitted, devices), np.arange(devices), plain, owner)
    rows = sum(boundary_rows(x, owner) for x in validation)
    if rows < _WORTHWHILE * plain_rows:
        return owner
    return plain


def _sampled_links(network: Network, rounds: int) -> list[Links]:
    """Return the links of some rounds, spread over the run; of fewer rounds if there are many."""
    if network.period == 1:
        return [network.links(0)]
    if network.rounds is not None:
        rounds = min(rounds, network.rounds)
    last = max(1, rounds) - 1
    first = network.links(0)
    count = max(2, min(_SAMPLED_ROUNDS, _SAMPLED_LINKS // max(1, len(first))))
    sampled = np.unique(np.linspace(0, last, count).astype(int)).tolist()
    return [first, *(network.links(t) for t in sampled[1:])]


def boundary_rows(links: Links, owner: IntArray) -> int:
    """Return the number of rows that shards send when all devices mix once.

    A device's row is sent once to every other shard that holds a neighbour of it.

    Args:
        links: The links of a round.
        owner: The shard of each device.

    Returns:
        The number of rows.
    """
    crossing = owner[links.a] != owner[links.b]
    a = links.a[crossing]
    b = links.b[crossing]
    shards = int(owner.max(initial=0)) + 1
    return len(np.unique(np.concatenate([a * shards + owner[b], b * shards + owner[a]])))


def _link_counts(rounds: list[Links], devices: int) -> Any:
    """Return how often each pair was linked, as a sparse matrix."""
    from scipy.sparse import coo_array

    a = np.concatenate([links.a for links in rounds])
    b = np.concatenate([links.b for links in rounds])
    positions = (np.concatenate([a, b]), np.concatenate([b, a]))
    return coo_array((np.ones(2 * len(a)), positions), (devices, devices)).tocsr()


def _bisect(counts: Any, devices: IntArray, targets: IntArray, owner: IntArray) -> None:
    """Assign devices to the shards in `targets` (ascending, one entry per device), recursively."""
    shards = np.unique(targets)
    if len(shards) == 1:
        owner[devices] = shards[0]
        return
    own_counts = counts[devices][:, devices]
    if len(devices) > _SPECTRAL_DEVICES:
        order = devices[_by_distance(own_counts)]
    else:
        order = devices[np.argsort(_second_eigenvector(own_counts), kind="stable")]
    cut = int(np.searchsorted(targets, shards[len(shards) // 2]))
    _bisect(counts, np.sort(order[:cut]), targets[:cut], owner)
    _bisect(counts, np.sort(order[cut:]), targets[cut:], owner)


def _by_distance(counts: Any) -> IntArray:
    """Return the devices by their distance, in links, from a device at the edge of the graph."""
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    parts, part = connected_components(counts, directed=False)
    order = np.argsort(part, kind="stable")
    bounds = np.searchsorted(part[order], np.arange(parts + 1))
    for k in np.flatnonzero(np.diff(bounds) > _SMALL_PART).tolist():
        found = order[bounds[k] : bounds[k + 1]]
        for _ in range(2):  # the last device of a search is far from its first
            found = breadth_first_order(
                counts, int(found[-1]), directed=False, return_predecessors=False
            )
        order[bounds[k] : bounds[k + 1]] = found
    return order


def _second_eigenvector(counts: Any) -> Any:
    """Return the second eigenvector of the graph's Laplacian, as accurately as a cut needs it."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import lobpcg

    devices = counts.shape[0]
    degree = np.asarray(counts.sum(1)).ravel()
    if devices <= _DENSE_DEVICES:
        laplacian = (diags_array(degree) - counts).toarray()
        return np.linalg.eigh(laplacian)[1][:, min(1, devices - 1)]
    start = draws.normal(0, "placement", np.arange(devices)[:, None], np.arange(2))
    with warnings.catch_warnings():  # scipy warns if the tolerance is not reached
        warnings.simplefilter("ignore")
        _, vectors = lobpcg(
            diags_array(degree) - counts,
            start,
            M=diags_array(1 / (degree + 1)),
            Y=np.ones((devices, 1)),
            tol=1e-3,
            maxiter=200,
            largest=False,
        )
    return vectors[:, 0]
