"""Mixing weights: from the links of a round to the weights a_ij with which models are averaged.

Every rule maps (links, t, seed) to `Weights`, which are symmetric and doubly stochastic except for
`RandomPeer` and `PushSum`. `WeightRule` describes what rules declare about themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network.base import BoolArray, FloatArray, IntArray, Links

Sums = Literal["both", "rows", "columns", "nothing"]
LinkWeight = Callable[[int, int], float]  # from the numbers of neighbours of both ends of a link

_MATCHING_DRAW = "weights/matching"
_NOT_LOCAL = (
    "weights that two devices can compute, such as Metropolis;"
    " these need the links of the whole network"
)
_MAX_EIGENVALUES = 4000  # devices for which `BestConstant` computes all eigenvalues


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
        diagonal = np.arange(self.devices)
        row = np.concatenate([self.b, diagonal, self.a])
        # Links are sorted, so that a stable sort by row leaves the columns of a row ascending:
        # those below the diagonal, the diagonal, those above it.
        order = np.argsort(row, kind="stable")
        indptr = np.zeros(self.devices + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=self.devices), out=indptr[1:])
        column = np.concatenate([self.a, diagonal, self.b])
        values = np.concatenate([self.backward, self.own, self.value])
        return indptr, column[order], values[order]


class WeightRule(Protocol):
    """A rule that turns the links of a round into weights."""

    @property
    def fixed(self) -> bool:
        """True if the rule draws nothing, so that equal links have equal weights."""

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


def metropolis(links: Links, t: int = 0, seed: int = 0) -> Weights:
    """Return Metropolis weights: a_ij = min(1/(|N_i|+1), 1/(|N_j|+1)), a_ii the rest up to 1.

    Args:
        links: Symmetric links.
        t: Not used; all rules take it.
        seed: Not used; all rules take it.

    Returns:
        The weights, symmetric and doubly stochastic.

    Raises:
        InputError: If the links are directed.

    Example:
        >>> metropolis(Links.of(2, [(0, 1)])).own.tolist()
        [0.5, 0.5]
    """
    _check_symmetric(links)
    a = links.a
    b = links.b
    size = links.degrees + 1
    value = 1.0 / np.maximum(size[a], size[b])
    to_a = np.bincount(a, weights=value, minlength=links.devices)
    to_b = np.bincount(b, weights=value, minlength=links.devices)
    own = (1.0 - (to_a + to_b)).astype(np.float64, copy=False)
    return Weights(links.devices, a, b, value, own, links.active)


def one_pair(links: Links, t: int, seed: int) -> Weights:
    """Return the weights of SwarmSGD: the two devices of one random link average.

    Args:
        links: Symmetric links; each is equally likely.
        t: Number of the round.
        seed: Seed of the draw.

    Returns:
        The weights. All other devices are inactive.

    Raises:
        InputError: If the links are directed.
    """
    _check_symmetric(links)
    if not len(links):
        return _halves(links, np.empty(0, dtype=np.int64))
    return _halves(links, np.atleast_1d(draws.below(len(links), seed, "weights/one-pair", t)))


def matching(links: Links, t: int, seed: int) -> Weights:
    """Return weights of pairs that form without a coordinator.

    A link is active if its random draw is the lowest one at both of its ends. The draw of a link
    is a function of (seed, t, a, b) alone. So each device finds the lowest draw among its own
    links and tells its neighbours; a link that both ends choose is active. Of equal draws
    (probability 2⁻⁶⁴) the lower (a, b) counts as lower.

    Args:
        links: Symmetric links.
        t: Number of the round.
        seed: Seed of the draws.

    Returns:
        The weights: 1/2 on active links. Devices without an active link are inactive.

    Raises:
        InputError: If the links are directed.
    """
    _check_symmetric(links)
    order = np.argsort(draws.bits(seed, _MATCHING_DRAW, t, links.a, links.b), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    lowest = np.full(links.devices, len(links))
    np.minimum.at(lowest, links.a, rank)
    np.minimum.at(lowest, links.b, rank)
    return _halves(links, np.flatnonzero((rank == lowest[links.a]) & (rank == lowest[links.b])))


def _halves(links: Links, chosen: IntArray) -> Weights:
    """Return weight 1/2 on the chosen links, which share no device; only their ends are active."""
    a = links.a[chosen]
    b = links.b[chosen]
    active = np.zeros(links.devices, dtype=bool)
    active[a] = True
    active[b] = True
    return Weights(links.devices, a, b, np.full(len(a), 0.5), np.where(active, 0.5, 1.0), active)


def _check_symmetric(links: Links) -> None:
    if links.directed:
        accepted = "a network with symmetric links, which these weights need"
        raise InputError("network", "directed", accepted)


# Rules that a spec can name -----------------------------------------------------------------------


@register("weights", "metropolis")
@dataclass(frozen=True)
class Metropolis(WeightRule):
    """Metropolis weights: a_ij = min(1/(|N_i|+1), 1/(|N_j|+1)).

    A device needs to know only how many neighbours its neighbours have.

    Example:
        >>> Metropolis()(Links.of(2, [(0, 1)])).value.tolist()
        [0.5]
    """

    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        return metropolis(links)

    def link_weight(self) -> LinkWeight:
        return lambda own, other: 1.0 / (1 + max(own, other))


@register("weights", "laplacian")
@dataclass(frozen=True)
class Laplacian(WeightRule):
    """W = I − α·L: the same weight α on every link (Xiao and Boyd 2004).

    All devices must agree on α. Above 2/λ_max(L) averaging diverges.

    Args:
        alpha: The weight; 0 for 1/(1 + the largest degree of the round).

    Example:
        >>> Laplacian(0.25)(Links.of(2, [(0, 1)])).own.tolist()
        [0.75, 0.75]
    """

    alpha: float = 0.0
    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < math.inf:
            accepted = "a number above 0, or 0 for 1/(1 + the largest degree)"
            raise InputError("alpha", self.alpha, accepted)

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        return _laplacian(links, self.alpha or 1.0 / (1 + int(links.degrees.max(initial=0))))

    def link_weight(self) -> LinkWeight:
        if not self.alpha:
            raise InputError("weights", "Laplacian", _NOT_LOCAL)
        return lambda own, other: self.alpha


@register("weights", "best-constant")
@dataclass(frozen=True)
class BestConstant(WeightRule):
    """W = I − α·L with the α for which averaging is fastest.

    α = 2/(λ_max + λ_min) over the nonzero eigenvalues of the Laplacian. It needs the whole graph
    of the round, so that it runs in simulations only.

    L. Xiao, S. Boyd. "Fast linear iterations for distributed averaging." Systems & Control
    Letters 53, 2004.

    Example:
        >>> BestConstant()(Links.of(2, [(0, 1)])).value.tolist()
        [0.5]
    """

    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        if links.devices > _MAX_EIGENVALUES:
            accepted = (
                f"another rule for more than {_MAX_EIGENVALUES} devices: it needs all eigenvalues"
            )
            raise InputError("weights", "best-constant", accepted)
        if not len(links):
            return metropolis(links)
        unit = _laplacian(links, 1.0).dense()
        eigenvalues = np.linalg.eigvalsh(np.eye(links.devices) - unit)  # W = I − L at α = 1
        nonzero = eigenvalues[eigenvalues > 1e-9 * eigenvalues[-1]]
        return _laplacian(links, 2.0 / float(nonzero[0] + nonzero[-1]))

    def link_weight(self) -> LinkWeight:
        raise InputError("weights", "BestConstant", _NOT_LOCAL)


@register("weights", "one-pair")
@dataclass(frozen=True)
class OnePair(WeightRule):
    """One random link of the round averages (SwarmSGD).

    All devices must agree on the link, so that it runs in simulations only.

    Example:
        >>> OnePair()(Links.of(4, [(0, 1), (2, 3)]), t=0, seed=0).active.sum().item()
        2
    """

    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        return one_pair(links, t, seed)

    def link_weight(self) -> LinkWeight:
        accepted = (
            'pairs = "matching", which devices find among themselves;'
            " one pair of all needs a clock that all share"
        )
        raise InputError("weights", "OnePair", accepted)


@register("weights", "matching")
@dataclass(frozen=True)
class Matching(WeightRule):
    """Pairs that form without a coordinator; see `matching`.

    Example:
        >>> Matching()(Links.of(4, [(0, 1), (2, 3)]), t=0, seed=0).active.sum().item()
        4
    """

    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"
    paired: ClassVar[bool] = True

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        return matching(links, t, seed)

    def link_weight(self) -> LinkWeight:
        return lambda own, other: 0.5

    def proposal(self, device: int, neighbours: Collection[int], t: int, seed: int) -> int:
        others = np.array(sorted(neighbours))
        a = np.minimum(others, device)
        b = np.maximum(others, device)
        draw = draws.bits(seed, _MATCHING_DRAW, t, a, b)
        # Sorted by neighbour, the links are sorted too: of equal draws the lower link is first.
        return int(others[np.argmin(draw)])


@register("weights", "random-peer")
@dataclass(frozen=True)
class RandomPeer(WeightRule):
    """Gossip learning: each device sends to one random neighbour.

    A device takes the mean of its own model and those that it received. Rows sum to 1, columns
    need not, so that the mean over all devices changes. In expectation it is kept if all devices
    have the same number of neighbours, but not on a star, for example. Directed links are used in
    their direction.

    Example:
        >>> RandomPeer()(Links.of(2, [(0, 1)]), t=0, seed=0).dense().tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """

    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = True
    sums: ClassVar[Sums] = "rows"

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        sender, receiver = _messages(links)
        order = np.lexsort((receiver, sender))
        sender = sender[order]
        receiver = receiver[order]
        first = np.searchsorted(sender, np.arange(links.devices))
        count = np.bincount(sender, minlength=links.devices)
        senders = np.flatnonzero(count)
        offset = draws.below(count[senders], seed, "weights/random-peer", t, senders)
        chosen = first[senders] + offset
        sender = sender[chosen]
        receiver = receiver[chosen]
        share = 1.0 / (1 + np.bincount(receiver, minlength=links.devices))
        return _from_messages(links, sender, receiver, share[receiver], share)


@dataclass(frozen=True)
class PushSum(WeightRule):
    """Each device splits its value equally among itself and those that it can send to.

    For directed links. Columns sum to 1, rows need not: the mean is kept, and a method divides by
    the mix of ones to remove the bias of the rows.
    """

    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = True
    sums: ClassVar[Sums] = "columns"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        sender, receiver = _messages(links)
        share = 1.0 / (1 + np.bincount(sender, minlength=links.devices))
        return _from_messages(links, sender, receiver, share[sender], share)


@dataclass(frozen=True)
class Clients(WeightRule):
    """No links, and a random fraction of the devices in every round: the clients of a server.

    For methods that average all active devices. At least one device takes part; only the server
    needs to know which.

    Args:
        fraction: Share of the devices that take part in a round, above 0 and at most 1.
    """

    fraction: float = 1.0
    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = True
    sums: ClassVar[Sums] = "nothing"

    def __post_init__(self) -> None:
        checks.number("fraction", self.fraction, above=0, most=1)

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        active = links.active
        if self.fraction < 1:
            present = np.flatnonzero(links.active_mask)
            order = np.argsort(draws.bits(seed, "weights/clients", t, present), kind="stable")
            count = max(1, round(self.fraction * len(present)))
            active = np.zeros(links.devices, dtype=bool)
            active[present[order[:count]]] = True
        empty = np.empty(0, dtype=np.int64)
        return Weights(links.devices, empty, empty, np.empty(0), np.ones(links.devices), active)

    def link_weight(self) -> LinkWeight:
        accepted = (
            "a method whose devices need only their neighbours;"
            " this one needs an average over all devices"
        )
        raise InputError("weights", "Clients", accepted)


def _laplacian(links: Links, alpha: float) -> Weights:
    _check_symmetric(links)
    own = (1.0 - alpha * links.degrees).astype(np.float64, copy=False)
    return Weights(links.devices, links.a, links.b, np.full(len(links), alpha), own, links.active)


def _messages(links: Links) -> tuple[IntArray, IntArray]:
    """Return sender and receiver of each message that the links allow."""
    if links.directed:
        return links.a, links.b
    return np.concatenate([links.a, links.b]), np.concatenate([links.b, links.a])


def _from_messages(
    links: Links, sender: IntArray, receiver: IntArray, weight: FloatArray, own: FloatArray
) -> Weights:
    """Return the weights with which each receiver takes `weight` of its sender."""
    low = np.minimum(sender, receiver)
    high = np.maximum(sender, receiver)
    code, link = np.unique(low * links.devices + high, return_inverse=True)
    value = np.zeros(len(code))
    back = np.zeros(len(code))
    to_lower = receiver < sender
    value[link[to_lower]] = weight[to_lower]
    back[link[~to_lower]] = weight[~to_lower]
    a = code // links.devices
    b = code % links.devices
    return Weights(links.devices, a, b, value, own, links.active, back)
