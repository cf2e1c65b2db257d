"""The accuracy that a power mean promises, as a check that no order of summation can fail.

With mixed signs the p-th root is ill-conditioned: two correct results can differ in their first
digits. What is promised is the dual: |z̄ − z̄_exact| ≤ 8·p·eps·Σ a_j|z_j|.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.mirror import signed_power
from gossamer.network.weights import Weights

FACTOR = 8


def assert_power_means_agree(
    result: Tensor, expected: Tensor, w: Tensor, weights: Weights, p: float
) -> None:
    """Raise AssertionError unless two power means of the same models are both accurate.

    Each may be off by 8·p·eps·Σ a_j|z_j|, so they may differ by twice that. All is divided by the
    largest |w_j| of each neighbourhood first, so that no power overflows or underflows.

    Args:
        result: Means [devices, columns].
        expected: Means that another way of computing them gave.
        w: The models [devices, columns] that were averaged.
        weights: Who averages what, a row per receiver.
        p: The power.
    """
    assert result.dtype == expected.dtype == w.dtype
    assert result.isfinite().all()
    bound = 2 * FACTOR * p * torch.finfo(w.dtype).eps
    matrix = torch.from_numpy(weights.dense())
    for got, wanted, row in zip(result, expected, matrix, strict=True):
        neighbours = row != 0
        models = w[neighbours].double()
        largest = models.abs().amax(0)
        scale = torch.where(largest == 0, 1.0, largest)
        size = row[neighbours] @ signed_power(models.abs() / scale, p)
        difference = signed_power(got.double() / scale, p) - signed_power(
            wanted.double() / scale, p
        )
        assert (difference.abs() <= bound * size).all()
