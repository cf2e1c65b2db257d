"""Targets, summaries and intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gossamer.results.statistics import Interval, half_widths, interval, rounds_to, summarise

ROUNDS = [0, 10, 20, 30]


@pytest.mark.parametrize(
    ("values", "target", "rising", "reached"),
    [
        ([0.1, 0.7, 0.6, 0.9], 0.7, True, 10),
        ([0.1, 0.7, 0.6, 0.9], 0.95, True, None),
        ([2.0, 1.0, 0.5, 0.6], 0.5, False, 20),
        ([2.0, np.nan, 0.5, 0.6], 0.1, False, None),
        ([np.nan, np.nan, np.nan, 0.9], 0.5, True, 30),
    ],
)
def test_rounds_to_a_target(
    values: list[float], target: float, rising: bool, reached: int | None
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
