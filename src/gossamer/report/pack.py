"""Pack numbers for a page: exact, deflated, in base64. `web/unpack.js` reads them."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DEFLATE_LEVEL = 7
_MAX_DISTINCT = 1 << 16  # distinct values that two bytes can index


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return evenly spaced indices, the first and the last among them.

    Args:
        count: The number of elements to choose from.
        most: The number of indices at most.

    Example:
        >>> evenly(7, 4).tolist(), evenly(3, 4).tolist()
        ([0, 2, 4, 6], [0, 1, 2])
    """
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, most)).round().astype(np.int64))


def drawn_number(value: float) -> float | None:
    """Return a number with the digits that a picture can show; None if it is not finite.

    Args:
        value: The exact number.

    Example:
        >>> drawn_number(0.123456789), drawn_number(float("nan"))
        (0.123457, None)
    """
    return float(f"{value:.6g}") if math.isfinite(value) else None


def drawn_numbers(values: Iterable[float]) -> list[float | None]:
    """Return `drawn_number` of every value.

    Args:
        values: The exact numbers.
    """
    return [drawn_number(float(value)) for value in values]


def text(content: bytes) -> str:
    """Return bytes as text that may stand in HTML.

    Args:
        content: Any bytes.
    """
    return base64.b64encode(zlib.compress(content, _DEFLATE_LEVEL)).decode()


def table(columns: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Pack the columns of a table to the last bit.

    Where few distinct values occur, such as accuracies on a few hundred samples, they are stored
    once, followed by an index of two bytes per element.

    Args:
        columns: The columns by name, each [rows] or [rows, devices].

    Returns:
        A description of each column ("name", "type", "devices" and perhaps "listed", the number of
        distinct values), and the packed values. The values of a device are stored together.
    """
    described = []
    content = []
    for name, values in columns.items():
        array = _stored(np.asarray(values))
        flat = np.ascontiguousarray(array.T).reshape(-1)
        # Compare bits, not values: -0 differs from 0, and NaN equals itself.
        words = flat.view(f"<u{array.dtype.itemsize}")
        distinct, which = np.unique(words, return_inverse=True)
        description: dict[str, Any] = {
            "name": name,
            "type": array.dtype.str[1:],
            "devices": array.shape[1] if array.ndim == 2 else 0,
        }
        if len(distinct) <= min(_MAX_DISTINCT, len(flat) // 8):
            description["listed"] = len(distinct)
            content += [_byte_planes(distinct), _byte_planes(which.astype("<u2"))]
        else:
            content.append(_byte_planes(words))
        described.append(description)
    return described, text(b"".join(content))


def bits(flags: NDArray[np.bool_]) -> bytes:
    """Return flags as bits; every last axis begins with a new byte.

    Args:
        flags: Flags of any shape.
    """
    return np.packbits(flags, axis=-1, bitorder="little").tobytes()


def _byte_planes(flat: NDArray[Any]) -> bytes:
    """Return all first bytes, then all second bytes, …: neighbouring numbers then deflate well."""
    return flat.view(np.uint8).reshape(-1, flat.dtype.itemsize).T.tobytes()


def _stored(array: NDArray[Any]) -> NDArray[Any]:
    """Return integers in eight bytes; floats in four if that loses nothing, otherwise in eight.

    Single devices are measured in float32.
    """
    if array.dtype.kind != "f":
        return array.astype("<i8")
    with np.errstate(over="ignore"):
        short = array.astype("<f4")
    if np.array_equal(short.astype("<f8"), array, equal_nan=True):
        return short
    return array.astype("<f8")
