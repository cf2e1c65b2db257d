"""Guards, around any method: a device checks what it received before it mixes.

A power mean with a large p follows the largest value, so a single broken device does more harm the
larger p is. The rules:

    Clip          L. He, S. P. Karimireddy, M. Jaggi. "Byzantine-robust decentralized learning via
                  ClippedGossip." 2022.
    TrimmedMean,  D. Yin, Y. Chen, K. Ramchandran, P. Bartlett. "Byzantine-robust distributed
    Median        learning: towards optimal statistical rates." ICML 2018; of neighbourhoods:
                  C. Fang, Z. Yang, W. U. Bajwa. "BRIDGE." IEEE TSIPN 2022.
    Checked       ours: what any receiver can see by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Mix, Neighbours
from gossamer.algorithms.wrapper import LinkMix, Wrapper
from gossamer.errors import InputError
from gossamer.network.weights import Sums

# Elements per block: a rule then needs little memory beside what was received.
_BLOCK_ELEMENTS = 1_000_000


class MixRule(Protocol):
    """What devices do with the vectors they received, link by link, before they mix."""

    @property
    def label(self) -> str:
        """A short name for tables."""

    def __call__(self, near: Neighbours, own: Tensor) -> Neighbours:
        """Return what is mixed.

        Args:
            near: What the devices received.
            own: The vector of each device itself.
        """


@register("rule", "clip")
@dataclass(frozen=True)
class Clip:
    """Self-centred clipping: x_i + Σ_j a_ij·clip(x_j − x_i), with differences cut to `radius`.

    A neighbour can pull by at most a_ij·radius per round. A vector that is not finite has no
    direction and is left out.

    Args:
        radius: The largest length of a difference, above 0.

    Example:
        >>> value = torch.tensor([[1.0, 0.0], [1.0, 9.0]])
        >>> near = Neighbours(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.ones(2), value)
        >>> Clip(radius=2.0)(near, own=torch.tensor([[1.0, 0.0]])).value.tolist()
        [[1.0, 0.0], [1.0, 2.0]]
    """

    radius: float

    def __post_init__(self) -> None:
        if not 0 < self.radius < math.inf:
            raise InputError("radius", self.radius, "a number above 0")

    @property
    def label(self) -> str:
        return f"clip {self.radius:g}"

    def __call__(self, near: Neighbours, own: Tensor) -> Neighbours:
        value = torch.empty_like(near.value)
        for k, i in _blocks(near):
            x = near.value[k]
            distance = _norm(x - own[i])
            x = torch.where(distance.isfinite()[:, None], x, own[i])
            share = torch.where(distance > self.radius, self.radius / distance, 1.0).to(x)
            value[k] = torch.lerp(own[i], x, share[:, None])  # exactly x where the share is 1
        return near._replace(value=value)


@register("rule", "checked")
@dataclass(frozen=True)
class Checked:
    """A neighbour is left out for the round if its vector is not finite or too long.

    Its weight goes to the device's own vector. A device that is far behind, such as one that joins
    an anchored method late, mixes with nobody until it has caught up.

    Args:
        largest: The largest accepted length, in lengths of the device's own vector.
    """

    largest: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.largest < math.inf:
            raise InputError("largest", self.largest, "a number above 0")

    @property
    def label(self) -> str:
        return f"checked {self.largest:g}"

    def __call__(self, near: Neighbours, own: Tensor) -> Neighbours:
        limit = self.largest * _norm(own)
        value = torch.empty_like(near.value)
        for k, i in _blocks(near):
            passes = _norm(near.value[k]) <= limit[i]  # False for NaN
            value[k] = torch.where(passes[:, None], near.value[k], own[i])
        return near._replace(value=value)


@register("rule", "trimmed-mean")
@dataclass(frozen=True)
class TrimmedMean:
    """Per coordinate, the mean of a neighbourhood without its lowest and highest values.

    Of k values, the device's own included, ⌊share·k⌋ are left out at either end. The others have
    the same weight, as in its papers: the a_ij are not used. NaN counts as the highest value. On a
    ring, k = 3, a share of 0.34 leaves the middle one.

    Args:
        share: The share that is left out at either end, at least 0 and below 0.5.
    """

    share: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise InputError("share", self.share, "a number of at least 0 and below 0.5")

    @property
    def label(self) -> str:
        return f"trimmed {self.share:g}"

    def __call__(self, near: Neighbours, own: Tensor) -> Neighbours:
        return _trimmed(near, len(own), lambda k: int(self.share * k + 1e-9))


@register("rule", "median")
@dataclass(frozen=True)
class Median:
    """Per coordinate, the median of a neighbourhood, the device's own value included.

    Of an even number of values it is the mean of the two in the middle.
    """

    label: ClassVar[str] = "median"

    def __call__(self, near: Neighbours, own: Tensor) -> Neighbours:
        return _trimmed(near, len(own), lambda k: (k - 1) // 2)


# Methods without anything that a guard could compare, by what their weights sum to.
_UNGUARDED: dict[Sums, str] = {
    "columns": "a method whose devices send models: push-sum sends shares of them, which cannot be "
    "compared",
    "nothing": "a method that mixes with its neighbours: an average of all has none to guard",
}


@register("algorithm", "guarded")
@dataclass(frozen=True)
class Guarded(Wrapper):
    """Any method with a rule between what a device receives and what it mixes.

    It sends no more than before. Power means are computed from what the rule returns. Everything
    that a method mixes is guarded by the same rule, such as a tracked gradient. Rules stack:
    Guarded(Guarded(method, Clip(1.0)), Checked()) checks, then clips.

    Args:
        algorithm: The method.
        rule: The rule.

    Example:
        >>> from gossamer.algorithms.wpm import WPM
        >>> Guarded(WPM(p=15), Clip(radius=1.0)).label
        'WPM p=15, clip 1'
    """

    rule: MixRule

    def __post_init__(self) -> None:
        label = self.algorithm.label
        if isinstance(self.algorithm, Wrapper) and self.algorithm.changes_messages:
            accepted = "the guard inside: Broken(Guarded(method, rule))"
            raise InputError("algorithm", label, accepted)
        if self.algorithm.merges_one_by_one:
            accepted = (
                "a method that mixes a neighbourhood at once: gossip learning merges one model at "
                "a time, by its age"
            )
            raise InputError("algorithm", label, accepted)
        sums = self.algorithm.weights.sums
        if sums in _UNGUARDED:
            raise InputError("algorithm", label, _UNGUARDED[sums])

    @property
    def label(self) -> str:
        return f"{self.algorithm.label}, {self.rule.label}"

    def through(self, mix: Mix, t: int) -> Mix:
        return _GuardedMix(mix, self)


@dataclass(frozen=True)
class _GuardedMix(LinkMix):
    guarded: Guarded

    def neighbours(self, x: Tensor) -> Neighbours:
        near = self.mix.neighbours(x)
        # Over a link that is used one way, nothing comes back.
        received = (near.weight != 0) | (near.receiver == near.sender)
        if not received.all():
            near = Neighbours(*(part[received] for part in near))
        return self.guarded.rule(near, x)

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        raise InputError("algorithm", self.guarded.algorithm.label, _UNGUARDED["nothing"])


def _norm(x: Tensor) -> Tensor:
    """Return the norm of every row, in float64: the square of 1e20 overflows float32."""
    return torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)


def _blocks(near: Neighbours) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of entries, each with its receivers."""
    count = max(1, _BLOCK_ELEMENTS // max(1, near.value.shape[1]))
    for k in range(0, len(near.receiver), count):
        yield slice(k, k + count), near.receiver[k : k + count]


def _trimmed(near: Neighbours, devices: int, cut: Callable[[int], int]) -> Neighbours:
    """Sort each neighbourhood's values per coordinate, and drop cut(k) of its k at either end."""
    receiver = near.receiver
    value = torch.empty_like(near.value)
    columns = value.shape[1]
    size = torch.bincount(receiver, minlength=devices)
    rank = torch.arange(len(receiver), device=size.device) - (size.cumsum(0) - size)[receiver]
    low = torch.zeros_like(size)
    for k in size.unique().tolist():  # neighbourhoods of one size are sorted together
        low[size == k] = cut(k)
        rows = (size[receiver] == k).nonzero().squeeze(1)
        together = max(1, _BLOCK_ELEMENTS // (k * columns + 1))
        for block in rows.split(k * together):
            sorted_ = near.value[block].view(-1, k, columns).sort(1).values
            value[block] = sorted_.flatten(0, 1)
    left = size - 2 * low
    inside = (rank >= low[receiver]) & (rank < (low + left)[receiver])
    kept = inside.nonzero().squeeze(1)
    # The rows are made of values of several neighbours: their sender is the receiver itself.
    receiver = receiver[kept]
    return Neighbours(receiver, receiver, 1 / left[receiver].to(near.weight), value[kept])
