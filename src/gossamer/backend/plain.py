"""Plain torch, for every dtype, torch device and processor; the kernels are tested against it."""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.backend.scratch import Scratch

_SMALLEST_LOG_SHARE = -70  # e⁻⁷⁰: smaller shares are denormal, and a product takes 3 times as long


def linear_outputs(w: Tensor, x: Tensor, outputs: int, bias: bool, scratch: Scratch) -> Tensor:
    """Return the outputs of each device's linear model on its batch: [devices, outputs, batch].

    Args:
        w: Weight matrices [devices, outputs·(features + bias)], the bias in the last column.
        x: Batches [devices, batch, features].
        outputs: Number of outputs.
        bias: True if the matrices have a column for the bias.
        scratch: Holds the result until the next call.
    """
    out = scratch.get("outputs", w, len(w), outputs, x.shape[1])
    across = x.transpose(1, 2)
    weight = w.view(len(w), outputs, -1)
    if not bias:
        return torch.bmm(weight, across, out=out)
    return torch.baddbmm(weight[..., -1:], weight[..., :-1], across, out=out)


def linear_gradient(slope: Tensor, x: Tensor, bias: bool, out: Tensor, scratch: Scratch) -> None:
    """Write the gradients of linear models to `out`, from the slope of the loss.

    Args:
        slope: ∂loss/∂outputs for the mean over the batch: [devices, outputs, batch].
        x: Batches [devices, batch, features].
        bias: True if the matrices have a column for the bias.
        out: Buffer [devices, outputs·(features + bias)].
        scratch: Holds the product of slope and batches.
    """
    devices, outputs, _ = slope.shape
    gradient = out.view(devices, outputs, -1)
    if not bias:
        torch.bmm(slope, x, out=gradient)
        return
    # A product into a part of a row is 5 times slower with two threads than one into its own buffer.
    product = scratch.get("product", slope, devices, outputs, x.shape[2])
    gradient[..., :-1] = torch.bmm(slope, x, out=product)
    torch.sum(slope, 2, out=gradient[..., -1])


def softmax_slope(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the slope of the cross-entropy, for the sum over the batch.

    Args:
        outputs: [devices, classes, batch]. They are overwritten.
        y: Classes [devices, batch].
    """
    smallest = outputs.amax(1, keepdim=True).add_(_SMALLEST_LOG_SHARE)
    share = torch.softmax(torch.maximum(outputs, smallest, out=outputs), 1)
    minus_one = outputs.new_full((1, 1, 1), -1.0).expand(len(y), 1, y.shape[1])
    return share.scatter_add_(1, y[:, None, :], minus_one)


def softmax_gradient(
    w: Tensor, x: Tensor, y: Tensor, classes: int, out: Tensor, scratch: Scratch
) -> None:
    """Write the gradients of softmax regression to `out`.

    Args:
        w: Weight matrices [devices, classes·(features + 1)], the bias in the last column.
        x: Batches [devices, batch, features].
        y: Classes [devices, batch].
        classes: Number of classes.
        out: Buffer like w.
        scratch: Buffers for outputs and products.
    """
    outputs = linear_outputs(w, x, classes, bias=True, scratch=scratch)
    slope = softmax_slope(outputs, y).mul_(1 / x.shape[1])
    linear_gradient(slope, x, bias=True, out=out, scratch=scratch)
