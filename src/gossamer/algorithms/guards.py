"""Robustness, around any method: a device looks at what it received before it mixes.

A power mean with a large p follows the largest value, so a single broken device does more harm the larger p is. The rules:

    Clip          L. He, S. P. Karimireddy, M. Jaggi. "Byzantine-robust decentralized learning via ClippedGossip." 2022.
    TrimmedMean,  D. Yin, Y. Chen, K. Ramchandran, P. Bartlett. "Byzantine-robust distributed learning: towards optimal
    Median        statistical rates." ICML 2018; of neighbourhoods: C. Fang, Z. Yang, W. U. Bajwa. "BRIDGE." IEEE TSIPN 2022.
    Checked       no paper's: what any receiver can see by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Mix, Neighbours
from gossamer.algorithms.broken import Broken
from gossamer.algorithms.wrapper import LinkMix, Wrapper
from gossamer.errors import InputError
from gossamer.network.weights import Sums


class MixRule(Protocol):
    """What devices make of what they received, link by link, before it is mixed; `own` is what each has itself."""

    @property
    def label(self) -> str: ...

    def __call__(self, near: Neighbours, own: Tensor) -> Neighbours: ...


@register("rule", "clip")
@dataclass(frozen=True)
class Clip:
    """Self-centred clipping: x_i + Σ_j a_ij·clip(x_j − x_i), where clip shortens what is longer than `radius` to it.

    A neighbour can pull by a_ij·radius a round and no more. A vector that is not finite has no direction: it is left out.

    >>> near = Neighbours(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.ones(2), torch.tensor([[1.0, 0.0], [1.0, 9.0]]))
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
        for k, i in _some(near):
            x = near.value[k]
            apart = _norm(x - own[i])
            x = torch.where(apart.isfinite()[:, None], x, own[i])
            share = torch.where(apart > self.radius, self.radius / apart, 1.0).to(x)
            value[k] = torch.lerp(own[i], x, share[:, None])  # exactly x where the share is 1
        return near._replace(value=value)


@register("rule", "checked")
@dataclass(frozen=True)
class Checked:
    """A neighbour whose vector is not finite, or longer than `largest` times the own, is left out for the round.

    Its weight goes to the own value. A device that is far behind, such as one that comes late to an anchored method, is on
    its own until it has caught up.
    """

    largest: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.largest < math.inf:
            raise InputError("largest", self.largest, "a number above 0")

    @property
    def label(self) -> str:
        return f"checked {self.largest:g}"

    def __call__(self, near: Neighbours, own: Tensor) -> Neighbours:
        limit, value = self.largest * _norm(own), torch.empty_like(near.value)
        for k, i in _some(near):
            passes = _norm(near.value[k]) <= limit[i]  # false for what is not finite
            value[k] = torch.where(passes[:, None], near.value[k], own[i])
        return near._replace(value=value)


@register("rule", "trimmed-mean")
@dataclass(frozen=True)
class TrimmedMean:
    """Coordinate by coordinate, the mean of a neighbourhood's values without the lowest and the highest `share` of them.

    Of k values, the own one included, ⌊share·k⌋ are left out on either side. Those that are left have the same weight, as
    its papers have it: the a_ij are set aside. A value that is not a number counts as the highest. On a ring, k = 3:
    a share of 0.34 leaves the one in the middle.
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
    """Coordinate by coordinate, the median of a neighbourhood's values, the own one included; of an even number, the mean
    of the two in the middle."""

    label: ClassVar[str] = "median"

    def __call__(self, near: Neighbours, own: Tensor) -> Neighbours:
        return _trimmed(near, len(own), lambda k: (k - 1) // 2)


# By what the weights of a method sum to: where a guard would have nothing that it could compare.
_UNGUARDED: dict[Sums, str] = {
    "columns": "a method whose devices send models: push-sum sends shares of them, which cannot be compared",
    "nothing": "a method that mixes with its neighbours: an average of all has none to guard",
}


@register("algorithm", "guarded")
@dataclass(frozen=True)
class Guarded(Wrapper):
    """Any method, with a rule between what a device receives and what it mixes. It sends no more than before.

    A power mean is taken of what the rule has made of the models. A method that mixes something else too, such as a tracked
    gradient, has that guarded by the same rule. Rules stack: Guarded(Guarded(method, Clip(1.0)), Checked()) checks, then
    clips.

    >>> from gossamer.algorithms.wpm import WPM
    >>> Guarded(WPM(p=15), Clip(radius=1.0)).label
    'WPM p=15, clip 1'
    """

    rule: MixRule

    def __post_init__(self) -> None:
        if isinstance(self.algorithm, Broken):
            raise InputError(
                "algorithm", self.algorithm.label, "the guard inside: Broken(Guarded(method, rule))"
            )
        if self.algorithm.merges_one_by_one:
            accepted = (
                "a method that mixes a neighbourhood at once: gossip learning merges one model at a "
                "time, by its age"
            )
            raise InputError("algorithm", self.algorithm.label, accepted)
        if self.algorithm.weights.sums in _UNGUARDED:
            raise InputError(
                "algorithm", self.algorithm.label, _UNGUARDED[self.algorithm.weights.sums]
            )

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
        came = (near.weight != 0) | (
            near.receiver == near.sender
        )  # over a link that is used one way, nothing comes back
        if not came.all():
            near = Neighbours(*(part[came] for part in near))
        return self.guarded.rule(near, x)

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        raise InputError("algorithm", self.guarded.algorithm.label, _UNGUARDED["nothing"])


def _norm(x: Tensor) -> Tensor:
    """Of every row, in float64: the square of 1e20 is beyond float32."""
    return torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)


# How many numbers are worked on at once: a rule then needs little memory beside what was received.
_AT_ONCE = 1_000_000


def _some(near: Neighbours) -> list[tuple[slice, Tensor]]:
    """The entries, some at a time: which they are, and who received them."""
    count = max(1, _AT_ONCE // max(1, near.value.shape[1]))
    return [
        (slice(k, k + count), near.receiver[k : k + count])
        for k in range(0, len(near.receiver), count)
    ]


def _trimmed(near: Neighbours, devices: int, cut: Callable[[int], int]) -> Neighbours:
    """Each neighbourhood's values in ascending order, coordinate by coordinate, without cut(k) of its k at either end."""
    size = torch.bincount(near.receiver, minlength=devices)
    rank = (
        torch.arange(len(near.receiver), device=size.device)
        - (size.cumsum(0) - size)[near.receiver]
    )
    low, value = torch.zeros_like(size), torch.empty_like(near.value)
    for k in size.unique().tolist():  # neighbourhoods of one size are sorted together
        low[size == k] = cut(k)
        rows, together = (
            (size[near.receiver] == k).nonzero().squeeze(1),
            max(1, _AT_ONCE // (k * value.shape[1] + 1)),
        )
        for some in rows.split(k * together):
            value[some] = near.value[some].view(-1, k, value.shape[1]).sort(1).values.flatten(0, 1)
    left = size - 2 * low
    kept = (
        ((rank >= low[near.receiver]) & (rank < (low + left)[near.receiver])).nonzero().squeeze(1)
    )
    receiver = near.receiver[kept]  # and its own making: no one neighbour sent all of such a row
    return Neighbours(receiver, receiver, 1 / left[receiver].to(near.weight), value[kept])
