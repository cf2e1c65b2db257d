"""Arrow arrays of measurements, made from their memory.

`pyarrow.array` and `pyarrow.parquet.read_table` load pandas where it is installed, which takes a
tenth of the time of a short run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray


def numbers(values: ArrayLike) -> pa.Array:
    """Return numbers as an array, and lists of one length as an array of lists.

    Args:
        values: Whole numbers, floating-point numbers, or one list of such numbers per row.

    Example:
        >>> numbers([1.5, 2.5]).type
        DataType(double)
        >>> numbers([[1, 2], [3, 4]]).to_pylist()
        [[1, 2], [3, 4]]
    """
    found = np.asarray(values)
    if found.ndim == 1:
        return _flat(found)
    rows, length = found.shape
    return pa.ListArray.from_arrays(_flat(length * np.arange(rows + 1), np.int32), _flat(found))


def repeated(text: str, count: int) -> pa.Array:
    """Return an array that has one text as often as this.

    Args:
        text: The text.
        count: The length of the array.

    Example:
        >>> repeated("wpm", 2).to_pylist()
        ['wpm', 'wpm']
    """
    data = text.encode()
    first = (len(data) * np.arange(count + 1)).astype(np.int32)
    buffers = [None, pa.py_buffer(first), pa.py_buffer(data * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def read_columns(path: Path, names: Sequence[str]) -> pa.Table:
    """Return columns of a Parquet file, whose checksums are verified.

    Args:
        path: The file.
        names: The columns.
    """
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read(columns=list(names))


def _flat(values: NDArray[np.generic], dtype: type[np.generic] | None = None) -> pa.Array:
    whole = np.issubdtype(values.dtype, np.integer)
    wide = np.ascontiguousarray(values, dtype or (np.int64 if whole else np.float64)).reshape(-1)
    buffers = [None, pa.py_buffer(wide)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(wide.dtype), len(wide), buffers)
