"""Mixing weights: from the links of a round to the numbers a_ij by which models are averaged.

Every rule maps (links, t, seed) to `Weights`: symmetric and doubly stochastic, but for `RandomPeer` and `PushSum`. A rule is
`fixed` if it draws nothing: the same links then have the same weights; `one_way` if it takes links that go one way too.
`sums` says which of its sums are 1: by "rows" each takes a mean of its neighbours, by "columns" the sum of all is kept;
"nothing" where there are no links.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network.base import BoolArray, IntArray, Links

FloatArray = NDArray[np.float64]
Sums = Literal["both", "rows", "columns", "nothing"]


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights: `value` on each link (a < b, sorted), `own` for each device itself.

    `value` is what a takes from b. `back` is what b takes from a (None: the same; 0: nothing is sent that way).
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
    back: FloatArray | None = None

    @property
    def messages(self) -> int:
        """How many vectors cross a link in the round."""
        return (
            2 * len(self.value)
            if self.back is None
            else int((self.value != 0).sum() + (self.back != 0).sum())
        )

    def new_since(self, before: Weights) -> BoolArray:
        """[2, links]: whether nothing was sent before, to a and to b."""
        code, known = self.a * self.devices + self.b, before.a * self.devices + before.b
        back = before.value if before.back is None else before.back
        return np.stack([~np.isin(code, known[way != 0]) for way in (before.value, back)])

    def dense(self) -> FloatArray:
        """As a matrix [m, m]: row i is what device i takes from each."""
        matrix = np.diag(self.own)
        matrix[self.a, self.b] = self.value
        matrix[self.b, self.a] = self.value if self.back is None else self.back
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
        back = self.value if self.back is None else self.back
        return indptr, column[order], np.concatenate([back, self.own, self.value])[order]


class WeightRule(Protocol):
    """How a round's links become weights."""

    @property
    def fixed(self) -> bool: ...

    @property
    def one_way(self) -> bool: ...

    @property
    def sums(self) -> Sums: ...

    def __call__(self, links: Links, t: int, seed: int) -> Weights: ...


def metropolis(links: Links, t: int = 0, seed: int = 0) -> Weights:
    """The paper's weights: a_ij = min(1/(|N_i|+1), 1/(|N_j|+1)), and a_ii is what is left of 1."""
    _symmetric(links)
    a, b = links.a, links.b
    size = links.degrees + 1
    value = 1.0 / np.maximum(size[a], size[b])
    given = np.bincount(a, weights=value, minlength=links.devices) + np.bincount(
        b, value, links.devices
    )
    return Weights(
        links.devices, a, b, value, (1.0 - given).astype(np.float64, copy=False), links.active
    )


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
        raise InputError(
            "network", "directed", "a network with symmetric links, which these weights need"
        )


# The same as rules that a spec can name, and more of them ----------------------------------------------------------------


@register("weights", "metropolis")
@dataclass(frozen=True)
class Metropolis:
    """The paper's weights: a_ij = min(1/(|N_i|+1), 1/(|N_j|+1)). A device needs only its neighbours' numbers of links."""

    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        return metropolis(links)


@register("weights", "laplacian")
@dataclass(frozen=True)
class Laplacian:
    """W = I − α·L, the same weight α on every link (Xiao and Boyd 2004). `alpha` 0: 1/(1 + the round's largest degree).

    It needs one number that all devices agree on. Above 2/λ_max(L) averaging diverges.
    """

    alpha: float = 0.0
    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < math.inf:
            raise InputError(
                "alpha", self.alpha, "a number above 0, or 0 for 1/(1 + the largest degree)"
            )

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        return _laplacian(links, self.alpha or 1.0 / (1 + int(links.degrees.max(initial=0))))


@register("weights", "best-constant")
@dataclass(frozen=True)
class BestConstant:
    """W = I − α·L with the α that averages fastest: 2/(λ_max + λ_min) over the Laplacian's eigenvalues that are not 0.

    L. Xiao, S. Boyd. "Fast linear iterations for distributed averaging." Systems & Control Letters 53, 2004. It needs the
    whole graph of the round, so it runs in a simulation only.
    """

    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        if links.devices > 4000:
            raise InputError(
                "weights",
                "best-constant",
                "another rule for more than 4000 devices: it needs all eigenvalues",
            )
        if not len(links):
            return metropolis(links)
        unit = _laplacian(links, 1.0).dense()
        eigenvalues = np.linalg.eigvalsh(np.eye(links.devices) - unit)  # W = I − L at α = 1
        apart = eigenvalues[eigenvalues > 1e-9 * eigenvalues[-1]]
        return _laplacian(links, 2.0 / float(apart[0] + apart[-1]))


