"""Randomness by name, not by order.

A draw is a pure function of seed, purpose and fields, for example (seed, "batch", round, device,
slot). It does not depend on who asks or in which order: one process, four shards and a resumed run
get the same values. The fields broadcast like NumPy arrays, so that one call draws for all devices.

    >>> four = uniform(7, "example", 3, np.arange(4))
    >>> nine = uniform(7, "example", 3, np.arange(9))
    >>> bool((four == nine[:4]).all())
    True

The generator is a chain of MurmurHash3's 64-bit finaliser, one step per field. It is stable across
machines and versions of NumPy, which NumPy's own distributions do not promise.
"""

from __future__ import annotations

import hashlib
import itertools
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

# The constants of MurmurHash3's finaliser, and 2⁶⁴ divided by the golden ratio.
_C1 = 0xFF51AFD7ED558CCD
_C2 = 0xC4CEB9FE1A85EC53
_GOLDEN = 0x9E3779B97F4A7C15
_SHIFT = np.uint64(33)
_MASK = 2**64 - 1

_SHORT_ROW = 4096  # elements up to which several rows are drawn in one call of NumPy
_ROWS_AT_ONCE = 32


@lru_cache(maxsize=4096)
def _key(seed: int, purpose: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _finalise(h: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply MurmurHash3's finaliser in place: every input bit changes every output bit."""
    h ^= h >> _SHIFT
    h *= np.uint64(_C1)
    h ^= h >> _SHIFT
    h *= np.uint64(_C2)
    h ^= h >> _SHIFT
    return h


def finalise(h: int) -> int:
    """Apply MurmurHash3's finaliser to one Python number: random bits from random bits.

    Args:
        h: 64 bits.
    """
    h = ((h ^ (h >> 33)) * _C1) & _MASK
    h = ((h ^ (h >> 33)) * _C2) & _MASK
    return h ^ (h >> 33)


def bits(seed: int, purpose: str, *fields: ArrayLike) -> NDArray[np.uint64]:
    """Draw 64 random bits for every combination of the broadcast fields.

    Args:
        seed: The seed.
        purpose: Name of what is drawn.
        fields: Whole numbers, negative ones too, or arrays of them.

    Returns:
        Bits in the shape that the fields broadcast to.

    Example:
        >>> bits(0, "example", 1, np.arange(3)).shape
        (3,)
    """
    # Leading plain numbers are hashed as such, without the overhead of arrays.
    plain = len(list(itertools.takewhile(lambda field: isinstance(field, int), fields)))
    number = _key(int(seed), purpose)
    for field in fields[:plain]:
        step = (int(field) * _GOLDEN + _GOLDEN) & _MASK  # type: ignore[arg-type]
        number = finalise(number ^ step)
    h = np.array(number if fields else finalise(number), dtype=np.uint64)
    with np.errstate(over="ignore"):  # NumPy warns of scalars that wrap around, not of arrays
        for field in fields[plain:]:
            steps = np.asarray(field).astype(np.int64).view(np.uint64)
            steps = steps * np.uint64(_GOLDEN) + np.uint64(_GOLDEN)
            shape = np.broadcast_shapes(h.shape, steps.shape)
            h = _finalise(np.atleast_1d(h ^ steps)).reshape(shape)
    return h


def row(seed: int, purpose: str, number: int, size: int) -> NDArray[np.uint64]:
    """Return bits(seed, purpose, number, 0 … size-1), for one row after the other.

    Short rows are drawn several at a time: a call of NumPy costs more than their bits.

    Args:
        seed: The seed.
        purpose: Name of what is drawn.
        number: Number of the row.
        size: Length of the row.

    Returns:
        The bits. They must not be written to.
    """
    if size > _SHORT_ROW:
        return bits(seed, purpose, number, np.arange(size))
    block, position = divmod(number, _ROWS_AT_ONCE)
    found: NDArray[np.uint64] = _rows(seed, purpose, block, size)[position]
    return found


@lru_cache(maxsize=16)
def _rows(seed: int, purpose: str, block: int, size: int) -> NDArray[np.uint64]:
    rows = block * _ROWS_AT_ONCE + np.arange(_ROWS_AT_ONCE)
    return bits(seed, purpose, rows[:, None], np.arange(size))


def uniform(seed: int, purpose: str, *fields: ArrayLike) -> NDArray[np.float64]:
    """Draw values that are uniform on [0, 1), with 53 bits each.

    Args:
        seed: The seed.
        purpose: Name of what is drawn.
        fields: As in `bits`.
    """
    return as_uniform(bits(seed, purpose, *fields))


def as_uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Turn random bits into values that are uniform on [0, 1).

    Args:
        bits: 64 random bits per value.
    """
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(limit: ArrayLike, seed: int, purpose: str, *fields: ArrayLike) -> NDArray[np.int64]:
    """Draw whole numbers that are uniform on [0, limit).

    Args:
        limit: The limit, below 2³². It broadcasts with the fields.
        seed: The seed.
        purpose: Name of what is drawn.
        fields: As in `bits`.
    """
    top = bits(seed, purpose, *fields) >> np.uint64(32)
    return ((top * np.asarray(limit, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)


def normal(seed: int, purpose: str, *fields: ArrayLike) -> NDArray[np.float64]:
    """Draw standard normal values, by the method of Box and Muller.

    Args:
        seed: The seed.
        purpose: Name of what is drawn.
        fields: As in `bits`.
    """
    radius = np.sqrt(-2.0 * np.log1p(-uniform(seed, purpose + "/radius", *fields)))
    return radius * np.cos(2.0 * np.pi * uniform(seed, purpose + "/angle", *fields))


def permutation(n: int, seed: int, purpose: str, *fields: int) -> NDArray[np.int64]:
    """Draw a uniformly random order of 0 … n-1.

    Args:
        n: Number of elements.
        seed: The seed.
        purpose: Name of what is drawn.
        fields: Whole numbers, as in `bits`.
    """
    return np.argsort(bits(seed, purpose, *fields, np.arange(n)), kind="stable")


def subseed(seed: int, purpose: str, *fields: int) -> int:
    """Draw a seed of 63 bits for another generator, such as torch's.

    Args:
        seed: The seed.
        purpose: Name of what is drawn.
        fields: Whole numbers, as in `bits`.
    """
    return int(bits(seed, purpose, *fields)) >> 1
