"""Mixing weights: from the links of a round to the numbers a_ij by which models are averaged.

Every function here maps (links, t, seed) to `Weights` that are symmetric and doubly stochastic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer import draws
from gossamer.errors import InputError
from gossamer.network.base import BoolArray, IntArray, Links

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Weights:
    """Symmetric weights: `value` on each link (a < b, sorted), `own` for each device itself.

    `active` marks the devices that take part in the round (None: all).

    >>> metropolis(Links.of(3, [(0, 1)])).dense().tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """

    devices: int
    a: IntArray
    b: IntArray
    value: FloatArray
    own: FloatArray
    active: BoolArray | None = None

    def dense(self) -> FloatArray:
        """As a matrix [m, m]."""
        matrix = np.diag(self.own)
        matrix[self.a, self.b] = matrix[self.b, self.a] = self.value
        return matrix

    def csr(self) -> tuple[IntArray, IntArray, FloatArray]:
        """As compressed sparse rows (indptr, indices, values), columns ascending, the diagonal included."""
        diagonal = np.arange(self.devices)
        row = np.concatenate([self.b, diagonal, self.a])
        # Links are sorted, so within a row this order is ascending already: what is below, itself, what is above.
        order = np.argsort(row, kind="stable")
        indptr = np.zeros(self.devices + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=self.devices), out=indptr[1:])
        column = np.concatenate([self.a, diagonal, self.b])
        return indptr, column[order], np.concatenate([self.value, self.own, self.value])[order]


def metropolis(links: Links, t: int = 0, seed: int = 0) -> Weights:
    """The paper's weights: a_ij = min(1/(|N_i|+1), 1/(|N_j|+1)), and a_ii is what is left of 1."""
    _symmetric(links)
    a, b = links.a, links.b
    size = links.degrees + 1
    value = 1.0 / np.maximum(size[a], size[b])
    given = np.bincount(a, weights=value, minlength=links.devices) + np.bincount(b, value, links.devices)
    return Weights(links.devices, a, b, value, (1.0 - given).astype(np.float64, copy=False), links.active)


def one_pair(links: Links, t: int, seed: int) -> Weights:
    """SwarmSGD's: one of the round's links, each as likely, and its two devices average; nobody else is active."""
    _symmetric(links)
    if not len(links):
        return _halves(links, np.empty(0, dtype=np.int64))
    return _halves(links, np.atleast_1d(draws.below(len(links), seed, "weights/one-pair", t)))


def matching(links: Links, t: int, seed: int) -> Weights:
    """Pairs without a coordinator: a link is active if its named draw is the lowest at both of its ends.

    The draw of a link is a function of (seed, t, a, b) alone. So each device finds the lowest of its own links by
    itself and tells its neighbours; a link that both ends name is active. Equal draws (probability 2⁻⁶⁴) go to the
    lower (a, b).
    """
    _symmetric(links)
    order = np.argsort(draws.bits(seed, "weights/matching", t, links.a, links.b), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    lowest = np.full(links.devices, len(links))
    np.minimum.at(lowest, links.a, rank)
    np.minimum.at(lowest, links.b, rank)
    return _halves(links, np.flatnonzero((rank == lowest[links.a]) & (rank == lowest[links.b])))


def _halves(links: Links, chosen: IntArray) -> Weights:
    """1/2 on the chosen links, which share no device; only their devices are active."""
    a, b = links.a[chosen], links.b[chosen]
    active = np.zeros(links.devices, dtype=bool)
    active[a] = active[b] = True
    return Weights(links.devices, a, b, np.full(len(a), 0.5), np.where(active, 0.5, 1.0), active)


def _symmetric(links: Links) -> None:
    if links.directed:
        raise InputError("network", "directed", "a network with symmetric links, which these weights need")
