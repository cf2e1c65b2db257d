"""The mirror map of the power mean.

    x^[c] = sgn(x)·|x|^c            signed power, element by element, any real c > 0
    z     = w^[p] = ∇φ(w)           the dual of a model w, φ(w) = ‖w‖_{p+1}^{p+1} / (p+1)
    w̄     = (Σ_j a_j·w_j^[p])^[1/p]   the weighted power-p mean

At p = 15 a float32 weight below 0.003 already has a dual of zero. So duals are float64 (they then hold every weight from 1e-8
to 1e4 up to p = 35), and `power_mean`, which must hold for any p, first divides each coordinate by its largest |w_j|.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer import backend as kernels
from gossamer.errors import InputError

# Duals within these bounds are far enough from float64's ends that a weighted sum of them loses nothing.
_SMALLEST_DUAL, _LARGEST_DUAL = 1e-280, 1e280
_TINY = 1e-300


def signed_power(x: Tensor, c: float) -> Tensor:
    """x^[c] = sgn(x)·|x|^c, for any real c > 0, in the type of x; keeps signed zeros, NaN stays NaN.

    >>> signed_power(torch.tensor([-2.0, 0.0, 3.0]), 2)
    tensor([-4.,  0.,  9.])
    """
    if not 0 < c < math.inf:
        raise InputError("c", c, "a number above 0")
    return signed_power_(x.clone(), c)


def signed_power_(x: Tensor, c: float, room: Tensor | None = None) -> Tensor:
    """x^[c] in the memory of x, by repeated squaring where c is whole: `torch.pow` is five to ten times slower there.

    `room`: memory of the shape of x to work in, if there is some; fresh memory costs as much as the arithmetic.
    """
    if c != int(c) or c > 1024:
        return x.copy_(torch.pow(x.abs(), c).copysign_(x))
    if c % 2 == 0:
        return x.copy_(_integer_power_(x.clone(), int(c), room).copysign_(x))
    return _integer_power_(x, int(c), room)


def _multiplications(c: int) -> int:
    """What x^c costs by repeated squaring."""
    return c.bit_length() + c.bit_count() - 2


def _integer_power_(x: Tensor, c: int, room: Tensor | None) -> Tensor:
    while c % 2 == 0:
        x.mul_(x)
        c //= 2
    while c % 3 == 0 and 2 + _multiplications(c // 3) < _multiplications(
        c
    ):  # p = 15: a cube and five, not six
        x.mul_(torch.mul(x, x, out=room))
        c //= 3
    c //= 2
    square = torch.mul(x, x, out=room) if c else x
    while c:
        if c % 2:
            x.mul_(square)
        c //= 2
        if c:
            square.mul_(square)
    return x


def root(z: Tensor, p: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """z^[1/p] of a float64 dual. Log and exp are three times faster than pow, and exact enough for all but float64."""
    if dtype == torch.float64:
        return torch.pow(z.abs(), 1 / p).copysign_(z)
    return root_(z, p, torch.empty_like(z)).to(dtype)


def root_(z: Tensor, p: float, room: Tensor) -> Tensor:
    """The root of a float64 dual for use in float32, in room of its shape."""
    # z·|z|^(1/p − 1) needs no copysign, which costs as much as the exp; the bound keeps 0·∞ out
    return torch.abs(z, out=room).clamp_min_(_TINY).log_().mul_(1 / p - 1).exp_().mul_(z)


def short_root(z: Tensor, p: float, out: Tensor) -> Tensor:
    """z^[1/p] of a float32 dual, in float32, written to `out`: a third of the cost of `root`.

    A relative error ε of z is one of ε/p in the root, so float32 is as good as float64 wherever z is well inside it. But
    the log is rounded too, by up to |log z|·eps/p: 16·eps for small p, and there the root is taken in float64.
    """
    if p < 9:
        return out.copy_(root(z.double(), p, torch.float32))
    return torch.abs(z, out=out).log_().mul_(1 / p).exp_().mul_(z.sign())


@dataclass(frozen=True)
class PowerMap:
    """The mirror map ∇φ and its inverse for one p; p = 1 is the identity.

    >>> PowerMap(3).to_primal(PowerMap(3).to_dual(torch.tensor([0.5, -2.0])), torch.float32)
    tensor([ 0.5000, -2.0000])
    """

    p: float

    def __post_init__(self) -> None:
        check_p(self.p)

    def to_dual(self, w: Tensor) -> Tensor:
        """z = w^[p], in float64 unless p = 1."""
        return w if self.p == 1 else signed_power_(w.to(torch.float64, copy=True), self.p)

    def to_primal(self, z: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """w = z^[1/p], in the type of z unless another is asked for."""
        dtype = dtype or z.dtype
        if self.p == 1:
            return z.to(dtype)
        if z.dtype == torch.float32 == dtype and kernels.serve(self.p, z):
            return kernels.roots(z, self.p)
        like = torch.empty_like(z, dtype=dtype)
        if z.dtype == torch.float32:
            return blockwise(lambda out, z: short_root(z, self.p, out), like, z)
        if dtype == torch.float32:
            return blockwise(
                lambda out, z: out.copy_(root_(z, self.p, torch.empty_like(z))), like, z
            )
        return blockwise(lambda out, z: out.copy_(root(z, self.p, dtype)), like, z)

    @property
    def always_fits(self) -> bool:
        """Whether float64 holds the dual of every weight from 1e-8 to 1e8: so it is up to p = 35."""
        return 1e-8**self.p >= _SMALLEST_DUAL

    @property
    def smallest(self) -> float:
        """The smallest |w| whose dual float64 holds with room to spare."""
        return _SMALLEST_DUAL ** (1 / self.p)

    def fits(self, w: Tensor) -> Tensor:
        """Where the dual of w is safely inside float64 (true for exact zeros): a mask of w's shape."""
        return _within(w.abs(), self.smallest, _LARGEST_DUAL ** (1 / self.p))


