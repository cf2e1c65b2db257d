"""The partition of the devices into shards: linked devices together, so that few rows travel."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gossamer import draws
from gossamer.network.base import IntArray, Links, Network

_SAMPLED_ROUNDS = 16
_FEW_ROWS = 0.05  # rows per device and round: below, a better partition has nothing to save
_WORTHWHILE = 0.9  # a partition must send at most this share of what the plain one sends
_DENSE_DEVICES = 200  # up to this many, a dense eigenvalue problem is faster than an iteration


def partition(network: Network, shards: int, rounds: int) -> IntArray:
    """Assign the devices to shards of equal size.

    The devices are bisected recursively along the second eigenvector of the Laplacian of the links
    in some sampled rounds (spectral partitioning). Other rounds show whether this saves messages.
    Where links are drawn anew in every round it does not, and devices are assigned in the order of
    their numbers.

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
    if shards == 1:
        return plain
    if network.rounds is not None:
        rounds = min(rounds, network.rounds)
    sampled = np.linspace(0, max(1, rounds) - 1, _SAMPLED_ROUNDS).astype(int)
    links = [network.links(int(t)) for t in np.unique(sampled)]
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
    position = _second_eigenvector(counts[devices][:, devices])
    order = devices[np.argsort(position, kind="stable")]
    cut = int(np.searchsorted(targets, shards[len(shards) // 2]))
    _bisect(counts, np.sort(order[:cut]), targets[:cut], owner)
    _bisect(counts, np.sort(order[cut:]), targets[cut:], owner)


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
    with warnings.catch_warnings():  # it warns that the tolerance is not reached
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
