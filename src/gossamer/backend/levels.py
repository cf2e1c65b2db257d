"""Samples as bytes, where that loses nothing."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.backend import limits, loader

_LEVELS = 256  # values of a byte
_WIDEST_SPAN = 1e30  # largest span of values: step·level must not overflow float32

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]


class Scale(NamedTuple):
    """The values of levels: level k has the value step·k + (rest·k + zero).

    Both sums are rounded once, to float32. Each field is one number for all elements of a sample,
    or an array with one per element.
    """

    step: FloatArray
    rest: FloatArray
    zero: FloatArray

    def values(self, level: IntArray) -> FloatArray:
        """Return the values of levels as the kernels compute them, for one step and zero."""
        # In float64 the products are exact, and the sums nearly so; the kernel verifies the result.
        k = level.astype(np.float64)
        inner = (self.rest * k + self.zero).astype(np.float32)
        return (self.step * k + inner).astype(np.float32)

    @property
    def is_uniform(self) -> bool:
        return self.step.size == 1 and not self.rest.any()


class Levels:
    """Samples as bytes.

    Args:
        levels: The bytes, one sample per row.
        scale: Their values.
    """

    def __init__(self, levels: Tensor, scale: Scale) -> None:
        self.bytes = levels
        elements = levels[0].numel()
        # Kept: the kernels get its address.
        self._table = np.empty((3, elements), np.float32)
        for row, field in zip(self._table, scale, strict=True):
            row[:] = field
        address = None
        if not scale.is_uniform:
            address = self._table.ctypes.data
        first = self._table[:, 0].tolist()
        self._struct = loader.Levels(levels.data_ptr(), address, first[0], first[2])
        self.reference = ctypes.byref(self._struct)


class LevelFinder(Protocol):
    """What the search needs of the kernels."""

    def find_levels(self, x: Tensor, scale: Scale) -> Levels | None:
        """Return the bytes that x is read back from bit for bit, or None if there are none."""


def search(x: Tensor, finder: LevelFinder) -> Levels | None:
    """Return samples as bytes from which they are read back bit for bit, or None.

    The values must be at equal distances: those of all elements, as in images in one colour, or
    those of each group of elements, such as one colour of an image.

    Args:
        x: The samples, float32, one per row.
        finder: The kernels.
    """
    rows = x.reshape(len(x), -1)
    # torch.aminmax along the first axis takes 7 times as long.
    ends = torch.stack([rows.amin(0), rows.amax(0)]).numpy()
    if not np.isfinite(ends).all():
        return None
    sample = rows[:: max(1, len(rows) // limits.LEVEL_ROWS)].numpy()
    sample = np.concatenate([sample, ends])
    scale = _fit(np.unique(sample))
    if scale is None:
        scale = _fit_groups(sample)
    if scale is None:
        return None
    levels = finder.find_levels(rows, scale)
    if levels is not None:
        levels.bytes = levels.bytes.view(x.shape)
    return levels


def _fit(values: FloatArray) -> Scale | None:
    """Return a scale whose levels are these values, ascending and distinct, or None."""
    if len(values) == 1:
        return _scale(1.0, 0.0, float(values[0]))
    exact = values.astype(np.float64)
    span = exact[-1] - exact[0]
    if len(values) > _LEVELS or span > _WIDEST_SPAN:
        return None
    count = round(span / np.diff(exact).min())
    if count >= _LEVELS:
        return None
    level = np.rint((exact - exact[0]) * (count / span)).astype(np.int64)
    # Each value bounds the step, since it was rounded by at most half a unit in the last place.
    half = np.abs(np.spacing(values)).astype(np.float64) / 2
    offset = (exact - exact[0])[1:]
    least = ((offset - half[1:]) / level[1:]).max()
    most = ((offset + half[1:]) / level[1:]).min()
    step = (least + most) / 2
    rounded = np.float32(step)
    zero = float(exact[0])
    candidates = [_scale(float(rounded), 0.0, zero)]
    for neighbour in (np.float32(0), np.float32(np.inf)):
        candidates.append(_scale(float(np.nextafter(rounded, neighbour)), 0.0, zero))
    candidates.append(_scale(float(rounded), step - float(rounded), zero))
    for scale in candidates:
        if np.array_equal(scale.values(level), values):
            return scale
    return None


def _scale(step: float, rest: float, zero: float) -> Scale:
    fields = np.array([[step], [rest], [zero]], np.float32)
    return Scale(*fields)


def _fit_groups(sample: FloatArray) -> Scale | None:
    """Return a scale per group of elements that have values in common, or None.

    Args:
        sample: Some samples [samples, elements].
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    elements = sample.shape[1]
    values, number = np.unique(sample, return_inverse=True)
    if len(values) > _LEVELS * limits.LEVEL_GROUPS:
        return None
    element = np.broadcast_to(np.arange(elements), sample.shape).ravel()
    size = elements + len(values)
    edges = (np.ones(sample.size, np.int8), (element, elements + number.ravel()))
    count, group = connected_components(coo_array(edges, shape=(size, size)), directed=False)
    if count > limits.LEVEL_GROUPS:
        return None
    fields = np.empty((3, elements), np.float32)
    for k in range(count):
        members = np.flatnonzero(group[:elements] == k)
        scale = _fit(values[group[elements:] == k])
        if scale is not None:
            _assign(fields, members, scale)
            continue
        for member in members:  # elements of different scales can have a value in common
            scale = _fit(np.unique(sample[:, member]))
            if scale is None:
                return None
            _assign(fields, np.array([member]), scale)
    return Scale(*fields)


def _assign(fields: FloatArray, elements: IntArray, scale: Scale) -> None:
    for row, field in zip(fields, scale, strict=True):
        row[elements] = field[0]
