"""Refuse a vector that is much longer than the device's own.

It is refused before it is acknowledged, so the exchange counts for neither end: the weights stay
doubly stochastic and the mean of the others is preserved, unlike with a rule around the method.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Vectors whose elements have at most this root mean square are accepted in any case: the own vector
# may be zero, as at the start of an anchored method or of a linear model.
_ALWAYS_ACCEPTED = 1.0


def is_too_long(received: Tensor, own: Tensor, factor: float) -> bool:
    """Return True if a vector is longer than `factor` times the own one, or is not finite.

    Args:
        received: The vector of a neighbour.
        own: The own vector.
        factor: The largest accepted length, in lengths of the own vector; infinite: no limit.

    Example:
        >>> own = torch.ones(4)
        >>> is_too_long(9 * own, own, 10.0), is_too_long(11 * own, own, 10.0)
        (False, True)
    """
    if math.isinf(factor):
        return False
    always = _ALWAYS_ACCEPTED * math.sqrt(received.numel())
    return not _length(received) <= max(always, factor * _length(own))


def _length(x: Tensor) -> float:
    """Return the length, in float64: the square of 1e20 overflows float32."""
    return float(torch.linalg.vector_norm(x, dtype=torch.float64))
