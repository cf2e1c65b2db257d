"""The curves on the pages of the methods: they are those of the results, and are drawn again."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gossamer as gs
from gossamer.algorithms import METHODS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from papers.field.advice import RESULTS  # noqa: E402
from papers.field.compare import load  # noqa: E402
from papers.field.curves import SEEDS, curves, pairs, picture, points, tuned  # noqa: E402

# The last digits of a run depend on the processor.
TOLERANCE = 0.03


def test_every_method_has_a_curve() -> None:
    """But ADOM, which learns least squares only."""
    assert {method for method, *_ in curves()} == METHODS.keys() - {"adom"}
    assert {(method, cell.split, cell.network) for method, cell in pairs()} == curves().keys()


def test_a_curve_ends_where_the_results_do() -> None:
    """With the settings of the results, on their first seeds."""
    measured = load(RESULTS)
    compared = 0
    for method, cell in pairs():
        row = curves()[method, cell.split, cell.network]
        assert row["setting"] == tuned(method, cell)[0]
        if (runs := measured.runs.get((cell, method))) is not None:
            ends = [float(runs[seed]["accuracy"]) for seed in range(SEEDS)]
            assert points(row)[-1][1] == pytest.approx(sum(ends) / SEEDS, abs=TOLERANCE)
            compared += 1
    assert compared > 60


@pytest.mark.slow
def test_a_curve_begins_as_a_run_does() -> None:
    """That of quasi-global momentum; ten rounds."""
    for method, cell in pairs():
        if method != "quasi-global" or cell.split != "iid":
            continue
        study = tuned(method, cell)[1]
        means = []
        for seed in range(SEEDS):
            table = gs.run(replace(cell.study(study, seed), rounds=10)).metrics
            means.append(table["accuracy"][-1])
        (wanted,) = (y for t, y in points(curves()[method, cell.split, cell.network]) if t == 10)
        assert sum(means) / SEEDS == pytest.approx(wanted, abs=TOLERANCE)


@pytest.mark.parametrize("method", ["wpm", "extra", "d-psgd"])
def test_a_picture_has_both_methods_by_name(method: str) -> None:
    shown = picture(method)
    assert shown.count('<path d="M') == 2 * (3 + (1 if method == "d-psgd" else 2))
    assert f">{METHODS[method].label}</text>" in shown
    assert ">D-PSGD</text>" in shown
