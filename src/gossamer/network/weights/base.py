"""Mixing weights: the values of a round, and the rules that compute them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from gossamer._core.sorting import stable_order
from gossamer.errors import InputError
from gossamer.network.base import BoolArray, FloatArray, IntArray, Links

Sums = Literal["both", "rows", "columns", "nothing"]
# Returns the weight of a link from the numbers of neighbours of its two ends.
LinkWeight = Callable[[int, int], float]
# The same, with the number of the neighbour as first argument.
PeerWeight = Callable[[int, int, int], float]


@dataclass(frozen=True, eq=False)
class Weights:
    """The mixing weights of one round.

    Args:
        devices: Number of devices.
        a: First device of each link; a < b, and links are sorted by (a, b).
        b: Second device of each link.
        value: Weight that a gives to b, per link.
        own: Weight that each device gives to itself.
        active: Mask of the devices that take part in the round; None if all do.
        back: Weight that b gives to a, per link; None if it equals `value`. Where a weight is 0,
            nothing is sent in that direction.

    Example:
        >>> from gossamer.network import metropolis
        >>> metropolis(Links.of(3, [(0, 1)])).dense().tolist()
        [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """

    devices: int
    a: IntArray
    b: IntArray
    value: FloatArray
    own: FloatArray
    active: BoolArray | None = None
    back: FloatArray | None = None

    @property
    def backward(self) -> FloatArray:
        """Weight that b gives to a, per link, also where `back` is None."""
        if self.back is None:
            return self.value
        return self.back

    @property
    def messages(self) -> int:
        """Number of vectors that cross a link in the round."""
        if self.back is None:
            return 2 * len(self.value)
        return int((self.value != 0).sum() + (self.back != 0).sum())

    def new_since(self, before: Weights) -> BoolArray:
        """Find the directions in which nothing was sent in another round.

        Args:
            before: The weights of the other round.

        Returns:
            Mask [2, links]: True where nothing was sent to a, and to b.
        """
        code = self.a * self.devices + self.b
        known = before.a * self.devices + before.b
        to_a = ~np.isin(code, known[before.value != 0])
        to_b = ~np.isin(code, known[before.backward != 0])
        return np.stack([to_a, to_b])

    def dense(self) -> FloatArray:
        """Return the weights as a matrix [devices, devices]; row i has the weights of device i."""
        matrix = np.diag(self.own)
        matrix[self.a, self.b] = self.value
        matrix[self.b, self.a] = self.backward
        return matrix

    def csr(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the matrix as compressed sparse rows, diagonal included.

        Returns:
            indptr, indices (ascending in each row) and values.
        """
        every = np.arange(self.devices)
        links = np.arange(len(self.a))
        before = np.bincount(self.b, minlength=self.devices)  # entries left of the diagonal
        after = np.bincount(self.a, minlength=self.devices)
        indptr = np.zeros(self.devices + 1, dtype=np.int64)
        np.cumsum(before + 1 + after, out=indptr[1:])
        diagonal = indptr[:-1] + before
        # Links are sorted by (a, b): as they are, they are the entries right of the diagonal, row
        # by row, and in a stable order of b those left of it.
        right = links + np.repeat(diagonal + 1 - (np.cumsum(after) - after), after)
        left = links + np.repeat(indptr[:-1] - (np.cumsum(before) - before), before)
        order = stable_order(self.b, self.devices)
        column = np.empty(indptr[-1], dtype=np.int64)
        column[left] = self.a[order]
        column[diagonal] = every
        column[right] = self.b
        values = np.empty(indptr[-1])
        values[left] = self.backward[order]
        values[diagonal] = self.own
        values[right] = self.value
        return indptr, column, values


class WeightRule(Protocol):
    """A rule that turns the links of a round into weights."""

    @property
    def fixed(self) -> bool:
        """True if the rule draws nothing, so that equal links have equal weights."""

    @property
    def local(self) -> bool:
        """True if a device's weights follow from its own links and the degrees of both ends.

        Then a process of a cluster computes the weights of its own devices only.
        """
        return False

    @property
    def one_way(self) -> bool:
        """True if the rule accepts directed links."""

    @property
    def sums(self) -> Sums:
        """Which sums of the weights are 1.

        "rows": each device takes a weighted mean of its neighbours. "columns": the sum over all
        devices is kept. "both": doubly stochastic. "nothing": there are no links.
        """

    @property
    def paired(self) -> bool:
        """True if a device exchanges with at most one neighbour per round: see `proposal`."""
        return False

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        """Return the weights of round t."""

    def link_weight(self) -> LinkWeight:
        """Return the weight of a link, which both of its ends compute from what they know.

        Raises:
            InputError: If they cannot.
        """
        accepted = "weights that are the same for both ends of a link, such as Metropolis"
        raise InputError("weights", type(self).__name__, accepted)

    def peer_weight(self, carried: Mapping[int, float] | None) -> PeerWeight:
        """Return the weight of a device's link to a neighbour.

        Args:
            carried: The weights that the network carries on the links of the device in this round,
                by neighbour; None if it carries none.

        Raises:
            InputError: If two devices cannot compute it.
        """
        link_weight = self.link_weight()
        return lambda neighbour, own, other: link_weight(own, other)

    def proposal(self, device: int, neighbours: Collection[int], t: int, seed: int) -> int:
        """Return the neighbour that a device proposes to exchange with, if the rule is `paired`.

        Two devices that propose to each other exchange.

        Args:
            device: Number of the device.
            neighbours: Its neighbours in this round, at least one.
            t: Number of the round.
            seed: Seed of the draws.

        Raises:
            InputError: If the rule is not `paired`.
        """
        raise InputError("weights", type(self).__name__, "a rule that pairs devices")


def check_symmetric(links: Links) -> None:
    """Raise InputError if links are directed.

    Args:
        links: The links of a round.
    """
    if links.directed:
        accepted = "a network with symmetric links, which these weights need"
        raise InputError("network", "directed", accepted)
