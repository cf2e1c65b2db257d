"""The mean of the models of all shards."""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.backend.powers import root, signed_power_
from gossamer.engines.shard import Shard
from gossamer.mirror import MirrorMap


def mean_of_shards(rows: Tensor, mirror: MirrorMap, shard: Shard, count: int) -> Tensor:
    """Return the mean of the rows of all shards in a mirror map's dual, in float64 inside.

    Args:
        rows: The rows of this shard; there may be none.
        mirror: The mirror map.
        shard: This shard. All shards call this at the same time.
        count: Number of rows of all shards.

    Returns:
        One row, of the type of `rows`.
    """
    x = rows.double().cpu()
    p = mirror.power
    if p is None:
        return mirror.to_primal(_sum_of_rows(mirror.to_dual(x), shard) / count).to(rows)
    # A shard without an active device has no rows.
    own_largest = torch.cat([x.abs(), x.new_zeros(1, x.shape[1])]).amax(0)
    largest = shard.exchange.all_reduce(own_largest, "max")
    scale = torch.where(largest == 0, 1.0, largest)
    total = _sum_of_rows(signed_power_(x / scale, p), shard)
    return (root(total / count, p) * scale).to(rows)


def _sum_of_rows(x: Tensor, shard: Shard) -> Tensor:
    """Return the sum of the rows of all shards."""
    return shard.exchange.all_reduce(x.sum(0), "sum")
