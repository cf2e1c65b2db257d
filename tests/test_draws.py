"""Randomness by name: pure, broadcast like NumPy, uniform, independent, and never changing."""

from __future__ import annotations

import hashlib
from itertools import permutations
from math import erf
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import draws

FIELD = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-1000, 1000)
MANY = 20_000


def murmur(seed: int, purpose: str, *fields: int) -> int:
    """Return the bits of the generator by Python integers: one MurmurHash3 finaliser per field."""
    h = int.from_bytes(
        hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest(), "little"
    )
    for step in [(field + 1) * 0x9E3779B97F4A7C15 for field in fields] or [0]:
        h ^= step % 2**64
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            h = (h ^ (h >> 33)) * factor % 2**64
        h ^= h >> 33
    return h


GOLDEN_FIELDS: list[tuple[int, tuple[int, ...]]] = [
    (0, (0,)),
    (0, (1,)),
    (1, (0,)),
    (-5, (2**62, -1)),
    (7, (3, 1, 4, 1, 5)),
]
GOLDEN_BITS = [
    9765625865491721386,
    16733152009783987961,
    11394624845863646064,
    15109516990662179,
    14065525025242523301,
    872427184640553509,
]
GOLDEN_UNIFORM = [0.8292652415833391, 0.328435593402158, 0.9762493106168354]
GOLDEN_BELOW = [829, 328, 976, 295, 429, 779]
GOLDEN_PERMUTATION = [3, 1, 4, 6, 5, 7, 0, 2]
GOLDEN_SUBSEED = 127507272529306404
GOLDEN_NORMAL = [-0.5402779912162328, -0.883334282977143, -1.1195568526778932]


def test_golden_values_never_change() -> None:
    """They decide every batch, link and start: a change would change every reported result."""
    assert int(draws.bits(0, "golden")) == GOLDEN_BITS[0]
    assert [
        int(draws.bits(seed, "golden", *fields)) for seed, fields in GOLDEN_FIELDS
    ] == GOLDEN_BITS[1:]
    assert draws.uniform(7, "golden", 3, np.arange(3)).tolist() == GOLDEN_UNIFORM
    assert draws.below(1000, 7, "golden", 3, np.arange(6)).tolist() == GOLDEN_BELOW
    assert draws.permutation(8, 7, "golden", 3).tolist() == GOLDEN_PERMUTATION
    assert draws.subseed(7, "golden", 3) == GOLDEN_SUBSEED
    # NumPy's log and cosine may differ in the last place between processors.
    np.testing.assert_allclose(
        draws.normal(7, "golden", 3, np.arange(3)), GOLDEN_NORMAL, rtol=1e-14
    )


@given(st.integers(-(2**80), 2**80), st.text(max_size=8), st.lists(FIELD, max_size=4))
def test_bits_equal_the_documented_hash(seed: int, purpose: str, fields: list[int]) -> None:
    assert int(draws.bits(seed, purpose, *fields)) == murmur(seed, purpose, *fields)


@given(FIELD, st.lists(st.lists(SMALL, min_size=1, max_size=4), min_size=1, max_size=3), st.data())
@settings(max_examples=50)
def test_broadcasting_equals_element_by_element(
    seed: int, axes: list[list[int]], data: st.DataObject
) -> None:
    """A field may be a Python number, a NumPy scalar, a list or an array, with the same result."""
    grids = np.meshgrid(*axes, indexing="ij", sparse=True)
    fields = []
    for grid in grids:
        fields.append(grid.tolist() if data.draw(st.booleans()) else grid)
    together = draws.bits(seed, "grid", *fields)
    assert together.shape == tuple(len(axis) for axis in axes)
    for index in np.ndindex(together.shape):
        alone = [axis[i] for axis, i in zip(axes, index, strict=True)]
        assert (
            together[index]
            == draws.bits(seed, "grid", *alone)
            == draws.bits(seed, "grid", *np.array(alone))
        )


