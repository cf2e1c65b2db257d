"""Targets, summaries and intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gossamer.results.statistics import (
    Interval,
    Reached,
    half_widths,
    interval,
    paired,
    rounds_to,
    summarise,
)

ROUNDS = [0, 10, 20, 30]


@pytest.mark.parametrize(
    ("values", "target", "rising", "reached"),
    [
        ([0.1, 0.7, 0.6, 0.9], 0.7, True, 10),
        ([0.1, 0.7, 0.6, 0.9], 0.95, True, math.inf),
        ([2.0, 1.0, 0.5, 0.6], 0.5, False, 20),
        ([2.0, np.nan, 0.5, 0.6], 0.1, False, math.inf),
        ([np.nan, np.nan, np.nan, 0.9], 0.5, True, 30),
    ],
)
def test_rounds_to_a_target(
    values: list[float], target: float, rising: bool, reached: float
) -> None:
    assert rounds_to(ROUNDS, values, target, rising) == reached


def test_a_summary_has_the_last_values_and_what_targets_took() -> None:
    table = {
        "round": ROUNDS,
        "accuracy": [0.1, 0.5, 0.8, 0.9],
        "accuracy_merged": [0.1, 0.9, 0.9, 1.0],
        "loss": [2.0, 1.0, 0.6, np.nan],
        "loss_merged": [0.9, 0.8, 0.6, 0.5],
        "bytes": [0, 100, 200, 300],
        "simulated_seconds": np.array([0.0, 1.5, 3.0, 4.5]),
        "device_accuracy": [[0.1, 0.1]] * 4,
    }
    summary = summarise(table, ("accuracy >= 0.8", "accuracy >= 0.99", "loss <= 1"))
    assert summary["round"] == 30
    assert summary["accuracy"] == 0.9
    assert summary["loss"] is None
    assert "device_accuracy" not in summary
    expected: dict[str, list[float | None]] = {
        "rounds_to": [20, None, 10],
        "bytes_to": [200, None, 100],
        "seconds_to": [3.0, None, 1.5],
        "rounds_to_merged": [10, 30, 0],
    }
    targets = ("accuracy >= 0.8", "accuracy >= 0.99", "loss <= 1")
    for key, values in expected.items():
        assert summary[key] == dict(zip(targets, values, strict=True))
    assert type(summary["simulated_seconds"]) is float


def test_an_interval_is_that_of_students_t() -> None:
    values = [0.81, 0.84, 0.79, 0.88]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    found = interval(values)
    assert found.count == 4
    assert found.half is not None
    np.testing.assert_allclose([found.mean - found.half, found.mean + found.half], [low, high])
    np.testing.assert_allclose(half_widths(np.array([values, values]).T), [found.half] * 2)


def test_a_single_value_has_no_interval() -> None:
    assert interval([0.5]) == Interval(0.5, None, 1)
    assert interval([0.5]).format(1, 100) == "50.0"


NUMBERS = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=12), st.integers(0, 3))
def test_paired_differences_are_those_of_the_paired_t_test(
    pairs: list[tuple[float, float]], more: int
) -> None:
    first = {seed: pair[0] for seed, pair in enumerate(pairs)}
    values = {seed: pair[1] for seed, pair in reversed(list(enumerate(pairs)))}
    for seed in range(more):  # seeds that only one of the two has do not count
        values[1000 + seed] = 1e9
        first[2000 + seed] = -1e9
    found = paired(values, first)
    a, b = np.array(pairs).T
    assert found is not None
    assert found.count == len(pairs)
    np.testing.assert_allclose(found.mean, (b - a).mean(), atol=1e-9)
    if np.ptp(b - a) > 1e-6:  # scipy warns about differences that are all equal
        interval95 = stats.ttest_rel(b, a).confidence_interval(0.95)
        np.testing.assert_allclose(found.mean - found.half, interval95.low, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found.mean + found.half, interval95.high, rtol=1e-6, atol=1e-6)


def test_one_pair_has_a_difference_and_no_interval() -> None:
    assert paired({0: 2.0, 1: 5.0}, {0: 0.5, 2: 1.0}) == Interval(1.5, None, 1)
    assert paired({0: 2.0}, {1: 2.0}) is None


def test_a_target_that_some_seeds_reached_says_so() -> None:
    some = Reached.over([130, 132, None, 131, 131])
    assert (some.mean, some.count, some.of, some.by_all) == (131, 4, 5, False)
    assert some.format(0) == "4 of 5: 131 ± 1"
    assert Reached.over([130, None]).format(0) == "1 of 2: 130"
    assert Reached.over([130]).format(0) == "130"
    none = Reached.over([None, None])
    assert (none.mean, none.half, none.count) == (math.inf, None, 0)
    assert none.format(0) == "–"
