"""Histograms of weights with fixed bins, so that those of several processes add up.

The bins are logarithmic on both sides of zero: 16 per decade from 1e-6 to 100. What is closer to
zero is in the bin in the middle, what is farther away in the last one of its side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

_PER_DECADE = 16
_LOWEST = -6  # exponents of ten
_HIGHEST = 2
_SIDE = _PER_DECADE * (_HIGHEST - _LOWEST)  # bins of one sign
BINS = 2 * _SIDE + 1
_MAX_ELEMENTS = 1 << 18  # of all devices together: about 5 ms, and 10 MB for a moment


def sampled(devices: NDArray[np.int64], count: int, elements: int) -> NDArray[np.int64]:
    """Return the positions of the devices whose weights are counted: every k-th device by number.

    Args:
        devices: Numbers of the devices of this process.
        count: Number of all devices.
        elements: Number of weights of one device.
    """
    every = min(count, -(-count * elements // _MAX_ELEMENTS))
    return np.flatnonzero(devices % max(1, every) == 0)


def histogram(w: Tensor) -> NDArray[np.int64]:
    """Count the weights in each bin.

    Args:
        w: Weights of any shape.

    Example:
        >>> import torch
        >>> counts = histogram(torch.tensor([-0.5, 0.0, 0.5, 0.5]))
        >>> counts[counts > 0].tolist(), len(counts)
        ([1, 1, 2], 257)
    """
    import torch  # here: what reads histograms does without torch

    exponent = w.detach().abs().float().log10()
    level = ((exponent - _LOWEST) * _PER_DECADE).floor().clamp(-1, _SIDE - 1)
    signed = torch.where(w < 0, -1 - level, level + 1).nan_to_num(0.0)
    counts = torch.bincount(signed.long().flatten() + _SIDE, minlength=BINS)
    found: NDArray[np.int64] = counts.cpu().numpy()
    return found


def edges() -> NDArray[np.float64]:
    """Return the edges of the bins, one more than there are bins."""
    positive = 10.0 ** (_LOWEST + np.arange(_SIDE + 1) / _PER_DECADE)
    return np.concatenate([-positive[::-1], positive])
