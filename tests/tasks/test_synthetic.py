from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from gossamer.errors import InputError
from gossamer.tasks.synthetic import LeastSquares, Logistic

PROBLEMS = [
    LeastSquares(devices=4),
    LeastSquares(devices=3, dimension=7, samples=5, noise=2.0, heterogeneity=0.0, seed=9),
    Logistic(devices=4),
    Logistic(devices=5, dimension=3, samples=40, heterogeneity=3.0, regularisation=1e-4, seed=2),
    Logistic(
        devices=2, dimension=30, samples=10, regularisation=1e-6
    ),  # separable: the optimum is large
]


def naive_loss(problem: LeastSquares | Logistic, w: np.ndarray) -> float:
    """Return the mean over devices of their mean losses, computed from `load` and `split`."""
    data = problem.load()
    split = problem.split()
    x = data.x.numpy().astype(np.float64)
    y = data.y.numpy().astype(np.float64)
    losses = []
    for device in range(split.devices):
        of = split.of(device)
        margin = x[of] @ w
        if isinstance(problem, LeastSquares):
            losses.append(np.mean(0.5 * (margin - y[of]) ** 2))
        else:
            s = 2 * y[of] - 1
            losses.append(
                np.mean(np.log1p(np.exp(-s * margin))) + 0.5 * problem.regularisation * np.sum(w**2)
            )
    return float(np.mean(losses))


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_the_loss_is_the_mean_over_devices(problem):
    w = np.linspace(-1, 1, problem.dimension)
    assert problem.loss(w) == pytest.approx(naive_loss(problem, w), rel=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_scipy_finds_nothing_better_than_the_optimum(problem):
    w = problem.optimum()
    assert w.shape == (problem.dimension,)
    found = minimize(
        lambda v: naive_loss(problem, v),
        np.zeros(problem.dimension),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    assert problem.loss(w) <= found.fun + 1e-12
    if problem.strong_convexity() > 1e-3:
        assert np.abs(w - found.x).max() < 1e-4  # BFGS stops at the noise of its finite differences


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_the_gradient_at_the_optimum_vanishes(problem):
    w = problem.optimum()
    x = problem.load().x.numpy().astype(np.float64)
    y = problem.load().y.numpy().astype(np.float64)
    if isinstance(problem, LeastSquares):
        gradient = x.T @ (x @ w - y) / len(x)
    else:
        s = 2 * y - 1
        gradient = -x.T @ (s / (1 + np.exp(s * (x @ w)))) / len(x) + problem.regularisation * w
    assert np.abs(gradient).max() < 1e-14


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_curvature_lies_between_the_constants(problem):
    low = problem.strong_convexity()
    high = problem.smoothness()
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.normal(size=(2, problem.dimension))
        # μ/8‖a-b‖² ≤ (f(a)+f(b))/2 - f((a+b)/2) ≤ L/8‖a-b‖², the midpoint form of both
        gap = (problem.loss(a) + problem.loss(b)) / 2 - problem.loss((a + b) / 2)
        square = np.sum((a - b) ** 2) / 8
        assert low * square * (1 - 1e-9) <= gap + 1e-14
        assert gap <= high * square * (1 + 1e-9)


def test_the_constants_of_least_squares_are_exact():
    problem: Any = PROBLEMS[0]
    x = problem.load().x.numpy().astype(np.float64)
    singular = np.linalg.svd(x, compute_uv=False) ** 2 / len(x)
    assert problem.smoothness() == pytest.approx(singular[0])
    assert problem.strong_convexity() == pytest.approx(singular[-1])


def test_fewer_samples_than_dimensions_still_has_an_optimum():
    problem = LeastSquares(devices=2, dimension=9, samples=2)
    assert problem.strong_convexity() < 1e-12
    assert problem.loss(problem.optimum()) < 1e-20


def test_heterogeneity_separates_the_devices():
    def spread(heterogeneity: float) -> float:
        problem = LeastSquares(devices=6, samples=200, noise=0.0, heterogeneity=heterogeneity)
        data = problem.load()
        split = problem.split()
        x = data.x.numpy().astype(np.float64)
        y = data.y.numpy().astype(np.float64)
        own = []
        for i in range(6):
            own.append(np.linalg.lstsq(x[split.of(i)], y[split.of(i)], rcond=None)[0])
        return float(np.std(own, axis=0).max())

    assert spread(0.0) < 1e-6  # float32 data
    assert spread(2.0) == pytest.approx(2 * spread(1.0), rel=1e-4)


@pytest.mark.parametrize("make", [LeastSquares, Logistic])
def test_data_and_split_belong_together(make):
    problem = make(devices=3, dimension=5, samples=11, seed=1)
    data = problem.load()
    split = problem.split()
    assert data.x.shape == (33, 5)
    assert len(data.y) == 33
    assert split.sizes.tolist() == [11, 11, 11]
    assert data.x_test is data.x
    assert data.classes == (None if make is LeastSquares else 2)
    assert data.y.is_floating_point() == (make is LeastSquares)
    again = make(devices=3, dimension=5, samples=11, seed=1)
    other = make(devices=3, dimension=5, samples=11, seed=2)
    assert again.load().x.equal(data.x)
    assert again.load().y.equal(data.y)
    assert not other.load().x.equal(data.x)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: LeastSquares(devices=0), "devices"),
        (lambda: LeastSquares(devices=1, dimension=0), "dimension"),
        (lambda: Logistic(devices=1, samples=0), "samples"),
        (lambda: LeastSquares(devices=10**6, samples=10**6), "samples"),
        (lambda: LeastSquares(devices=1, noise=-1.0), "noise"),
        (lambda: Logistic(devices=1, heterogeneity=float("nan")), "heterogeneity"),
        (lambda: Logistic(devices=1, regularisation=0.0), "regularisation"),
        (lambda: Logistic(devices=1, regularisation=float("inf")), "regularisation"),
    ],
)
def test_bad_values_are_refused_by_name(make, field):
    with pytest.raises(InputError) as refusal:
        make()
    assert refusal.value.field == field
