"""Large buffers that are reused from round to round.

A round allocates and frees tensors of the size of the whole state. glibc returns blocks above its
mmap threshold (32 MB at most) to the system at once, and allocating them again costs more than the
arithmetic done in them. The largest tensor of a round, the result of a mix, therefore comes from a
`BufferPool`, which reuses the memory of an earlier round.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Buffer = NDArray[np.float32]

_MIN_BYTES = 4 << 20  # smaller blocks are cheap to allocate


class BufferPool:
    """Reuses the memory of large float32 tensors once no tensor refers to it any more.

    Example:
        >>> pool = BufferPool()
        >>> first = pool.empty_like(torch.ones(3000, 3000)).data_ptr()
        >>> second = pool.empty_like(torch.ones(3000, 3000)).data_ptr()
        >>> first == second  # the first tensor no longer exists
        True
    """

    def __init__(self) -> None:
        # A buffer is in use for as long as the view that its tensor was made from exists.
        self._buffers: list[tuple[Buffer, weakref.ref[Buffer]]] = []

    def empty_like(self, x: Tensor) -> Tensor:
        """Return an uninitialised tensor, like `torch.empty_like`.

        Args:
            x: The tensor whose shape, type and device the result has.

        Returns:
            A tensor in reused memory, or a new one if x is small, not float32, or not on the CPU.
        """
        if x.nbytes < _MIN_BYTES or x.dtype != torch.float32 or x.device.type != "cpu":
            return torch.empty_like(x)
        buffer = self._take(x.numel())
        view = buffer.view()  # the tensor and all views of it refer to this object
        self._buffers.append((buffer, weakref.ref(view)))
        return torch.from_numpy(view).view(x.shape)

    def clear(self) -> None:
        """Free the buffers that no tensor refers to, before much memory is needed elsewhere."""
        self._buffers = [(buffer, view) for buffer, view in self._buffers if view() is not None]

    def _take(self, elements: int) -> Buffer:
        """Remove an unused buffer of this size from the pool, or allocate one."""
        for k, (buffer, view) in enumerate(self._buffers):
            if view() is None and buffer.size == elements:
                del self._buffers[k]
                return buffer
        return np.empty(elements, np.float32)
