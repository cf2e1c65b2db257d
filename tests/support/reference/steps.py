"""What a device does with one vector: the signed power, the mirror step, compression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gossamer import draws
from gossamer.algorithms import (
    Constant,
    Matched,
    Plain,
    Power,
    Quantised,
    RandomK,
    Ratio,
    Safe,
    TopK,
)

Vector = np.ndarray[Any, Any]  # of float64, or of mpmath's numbers

ITEM_BYTES = 8  # of an element that is sent
INDEX_BYTES = 4  # of the position of an element


def power(x: Vector, c: Any) -> Vector:
    """Return x^[c] = sgn(x)·|x|^c."""
    return np.asarray(np.where(x < 0, -1, 1) * np.abs(x) ** c)


def mirror_step(
    rule: Any, w: Vector, d: Vector, eta: Any, p: Any, loss: Callable[[], Any]
) -> tuple[Vector, Vector]:
    """Take one step from w along −d.

    Args:
        rule: The step rule, which decides the rate.
        w: The model.
        d: The direction.
        eta: The learning rate η.
        p: The power of the mirror map.
        loss: Returns the loss at w.

    Returns:
        (w^[p] − rate·d)^[1/p], and the magnitude of the terms of that sum, which bounds the
        rounding error.
    """
    linear = w - eta * d
    linear_terms = (np.abs(w) + np.abs(eta * d)) ** p
    if isinstance(rule, Plain):
        return linear, linear_terms
    z = power(w, p)
    rate = _rate(rule, w, z, d, eta, p, loss)
    stepped = power(z - rate * d, 1 / p)
    terms = np.abs(z) + np.abs(rate * d)
    if not isinstance(rule, Safe):
        return stepped, terms
    keeps_sign = stepped * w > 0
    return np.where(keeps_sign, stepped, linear), np.where(keeps_sign, terms, linear_terms)


def _rate(
    rule: Any, w: Vector, z: Vector, d: Vector, eta: Any, p: Any, loss: Callable[[], Any]
) -> Any:
    """Return the rate of a step rule: one number, or one per element."""
    match rule:
        case Matched():  # and Safe
            return eta * p * np.maximum(np.abs(w), rule.floor) ** (p - 1)
        case Power():
            return eta ** (1 + p / 2)
        case Constant():
            return eta
        case Ratio("norm"):
            return eta * sum(z * z) ** 0.5 / sum(d * d) ** 0.5
        case Ratio("printed"):
            return eta * np.abs(z) / abs(loss())
    raise NotImplementedError(rule)


def compress(rule: Any, x: Vector, i: int, t: int) -> tuple[Vector, int]:
    """Compress what device i sends in round t.

    Returns:
        The vector that a receiver decodes, and the size of the message in bytes.
    """
    n = len(x)
    match rule:
        case TopK():
            k = max(1, round(rule.share * n))
            largest = sorted(range(n), key=lambda c: -abs(x[c]))[:k]
            return _only(x, largest), k * (ITEM_BYTES + INDEX_BYTES)
        case RandomK():  # the receiver draws the same positions
            k = max(1, round(rule.share * n))
            drawn = []
            for c in range(n):
                drawn.append(int(draws.bits(rule.seed, "compression/random", t, i, c)))
            chosen = sorted(range(n), key=lambda c: -drawn[c])[:k]
            return _only(x, chosen), k * ITEM_BYTES
        case Quantised():
            return _quantise(rule, x, i, t)
    raise NotImplementedError(rule)


def _only(x: Vector, positions: list[int]) -> Vector:
    """Return x with all other elements set to zero."""
    result = np.zeros(len(x))
    for c in positions:
        result[c] = x[c]
    return result


def _quantise(rule: Quantised, x: Vector, i: int, t: int) -> tuple[Vector, int]:
    """Round every element at random to a level of the largest one."""
    n = len(x)
    levels = 2 ** (rule.bits - 1) - 1
    largest = max(abs(x))
    tau = min(n / levels**2, n**0.5 / levels)
    result = np.zeros(n)
    for c in range(n):
        luck = float(draws.uniform(rule.seed, "compression/quantised", t, i, c))
        level = np.floor(abs(x[c]) / largest * levels + luck) if largest else 0.0
        result[c] = np.sign(x[c]) * level * largest / levels / (1 + tau)
    bits = n * rule.bits
    return result, -(-bits // 8) + ITEM_BYTES