def inside_float32(z: Tensor) -> bool:
    """Whether a dual is zero or well inside float32's range, everywhere."""
    return bool(_within(z.abs(), 1e-30, 1e30).all())


def _within(magnitude: Tensor, smallest: float, largest: float) -> Tensor:
    return (magnitude == 0) | ((magnitude > smallest) & (magnitude < largest))


def power_mean(models: Tensor, weights: Tensor, p: float) -> Tensor:
    """The weighted power-p mean of models [k, …] with weights [k], or several means at once with weights [n, k].

    Right for any real p >= 1 and any magnitudes: each coordinate is divided by the largest |w_j| that has a weight, summed
    in float64, and multiplied back. NaN or infinity in a model that has a weight gives NaN.

    >>> power_mean(torch.tensor([[1.0], [2.0]]), torch.tensor([0.5, 0.5]), 3)   # ((1 + 8) / 2) ** (1/3)
    tensor([1.6510])
    """
    check_p(p)
    if not len(models):
        raise InputError("models", tuple(models.shape), "at least one model")
    if weights.dim() not in (1, 2) or weights.shape[-1] != models.shape[0]:
        raise InputError(
            "weights", tuple(weights.shape), f"shape [{models.shape[0]}] or [n, {models.shape[0]}]"
        )
    if weights.dim() == 2:
        rows = [power_mean(models, row, p) for row in weights]
        return torch.stack(rows) if rows else models.new_empty((0, *models.shape[1:]))
    held = weights != 0
    kept, shares = models[held], weights[held].double()
    if not len(kept):
        return torch.zeros_like(models[0])
    if p == 1:
        return torch.tensordot(shares, kept.double(), dims=1).to(models.dtype)
    flat, result = kept.reshape(len(kept), -1), models.new_empty(models.shape[1:])
    for columns, out in zip(
        *(x.split(columns_at_once(len(kept)), -1) for x in (flat, result.view(-1))), strict=True
    ):
        x = columns.double()
        scale = x.abs().amax(0)
        scale = torch.where(scale == 0, 1.0, scale)
        out.copy_(root(shares @ signed_power(x / scale, p), p, torch.float64) * scale)
    return result


# How many numbers are worked on at once, so that their float64 duals stay in the processor's cache.
_AT_ONCE = 80_000


def columns_at_once(rows: int) -> int:
    """The same in columns of a stack of so many rows."""
    return max(64, _AT_ONCE // max(1, rows))


def blockwise(function: Callable[..., object], like: Tensor, *tensors: Tensor) -> Tensor:
    """function(out, *parts) for a block of the elements of tensors of one shape at a time; a new tensor like `like`."""
    result = torch.empty_like(like)
    for out, *parts in zip(
        *(x.reshape(-1).split(_AT_ONCE) for x in (result, *tensors)), strict=True
    ):
        function(out, *parts)
    return result


def bregman(a: Tensor, b: Tensor, p: float) -> Tensor:
    """D_φ(a, b) = φ(a) − φ(b) − ⟨∇φ(b), a − b⟩, summed over the last axis, in float64; never negative.

    >>> bregman(torch.tensor([3.0]), torch.tensor([1.0]), 1)        # half the squared distance
    tensor(2., dtype=torch.float64)
    """
    check_p(p)
    a, b = a.double(), b.double()
    if p == 1:
        return (a - b).square().sum(-1) / 2
    s = torch.maximum(
        a.abs(), b.abs()
    )  # the divergence of a/s and b/s is s^-(p+1) times that of a and b
    a, b = a / torch.where(s == 0, 1.0, s), b / torch.where(s == 0, 1.0, s)
    terms = (a.abs() ** (p + 1) + p * b.abs() ** (p + 1)) / (p + 1) - signed_power(b, p) * a
    half = s ** (p / 2)  # in two halves: s^p alone may leave float64 where the divergence does not
    return (terms.clamp_min(0) * half * s * half).sum(-1)


def check_p(p: float) -> None:
    """Refuse a p below 1, NaN or infinite."""
    if not isinstance(p, int | float) or not (1 <= p < math.inf):
        raise InputError("p", p, "a number of at least 1")
