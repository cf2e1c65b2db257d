"""The mirror map of the power mean.

    x^[c] = sgn(x)·|x|^c            signed power, element by element, any real c > 0
    z     = w^[p] = ∇φ(w)           the dual of a model w, φ(w) = ‖w‖_{p+1}^{p+1} / (p+1)
    w̄     = (Σ_j a_j·w_j^[p])^[1/p]   the weighted power-p mean

At p = 15 a float32 weight below 0.003 already has a dual of zero. So duals are float64 (they then hold every weight from 1e-8
to 1e4 up to p = 35), and `power_mean`, which must hold for any p, first divides each coordinate by its largest |w_j|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import InputError

# Duals within these bounds are far enough from float64's ends that a weighted sum of them loses nothing.
SMALLEST_DUAL, LARGEST_DUAL = 1e-280, 1e280


def signed_power(x: Tensor, c: float) -> Tensor:
    """x^[c] = sgn(x)·|x|^c, for any real c > 0, in the type of x; keeps signed zeros, NaN stays NaN.

    >>> signed_power(torch.tensor([-2.0, 0.0, 3.0]), 2)
    tensor([-4.,  0.,  9.])
    """
    if not c > 0:
        raise InputError("c", c, "a number above 0")
    if c == 1:
        return x.clone()
    if c != int(c) or c > 1024:
        return torch.pow(x.abs(), c).copysign_(x)
    power = _integer_power(x, int(c))
    return power if int(c) % 2 else power.copysign_(x)


def _integer_power(x: Tensor, c: int) -> Tensor:
    """x^c by repeated squaring: `torch.pow` with a whole exponent is five to ten times slower."""
    result: Tensor | None = None
    square = x
    while True:
        if c & 1:
            result = square if result is None else (result * square if result is x else result.mul_(square))
        c >>= 1
        if not c:
            assert result is not None
            return result.clone() if result is x else result
        # `square` may be held by `result`, so only a square that nobody else holds is squared in place
        square = square.mul_(square) if square is not x and square is not result else square * square


def root(z: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """z^[1/p] of a float64 dual. Log and exp are three times faster than pow, and exact enough for all but float64."""
    magnitude = torch.pow(z.abs(), 1 / p) if dtype == torch.float64 else z.abs().log_().mul_(1 / p).exp_()
    return magnitude.copysign_(z).to(dtype)


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
        return w if self.p == 1 else signed_power(w.double(), self.p)

    def to_primal(self, z: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """w = z^[1/p], in the type of z unless another is asked for."""
        dtype = dtype or z.dtype
        return z.to(dtype) if self.p == 1 else root(z, self.p, dtype)

    def fits(self, w: Tensor) -> Tensor:
        """Where the dual of w is safely inside float64 (true for exact zeros): a mask of w's shape."""
        smallest, largest = SMALLEST_DUAL ** (1 / self.p), LARGEST_DUAL ** (1 / self.p)
        magnitude = w.abs()
        return (magnitude == 0) | ((magnitude > smallest) & (magnitude < largest))


def power_mean(models: Tensor, weights: Tensor, p: float) -> Tensor:
    """The weighted power-p mean of models [k, …] with weights [k], or several means at once with weights [n, k].

    Right for any real p >= 1 and any magnitudes: each coordinate is divided by the largest |w_j| that has a weight, summed
    in float64, and multiplied back. NaN or infinity in a model that has a weight gives NaN.

    >>> power_mean(torch.tensor([[1.0], [2.0]]), torch.tensor([0.5, 0.5]), 3)   # ((1 + 8) / 2) ** (1/3)
    tensor([1.6510])
    """
    check_p(p)
    if weights.dim() not in (1, 2) or weights.shape[-1] != models.shape[0]:
        raise InputError("weights", tuple(weights.shape), f"shape [{models.shape[0]}] or [n, {models.shape[0]}]")
    if weights.dim() == 2:
        rows = [power_mean(models, row, p) for row in weights]
        return torch.stack(rows) if rows else models.new_empty((0, *models.shape[1:]))
    held = weights != 0
    kept, shares = models[held], weights[held].double()
    if not len(kept):
        return torch.zeros_like(models[0])
    if p == 1:
        return torch.tensordot(shares, kept.double(), dims=1).to(models.dtype)
    flat, result = kept.reshape(len(kept), -1), torch.empty_like(models[0])
    for columns, out in zip(*(x.split(columns_at_once(len(kept)), -1) for x in (flat, result.view(-1))), strict=True):
        x = columns.double()
        scale = x.abs().amax(0)
        scale = torch.where(scale == 0, 1.0, scale)
        out.copy_(root(shares @ signed_power(x / scale, p), p, torch.float64) * scale)
    return result


def columns_at_once(rows: int) -> int:
    """How many columns to work on at once, so that their float64 duals stay in the processor's cache."""
    return max(64, (1 << 16) // max(1, rows))


def bregman(a: Tensor, b: Tensor, p: float) -> Tensor:
    """D_φ(a, b) = φ(a) − φ(b) − ⟨∇φ(b), a − b⟩, summed over the last axis, in float64; never negative.

    >>> bregman(torch.tensor([3.0]), torch.tensor([1.0]), 1)        # half the squared distance
    tensor(2., dtype=torch.float64)
    """
    check_p(p)
    a, b = a.double(), b.double()
    terms = a.abs() ** (p + 1) / (p + 1) + b.abs() ** (p + 1) * (p / (p + 1)) - signed_power(b, p) * a
    return terms.clamp_min(0).sum(-1)


def check_p(p: float) -> None:
    """Refuse a p below 1, NaN or infinite."""
    if not isinstance(p, int | float) or not (1 <= p < math.inf):
        raise InputError("p", p, "a number of at least 1")
