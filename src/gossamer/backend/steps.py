"""Roots of duals, and the matched step."""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.backend import compiled, limits, plain
from gossamer.backend.choice import Call, operation


def roots(z: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """Return z^[1/p] of duals.

    Args:
        z: The duals, float32 or float64.
        p: The power, at least 1.
        dtype: Type of the result.

    Example:
        >>> roots(torch.tensor([8.0, -27.0], dtype=torch.float64), 3, torch.float32)
        tensor([ 2., -3.])
    """
    if dtype == torch.float32 and compiled.accepts(z, p=p):
        kernels = ROOTS.serving(p)
        if kernels is not None:
            return kernels.roots(z, p)
    return plain.roots(z, p, dtype)


@operation("roots", sizes=(3, 31))
def ROOTS(p: int) -> Call:
    """Prepare roots of some duals."""
    z = torch.randn(limits.CHOICE_ELEMENTS)
    return lambda kernels: kernels.roots(z, p) if kernels else plain.roots(z, p, z.dtype)


def matched_step(w: Tensor, d: Tensor, rate: float, p: float, floor: float, safe: bool) -> Tensor:
    """Return s·((w/s)^[p] − rate·p·d/s)^[1/p] with s = max(|w|, floor).

    Args:
        w: The models.
        d: The directions.
        rate: The step size.
        p: The power.
        floor: Smallest s.
        safe: Return w − rate·d where the sign would change.
    """
    if compiled.accepts(w, d, p=p):
        kernels = MATCHED_STEP.serving(p)
        if kernels is not None:
            return kernels.matched_step(w, d, rate, p, floor, safe)
    return plain.matched_step(w, d, rate, p, floor, safe)


@operation("matched step", sizes=(3, 31))
def MATCHED_STEP(p: int) -> Call:
    """Prepare steps of some weights."""
    w = 0.1 * torch.randn(limits.CHOICE_ELEMENTS)
    d = torch.randn(limits.CHOICE_ELEMENTS)
    step = (w, d, 0.01, p, 1e-3, True)
    return lambda kernels: (kernels or plain).matched_step(*step)