@given(FIELD, st.lists(SMALL, min_size=1, max_size=20), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_a_draw_is_pure(seed: int, devices: list[int], random: Random) -> None:
    """Draws do not depend on order or earlier draws; the fields are not changed."""
    given = np.array(devices)
    first = draws.uniform(seed, "pure", 3, given)
    draws.normal(seed + 1, "other", given)
    order = random.sample(range(len(devices)), len(devices))
    assert np.array_equal(draws.uniform(seed, "pure", 3, given[order]), first[order])
    assert given.tolist() == devices


def kolmogorov(sample: np.ndarray) -> float:
    """Return the Kolmogorov–Smirnov statistic times √n; it is above 2.2 once in 10,000."""
    n = len(sample)
    ordered = np.sort(sample)
    gap = max((np.arange(1, n + 1) / n - ordered).max(), (ordered - np.arange(n) / n).max())
    return float(gap * np.sqrt(n))


COUNTS = np.arange(MANY)
SAMPLES = {
    "devices": draws.uniform(0, "u", COUNTS),
    "rounds of one device": draws.uniform(0, "u", COUNTS, 5),
    "devices of one round": draws.uniform(0, "u", 5, COUNTS),
    "large strides": draws.uniform(0, "u", COUNTS << 40),
    "negative": draws.uniform(0, "u", -COUNTS),
    "seeds": np.array([draws.uniform(seed, "u", 0) for seed in range(4000)]),
    "purposes": np.array([draws.uniform(0, f"u{number}", 0) for number in range(4000)]),
    "low bits": (draws.bits(0, "u", COUNTS) & np.uint64(0xFFFF)).astype(float) / 2**16 + 2.0**-17,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_uniform(name: str) -> None:
    sample = SAMPLES[name]
    assert sample.min() >= 0
    assert sample.max() < 1
    assert kolmogorov(sample) < 2.2


def chi_square(x: np.ndarray, y: np.ndarray, cells: int = 16) -> float:
    """Return the deviation of pairs from uniform on a grid, in standard deviations."""
    counts = np.bincount(
        (x * cells).astype(int) * cells + (y * cells).astype(int), minlength=cells**2
    )
    expected = len(x) / cells**2
    freedom = cells**2 - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


PAIRS = {
    "next device": (draws.uniform(0, "u", 3, COUNTS), draws.uniform(0, "u", 3, COUNTS + 1)),
    "next round": (draws.uniform(0, "u", 3, COUNTS), draws.uniform(0, "u", 4, COUNTS)),
    "swapped": (draws.uniform(0, "u", 3, COUNTS + 4), draws.uniform(0, "u", COUNTS + 4, 3)),
    "seed": (draws.uniform(0, "u", 3, COUNTS), draws.uniform(1, "u", 3, COUNTS)),
    "purpose": (draws.uniform(0, "u", 3, COUNTS), draws.uniform(0, "v", 3, COUNTS)),
    "one field more": (draws.uniform(0, "u", COUNTS), draws.uniform(0, "u", COUNTS, 0)),
    "sign": (draws.uniform(0, "u", COUNTS + 1), draws.uniform(0, "u", -COUNTS - 1)),
    "radius and angle": (draws.uniform(0, "u/radius", COUNTS), draws.uniform(0, "u/angle", COUNTS)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_fields_are_independent(name: str) -> None:
    x, y = PAIRS[name]
    assert abs(chi_square(x, y)) < 4.5
    assert abs(np.corrcoef(x, y)[0, 1]) < 4.5 / np.sqrt(len(x))


def test_different_names_give_different_draws() -> None:
    """No two draws of a large study coincide: 10⁶ names, 64 bits, a chance of 3e-8."""
    assert (
        len(np.unique(draws.bits(0, "batch", np.arange(1000)[:, None], np.arange(1000)))) == 10**6
    )


@given(st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=20), FIELD)
@settings(max_examples=50)
def test_below_its_limit(limits: list[int], seed: int) -> None:
    drawn = draws.below(np.array(limits), seed, "below", np.arange(len(limits)))
    assert ((drawn >= 0) & (drawn < limits)).all()
    assert [
        int(draws.below(limit, seed, "below", i)) for i, limit in enumerate(limits)
    ] == drawn.tolist()


def test_below_is_uniform() -> None:
    counts = np.bincount(draws.below(7, 0, "below", COUNTS), minlength=7)
    assert len(counts) == 7
    assert (
        ((counts - MANY / 7) ** 2) / (MANY / 7)
    ).sum() < 27  # chi-square, 6 degrees of freedom: once in 7,000


def test_normal() -> None:
    """Its distribution function makes it uniform."""
    z = draws.normal(0, "normal", COUNTS)
    assert kolmogorov(np.array([(1 + erf(x / 2**0.5)) / 2 for x in z])) < 2.2
    ranks = np.argsort(np.argsort(z)) / MANY
    assert abs(chi_square(ranks[:-1], ranks[1:])) < 4.5


@given(st.integers(0, 50), FIELD, SMALL)
@settings(max_examples=50)
def test_permutation_has_every_element_once(n: int, seed: int, t: int) -> None:
    assert sorted(draws.permutation(n, seed, "order", t).tolist()) == list(range(n))


def test_every_permutation_is_as_likely() -> None:
    orders = []
    for t in range(2400):
        orders.append(tuple(draws.permutation(4, 0, "order", t).tolist()))
    counts = np.array([orders.count(order) for order in permutations(range(4))])
    assert (
        (counts - 100) ** 2 / 100
    ).sum() < 56  # chi-square, 23 degrees of freedom: once in 7,000


@given(FIELD, FIELD)
@settings(max_examples=50)
def test_torch_accepts_a_subseed(seed: int, field: int) -> None:
    value = draws.subseed(seed, "module", field)
    assert 0 <= value < 2**63
    torch.Generator().manual_seed(value)


@given(st.integers(0, 9), st.integers(0, 200), st.sampled_from([0, 1, 45, 4096, 4097]))
def test_a_row_equals_its_bits(seed: int, number: int, size: int) -> None:
    assert np.array_equal(
        draws.row(seed, "x", number, size), draws.bits(seed, "x", number, np.arange(size))
    )
