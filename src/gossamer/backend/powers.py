"""Signed powers x^[c] = sgn(x)·|x|^c and their roots, in plain torch, block by block."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gossamer.backend import limits

_TINY = 1e-300  # bound that avoids the logarithm of 0
# Elements per vector of any processor, and more: torch computes what is left over by other code.
_LANES = 64

# A weighted sum of duals within these bounds neither underflows nor overflows in float64.
_SMALLEST_DUAL = 1e-280
_LARGEST_DUAL = 1e280


def signed_power_(x: Tensor, c: float, scratch: Tensor | None = None) -> Tensor:
    """Compute x^[c] in place, by repeated squaring if c is whole.

    `torch.pow` is 5 to 10 times slower for whole exponents.

    Args:
        x: The tensor to overwrite.
        c: The exponent.
        scratch: A buffer of the shape of x. Allocating one costs as much as the arithmetic.
    """
    if c != int(c) or c > 1024:
        return x.copy_(_real_power(x.abs(), c).copysign_(x))
    if c % 2 == 0:
        return x.copy_(_integer_power_(x.clone(), int(c), scratch).copysign_(x))
    return _integer_power_(x, int(c), scratch)


def _real_power(x: Tensor, c: float) -> Tensor:
    """Return x^c of elements of at least 0. In float64 it does not depend on their position.

    torch computes the last few elements of a tensor by other code than the rest, which differs in
    the last bit. So the power mean of a device would depend on how many devices are computed with
    it. The elements that are added here make a tensor have no such rest.
    """
    rest = x.numel() % _LANES
    if x.dtype != torch.float64 or not rest:
        return torch.pow(x, c)
    padded = torch.cat([x.reshape(-1), x.new_ones(_LANES - rest)])
    return torch.pow(padded, c)[: x.numel()].view(x.shape)


def _multiplications(c: int) -> int:
    """Return the number of multiplications of x^c by repeated squaring."""
    return c.bit_length() + c.bit_count() - 2


def _integer_power_(x: Tensor, c: int, scratch: Tensor | None) -> Tensor:
    while c % 2 == 0:
        x.mul_(x)
        c //= 2
    # A cube first where that saves a multiplication: five instead of six for c = 15.
    while c % 3 == 0 and 2 + _multiplications(c // 3) < _multiplications(c):
        x.mul_(torch.mul(x, x, out=scratch))
        c //= 3
    c //= 2
    square = torch.mul(x, x, out=scratch) if c else x
    while c:
        if c % 2:
            x.mul_(square)
        c //= 2
        if c:
            square.mul_(square)
    return x


def root(z: Tensor, p: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return z^[1/p] of a float64 dual.

    Log and exp are three times faster than pow, and accurate enough for types below float64.

    Args:
        z: Duals, float64.
        p: The power.
        dtype: Type of the result.
    """
    if dtype == torch.float64:
        return _real_power(z.abs(), 1 / p).copysign_(z)
    return root_(z, p, torch.empty_like(z)).to(dtype)


def root_(z: Tensor, p: float, scratch: Tensor) -> Tensor:
    """Compute z^[1/p] of a float64 dual, to float32 accuracy.

    Args:
        z: Duals, float64.
        p: The power.
        scratch: A buffer of the shape of z, which the result is written to.
    """
    # z·|z|^(1/p − 1) needs no copysign, which costs as much as the exp. The bound avoids 0·∞.
    return torch.abs(z, out=scratch).clamp_min_(_TINY).log_().mul_(1 / p - 1).exp_().mul_(z)


def short_root(z: Tensor, p: float, out: Tensor) -> Tensor:
    """Compute z^[1/p] of a float32 dual in float32, into `out`, at a third of the cost of `root`.

    A relative error ε of z becomes ε/p in the root, so float32 is as accurate as float64 wherever z
    is well inside its range. The log adds up to |log z|·eps/p, which is 16·eps for small p: below
    p = 9 the root is computed in float64.

    Args:
        z: Duals, float32.
        p: The power.
        out: Buffer for the result.
    """
    if p < 9:
        return out.copy_(root(z.double(), p, torch.float32))
    return torch.abs(z, out=out).log_().mul_(1 / p).exp_().mul_(z.sign())


def dual_always_fits(p: float) -> bool:
    """True if float64 holds the dual of every weight from 1e-8 to 1e8: up to p = 35.

    Args:
        p: The power.
    """
    return 1e-8**p >= _SMALLEST_DUAL


def smallest_base(p: float) -> float:
    """Return the smallest |w| whose dual w^[p] is far enough from the smallest float64.

    Args:
        p: The power.
    """
    return _SMALLEST_DUAL ** (1 / p)


def dual_fits(w: Tensor, p: float) -> Tensor:
    """Return a mask of the elements that are zero or whose dual is well inside float64.

    Args:
        w: The models.
        p: The power.
    """
    return within(w.abs(), smallest_base(p), _LARGEST_DUAL ** (1 / p))


def within(magnitude: Tensor, smallest: float, largest: float) -> Tensor:
    """Return a mask of the magnitudes that are zero or between two bounds.

    Args:
        magnitude: Values of at least 0.
        smallest: Lower bound, excluded.
        largest: Upper bound, excluded.
    """
    return (magnitude == 0) | ((magnitude > smallest) & (magnitude < largest))


def block_columns(rows: int) -> int:
    """Return the number of columns of a block whose float64 copy stays in the cache.

    Args:
        rows: Number of rows of the stack.
    """
    return max(64, limits.BLOCK_ELEMENTS // max(1, rows))


def blockwise(function: Callable[..., object], like: Tensor, *tensors: Tensor) -> Tensor:
    """Call function(out, *blocks) for each block of elements of tensors of one shape.

    Args:
        function: Writes its result into its first argument.
        like: The result has its shape and type.
        tensors: What is passed on, block by block.

    Returns:
        A new tensor.
    """
    result = torch.empty_like(like)
    blocks = [x.reshape(-1).split(limits.BLOCK_ELEMENTS) for x in (result, *tensors)]
    for block in zip(*blocks, strict=True):
        function(*block)
    return result
