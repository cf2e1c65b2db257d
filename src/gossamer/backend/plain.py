"""Plain torch, for every dtype, torch device and processor; the kernels are tested against it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import hardshrink

from gossamer.backend import limits
from gossamer.backend.powers import blockwise, root, root_, short_root, signed_power_
from gossamer.backend.scratch import Scratch

_SMALLEST_LOG_SHARE = -70  # e⁻⁷⁰: smaller shares are denormal, and a product takes 3 times as long

# float32: a power below this is taken as 0, since denormal numbers are very slow.
_SMALLEST_POWER = 1e-36
_SMALLEST_DUAL = 1e-30  # a float32 dual below has lost too many bits for its root


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
    # With two threads, a product into a part of a row is 5 times slower than into a buffer.
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


def roots(z: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """Return z^[1/p] in a dtype.

    Args:
        z: Duals, float32 or float64.
        p: The power.
        dtype: Type of the result.
    """
    like = torch.empty_like(z, dtype=dtype)
    if z.dtype == torch.float32:
        return blockwise(lambda out, z: short_root(z, p, out), like, z)
    if dtype == torch.float32:
        return blockwise(lambda out, z: out.copy_(root_(z, p, torch.empty_like(z))), like, z)
    return blockwise(lambda out, z: out.copy_(root(z, p, dtype)), like, z)


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

    def step(out: Tensor, w: Tensor, d: Tensor) -> None:
        _matched_block(out, w, d, rate, p, floor)
        if safe:
            _keep_sign(out, w, d, rate)

    return blockwise(step, w, w, d)


def _matched_block(out: Tensor, w: Tensor, d: Tensor, rate: float, p: float, floor: float) -> None:
    size = w.abs()
    s = size.clamp_min(floor)
    if w.dtype == torch.float64:
        # Where the direction is 0 the model stays: (w/s)^[p] may underflow even in float64.
        z = signed_power_(w / s, p).addcdiv_(d, s, value=-rate * p)
        out.copy_(torch.where(d == 0, w, root(z, p).mul_(s)))
        return
    smallest = _SMALLEST_POWER ** (1 / p)
    if p > limits.LARGEST_PRODUCT_POWER:
        z = size.div_(s).clamp_min_(smallest).log_().mul_(p).exp_().mul_(w.sign())
    else:  # w/s is w/floor, limited to ±1
        ratio = torch.mul(w, 1 / floor, out=out).clamp_(-1, 1)
        z = signed_power_(hardshrink(ratio, smallest), p, scratch=out)
    z.addcdiv_(d, s, value=-rate * p)
    # Where the direction is too small to hide the lost power, the step is computed in float64.
    lost = None
    if not torch.abs(z, out=out).amin().item() > _SMALLEST_DUAL:
        lost = (~(out > _SMALLEST_DUAL)).nonzero().squeeze(1)
    short_root(z, p, out=out).mul_(s)
    if lost is not None:
        exact = torch.empty(len(lost), dtype=torch.float64, device=w.device)
        _matched_block(exact, w[lost].double(), d[lost].double(), rate, p, floor)
        out[lost] = exact.float()


def _keep_sign(out: Tensor, w: Tensor, d: Tensor, rate: float) -> None:
    """Replace the steps that change the sign by w − rate·d."""
    # 1 where the sign is kept, else 0. Multiplying is four times faster than torch.where.
    kept = (out * w).sign_().clamp_min_(0)
    plain = torch.sub(w, d, alpha=rate)
    out.mul_(kept).add_(plain.mul_(kept.neg_().add_(1)))
