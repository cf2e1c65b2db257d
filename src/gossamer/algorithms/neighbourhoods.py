"""What a device computes from the vectors of its neighbourhood, link by link: means, divergence."""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.algorithms.base import Neighbours
from gossamer.backend.mixing import scaled_power_means
from gossamer.backend.powers import block_columns
from gossamer.mirror import MirrorMap


def mean(near: Neighbours, like: Tensor, mirror: MirrorMap) -> Tensor:
    """Return the mean of every neighbourhood in the dual of a mirror map, computed in float64.

    Args:
        near: The vectors of the neighbourhoods.
        like: The result has its shape and dtype: one row per receiver.
        mirror: The mirror map.
    """
    if mirror.power is not None:
        return _power_means(near, like, mirror.power)
    dual = near._replace(value=mirror.to_dual(near.value))
    z = _power_means(dual, torch.empty_like(like, dtype=torch.float64), 1)
    return mirror.to_primal(z, like.dtype)


def divergence(near: Neighbours, receivers: int) -> Tensor:
    """Return how far the neighbours of every device are from it.

    It is Σ_j a_ij·‖x_i − x_j‖² / Σ_j a_ij·(‖x_i‖² + ‖x_j‖²) over the neighbours j ≠ i, at most 1: 0
    if all vectors are equal, 1 if those of the neighbours are orthogonal to the device's own. A
    device needs nothing for it but the vectors that it holds.

    Args:
        near: The vectors of the neighbourhoods.
        receivers: Number of devices.

    Returns:
        One value per device, float64; 0 for a device without neighbours.

    Example:
        Two devices with one link, whose models are orthogonal, and a third without links:

        >>> near = Neighbours(
        ...     torch.tensor([0, 0, 1, 1, 2]),
        ...     torch.tensor([0, 1, 0, 1, 2]),
        ...     torch.tensor([0.5, 0.5, 0.5, 0.5, 1.0]),
        ...     torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]),
        ... )
        >>> divergence(near, 3)
        tensor([1., 1., 0.], dtype=torch.float64)
    """
    is_own = near.receiver == near.sender
    own = near.value[is_own]  # one row per receiver
    others = ~is_own
    x = near.value[others]
    receiver = near.receiver[others]
    apart = (x - own[receiver]).square_().sum(1, dtype=torch.float64)
    size = x.square_().sum(1, dtype=torch.float64)
    size += own.square_().sum(1, dtype=torch.float64)[receiver]
    weight = near.weight[others].double().abs()
    zeros = torch.zeros(receivers, dtype=torch.float64, device=x.device)
    total_apart = zeros.index_add(0, receiver, weight * apart)
    total_size = zeros.index_add(0, receiver, weight * size)
    share = total_apart / total_size
    return torch.where(total_size > 0, share, 0.0).clamp_max_(1)


def of_receivers(near: Neighbours, rows: Tensor, receivers: int) -> Neighbours:
    """Return the vectors of some receivers only, which are numbered anew.

    Args:
        near: The vectors of all receivers.
        rows: The receivers to keep, ascending.
        receivers: Number of all receivers.
    """
    position = torch.full((receivers,), -1, device=rows.device)
    position[rows] = torch.arange(len(rows), device=rows.device)
    new = position[near.receiver]
    kept = new >= 0
    return Neighbours(new[kept], near.sender[kept], near.weight[kept], near.value[kept])


def _power_means(near: Neighbours, like: Tensor, p: float) -> Tensor:
    """Return (Σ_j a_ij·x_j^[p])^[1/p] for every receiver, computed in float64.

    Args:
        near: The values of the neighbours.
        like: The result has its shape and dtype.
        p: The power.
    """
    result = torch.empty_like(like)
    receiver = near.receiver
    weight = near.weight.double()
    width = block_columns(len(receiver))
    for value, out in zip(near.value.split(width, 1), result.split(width, 1), strict=True):
        x = value.double()
        if p == 1:
            sums = torch.zeros(out.shape, dtype=torch.float64, device=out.device)
            out.copy_(sums.index_add_(0, receiver, x * weight[:, None]))
        else:
            out.copy_(scaled_power_means(x, receiver, weight, len(out), p))
    return result
