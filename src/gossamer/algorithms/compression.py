"""Compressors: what is sent of a vector when not all of it is.

They are applied to the difference between a model and what the neighbours know of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gossamer import draws
from gossamer._core.registry import register
from gossamer.errors import InputError

_INDEX_BYTES = 4  # size of the position of an element in a message


class Compressor(Protocol):
    """A compressor of vectors."""

    @property
    def label(self) -> str:
        """A short name for tables."""

    def __call__(self, x: Tensor, devices: Tensor, t: int) -> Tensor:
        """Return what arrives of every row of x in round t.

        Args:
            x: One vector per device.
            devices: The numbers of the devices.
            t: The round.
        """

    def bytes(self, elements: int, itemsize: int) -> int:
        """Return the size of a message.

        Args:
            elements: The number of elements of the vector.
            itemsize: Bytes per element.
        """


@register("compress", "top-k")
@dataclass(frozen=True)
class TopK:
    """The elements of largest magnitude; each is sent with its position.

    Args:
        share: The share of the elements that is sent.

    Example:
        >>> TopK(0.1).bytes(elements=1000, itemsize=4)
        800
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        _check_share(self.share)

    @property
    def label(self) -> str:
        return f"top {self.share:.3g}"

    def __call__(self, x: Tensor, devices: Tensor, t: int) -> Tensor:
        position = x.abs().topk(_count(self.share, x.shape[1]), dim=1).indices
        return torch.zeros_like(x).scatter_(1, position, x.gather(1, position))

    def bytes(self, elements: int, itemsize: int) -> int:
        return _count(self.share, elements) * (itemsize + _INDEX_BYTES)


@register("compress", "random-k")
@dataclass(frozen=True)
class RandomK:
    """Random elements. Both ends draw the positions, so only the values are sent.

    Args:
        share: The share of the elements that is sent.
        seed: The seed of the positions.

    Example:
        >>> RandomK(0.1).bytes(elements=1000, itemsize=4)
        400
    """

    share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        _check_share(self.share)

    @property
    def label(self) -> str:
        return f"random {self.share:.3g}"

    def __call__(self, x: Tensor, devices: Tensor, t: int) -> Tensor:
        rows = devices.cpu().numpy()[:, None]
        drawn = draws.bits(self.seed, "compression/random", t, rows, range(x.shape[1]))
        rank = torch.from_numpy((drawn >> 1).astype("int64")).to(x.device)
        position = rank.topk(_count(self.share, x.shape[1]), dim=1).indices
        return torch.zeros_like(x).scatter_(1, position, x.gather(1, position))

    def bytes(self, elements: int, itemsize: int) -> int:
        return _count(self.share, elements) * itemsize


@register("compress", "quantised")
@dataclass(frozen=True)
class Quantised:
    """Every element as its sign and one of s + 1 levels of the row's largest magnitude.

    s = 2^(bits − 1) − 1. Levels are rounded up or down at random, so that the mean is right, and
    then divided by 1 + τ, as CHOCO-SGD needs for an unbiased compressor. τ = min(n/s², √n/s) bounds
    the rounding of n elements: E‖C(x) − x‖² ≤ τ·‖x‖² before the division. That is the bound of QSGD
    (D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnović, NeurIPS 2017), whose levels go up to
    ‖x‖₂. Levels up to max|x| are as close or closer.

    Args:
        bits: Bits per element, from 2 to 16.
        seed: The seed of the rounding.

    Example:
        >>> Quantised(4).bytes(elements=1000, itemsize=4)
        504
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
        n = x.shape[1]
        levels = 2 ** (self.bits - 1) - 1
        size = x.abs().amax(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        rows = devices.cpu().numpy()[:, None]
        drawn = draws.uniform(self.seed, "compression/quantised", t, rows, range(n))
        level = (x.abs() / size * levels + torch.from_numpy(drawn).to(x)).floor_()
        tau = min(n / levels**2, math.sqrt(n) / levels)
        return x.sign() * level * (size / levels) / (1 + tau)

    def bytes(self, elements: int, itemsize: int) -> int:
        return math.ceil(elements * self.bits / 8) + itemsize


def _count(share: float, elements: int) -> int:
    return max(1, round(share * elements))


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise InputError("share", share, "a number above 0 and at most 1")
