"""Large buffers that are reused from round to round.

A round allocates and frees tensors of the size of the whole state. glibc returns blocks above its
mmap threshold (32 MB at most) to the system at once, and allocating them again costs more than the
arithmetic done in them. The largest tensor of a round, the result of a mix, therefore comes from
`Spare`, which reuses the block of the round before.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LEAST_LENT = 4 << 20


class Spare:
    """Large blocks of memory that are lent again once nobody holds a tensor in them.

    >>> spare = Spare()
    >>> first = spare.like(torch.ones(3000, 3000)).data_ptr()
    >>> second = spare.like(torch.ones(3000, 3000)).data_ptr()  # the first is held by nobody: its pages are ready
    >>> first == second
    True
    """

    def __init__(self) -> None:
        self._lent: list[tuple[NDArray[np.float32], weakref.ref[NDArray[np.float32]]]] = []

    def like(self, x: Tensor) -> Tensor:
        """Memory for a tensor of this size and type; what is in it, nobody knows."""
        if x.nbytes < _LEAST_LENT or x.dtype != torch.float32 or x.device.type != "cpu":
            return torch.empty_like(x)
        free = (
            k
            for k, (block, lent) in enumerate(self._lent)
            if lent() is None and block.size == x.numel()
        )
        found = next(free, None)
        block = np.empty(x.numel(), np.float32) if found is None else self._lent.pop(found)[0]
        lent = block.view()  # which the tensor and all of its views hold, and nobody else
        self._lent.append((block, weakref.ref(lent)))
        return torch.from_numpy(lent).view(x.shape)
