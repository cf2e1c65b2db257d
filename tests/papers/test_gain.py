"""papers/gain: formulas on quadratics against naive iterations and mpmath; the comparison."""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gs

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from papers.gain import forms, quadratic, verdict  # noqa: E402
from papers.gain.paper import TINY  # noqa: E402
from papers.gain.quadratic import FloatArray, Form  # noqa: E402

TAU = np.linspace(0.2, 12, 25)


def devices(form: Form, h: float, rounds: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Run six devices on a ring, one after the other.

    Returns the weights, the devices' optima and their models x' after the last round.
    """
    m = 6
    weights = gs.metropolis(gs.Ring(m).links(0)).dense()
    optima = np.array([3.0, -1.0, 0.5, 2.0, -2.0, 1.0])
    w = [0.0] * m
    v = [0.0] * m
    x = [0.0] * m
    for t in range(rounds):
        for i in range(m):
            mean = sum(weights[i, j] * w[j] for j in range(m))
            x[i] = mean + form.gain(t) * (mean - v[i])
            v[i] += form.follow(t) * (x[i] - v[i])
        for i in range(m):
            w[i] = x[i] - h * (x[i] - optima[i])
    return weights, optima, np.array(x)


def limit(weights: FloatArray, optima: FloatArray, h: float, gain: float) -> FloatArray:
    """Return x' by the formula of the limit, eigenvector by eigenvector."""
    rho, vectors = np.linalg.eigh(weights)
    factors = np.array([quadratic.constant_gain_limit(gain, h, each) for each in rho])
    return vectors @ (factors * (vectors.T @ optima))


@settings(max_examples=15)
@given(st.floats(1, 1.05), st.floats(0.1, 0.9))
def test_a_constant_gain_moves_mean_and_disagreement(gain: float, h: float) -> None:
    weights, optima, x = devices(quadratic.constant(gain), h, 300)
    np.testing.assert_allclose(x, limit(weights, optima, h, gain), rtol=1e-6, atol=1e-9)
    overshoot = (1 - 1 / gain) / (h - (1 - 1 / gain))
    assert quadratic.constant_gain_limit(gain, h) == pytest.approx(1 + overshoot)


def test_a_constant_gain_diverges_where_the_curvature_is_small() -> None:
    assert math.isinf(quadratic.constant_gain_limit(1.05, 0.04))  # 1 − 1/1.05 = 0.0476
    assert abs(quadratic.path(quadratic.constant(1.05), 0.04, 2000)[-1]) > 1e3
    assert math.isfinite(quadratic.constant_gain_limit(1.05, 0.05))


@pytest.mark.parametrize("lead", [1, 2, 3])
def test_a_fading_gain_has_the_fixed_point_of_no_gain(lead: int) -> None:
    """The distance to it falls as t^−(n+1)."""
    weights, optima, x = devices(quadratic.fading(lead), 0.3, 400)
    fixed = limit(weights, optima, 0.3, 1.0)
    near = np.abs(x - fixed).max()
    assert near < 300 * 400.0 ** -(lead + 1)
    _, _, later = devices(quadratic.fading(lead), 0.3, 800)
    assert np.abs(later - fixed).max() == pytest.approx(near / 2 ** (lead + 1), rel=0.2)


@pytest.mark.parametrize("c", [0.0, 0.3, 0.5])
def test_the_displacement_under_a_harmonic_gain(c: float) -> None:
    """Against mpmath's integral of u' = c·u/τ + 1 − u, and against the iteration."""
    found = quadratic.harmonic_displacement(c, TAU)
    for tau, value in zip(TAU[::6], found[::6], strict=True):
        integral = mpmath.quad(lambda s: s**-c * mpmath.exp(s), [0, tau])
        assert value == pytest.approx(float(tau**c * mpmath.exp(-tau) * integral), rel=1e-6)
    # Its bias: c/τ of the distance.
    late = quadratic.harmonic_displacement(c, np.array([50.0]))[0]
    assert late - 1 == pytest.approx(c / 50, rel=0.1, abs=1e-9)
    assert worst(quadratic.harmonic(c), found) < 0.02


def worst(form: Form, displacement: FloatArray) -> float:
    """Return the largest distance of a formula from the iteration with a small η·λ."""
    h = 1e-4
    at = np.rint(TAU / h).astype(int)
    return float(np.abs(quadratic.path(form, h, at[-1] + 1)[at] - displacement).max())


def test_the_first_rounds_amplify_errors_only_at_large_rates() -> None:
    for lead in (1, 2, 3):
        for h in (0.01, 0.1, 0.3, 0.5):
            assert np.abs(1 - quadratic.path(quadratic.fading(lead), h, 500)).max() <= 1
        steep = np.abs(1 - quadratic.path(quadratic.fading(lead), 1.9, 3000))
        assert steep.max() > 3**lead
        assert steep[-1] < 1e-3  # stable in the end


def laguerre_function(n: int, s: mpmath.mpf) -> mpmath.mpf:
    """Return e^(−s)·L_n(s), by the sum that defines L_n."""
    terms = [math.comb(n, k) * (-s) ** k / math.factorial(k) for k in range(n + 1)]
    return mpmath.exp(-s) * mpmath.fsum(terms)


@pytest.mark.parametrize("lead", [0, 1, 2, 3, 5])
def test_the_error_of_a_fading_gain_is_a_laguerre_function(lead: int) -> None:
    found = quadratic.fading_error(lead, TAU)
    for tau, value in zip(TAU, found, strict=True):
        assert value == pytest.approx(float(laguerre_function(lead, mpmath.mpf(tau))), abs=1e-12)
    assert (np.abs(found) <= np.exp(-TAU / 2)).all()
    assert worst(quadratic.fading(lead), 1 - found) < 0.02
    slope = (1 - quadratic.fading_error(lead, np.array([1e-6]))[0]) / 1e-6
    assert slope == pytest.approx(1 + lead, rel=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_error_of_a_fading_gain_solves_its_equations(n: int) -> None:
    """v' = n·(e − v)/τ and e' = n·(e − v)/τ − e for errors e of x and v of the running mean."""

    def error(s: mpmath.mpf) -> mpmath.mpf:
        return laguerre_function(n, s)

    def mean(s: mpmath.mpf) -> mpmath.mpf:
        return laguerre_function(n - 1, s)

    for tau in map(mpmath.mpf, (0.1, 1, 4, 9)):
        pull = n * (error(tau) - mean(tau)) / tau
        assert mpmath.almosteq(mpmath.diff(mean, tau), pull, 1e-6, 1e-9)
        assert mpmath.almosteq(mpmath.diff(error, tau), pull - error(tau), 1e-6, 1e-9)
        found = quadratic.fading_error(n, np.array([float(tau)]))[0]
        assert found == pytest.approx(float(error(tau)), abs=1e-12)


def test_the_method_follows_the_formula() -> None:
    """`FadingGain` in the simulator, on one quadratic for all devices."""
    problem = gs.LeastSquares(4, 3, samples=40, heterogeneity=0.0, noise=0.0)
    task = gs.Task(problem.load(), problem.split(), gs.LinearRegression(), 0)
    x = problem.load().x.double().numpy()
    h = 0.002
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    rounds = 1500
    plan = gs.Plan(task, gs.Ring(4), gs.FadingGain(h), rounds, dtype="float64")
    simulator = gs.Simulator(plan)
    start = simulator.models().mean(0).numpy() @ vectors
    best = np.linalg.lstsq(x, problem.load().y.double().numpy(), rcond=None)[0] @ vectors
    simulator.advance(rounds)
    error = (simulator.models().mean(0).numpy() @ vectors - best) / (start - best)
    np.testing.assert_allclose(error, quadratic.fading_error(3, h * values * rounds), atol=0.02)


def test_the_theory_is_made(tmp_path: Path) -> None:
    for path in forms.make(TINY, None, tmp_path):
        assert path.stat().st_size > 100
    with (tmp_path / "forms.csv").open() as file:
        rows = {row["form"]: row for row in csv.DictReader(file)}
    fading = rows["fading gain, n = 3"]
    faster = rows["no gain, four times the rate"]
    assert fading["rounds_to_half"] == faster["rounds_to_half"]
    assert float(fading["largest_disagreement"]) < 0.5 * float(faster["largest_disagreement"])


def field_rows(costs: dict[str, list[str]]) -> list[dict[str, object]]:
    """Return rows of papers/field: methods with megabytes per seed."""
    rows = []
    for method, values in costs.items():
        for seed, value in enumerate(values):
            row: dict[str, object] = {"task": "digits, MLP", "split": "iid", "network": "ring"}
            row |= {"devices": 20, "method": method, "seed": seed}
            rows.append(row | {"megabytes_to_0.9": "1", "megabytes_to_0.95": value})
    return rows


def test_the_verdict_counts_seeds_and_never_a_missed_target(tmp_path: Path) -> None:
    rows = field_rows(
        {
            "fading-gain": ["1", "1", "1", "2", ""],
            "d-psgd": ["2", "2", "", "4", ""],
            "quasi-global": ["1", "1", "1", "1", "1"],
            "momentum": ["0.5", "0.5", "0.5", "0.5", "9"],
        }
    )
    with (tmp_path / "digits.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    made = verdict.make(TINY, None, tmp_path / "out", tmp_path)
    files = ["verdict.csv", "counts.csv", "summary.csv", "verdict_digits.png"]
    assert [path.name for path in made] == files
    with made[0].open() as file:
        found = {(row["against"], row["target"]): row for row in csv.DictReader(file)}
    assert found["d-psgd", "0.95"]["verdict"] == "yes"  # cheaper on four seeds, both miss on one
    assert float(found["d-psgd", "0.95"]["ratio"]) == pytest.approx(0.5)
    assert found["quasi-global", "0.95"]["verdict"] == "even"
    assert found["momentum", "0.95"]["verdict"] == "no"
    assert found["d-psgd", "0.9"]["verdict"] == "even"
    with made[2].open() as file:
        shown = {row["against"]: row for row in csv.DictReader(file)}
    assert shown["d-psgd"]["digits"] == "1 / 0 / 0 (0.50)"
    assert shown["momentum"]["digits"] == "0 / 0 / 1 (2.38)"
    assert shown["d-psgd"]["data"] == "IID"


def test_a_run_that_diverged_reaches_no_target(tmp_path: Path) -> None:
    """Also if the file says what it reached before."""
    rows = [row | {"diverged": row["seed"] == 1} for row in field_rows({"d-psgd": ["1", "2"]})]
    with (tmp_path / "digits.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (found,) = [v for key, v in verdict.costs(tmp_path / "digits.csv").items() if key[2] == "0.95"]
    assert found == {"0": 1.0, "1": math.inf}


def test_without_results_of_the_field_the_verdict_is_empty(tmp_path: Path) -> None:
    made = verdict.make(TINY, None, tmp_path, tmp_path / "none")
    assert [path.name for path in made] == ["verdict.csv", "counts.csv", "summary.csv"]
