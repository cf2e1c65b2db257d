"""Claims 1 and 2: the Bregman divergence of φ and its bounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer._core import checks

FloatArray = NDArray[np.float64]


def divergence(a: ArrayLike, b: ArrayLike, p: float) -> float:
    """Return the Bregman divergence D_φ(a, b) = φ(a) - φ(b) - ⟨b^[p], a - b⟩.

    φ(x) = ‖x‖_{p+1}^{p+1}/(p+1), summed over all elements.

    Args:
        a: First argument.
        b: Second argument.
        p: The power, at least 1.

    Example:
        >>> divergence([3.0, 0.0], [1.0, 0.0], p=1)
        2.0
    """
    checks.number("p", p, least=1)
    a, b, scale = _scaled(a, b)
    potential = (np.abs(a) ** (p + 1) - np.abs(b) ** (p + 1)) / (p + 1)
    terms = potential - signed_power(b, p) * (a - b)
    return float(_unscaled(terms.sum(), scale, p + 1))


def claim1_gap(x: ArrayLike, y: ArrayLike, p: float) -> FloatArray:
    """Return |x^[p] - y^[p]| - |x - y|^p/2^(p-1), element by element.

    By Claim 1 it is ≥ 0 for every real p ≥ 1, and 0 where x = -y. Its sum is the vector form,
    ‖∇φ(x) - ∇φ(y)‖₁ - ‖x - y‖_p^p/2^(p-1).

    Args:
        x: First argument.
        y: Second argument.
        p: The power, at least 1.

    Example:
        >>> claim1_gap([2.0, 1.0], [1.0, -1.0], p=3).tolist()
        [6.75, 0.0]
    """
    checks.number("p", p, least=1)
    x, y, scale = _scaled(x, y)
    dual_distance = np.abs(signed_power(x, p) - signed_power(y, p))
    gap = dual_distance - 2.0 * (np.abs(x - y) / 2.0) ** p
    return _unscaled(gap, scale, p)


def claim2_gap(a: ArrayLike, b: ArrayLike, p: float) -> float:
    """Return D_φ(a, b) - σ_p/(p+1)·‖a - b‖_{p+1}^{p+1} with σ_p = 2^(1-p).

    By Claim 2 it is ≥ 0 for every real p ≥ 1.

    Args:
        a: First argument.
        b: Second argument.
        p: The power, at least 1.

    Example:
        >>> claim2_gap([1.0], [-1.0], p=3)
        1.0
    """
    a, b, scale = _scaled(a, b)
    gap = divergence(a, b, p) - 4.0 * ((np.abs(a - b) / 2.0) ** (p + 1)).sum() / (p + 1)
    return float(_unscaled(gap, scale, p + 1))


def signed_power(x: FloatArray, c: float) -> FloatArray:
    """Return sgn(x)·|x|^c, element by element.

    Args:
        x: The base.
        c: The power, above 0.
    """
    return np.copysign(np.abs(x) ** c, x)


def _scaled(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray, float]:
    """Divide both by a power of two near the largest magnitude, so that powers stay finite.

    The division is exact.
    """
    a = np.asarray(a, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    largest = max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0))
    scale = float(2.0 ** np.frexp(largest)[1])
    return a / scale, b / scale, scale


def _unscaled(value: FloatArray | np.float64 | float, scale: float, power: float) -> FloatArray:
    """Multiply by scale^power; what overflows is inf, but 0·inf is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.equal(value, 0.0), 0.0, value * np.float64(scale) ** power)
