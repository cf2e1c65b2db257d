"""Finite-time graphs: schedules of sparse rounds after which all devices have the exact mean.

Y. Takezawa, R. Sato, H. Bao, K. Niwa, M. Yamada. "Beyond exponential graph: communication-efficient
topologies for decentralized learning via finite-time convergence." NeurIPS 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import FloatArray, IntArray, Links, Network
from gossamer.network.generators.pairs import weighted_links


class _Piece(NamedTuple):
    """Some links of a round: both ends, and the weight of all of them."""

    u: IntArray
    v: IntArray
    weight: float


@lru_cache(maxsize=1024)
def _factors(number: int, most: int) -> tuple[int, ...] | None:
    """Return the fewest factors from 2 to `most` whose product is the number; None if none are.

    The factors ascend, and are those with the largest last factor.
    """
    if number == 1:
        return ()
    best: tuple[int, ...] | None = None
    for last in range(min(most, number), 1, -1):
        if best is not None and last ** (len(best) - 1) < number:
            break  # fewer factors that are at most this one are not enough
        if number % last == 0:
            before = _factors(number // last, last)
            if before is not None and (best is None or len(before) + 1 < len(best)):
                best = (*before, last)
    return best


def _smooth_part(number: int, most: int) -> int:
    """Return the largest divisor of a number whose prime factors are at most `most`."""
    rest = number
    for prime in range(2, most + 1):
        while rest % prime == 0:
            rest //= prime
    return number // rest


def _cliques(groups: IntArray) -> _Piece:
    """Link all devices of each row of [groups, size]: each takes the mean of its group."""
    size = groups.shape[1]
    i, j = np.triu_indices(size, 1)
    return _Piece(groups[:, i].ravel(), groups[:, j].ravel(), 1 / size)


def _hypercube(sets: IntArray, factors: tuple[int, ...], t: int) -> list[_Piece]:
    """Return a round of the hyper-hypercube of each row of [sets, size].

    The place of a device in its row is a number whose digits have the factors as bases. In round t
    devices form groups that differ in digit t only, and again from the first digit after the last.
    """
    if not factors:
        return []
    t %= len(factors)
    low = math.prod(factors[:t])
    groups = sets.reshape(-1, factors[t], low).swapaxes(1, 2)
    return [_cliques(groups.reshape(-1, factors[t]))]


class _Part(NamedTuple):
    """A part of the devices in the simple Base-(k+1) graph: `blocks` blocks of (k+1)^p devices."""

    begin: int
    blocks: int
    block: int

    @property
    def size(self) -> int:
        return self.blocks * self.block

    @property
    def end(self) -> int:
        return self.begin + self.size


def _parts(size: int, k: int) -> list[_Part]:
    """Split the devices by the digits of their number in base k + 1, the highest first."""
    block = 1
    while block * (k + 1) <= size:
        block *= k + 1
    parts = []
    begin = 0
    while begin < size:
        count = (size - begin) // block
        if count:
            parts.append(_Part(begin, count, block))
            begin += count * block
        block //= k + 1
    return parts


def _simple_length(size: int, k: int) -> int:
    """Return the number of rounds of the simple Base-(k+1) graph."""
    factors = _factors(size, k + 1)
    if factors is not None:
        return len(factors)
    largest = _parts(size, k)[0]
    return _rounds(largest.size, k) + 1 + _rounds(largest.block, k)


def _rounds(size: int, k: int) -> int:
    """Return the number of rounds of the hyper-hypercube of a part or block."""
    factors = _factors(size, k + 1)
    assert factors is not None  # digit times power of k + 1
    return len(factors)


def _simple(sets: IntArray, k: int, t: int) -> list[_Piece]:
    """Return a round of the simple Base-(k+1) graph of each row of [sets, size].

    First each part averages. Then each device of the later parts takes a share of one device per
    block of the first part, then of the second, and so on, so that every block has the mean of all
    in sum. At last each block averages.
    """
    factors = _factors(sets.shape[1], k + 1)
    if factors is not None:
        return _hypercube(sets, factors, t)
    parts = _parts(sets.shape[1], k)
    since = t - _rounds(parts[0].size, k)  # rounds since the parts have averaged
    pieces = []
    for number, part in enumerate(parts):
        devices = sets[:, part.begin : part.end]
        is_last = number == len(parts) - 1
        if since < 0:
            pieces += _hypercube(devices, _factors(part.size, k + 1) or (), t)
        elif since == number and not is_last:
            pieces += _exchange(sets, part, k)
        elif since >= number:
            blocks = devices.reshape(-1, part.block)
            if part.size <= k:
                blocks = devices  # single devices, which fit in one group
            turn = since - number - (not is_last)
            pieces += _hypercube(blocks, _factors(blocks.shape[1], k + 1) or (), turn)
    return pieces


def _exchange(sets: IntArray, part: _Part, k: int) -> list[_Piece]:
    """Link each device of the later parts to one device per block of this part.

    The devices of the part that are left over form groups of at most k + 1.
    """
    later = sets[:, None, part.end :]
    used = later.shape[2]
    blocks = sets[:, part.begin : part.end].reshape(len(sets), part.blocks, part.block)
    partners = blocks[:, :, :used]
    weight = part.size / (part.blocks * (part.size + used))
    pieces = [_Piece(np.broadcast_to(later, partners.shape).ravel(), partners.ravel(), weight)]
    idle = blocks[:, :, used:].reshape(len(sets), -1)
    whole = idle.shape[1] // (k + 1) * (k + 1)
    pieces.append(_cliques(idle[:, :whole].reshape(-1, k + 1)))
    if idle.shape[1] - whole > 1:
        pieces.append(_cliques(idle[:, whole:]))
    return pieces


class _FiniteTime(Network):
    """A schedule that repeats, with weights of its own."""

    weighted = True
    devices: int
    degree: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        checks.whole("degree", self.degree, 1)
        limits.check_links("degree", self.degree, self.devices * self._k / 2)

    @property
    def _k(self) -> int:
        """The largest degree that makes a difference."""
        return max(1, min(self.degree, self.devices - 1))

    def _joined(self, pieces: list[_Piece]) -> Links:
        nothing: IntArray = np.empty(0, dtype=np.int64)
        u = [nothing]
        v = [nothing]
        weight: list[FloatArray] = [np.empty(0)]
        for piece in pieces:
            u.append(piece.u)
            v.append(piece.v)
            weight.append(np.full(len(piece.u), piece.weight))
        return weighted_links(
            self.devices, np.concatenate(u), np.concatenate(v), np.concatenate(weight)
        )


@register("network", "hyper-hypercube")
@dataclass(frozen=True)
class HyperHypercube(_FiniteTime):
    """The k-peer hyper-hypercube: exact averaging in as many rounds as m has factors up to k + 1.

    The number of devices is a product of as few factors as possible. In each round, devices form
    groups of one factor, whose members are all linked.

    Args:
        devices: Number of devices m; its prime factors are at most degree + 1.
        degree: Largest number of neighbours k of a device in a round.

    Example:
        >>> HyperHypercube(12, degree=3).period
        2
    """

    devices: int
    degree: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if _factors(self.devices, self._k + 1) is None:
            accepted = (
                f"a number without prime factors above degree + 1 = {self.degree + 1}; "
                "base-graph takes any"
            )
            raise InputError("devices", self.devices, accepted)

    @property
    def period(self) -> int | None:
        return max(1, len(_factors(self.devices, self._k + 1) or ()))

    def links(self, t: int) -> Links:
        every = np.arange(self.devices)[None]
        return self._joined(_hypercube(every, _factors(self.devices, self._k + 1) or (), t))


@register("network", "base-graph")
@dataclass(frozen=True)
class BaseGraph(_FiniteTime):
    """The Base-(k+1) graph: exact averaging of any number of devices in O(log m) sparse rounds.

    The number of devices is m = p·q, where p has no prime factors above k + 1, and q no others.
    Groups of q devices average by the simple Base-(k+1) graph, then groups of p by the
    hyper-hypercube; or all by the simple graph, if that takes fewer rounds. The links carry the
    weights with which the product over one period is 11ᵀ/m.

    Args:
        devices: Number of devices m.
        degree: Largest number of neighbours k of a device in a round.
        simple: True for the simple Base-(k+1) graph of all devices.

    Example:
        >>> BaseGraph(6).period, BaseGraph(6, simple=True).period
        (4, 5)
    """

    devices: int
    degree: int = 1
    simple: bool = False

    @property
    def period(self) -> int | None:
        first, second = self._lengths
        return max(1, first + second)

    @property
    def _lengths(self) -> tuple[int, int]:
        """Number of rounds of the simple graph, and of the hyper-hypercube after it."""
        k = self._k
        alone = _simple_length(self.devices, k)
        smooth = _smooth_part(self.devices, k + 1)
        first = _simple_length(self.devices // smooth, k)
        second = _rounds(smooth, k)
        if self.simple or alone < first + second:
            return alone, 0
        return first, second

    def links(self, t: int) -> Links:
        first, second = self._lengths
        t %= max(1, first + second)
        every = np.arange(self.devices)
        size = self.devices
        if second:
            size //= _smooth_part(self.devices, self._k + 1)
        groups = every.reshape(-1, size)
        if t < first:
            return self._joined(_simple(groups, self._k, t))
        factors = _factors(len(groups), self._k + 1) or ()
        return self._joined(_hypercube(groups.T, factors, t - first))
