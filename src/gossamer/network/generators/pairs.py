"""Pairs of devices as numbers, in which graphs are drawn.

Pairs are numbered row by row in the upper triangle of the adjacency matrix, so that sorted numbers
give sorted pairs.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gossamer.network.base import BoolArray, IntArray, Links


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
