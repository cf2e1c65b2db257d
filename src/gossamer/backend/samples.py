"""Training samples, and the batches that are read from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.backend import compiled, limits
from gossamer.backend.scratch import Scratch

_LEVELS = 256  # values of a byte
_WIDEST_SPAN = 1e30  # of the values: step·level must not overflow float32
_SAMPLED_ROWS = 1000  # rows in which the values are looked for first


@dataclass(frozen=True, eq=False)
class Samples:
    """All training samples, one per row; also as bytes if that loses nothing.

    Training a small model is limited by reading its samples from memory. Images were bytes before
    they were scaled, and bytes are a quarter of what there is to read.

    Args:
        x: The samples [samples, …].
        levels: The same as bytes: x = zero + step·levels, bit for bit. None: not kept.
        step: Difference between two levels.
        zero: Value of level 0.
    """

    x: Tensor
    levels: Tensor | None = None
    step: float = 1.0
    zero: float = 0.0

    @classmethod
    def of(cls, x: Tensor) -> Samples:
        """Return samples, with levels where they exist and x is larger than the processor's cache.

        Args:
            x: The samples [samples, …].
        """
        if not compiled.serves(x) or x.numel() < limits.LEVEL_SAMPLES:
            return cls(x)
        values = np.unique(x[:: max(1, len(x) // _SAMPLED_ROWS)].numpy())
        if not 2 <= len(values) <= _LEVELS or not np.isfinite(values).all():
            return cls(x)
        exact = values.astype(np.float64)
        span = exact[-1] - exact[0]
        count = round(span / np.diff(exact).min())
        if count >= _LEVELS or span > _WIDEST_SPAN:
            return cls(x)
        zero = float(values[0])
        rounded = np.float32(span / count)
        below = np.nextafter(rounded, np.float32(0))
        above = np.nextafter(rounded, np.float32(np.inf))
        for candidate in (rounded, below, above):
            step = float(candidate)
            if compiled.find_levels(torch.from_numpy(values), step, zero) is None:
                continue
            levels = compiled.find_levels(x, step, zero)
            if levels is not None:
                return cls(x, levels, step, zero)
        return cls(x)


@dataclass(frozen=True, eq=False)
class Batches:
    """One batch per device, given by the numbers of its samples.

    Args:
        samples: All samples.
        targets: The targets of all samples.
        index: Numbers of the samples in each batch: [devices, batch]. They are not checked.
        scratch: Buffers to gather the batches in.
    """

    samples: Samples
    targets: Tensor
    index: Tensor
    scratch: Scratch

    def gather(self) -> tuple[Tensor, Tensor]:
        """Return the samples and targets of the batches: [devices, batch, …] each.

        The next call with the same scratch buffers overwrites the samples.
        """
        x = self.samples.x
        flat = self.index.reshape(-1)
        gathered = self.scratch.get("batches", x, len(flat), *x.shape[1:])
        gather(self.samples, flat, gathered)
        y = torch.index_select(self.targets, 0, flat)
        return (
            gathered.view(*self.index.shape, *x.shape[1:]),
            y.view(self.index.shape + self.targets.shape[1:]),
        )


def gather(samples: Samples, index: Tensor, out: Tensor) -> Tensor:
    """Write x[index] to a buffer.

    Args:
        samples: The samples x.
        index: Numbers of samples. They are not checked.
        out: Buffer for the result.

    Returns:
        The buffer.
    """
    if compiled.serves_gather(samples.x, index, out):
        return compiled.gather(samples.x, samples.levels, samples.step, samples.zero, index, out)
    return torch.index_select(samples.x, 0, index, out=out)
