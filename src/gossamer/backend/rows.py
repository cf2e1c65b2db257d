"""Rows of tensors and their samples: copied and drawn by compiled code where there is any."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.backend.exact import compiled_function

_AVERAGE = {torch.float32: "average_pairs_float", torch.float64: "average_pairs_double"}


def get_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return a copy of some rows of a tensor: x[rows].

    Args:
        x: The tensor.
        rows: The numbers of the rows. They are not checked.

    Example:
        >>> get_rows(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([2, 0])).tolist()
        [[3.0], [1.0]]
    """
    function = compiled_function("get_rows")
    if function is None or not _plain_memory(x, rows, x):
        return torch.index_select(x, 0, rows)
    found = x.new_empty(rows.shape + x.shape[1:])
    size = x[:1].numel() * x.element_size()
    function(rows.numel(), size, x.data_ptr(), rows.data_ptr(), found.data_ptr())
    return found


def set_rows(x: Tensor, rows: Tensor, values: Tensor) -> None:
    """Set some rows of a tensor: x[rows] = values.

    Args:
        x: The tensor, which is overwritten.
        rows: The numbers of the rows. They are not checked.
        values: What they are set to.

    Example:
        >>> x = torch.zeros(3, 2)
        >>> set_rows(x, torch.tensor([2, 0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> x.tolist()
        [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
    """
    function = compiled_function("set_rows")
    if function is None or not _plain_memory(x, rows, values) or x.dtype != values.dtype:
        x.index_copy_(0, rows, values)
        return
    size = values[:1].numel() * values.element_size()
    function(rows.numel(), size, values.data_ptr(), rows.data_ptr(), x.data_ptr())


def copy_rows(x: Tensor, rows: Tensor, source: Tensor) -> None:
    """Set some rows of a tensor to the same rows of another: x[rows] = source[rows].

    Args:
        x: The tensor, which is overwritten.
        rows: The numbers of the rows. They are not checked.
        source: A tensor of the same shape.

    Example:
        >>> x = torch.zeros(3, 1)
        >>> copy_rows(x, torch.tensor([2, 0]), torch.tensor([[1.0], [2.0], [3.0]]))
        >>> x.tolist()
        [[1.0], [0.0], [3.0]]
    """
    function = compiled_function("copy_rows")
    if function is None or not _plain_memory(x, rows, source) or x.dtype != source.dtype:
        x.index_copy_(0, rows, source[rows])
        return
    size = x[:1].numel() * x.element_size()
    function(rows.numel(), size, source.data_ptr(), rows.data_ptr(), x.data_ptr())


def average_pairs(x: Tensor, a: Tensor, b: Tensor, sent: Tensor) -> None:
    """Move the rows of pairs by half of the difference of what both sent, towards each other.

    Args:
        x: The tensor, which is overwritten.
        a: One row of each pair. The numbers are not checked, and none occurs twice in a and b.
        b: The other row.
        sent: What each row sent, a tensor of the same shape.

    Example:
        >>> x = torch.tensor([[1.0], [5.0], [3.0]])
        >>> average_pairs(x, torch.tensor([2]), torch.tensor([0]), sent=x.clone())
        >>> x.tolist()
        [[2.0], [5.0], [2.0]]
    """
    function = None
    if x.dtype == sent.dtype and x.dtype in _AVERAGE:
        function = compiled_function(_AVERAGE[x.dtype])
    if function is None or not _plain_memory(x, a, sent) or not _plain_memory(x, b, sent):
        difference = sent[b] - sent[a]
        x.index_copy_(0, a, x[a].add_(difference, alpha=0.5))
        x.index_copy_(0, b, x[b].sub_(difference, alpha=0.5))
        return
    pointers = (a.data_ptr(), b.data_ptr(), sent.data_ptr(), x.data_ptr())
    function(a.numel(), x[:1].numel(), *pointers)


def _plain_memory(x: Tensor, rows: Tensor, values: Tensor) -> bool:
    """True if compiled code can copy rows."""
    on_cpu = x.device.type == "cpu" and rows.device.type == "cpu" and values.device.type == "cpu"
    in_order = x.is_contiguous() and rows.is_contiguous() and values.is_contiguous()
    return on_cpu and in_order and rows.dtype == torch.int64


def sample_numbers(
    bits: NDArray[np.uint64],
    first: NDArray[np.int64],
    size: NDArray[np.int64],
    index: NDArray[np.int64],
    batch: int,
) -> NDArray[np.int64] | None:
    """Draw samples of rows, uniformly and with replacement, as `draws.below` draws positions.

    Args:
        bits: Random bits of each row.
        first: Where the samples of each row begin in `index`.
        size: How many there are, below 2³².
        index: Sample numbers.
        batch: How many to draw for each row.

    Returns:
        Sample numbers [rows, batch]; None if there is no compiled code, or a row has no samples.
    """
    function = compiled_function("sample_numbers")
    if function is None or index.dtype != np.int64 or not index.flags.c_contiguous:
        return None
    if len(size) and size.min() < 1:
        return None
    arrays = (
        np.ascontiguousarray(bits),
        np.ascontiguousarray(first, dtype=np.int64),
        np.ascontiguousarray(size, dtype=np.int64),
        index,
    )
    found = np.empty((len(bits), batch), np.int64)
    function(len(bits), batch, *(x.ctypes.data for x in arrays), found.ctypes.data)
    return found
