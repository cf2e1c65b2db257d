"""The gradient of softmax regression."""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.backend import compiled, plain
from gossamer.backend.choice import Call, operation
from gossamer.backend.compiled import Kernels
from gossamer.backend.samples import Batches, Samples
from gossamer.backend.scratch import Scratch


def softmax_gradient(w: Tensor, batches: Batches, classes: int, out: Tensor) -> None:
    """Write the gradient of softmax regression on each device's batch to `out`.

    Args:
        w: Weight matrices [devices, classes·(features + 1)], the bias in the last column.
        batches: The batches; samples [samples, features], targets are classes.
        classes: Number of classes.
        out: Buffer like w.
    """
    x = batches.samples.x
    kernels = None
    if compiled.accepts_gradient(w, x, batches.targets, batches.index, classes, out):
        kernels = GRADIENT.serving(w.shape[1])
    _gradient(kernels, w, batches, classes, out)


def _gradient(
    kernels: Kernels | None, w: Tensor, batches: Batches, classes: int, out: Tensor
) -> None:
    if kernels is None:
        x, y = batches.gather()
        plain.softmax_gradient(w, x, y, classes, out, batches.scratch)
        return
    samples = batches.samples
    index = batches.index
    kernels.softmax_gradient(w, samples.x, samples.levels, batches.targets, index, classes, out)


@operation("gradient", sizes=(650, 7850, 30730))
def GRADIENT(size: int) -> Call:
    """Prepare gradients of eight models with this many weights, on batches of 64 samples."""
    classes = 10
    features = size // classes - 1
    x = torch.rand(512, features)
    index = torch.randint(len(x), (8, 64))
    batches = Batches(Samples(x), torch.randint(classes, (len(x),)), index, Scratch())
    w = torch.randn(8, size)
    out = torch.empty_like(w)
    return lambda kernels: _gradient(kernels, w, batches, classes, out)