@register("weights", "one-pair")
@dataclass(frozen=True)
class OnePair:
    """One of the round's links, each as likely (SwarmSGD): needs a clock that all share, so it runs in a simulation only."""

    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        return one_pair(links, t, seed)


@register("weights", "matching")
@dataclass(frozen=True)
class Matching:
    """Pairs without a coordinator: a link is active if its named draw is the lowest at both of its ends."""

    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        return matching(links, t, seed)


@register("weights", "random-peer")
@dataclass(frozen=True)
class RandomPeer:
    """Gossip learning's: each device sends to one of its neighbours, and averages what it got with its own, equally.

    Rows sum to 1, columns need not: the mean moves. In expectation it is kept where all have as many neighbours; on a star,
    for one, it is not. Directed links are followed as they point.
    """

    fixed: ClassVar[bool] = False
    one_way: ClassVar[bool] = True
    sums: ClassVar[Sums] = "rows"

    def __call__(self, links: Links, t: int, seed: int) -> Weights:
        sender, receiver = _messages(links)
        order = np.lexsort((receiver, sender))
        sender, receiver = sender[order], receiver[order]
        first = np.searchsorted(sender, np.arange(links.devices))
        count = np.bincount(sender, minlength=links.devices)
        talks = np.flatnonzero(count)
        chosen = first[talks] + draws.below(count[talks], seed, "weights/random-peer", t, talks)
        sender, receiver = sender[chosen], receiver[chosen]
        share = 1.0 / (1 + np.bincount(receiver, minlength=links.devices))
        return _one_way(links, sender, receiver, share[receiver], share)


@dataclass(frozen=True)
class PushSum:
    """Each device splits what it has equally over itself and those it can send to: columns sum to 1, rows need not.

    For links that go one way. The mean is kept; a method divides by the mix of ones to undo the bias of the rows.
    """

    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = True
    sums: ClassVar[Sums] = "columns"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        sender, receiver = _messages(links)
        share = 1.0 / (1 + np.bincount(sender, minlength=links.devices))
        return _one_way(links, sender, receiver, share[sender], share)


@dataclass(frozen=True)
class Clients:
    """No links at all, and a `fraction` of the devices that are here, drawn anew in every round: the clients of a server.

    At least one takes part; which ones, nobody but the server needs to know. For methods that average all, by `mix.mean`.
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
            here = np.arange(links.devices) if active is None else np.flatnonzero(active)
            order = np.argsort(draws.bits(seed, "weights/clients", t, here), kind="stable")
            active = np.zeros(links.devices, dtype=bool)
            active[here[order[: max(1, round(self.fraction * len(here)))]]] = True
        nobody = np.empty(0, dtype=np.int64)
        return Weights(links.devices, nobody, nobody, np.empty(0), np.ones(links.devices), active)


def _laplacian(links: Links, alpha: float) -> Weights:
    _symmetric(links)
    own = (1.0 - alpha * links.degrees).astype(np.float64, copy=False)
    return Weights(links.devices, links.a, links.b, np.full(len(links), alpha), own, links.active)


def _messages(links: Links) -> tuple[IntArray, IntArray]:
    """Who can send to whom."""
    if links.directed:
        return links.a, links.b
    return np.concatenate([links.a, links.b]), np.concatenate([links.b, links.a])


def _one_way(
    links: Links, sender: IntArray, receiver: IntArray, weight: FloatArray, own: FloatArray
) -> Weights:
    """Weights from messages: each receiver takes `weight` of its sender."""
    low, high = np.minimum(sender, receiver), np.maximum(sender, receiver)
    code, place = np.unique(low * links.devices + high, return_inverse=True)
    value, back = np.zeros(len(code)), np.zeros(len(code))
    up = receiver < sender  # the lower one receives
    value[place[up]], back[place[~up]] = weight[up], weight[~up]
    return Weights(
        links.devices, code // links.devices, code % links.devices, value, own, links.active, back
    )
