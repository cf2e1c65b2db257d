"""The compute backend: compiled kernels where they are faster, plain torch everywhere else.

Every function here works for any tensors; which implementation serves a call is decided here and
nowhere else. The environment variable GOSSAMER_BACKEND overrides the choice: "auto" (the default)
or "torch" (no compiled kernels).
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor

from gossamer._core.versions import version
from gossamer.backend import compiled, plain
from gossamer.backend.mixing import Block, MixWeights
from gossamer.backend.plain import linear_gradient, linear_outputs, softmax_slope
from gossamer.backend.samples import Batches, Samples, gather
from gossamer.backend.scratch import Scratch

__all__ = [
    "Batches",
    "Block",
    "MixWeights",
    "Samples",
    "Scratch",
    "gather",
    "linear_gradient",
    "linear_outputs",
    "matched_step",
    "roots",
    "softmax_gradient",
    "softmax_slope",
    "versions",
]


def softmax_gradient(w: Tensor, batches: Batches, classes: int, out: Tensor) -> None:
    """Write the gradient of softmax regression on each device's batch to `out`.

    Args:
        w: Weight matrices [devices, classes·(features + 1)], the bias in the last column.
        batches: The batches; samples [samples, features], targets are classes.
        classes: Number of classes.
        out: Buffer like w.
    """
    samples = batches.samples
    if compiled.serves_gradient(w, samples.x, batches.targets, batches.index, classes, out):
        compiled.softmax_gradient(
            w,
            samples.x,
            samples.levels,
            samples.step,
            samples.zero,
            batches.targets,
            batches.index,
            classes,
            out,
        )
    else:
        x, y = batches.gather()
        plain.softmax_gradient(w, x, y, classes, out, batches.scratch)


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
    if dtype == torch.float32 and compiled.serves(z, p=p):
        return compiled.roots(z, p)
    return plain.roots(z, p, dtype)


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
    if compiled.serves(w, d, p=p):
        return compiled.matched_step(w, d, rate, p, floor, safe)
    return plain.matched_step(w, d, rate, p, floor, safe)


def versions() -> dict[str, str]:
    """Return what the numbers of a run depend on: packages, processor type and kernels.

    Example:
        >>> sorted(versions())
        ['gossamer', 'kernels', 'machine', 'numpy', 'python', 'torch']
    """
    found = {name: version(name) for name in ("gossamer", "torch", "numpy")}
    found["python"] = platform.python_version()
    found["machine"] = platform.machine()
    found["kernels"] = compiled.describe()
    return found
