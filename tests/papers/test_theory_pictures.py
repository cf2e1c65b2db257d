"""The theory at the tiny scale: values of its tables, and that the figures are written."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from support.command import gossamer
from support.listing import column

import gossamer as gs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from papers.wpm import lemma1, plain_step, slips, theorem1  # noqa: E402
from papers.wpm.paper import Scale  # noqa: E402

# The parts of the command that this module runs at the tiny scale, with the others in
# test_reproduce.py.
THEORY = {"lemma1": lemma1, "theorem1": theorem1, "slips": slips, "plain_step": plain_step}


def made(name: str, out: Path) -> list[dict[str, str]]:
    """Return the rows that a part writes, after checking that all its files exist."""
    assert THEORY[name].TITLE
    assert THEORY[name].cells(Scale()) == []
    done = gossamer("reproduce", "wpm", name, "--tiny", "--out", out)
    assert done.code == 0, done.err
    files = sorted(Path(line.removeprefix(f"{name}: ")) for line in done.out.splitlines())
    assert sorted([*files, out / "made.json"]) == sorted(out.iterdir())
    assert all(file.stat().st_size > 100 for file in files)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files if file.suffix == ".png")
    with next(file for file in files if file.suffix == ".csv").open() as file:
        return list(csv.DictReader(file))


def test_lemma1(tmp_path: Path) -> None:
    rows = made("lemma1", tmp_path)
    assert set(column(rows, "p")) == {"1", "3", "5", "15"}
    for row in rows:
        measured = float(row["measured"])
        corrected = float(row["corrected"])
        spectral = float(row["spectral"])
        assert 0 < measured < spectral < corrected
        assert float(row["printed"]) < corrected
        assert float(row["looseness"]) == pytest.approx(corrected / measured, rel=1e-4)


def test_theorem1(tmp_path: Path) -> None:
    rows = made("theorem1", tmp_path)
    assert set(column(rows, "p")) == {"1", "3", "5", "15"}
    for row in rows:
        hindsight = float(row["hindsight"])
        measured = float(row["measured"])
        corrected = float(row["corrected"])
        assert 0 < hindsight < measured < corrected
        assert float(row["looseness"]) == pytest.approx(corrected / measured, rel=1e-4)


def test_slips(tmp_path: Path) -> None:
    rows = made("slips", tmp_path)
    assert [(row["printed_holds"], row["corrected_holds"]) for row in rows] == [("no", "yes")] * 5
    numbers = []
    for row in rows:
        numbers.append(
            tuple(round(float(row[name]), 1) for name in ("measured", "printed", "corrected"))
        )
    assert numbers == [
        (0.0, 2.0, 2.0),
        (2.0, 4.0, 2.0),
        (3.4, 2.3, 23.5),
        (2.4, 2.3, 16.5),
        (3.7, 3.6, 33.9),
    ]


@pytest.mark.parametrize("p", [1, 3, 15])
def test_the_runs_are_those_of_the_analysis(p: float) -> None:
    """Compare with a plain loop of Y⁺ = P·(Y - η·g); no gradient is larger than G."""
    eta = 0.01

    def power(w: np.ndarray, c: float) -> np.ndarray:
        return np.copysign(np.abs(w) ** c, w)

    data = lemma1.PROBLEM.load()
    x = data.x.double().numpy().reshape(10, 50, 20)
    y = data.y.numpy().reshape(10, 50)
    models, means = lemma1.run(p, eta, rounds=5)
    dual = power(models[0], p)
    for t in range(5):
        w = power(dual, 1 / p)
        g = np.stack([x[i].T @ (1 / (1 + np.exp(-x[i] @ w[i])) - y[i]) / 50 for i in range(10)])
        assert np.linalg.norm(g, axis=1).max() < lemma1.lipschitz()
        dual = gs.metropolis(lemma1.NETWORK.links(t)).dense() @ (dual - eta * g)
        # Compare in the dual, where rounding errors are not amplified by the root.
        np.testing.assert_allclose(power(models[t + 1], p), dual, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(power(means[t + 1], p), dual.mean(axis=0), rtol=1e-9, atol=1e-12)


def test_mixing_constants_bound_the_products_of_the_weights() -> None:
    product = np.eye(10)
    for t in range(12):
        product = gs.metropolis(lemma1.NETWORK.links(t)).dense() @ product
        for mixing in (lemma1.assumed_mixing(12), lemma1.spectral_mixing(12)):
            assert np.abs(product - 0.1).max() <= mixing.theta * mixing.kappa ** (t + 1)


def test_plain_step(tmp_path: Path) -> None:
    """A start below 0 ends at −3.88·η, far from the optimum; any other ends near it."""
    rows = made("plain_step", tmp_path)
    for row in rows:
        assert row["stable"] == "yes"
    for row in rows:
        eta = float(row["eta"])
        if float(row["start"]) < 0:
            assert float(row["end_over_eta"]) == pytest.approx(-3.884, abs=20 * eta)
        else:
            assert float(row["distance_to_optimum"]) == pytest.approx(4 * eta, rel=0.3)
