"""Statistics of a network: links, degrees, connectivity, and how fast it mixes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer.network.base import Links, Network
from gossamer.network.weights import NetworkWeights

_MAX_DENSE = 500  # devices up to which a dense matrix is faster than a sparse one
_MAX_ENTRIES = 20_000_000  # entries of all sparse matrices in memory at once


@dataclass(frozen=True)
class Summary:
    """Statistics of the first rounds of a network.

    Means are over rounds (and devices). A device that is away counts as isolated.

    Attributes:
        devices: Number of devices.
        rounds: Number of rounds.
        links_min: Smallest number of links in a round.
        links_mean: Mean number of links per round.
        links_max: Largest number of links in a round.
        density_mean: Mean share of all pairs that are linked.
        degree_min: Smallest number of neighbours of a device in a round.
        degree_mean: Mean number of neighbours.
        degree_max: Largest number of neighbours.
        isolated_share: Share of devices without a neighbour.
        connected_share: Share of rounds in which the network is connected.
        spectral_gap: 1 - λ₂(E[WᵀW]), with the weights W of a round (those that the network carries,
            else Metropolis weights) and the mean over rounds. Gossip alone shrinks the expected
            squared distance to consensus by at least this share per round (Boyd et al. 2006). 0 if
            some devices never meet. None if links are directed or the eigenvalue was not found.
    """

    devices: int
    rounds: int
    links_min: int
    links_mean: float
    links_max: int
    density_mean: float
    degree_min: int
    degree_mean: float
    degree_max: int
    isolated_share: float
    connected_share: float
    spectral_gap: float | None


def summary(network: Network, rounds: int) -> Summary:
    """Compute statistics of the first rounds of a network.

    Args:
        network: The network.
        rounds: Number of rounds to look at.

    Returns:
        The statistics.

    Example:
        >>> from gossamer.network import Ring
        >>> summary(Ring(10), rounds=5).degree_mean
        2.0
    """
    checks.whole("rounds", rounds, 1)
    distinct_rounds = 1 if network.period == 1 else rounds
    links = []
    densities = []
    degree_minima = []
    degree_means = []
    degree_maxima = []
    isolated = []
    is_connected = []
    for t in range(distinct_rounds):
        now = network.links(t)
        degrees = now.degrees
        links.append(len(now))
        densities.append(now.density)
        degree_minima.append(int(degrees.min()))
        degree_means.append(float(degrees.mean()))
        degree_maxima.append(int(degrees.max()))
        isolated.append(float((degrees == 0).mean()))
        is_connected.append(connected(now))
    gap = None
    if not network.directed:
        gap = spectral_gap(network, distinct_rounds)
    return Summary(
        devices=network.devices,
        rounds=rounds,
        links_min=min(links),
        links_mean=float(np.mean(links)),
        links_max=max(links),
        density_mean=float(np.mean(densities)),
        degree_min=min(degree_minima),
        degree_mean=float(np.mean(degree_means)),
        degree_max=max(degree_maxima),
        isolated_share=float(np.mean(isolated)),
        connected_share=float(np.mean(is_connected)),
        spectral_gap=gap,
    )


def connected(links: Links) -> bool:
    """True if every device reaches every other one over the links of one round.

    Args:
        links: The links. Directed links are followed in their direction.

    Example:
        >>> from gossamer.network import Ring
        >>> connected(Ring(10).links(0))
        True
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if len(links) < links.devices - 1:
        return False
    shape = (links.devices, links.devices)
    ones = np.ones(len(links), dtype=np.int8)
    matrix = coo_array((ones, (links.a, links.b)), shape=shape).tocsr()
    components, _ = connected_components(matrix, directed=links.directed, connection="strong")
    return bool(components == 1)


def spectral_gap(network: Network, rounds: int) -> float | None:
    """Compute 1 - λ₂(E[WᵀW]) of the weights over the first rounds of a network.

    Weights are those that the network carries, or Metropolis weights.

    Args:
        network: A network with symmetric links.
        rounds: Number of rounds. Of a large network only the rounds that fit in memory are used,
            at least one.

    Returns:
        The gap, from 0 to 1 (see `Summary`), or None if the eigenvalue was not found.

    Example:
        >>> from gossamer.network import Full
        >>> round(spectral_gap(Full(10), rounds=1), 6)
        1.0
    """
    m = network.devices
    if m == 1:
        return 1.0
    if m <= _MAX_DENSE:
        square = np.zeros((m, m))
        for t in range(rounds):
            w = NetworkWeights()(network.links(t)).dense()
            square += w @ w
        # Subtracting 11ᵀ/m moves the eigenvalue 1 of consensus to 0 and leaves all others.
        largest = float(np.linalg.eigvalsh(square / rounds - 1 / m)[-1])
    else:
        found = _largest_sparse(network, rounds)
        if found is None:
            return None
        largest = found
    return min(1.0, max(0.0, 1.0 - largest))


def _largest_sparse(network: Network, rounds: int) -> float | None:
    """Return the largest eigenvalue besides that of consensus, found by Lanczos iteration."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    m = network.devices
    matrices: list[Any] = []
    entries = 0
    for t in range(rounds):
        indptr, indices, values = NetworkWeights()(network.links(t)).csr()
        entries += len(values)
        if matrices and entries > _MAX_ENTRIES:
            break
        matrices.append(csr_array((values, indices, indptr), shape=(m, m)))

    def apply(x: Any) -> Any:
        x = x.ravel() - x.mean()
        y = sum(w @ (w @ x) for w in matrices) / len(matrices)
        return y - y.mean()

    operator = LinearOperator((m, m), matvec=apply, dtype=np.float64)
    start = draws.normal(0, "inspect/start", np.arange(m))
    try:
        value = eigsh(
            operator, k=1, which="LA", v0=start, ncv=min(m, 60), tol=1e-6, return_eigenvectors=False
        )
    except ArpackNoConvergence:
        return None
    if not math.isfinite(value[0]):
        return None
    return float(value[0])
