"""Randomness by name, not by order.

A draw is a pure function of (seed, purpose, fields…), for example (seed, "batch", round, device, slot). Whoever asks, in
whatever order, on one process, on four shards or after a resume, gets the same number. The fields broadcast like NumPy
arrays, so that one call draws for all devices.

    >>> uniform(7, "example", 3, np.arange(4)).round(3).tolist() == uniform(7, "example", 3, np.arange(9)).round(3).tolist()[:4]
    True

The generator is a chain of the 64-bit finaliser of MurmurHash3, one link a field: stable across machines and versions of
NumPy, which NumPy's own distributions do not promise.
"""

from __future__ import annotations

import hashlib
import itertools
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

_C1, _C2, _GOLDEN = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0x9E3779B97F4A7C15
_SHIFT, _MASK = np.uint64(33), 2**64 - 1
_SHORT, _ROWS = 4096, 32


@lru_cache(maxsize=4096)
def _key(seed: int, purpose: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _mixed(h: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """MurmurHash3's finaliser, in place: every bit of the input moves every bit of the output."""
    h ^= h >> _SHIFT
    h *= np.uint64(_C1)
    h ^= h >> _SHIFT
    h *= np.uint64(_C2)
    h ^= h >> _SHIFT
    return h


def _mixed_int(h: int) -> int:
    """The same of one number."""
    h = ((h ^ (h >> 33)) * _C1) & _MASK
    h = ((h ^ (h >> 33)) * _C2) & _MASK
    return h ^ (h >> 33)


def bits(seed: int, purpose: str, *fields: ArrayLike) -> NDArray[np.uint64]:
    """64 random bits for every combination of the broadcast fields (whole numbers, negative ones too)."""
    # Leading plain numbers are hashed as such, without the cost of arrays.
    plain = len(list(itertools.takewhile(lambda field: isinstance(field, int), fields)))
    number = _key(int(seed), purpose)
    for field in fields[:plain]:
        number = _mixed_int(number ^ ((int(field) * _GOLDEN + _GOLDEN) & _MASK))  # type: ignore[arg-type]
    h = np.array(number if fields else _mixed_int(number), dtype=np.uint64)
    with np.errstate(
        over="ignore"
    ):  # NumPy warns of scalars that wrap around, though not of arrays
        for field in fields[plain:]:
            step = np.asarray(field).astype(np.int64).view(np.uint64) * np.uint64(
                _GOLDEN
            ) + np.uint64(_GOLDEN)
            h = _mixed(np.atleast_1d(h ^ step)).reshape(np.broadcast_shapes(h.shape, step.shape))
    return h


def row(seed: int, purpose: str, number: int, size: int) -> NDArray[np.uint64]:
    """bits(seed, purpose, number, 0 … size-1), not to be written to: for who asks for one number after the other.

    Short rows are drawn several at a time: a call of NumPy costs more than their bits.
    """
    if size > _SHORT:
        return bits(seed, purpose, number, np.arange(size))
    found: NDArray[np.uint64] = _rows(seed, purpose, number // _ROWS, size)[number % _ROWS]
    return found


@lru_cache(maxsize=16)
def _rows(seed: int, purpose: str, block: int, size: int) -> NDArray[np.uint64]:
    return bits(seed, purpose, block * _ROWS + np.arange(_ROWS)[:, None], np.arange(size))


def uniform(seed: int, purpose: str, *fields: ArrayLike) -> NDArray[np.float64]:
    """Uniform on [0, 1), 53 bits each."""
    return as_uniform(bits(seed, purpose, *fields))


def as_uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Bits as numbers that are uniform on [0, 1)."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(limit: ArrayLike, seed: int, purpose: str, *fields: ArrayLike) -> NDArray[np.int64]:
    """Whole numbers uniform on [0, limit), limit < 2³²; `limit` broadcasts too."""
    top = bits(seed, purpose, *fields) >> np.uint64(32)
    return ((top * np.asarray(limit, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)


def normal(seed: int, purpose: str, *fields: ArrayLike) -> NDArray[np.float64]:
    """Standard normal, by Box and Muller from two named uniforms."""
    radius = np.sqrt(-2.0 * np.log1p(-uniform(seed, purpose + "/radius", *fields)))
    return radius * np.cos(2.0 * np.pi * uniform(seed, purpose + "/angle", *fields))


def permutation(n: int, seed: int, purpose: str, *fields: int) -> NDArray[np.int64]:
    """A uniformly random order of 0 … n-1."""
    return np.argsort(bits(seed, purpose, *fields, np.arange(n)), kind="stable")


def subseed(seed: int, purpose: str, *fields: int) -> int:
    """A seed of its own (63 bits) for a generator that is not ours, such as torch's."""
    return int(bits(seed, purpose, *fields)) >> 1
