"""What is sent of a vector when not all of it is: for the difference between a model and what the neighbours know of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gossamer import draws
from gossamer._core.registry import register
from gossamer.errors import InputError


class Compressor(Protocol):
    @property
    def label(self) -> str: ...

    def __call__(self, x: Tensor, devices: Tensor, t: int) -> Tensor:
        """What arrives of every row of x in round t."""

    def bytes(self, numbers: int, itemsize: int) -> int:
        """The size of a message that stands for so many numbers."""


@register("compress", "top-k")
@dataclass(frozen=True)
class TopK:
    """The `share` of the numbers that are largest; with each goes its place, in four bytes."""

    share: float = 0.1

    def __post_init__(self) -> None:
        _check_share(self.share)

    @property
    def label(self) -> str:
        return f"top {self.share:.3g}"

    def __call__(self, x: Tensor, devices: Tensor, t: int) -> Tensor:
        place = x.abs().topk(_count(self.share, x.shape[1]), dim=1).indices
        return torch.zeros_like(x).scatter_(1, place, x.gather(1, place))

    def bytes(self, numbers: int, itemsize: int) -> int:
        return _count(self.share, numbers) * (itemsize + 4)


@register("compress", "random-k")
@dataclass(frozen=True)
class RandomK:
    """A random `share` of the numbers, drawn by name: both ends know the places, so only the numbers are sent."""

    share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        _check_share(self.share)

    @property
    def label(self) -> str:
        return f"random {self.share:.3g}"

    def __call__(self, x: Tensor, devices: Tensor, t: int) -> Tensor:
        drawn = draws.bits(
            self.seed, "compression/random", t, devices.cpu().numpy()[:, None], range(x.shape[1])
        )
        place = (
            torch.from_numpy((drawn >> 1).astype("int64"))
            .to(x.device)
            .topk(_count(self.share, x.shape[1]), dim=1)
            .indices
        )
        return torch.zeros_like(x).scatter_(1, place, x.gather(1, place))

    def bytes(self, numbers: int, itemsize: int) -> int:
        return _count(self.share, numbers) * itemsize


@register("compress", "quantised")
@dataclass(frozen=True)
class Quantised:
    """Every number in `bits` bits: its sign and one of s + 1 levels from 0 to the row's largest size, s = 2^(bits − 1) − 1.

    Rounded up or down by chance, so that the mean is right; then divided by 1 + τ, as CHOCO-SGD asks of an unbiased
    compressor. τ = min(n/s², √n/s) bounds the rounding of n numbers: E‖C(x) − x‖² ≤ τ·‖x‖² before the division.
    It is that of QSGD (D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnović, NeurIPS 2017), whose levels go up to ‖x‖₂;
    these go up to max|x|, are as close or closer, and are rounded by less.
    """

    bits: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 16:
            raise InputError("bits", self.bits, "a whole number from 2 to 16")

    @property
    def label(self) -> str:
        return f"{self.bits} bits"

    def __call__(self, x: Tensor, devices: Tensor, t: int) -> Tensor:
        levels = 2 ** (self.bits - 1) - 1
        size = x.abs().amax(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        drawn = draws.uniform(
            self.seed, "compression/quantised", t, devices.cpu().numpy()[:, None], range(x.shape[1])
        )
        level = (x.abs() / size * levels + torch.from_numpy(drawn).to(x)).floor_()
        tau = min(x.shape[1] / levels**2, math.sqrt(x.shape[1]) / levels)
        return x.sign() * level * (size / levels) / (1 + tau)

    def bytes(self, numbers: int, itemsize: int) -> int:
        return math.ceil(numbers * self.bits / 8) + itemsize


def _count(share: float, numbers: int) -> int:
    return max(1, round(share * numbers))


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise InputError("share", share, "a number above 0 and at most 1")
