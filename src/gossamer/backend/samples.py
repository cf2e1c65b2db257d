"""Training samples, and the batches that are read from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.backend import choice, compiled, levels, limits
from gossamer.backend.choice import Call, operation
from gossamer.backend.compiled import Kernels
from gossamer.backend.levels import Levels
from gossamer.backend.scratch import Scratch


@dataclass(frozen=True, eq=False)
class Samples:
    """All training samples, one per row; also as bytes if that loses nothing.

    Training a small model is limited by reading its samples from memory. Images were bytes before
    they were scaled, and bytes are a quarter of what there is to read.

    Args:
        x: The samples [samples, …].
        levels: The same as bytes. None: not kept.
    """

    x: Tensor
    levels: Levels | None = None

    @classmethod
    def of(cls, x: Tensor) -> Samples:
        """Return samples, with levels where they exist and x is larger than the processor's cache.

        Args:
            x: The samples [samples, …].
        """
        if not compiled.accepts(x) or x.numel() < limits.LEVEL_SAMPLES:
            return cls(x)
        kernels = choice.any_kernels()
        if kernels is None:
            return cls(x)
        return cls(x, levels.search(x.contiguous(), kernels))


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
    kernels = None
    if compiled.accepts_gather(samples.x, index, out):
        kernels = GATHER.serving(samples.x[:1].numel() * samples.x.element_size())
    return _gather(kernels, samples, index, out)


def _gather(kernels: Kernels | None, samples: Samples, index: Tensor, out: Tensor) -> Tensor:
    if kernels is None:
        return torch.index_select(samples.x, 0, index, out=out)
    return kernels.gather(samples.x, samples.levels, index, out)


@operation("gather", sizes=(256, 3136, 12288))
def GATHER(size: int) -> Call:
    """Prepare reading rows of this many bytes from more memory than the inner caches hold."""
    x = torch.ones(limits.CHOICE_BYTES // size, size // 4)
    index = torch.randint(len(x), (100 * limits.CHOICE_ELEMENTS // size,))
    out = torch.empty(len(index), size // 4)
    return lambda kernels: _gather(kernels, Samples(x), index, out)
