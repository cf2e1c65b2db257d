"""Memory that is taken once.

A round makes tensors of the size of the whole state and lets them go again. glibc gives blocks of that size back to the
system at once, and taking them anew costs more than the arithmetic done in them. Told to keep them, it hands the same pages
out round after round, so that algorithms can be written as equations, without buffers.

Above 32 MB, the most that glibc lets one choose, blocks are taken anew all the same, and below it large ones leave holes that
none fits into. So what is largest in a round, the result of a mix, comes from `Spare`, where the models of the round before
leave their block.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_KEPT, _LEAST_LENT = 32 << 20, 4 << 20


@cache
def keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next round (elsewhere: nothing)."""
    if not sys.platform.startswith("linux"):
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, _MOST_KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    except (OSError, AttributeError):  # another C library: slower, not wrong
        return


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
