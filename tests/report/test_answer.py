"""The sentence that a page begins with says no more than the numbers do."""

from __future__ import annotations

from typing import Any

import numpy as np

from gossamer.report.answer import answer
from gossamer.results.run import Run
from gossamer.results.tables import Method


def method(label: str, values: dict[int, float], **summary: Any) -> Method:
    """A method with a last accuracy per seed."""
    runs = []
    for seed, value in values.items():
        metrics = {"round": np.array([0, 50]), "accuracy": np.array([0.1, value])}
        metrics["loss"] = np.array([2.0, 1.0])
        spec = {"seed": seed, "rounds": 50, "network": {"devices": 8}}
        runs.append(Run(spec, metrics, {"finished": True} | summary, label))
    return Method(label, tuple(runs))


def test_a_difference_beyond_its_interval_is_told() -> None:
    first = method("A", {0: 0.80, 1: 0.81, 2: 0.82})
    second = method("B", {0: 0.90, 1: 0.91, 2: 0.925})
    text = answer([first, second])
    assert text.startswith("B has the highest mean test accuracy, 91.17 ± ")
    assert "10.17 ± 0.72 percentage points above A, the second" in text
    assert "(95 % interval over 3 seeds, paired)." in text


def test_chance_and_single_seeds_are_named() -> None:
    noisy = answer([method("A", {0: 0.8, 1: 0.9}), method("B", {0: 0.95, 1: 0.8})])
    assert "which 2 seeds cannot tell from chance" in noisy
    single = answer([method("A", {0: 0.8}), method("B", {0: 0.95})])
    assert "; one seed cannot show whether that is chance" in single
    assert "on other seeds" in answer([method("A", {0: 0.8}), method("B", {1: 0.95})])
    assert "has the same" in answer([method("A", {0: 0.8}), method("B", {0: 0.8})])


def test_methods_that_diverged_or_were_not_measured_are_not_best() -> None:
    diverged = {"finished": False, "diverged": {"round": 9}}
    text = answer([method("A", {0: 0.5}), method("B", {0: 0.99}, **diverged)])
    assert text == "A has a mean test accuracy of 50.00 %, after 50 rounds on 8 devices (1 seed)."
    assert answer([method("A", {0: float("nan")})]) == "Nothing has been measured yet."
