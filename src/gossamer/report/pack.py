"""Numbers packed for a page: exact, deflated, in base64. `page/unpack.js` reads them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """At most so many of `count` places, evenly spread, the first and the last among them.

    >>> evenly(7, 4).tolist(), evenly(3, 4).tolist()
    ([0, 2, 4, 6], [0, 1, 2])
    """
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, most)).round().astype(np.int64))


def text(content: bytes) -> str:
    """Bytes as text that may stand in HTML."""
    return base64.b64encode(zlib.compress(content, 7)).decode()


def table(columns: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The columns of a table: their names and types, and all their values, to the last bit.

    A column is [rows] or [rows, devices]; the values of a device stand together. Where few values occur, such as
    accuracies on a few hundred samples, they are listed once, and two bytes a place say which.
    """
    described, content = [], []
    for name, values in columns.items():
        array = np.asarray(values)
        array = _narrow(array) if array.dtype.kind == "f" else array.astype("<i8")
        flat = np.ascontiguousarray(array.T).reshape(-1)
        bits = flat.view(
            f"<u{array.dtype.itemsize}"
        )  # by their bits: -0 is not 0, and NaN is itself
        distinct, which = np.unique(bits, return_inverse=True)
        listed = len(distinct) <= min(1 << 16, len(flat) // 8)
        content += [_planes(distinct), _planes(which.astype("<u2"))] if listed else [_planes(bits)]
        devices = array.shape[1] if array.ndim == 2 else 0
        described.append(
            {"name": name, "type": array.dtype.str[1:], "devices": devices}
            | ({"listed": len(distinct)} if listed else {})
        )
    return described, text(b"".join(content))


def _planes(flat: NDArray[Any]) -> bytes:
    """First all first bytes, then all second ones, …: what changes little from one number to the next then deflates well."""
    return flat.view(np.uint8).reshape(-1, flat.dtype.itemsize).T.tobytes()


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """In four bytes where that loses nothing: devices' numbers are measured in float32."""
    with np.errstate(over="ignore"):
        short = array.astype("<f4")
    return (
        short if np.array_equal(short.astype("<f8"), array, equal_nan=True) else array.astype("<f8")
    )


def bits(flags: NDArray[np.bool_]) -> bytes:
    """Flags as bits, each last axis from a new byte."""
    return np.packbits(flags, axis=-1, bitorder="little").tobytes()
