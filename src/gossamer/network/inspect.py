"""What a network is like: links, degrees, connectedness, and how fast it mixes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer.network.base import Links, Network
from gossamer.network.weights import metropolis

_DENSE = 500  # devices up to which a dense matrix is quicker
_ENTRIES = 20_000_000  # of the sparse matrices that are kept at once


@dataclass(frozen=True)
class Summary:
    """A network over its first rounds. Means are over rounds (and devices); a device that is away counts as isolated.

    `spectral_gap` is 1 - λ₂(E[WᵀW]), with W the Metropolis weights of a round and the mean taken over the rounds:
    gossip alone shrinks the expected squared distance to consensus by at least this share a round (Boyd et al. 2006).
    0: some devices never meet. None: the links are directed, or the eigenvalue was not found.
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
    """Look at the first `rounds` rounds of a network.

    >>> from gossamer.network import Ring
    >>> summary(Ring(10), rounds=5).degree_mean
    2.0
    """
    checks.whole("rounds", rounds, 1)
    looked_at = 1 if network.period == 1 else rounds
    links, density, degree, isolated, connected_rounds = [], [], [], [], []
    for t in range(looked_at):
        now = network.links(t)
        degrees = now.degrees
        links.append(len(now))
        density.append(now.density)
        degree.append((int(degrees.min()), float(degrees.mean()), int(degrees.max())))
        isolated.append(float((degrees == 0).mean()))
        connected_rounds.append(connected(now))
    low, mean, high = zip(*degree, strict=True)
    return Summary(
        devices=network.devices,
        rounds=rounds,
        links_min=min(links),
        links_mean=float(np.mean(links)),
        links_max=max(links),
        density_mean=float(np.mean(density)),
        degree_min=min(low),
        degree_mean=float(np.mean(mean)),
        degree_max=max(high),
        isolated_share=float(np.mean(isolated)),
        connected_share=float(np.mean(connected_rounds)),
        spectral_gap=None if network.directed else spectral_gap(network, looked_at),
    )


def connected(links: Links) -> bool:
    """Whether every device reaches every other over the links of this round (along their direction, if any)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if len(links) < links.devices - 1:
        return False
    shape = (links.devices, links.devices)
    matrix = coo_array(
        (np.ones(len(links), dtype=np.int8), (links.a, links.b)), shape=shape
    ).tocsr()
    parts, _ = connected_components(matrix, directed=links.directed, connection="strong")
    return bool(parts == 1)


def spectral_gap(network: Network, rounds: int) -> float | None:
    """1 - λ₂(E[WᵀW]) of the Metropolis weights over the first `rounds` rounds (see `Summary`).

    Where there are very many devices and rounds, as many of the first rounds are taken as fit in memory, at least one.
    """
    m = network.devices
    if m == 1:
        return 1.0
    if m <= _DENSE:
        square = np.zeros((m, m))
        for t in range(rounds):
            w = metropolis(network.links(t)).dense()
            square += w @ w
        # Taking 11ᵀ/m away sends the eigenvalue 1 of the consensus to 0 and leaves all others.
        largest = float(np.linalg.eigvalsh(square / rounds - 1 / m)[-1])
    else:
        found = _largest_sparse(network, rounds)
        if found is None:
            return None
        largest = found
    return min(1.0, max(0.0, 1.0 - largest))


def _largest_sparse(network: Network, rounds: int) -> float | None:
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    m = network.devices
    matrices: list[Any] = []
    entries = 0
    for t in range(rounds):
        indptr, indices, values = metropolis(network.links(t)).csr()
        entries += len(values)
        if matrices and entries > _ENTRIES:
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
    return float(value[0]) if math.isfinite(value[0]) else None
