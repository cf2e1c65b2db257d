"""Compare every step rule with its formula, evaluated per element in mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mpf
from torch import Tensor

from gossamer import draws
from gossamer.algorithms import Constant, Matched, Power, Ratio, Safe
from gossamer.algorithms.steps import StepRule
from gossamer.errors import InputError
from gossamer.mirror import power_map

DTYPES = st.sampled_from([torch.float32, torch.float64])
POWERS = st.one_of(st.sampled_from([1, 2, 3, 2.5, 15, 31, 101]), st.floats(1, 101)).map(float)
RULES: list[StepRule] = [Constant(), Power(), Matched(), Matched(1e-3), Safe(), Safe(0.1)]


pytestmark = pytest.mark.usefixtures("every_backend")


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mpmath.workdps(50):
        yield


def no_loss() -> Tensor:
    raise AssertionError("this rule has no use for the loss")


def signed(lowest: float, highest: float) -> st.SearchStrategy[float]:
    """Draw zero or a value of either sign with a magnitude from 10^lowest to 10^highest."""
    size = st.floats(lowest, highest).map(lambda exponent: 10.0**exponent)
    return st.one_of(size, size.map(lambda x: -x), st.just(0.0))


@st.composite
def points(
    draw: st.DrawFn, lowest: float = -8, dtypes: st.SearchStrategy[torch.dtype] = DTYPES
) -> tuple[Tensor, Tensor]:
    """Draw models w̄ and directions d, both of shape [devices, parameters]."""
    m = draw(st.integers(1, 3))
    n = draw(st.integers(1, 4))
    dtype = draw(dtypes)
    w = draw(st.lists(signed(lowest, 4), min_size=m * n, max_size=m * n))
    d = draw(st.lists(signed(-8, 3), min_size=m * n, max_size=m * n))
    return torch.tensor(w, dtype=dtype).reshape(m, n), torch.tensor(d, dtype=dtype).reshape(m, n)


ETAS = st.floats(-4, 0).map(lambda exponent: 10.0**exponent)


def power(x: mpf, c: float | mpf) -> mpf:
    return mpmath.sign(x) * mpmath.power(abs(x), mpf(c)) if x else mpf(0)


def exact_rate(rule: StepRule, w: mpf, eta: mpf, p: mpf) -> mpf:
    """Return the rate of a coordinate as DESIGN.md defines it."""
    match rule:
        case Matched(floor):
            return eta * p * max(abs(w), mpf(floor)) ** (p - 1)
        case Power():
            return eta ** (1 + p / 2)
        case Constant():
            return eta
    raise AssertionError(rule)


def eps(x: Tensor) -> float:
    return torch.finfo(x.dtype).eps


def near(got: float, exact: mpf, size: mpf, p: float, eps: float) -> bool:
    """True if |got^[p] − exact| <= 8·p·eps·size, the accuracy of the power mean in the dual.

    `size` is the sum of the absolute values of the terms.
    """
    return bool(abs(power(mpf(got), p) - exact) <= 8 * p * eps * size)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.no_cover
@given(points(), ETAS, POWERS)
@settings(max_examples=120)
# A zero direction leaves the model unchanged.
@example((torch.tensor([[1e-8, 0.0]]), torch.tensor([[0.0, 0.0]])), 0.01, 101.0)
@example((torch.tensor([[1e4, -1e4]]), torch.tensor([[1e3, 1e3]])), 1.0, 101.0)
@example((torch.tensor([[1e-8, -1e-8]]).double(), torch.tensor([[1e3, 1e3]]).double()), 1.0, 101.0)
def test_step_rule_matches_formula(
    rule: StepRule, point: tuple[Tensor, Tensor], eta: float, p: float
) -> None:
    """w⁺ = (w̄^[p] − rate·d)^[1/p]; `Safe` uses w̄ − η·d where that changes the sign."""
    w, d = point
    check_step(rule, rule(w.clone(), d.clone(), eta, power_map(p), no_loss), w, d, eta, p)


def check_step(rule: StepRule, result: Tensor, w: Tensor, d: Tensor, eta: float, p: float) -> None:
    """Raise AssertionError unless the result matches the formula to the accuracy of the dual."""
    assert result.dtype == w.dtype
    assert result.isfinite().all()
    for got, w_i, d_i in zip(*(x.flatten().tolist() for x in (result, w, d)), strict=True):
        x = mpf(w_i)
        g = mpf(d_i)
        step = mpf(eta) * mpf(d_i)
        term = exact_rate(rule, x, mpf(eta), mpf(p)) * g
        exact = power(x, p) - term
        size = abs(power(x, p)) + abs(term)
        by_the_mirror = near(got, exact, size, p, eps(w))
        if isinstance(rule, Safe) and p > 1:
            by_the_gradient = abs(mpf(got) - (x - step)) <= 2 * eps(w) * (abs(x) + abs(step))
            # Below this bound, rounding decides the sign of the result.
            if abs(exact) > 8 * p * eps(w) * size:
                assert by_the_mirror if exact * x > 0 else by_the_gradient
            else:
                assert by_the_mirror or by_the_gradient
        else:
            assert by_the_mirror


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(points(), ETAS)
@settings(max_examples=30)
def test_eta_per_device(rule: StepRule, point: tuple[Tensor, Tensor], eta: float) -> None:
    """An η of shape [devices, 1] sets the rate per device."""
    w, d = point
    etas = torch.tensor([[eta * (i + 1)] for i in range(len(w))], dtype=w.dtype)
    for p in (1.0, 3.0):
        result = rule(w.clone(), d, etas, power_map(p), no_loss)
        for i in range(len(w)):
            check_step(rule, result[i], w[i], d[i], etas[i].item(), p)


@pytest.mark.parametrize("rule", [Constant(), Matched(), Safe()], ids=repr)
@given(points(), ETAS)
@settings(max_examples=50)
def test_p_1_equals_plain_step_bitwise(
    rule: StepRule, point: tuple[Tensor, Tensor], eta: float
) -> None:
    """At p = 1 the rules equal w̄ − η·d bit for bit, with a scalar η and with one per device."""
    w, d = point
    assert torch.equal(rule(w.clone(), d, eta, power_map(1.0), no_loss), torch.sub(w, d, alpha=eta))
    etas = torch.full((len(w), 1), eta, dtype=w.dtype)
    assert torch.equal(rule(w.clone(), d, etas, power_map(1.0), no_loss), w - etas * d)


@given(points(), ETAS)
@settings(max_examples=30)
def test_power_rule_at_p_1(point: tuple[Tensor, Tensor], eta: float) -> None:
    """At p = 1 the rate is η₀^1.5; η₀ = 0.01 gives 0.001, both as printed in the paper."""
    w, d = point
    assert torch.equal(
        Power()(w.clone(), d, eta, power_map(1.0), no_loss), torch.sub(w, d, alpha=eta**1.5)
    )
    assert Power().rate(0.01, 1) == pytest.approx(0.001, rel=1e-14)


@pytest.mark.slow
@given(points(), ETAS, POWERS)
@settings(max_examples=200)
def test_safe_keeps_signs_that_the_plain_step_keeps(
    point: tuple[Tensor, Tensor], eta: float, p: float
) -> None:
    """`Safe` changes a sign only where the plain step w̄ − η·d changes it too."""
    w, d = point
    plain = torch.sub(w, d, alpha=eta) if p == 1 else w - eta * d
    result = Safe()(w.clone(), d, eta, power_map(p), no_loss)
    changed = (result * w.sign() < 0) | ((result == 0) & (w != 0))
    assert ((plain * w.sign() <= 0) | ~changed).all()


@given(st.floats(-2, 4), st.floats(-3, -0.5), st.booleans(), st.booleans(), POWERS)
@settings(max_examples=200)
def test_matched_equals_plain_step_to_first_order(
    size: float, share: float, up: bool, positive: bool, p: float
) -> None:
    """Above the floor and for η·p·|d| ≪ |w̄|, w⁺ differs from w̄ − η·d by a second-order term.

    The term is (p − 1)/2·(η·d)²/|w̄|.
    """
    w = torch.tensor([[10.0**size if positive else -(10.0**size)]], dtype=torch.float64)
    d = (w.abs() / p) * 10.0**share * (1 if up else -1)
    result = Matched(1e-2)(w.clone(), d, 1.0, power_map(p), no_loss)
    plain = w - d
    second = (p - 1) / 2 * d.square() / w.abs()
    assert ((result - plain).abs() <= 2 * second + 20 * eps(w) * w.abs()).all()
    assert ((result - plain).abs() >= 0.5 * second - 20 * eps(w) * w.abs()).all()


@given(points(), ETAS, st.sampled_from([1.0, 2.5, 3.0, 15.0]))
@settings(max_examples=100)
def test_ratio_norm_matches_formula(point: tuple[Tensor, Tensor], eta: float, p: float) -> None:
    """rate = η·‖w̄^[p]‖/‖d‖, one value per device."""
    w, d = point
    result = Ratio("norm")(w.clone(), d.clone(), eta, power_map(p), no_loss)
    assert result.isfinite().all()
    for got, w_i, d_i in zip(*(x.tolist() for x in (result, w, d)), strict=True):
        z = [power(mpf(x), p) for x in w_i]
        g = [mpf(x) for x in d_i]
        rate = mpf(eta) * mpmath.norm(z) / mpmath.norm(g) if any(g) else mpf(0)
        for got_j, z_j, g_j in zip(got, z, g, strict=True):
            assert near(got_j, z_j - rate * g_j, abs(z_j) + abs(rate * g_j), p, eps(w))


@given(points(), ETAS, POWERS, st.floats(-3, 1))
@settings(max_examples=100)
def test_ratio_printed_matches_formula(
    point: tuple[Tensor, Tensor], eta: float, p: float, size: float
) -> None:
    """rate = η·|w̄^[p]|/|f(w̄)|, where f is the batch loss of the device at the aggregate."""
    w, d = point
    f = torch.tensor([10.0**size * (i + 1) for i in range(len(w))], dtype=w.dtype)
    result = Ratio("printed")(w.clone(), d.clone(), eta, power_map(p), lambda: f)
    assert result.isfinite().all()
    for got, w_i, d_i, f_i in zip(*(x.tolist() for x in (result, w, d, f)), strict=True):
        for got_j, x, g in zip(got, map(mpf, w_i), map(mpf, d_i), strict=True):
            term = mpf(eta) * abs(power(x, p)) / abs(mpf(f_i)) * g
            assert near(got_j, power(x, p) - term, abs(power(x, p)) + abs(term), p, eps(w))


EXTREMES = [0.0, 1e-38, 1e-30, 1e-8, 1e-3, 1.0, 1e4, 1e8]


@pytest.mark.parametrize("rule", [*RULES, Ratio("norm"), Ratio("printed")], ids=repr)
@pytest.mark.parametrize("p", [1.0, 1.5, 3.0, 15.0, 101.0, 1001.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_magnitudes_give_finite_results(
    rule: StepRule, p: float, dtype: torch.dtype
) -> None:
    """One model holds every pair of extreme weight and direction, in both signs."""
    values = torch.tensor(EXTREMES, dtype=dtype)
    w = torch.cat([values, -values])
    grid = torch.cartesian_prod(w, w)
    result = rule(
        grid[:, :1].T.clone(),
        grid[:, 1:].T.clone(),
        0.1,
        power_map(p),
        lambda: torch.ones(1, dtype=dtype),
    )
    assert result.isfinite().all()


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("p", [1.0, 3.0, 101.0])
def test_nan_propagates(rule: StepRule, p: float) -> None:
    """NaN in a weight or a direction gives NaN in that coordinate and in no other."""
    w = torch.tensor([[math.nan, 1.0, 1.0]])
    d = torch.tensor([[1.0, math.nan, 1.0]])
    assert rule(w, d, 0.01, power_map(p), no_loss).isnan().tolist() == [[True, True, False]]


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("p", [1.5, 2.0, 2.5, 3.0, 5.0, 9.0, 15.0])
def test_float32_matches_float64_formula(rule: StepRule, p: float) -> None:
    """Compare 100,000 float32 steps with the formula in float64.

    The large sample covers rounding errors that few examples miss.
    """
    n = np.arange(100_000)
    w = torch.from_numpy(
        10 ** (12 * draws.uniform(0, "w", n) - 8) * np.sign(draws.normal(0, "sign", n))
    ).float()
    d = torch.from_numpy(
        10 ** (9 * draws.uniform(0, "d", n) - 7)
        * draws.normal(0, "d", n)
        * (draws.uniform(0, "some", n) < 0.7)
    ).float()
    result = rule(w[None].clone(), d[None].clone(), 0.01, power_map(p), no_loss)[0]
    x = w.double()
    g = d.double()
    if isinstance(rule, Matched):
        term = 0.01 * p * x.abs().clamp_min(rule.floor) ** (p - 1) * g
    else:
        term = (0.01 ** (1 + p / 2) if isinstance(rule, Power) else 0.01) * g
    z = x.abs() ** p * x.sign()
    size = z.abs() + term.abs()
    bound = 8 * p * eps(w)
    good = (result.double().abs() ** p * result.sign() - (z - term)).abs() <= bound * size
    if isinstance(rule, Safe):
        plain = (result - (x - 0.01 * g)).abs() <= 2 * eps(w) * (x.abs() + 0.01 * g.abs())
        kept = (z - term) * x > 0
        unsure = (z - term).abs() <= bound * size
        good = torch.where(unsure, good | plain, torch.where(kept, good, plain))
    assert good.all()


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_step_across_blocks(rule: StepRule) -> None:
    """Steps are computed in blocks of elements; the step matches its formula in every block."""
    w = torch.linspace(-2, 2, 150_001, dtype=torch.float64)[None]
    d = torch.linspace(3, -1, 150_001, dtype=torch.float64)[None]
    some = torch.tensor([0, 1, 65_535, 65_536, 75_000, 131_072, 150_000])
    result = rule(w.clone(), d, 0.01, power_map(3.0), no_loss)
    check_step(rule, result[:, some], w[:, some], d[:, some], 0.01, 3.0)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Matched(0), "floor"),
        (lambda: Safe(-1.0), "floor"),
        (lambda: Safe(math.nan), "floor"),
        (lambda: Matched(math.inf), "floor"),
        (lambda: Ratio("mean"), "form"),
    ],
)
def test_invalid_arguments_raise(make: Callable[[], StepRule], field: str) -> None:
    """An invalid argument raises InputError that names the field."""
    with pytest.raises(InputError) as refusal:
        make()
    assert refusal.value.field == field
