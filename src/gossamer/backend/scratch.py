"""Scratch buffers that are reused: allocating memory costs more than the arithmetic."""

from __future__ import annotations

import math
import threading

from torch import Tensor


class Scratch:
    """Named buffers, of which each thread has its own.

    Example:
        >>> import torch
        >>> scratch = Scratch()
        >>> first = scratch.get("outputs", torch.zeros(1), 3, 4)
        >>> second = scratch.get("outputs", torch.zeros(1), 2, 5)
        >>> first.data_ptr() == second.data_ptr()
        True
    """

    def __init__(self) -> None:
        self._buffers = threading.local()

    def get(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Return a buffer with undefined content. The next call with its name may reuse it.

        Args:
            name: Name of the buffer.
            like: A tensor of the dtype and torch device that the buffer shall have.
            shape: Shape of the buffer.
        """
        buffer: Tensor | None = getattr(self._buffers, name, None)
        size = math.prod(shape)
        if (
            buffer is None
            or len(buffer) < size
            or buffer.dtype != like.dtype
            or buffer.device != like.device
        ):
            buffer = like.new_empty(size)
            setattr(self._buffers, name, buffer)
        return buffer[:size].view(shape)
