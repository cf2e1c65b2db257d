"""Pairs of devices as numbers, in which graphs are drawn.

Pairs are numbered row by row in the upper triangle of the adjacency matrix, so that sorted numbers
give sorted pairs.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gossamer.network.base import BoolArray, FloatArray, IntArray, Links


def pair_count(devices: int) -> int:
    """Return the number of pairs of devices.

    Args:
        devices: Number of devices.
    """
    return devices * (devices - 1) // 2


@lru_cache(maxsize=4)
def _row_starts(devices: int) -> IntArray:
    """Return the number of the first pair of each row of the upper triangle."""
    row = np.arange(devices)
    return row * (2 * devices - 1 - row) // 2


def pair_of(number: IntArray, devices: int) -> tuple[IntArray, IntArray]:
    """Return the pairs with the given numbers.

    Args:
        number: Numbers of pairs, from 0 to pair_count(devices) - 1.
        devices: Number of devices.

    Returns:
        The pairs as two arrays a and b with a < b.

    Example:
        >>> [array.tolist() for array in pair_of(np.arange(3), 3)]
        [[0, 0, 1], [1, 2, 2]]
    """
    starts = _row_starts(devices)
    a = np.searchsorted(starts, number, side="right") - 1
    return a, number - starts[a] + a + 1


def number_of(a: IntArray, b: IntArray, devices: int) -> IntArray:
    """Return the numbers of pairs; the inverse of `pair_of`.

    Args:
        a: First device of each pair.
        b: Second device of each pair; a < b.
        devices: Number of devices.
    """
    return _row_starts(devices)[a] + b - a - 1


def links_from_numbers(devices: int, numbers: IntArray) -> Links:
    """Return the links with these pair numbers.

    Args:
        devices: Number of devices.
        numbers: Numbers of pairs, sorted.
    """
    return Links(devices, *pair_of(numbers, devices))


def complement(devices: int, numbers: IntArray) -> IntArray:
    """Return all pair numbers except these.

    Args:
        devices: Number of devices.
        numbers: Numbers of pairs.
    """
    rest: BoolArray = np.ones(pair_count(devices), dtype=bool)
    rest[numbers] = False
    return np.flatnonzero(rest)


def pair_code(u: IntArray, v: IntArray, devices: int) -> IntArray:
    """Return links as single numbers that sort like (smaller end, larger end).

    Unlike `number_of`, it takes the ends in any order, and equal ones.

    Args:
        u: One end of each link.
        v: The other end.
        devices: Number of devices.
    """
    code: IntArray = np.minimum(u, v) * devices + np.maximum(u, v)
    return code


def is_first(values: IntArray) -> BoolArray:
    """Return a mask of the first occurrence of each value.

    Args:
        values: Whole numbers.

    Example:
        >>> is_first(np.array([3, 1, 3])).tolist()
        [True, True, False]
    """
    mask = np.zeros(len(values), dtype=bool)
    mask[np.unique(values, return_index=True)[1]] = True
    return mask


def weighted_links(
    devices: int, u: IntArray, v: IntArray, weight: FloatArray, directed: bool = False
) -> Links:
    """Return links that carry mixing weights, sorted.

    Args:
        devices: Number of devices.
        u: One end of each link; the sender if directed.
        v: The other end. No link is a loop or listed twice.
        weight: Weight of each link.
        directed: True if links go from u to v only.
    """
    code = u * devices + v if directed else pair_code(u, v, devices)
    order = np.argsort(code)
    code = code[order]
    return Links(devices, code // devices, code % devices, directed, weight=weight[order])
