"""The mirror map against mpmath: every p from 1 to 101, weights from 1e-8 to 1e4 mixed freely, both
types.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mpf
from torch import Tensor

from gossamer import draws
from gossamer.errors import InputError
from gossamer.mirror import PowerMap, bregman, power_mean, signed_power

DTYPES = st.sampled_from([torch.float32, torch.float64])
POWERS = st.one_of(st.sampled_from([1, 2, 3, 2.5, 15, 31, 101]), st.floats(1, 101))


@pytest.fixture(autouse=True)
def _digits() -> Any:
    """50 digits; mpmath's exponents have no end, so nothing under- or overflows in the oracle."""
    with mpmath.workdps(50):
        yield


def magnitudes(lowest: float = -8, highest: float = 4) -> st.SearchStrategy[float]:
    """±1e-8 … ±1e4, as likely at any order of magnitude, and both zeros."""
    size = st.floats(lowest, highest).map(lambda exponent: 10.0**exponent)
    return st.one_of(size, size.map(lambda x: -x), st.sampled_from([0.0, -0.0, 1.0, -1.0]))


def exact_power(x: float | mpf, c: float) -> mpf:
    """x^[c], without rounding error to speak of."""
    return mpmath.sign(x) * mpmath.power(abs(mpf(x)), mpf(c)) if x else mpf(0)


def eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


@st.composite
def neighbourhoods(draw: st.DrawFn, one_sign: bool = False) -> tuple[Tensor, Tensor]:
    """Models [k, n] and weights [k] of one type; the weights are what a float makes of shares that
    sum to 1.
    """
    k, n, dtype = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(DTYPES)
    values = draw(st.lists(magnitudes(), min_size=k * n, max_size=k * n))
    models = torch.tensor(values, dtype=dtype).reshape(k, n)
    shares = np.array(draw(st.lists(st.floats(0.01, 1) | st.just(0.0), min_size=k, max_size=k)))
    shares = shares / shares.sum() if shares.any() else np.full(k, 1 / k)
    return models.abs() if one_sign else models, torch.tensor(shares, dtype=dtype)


# The signed power


@given(
    st.lists(magnitudes(), min_size=1, max_size=6),
    st.floats(1e-3, 12) | st.sampled_from([1, 2, 3, 4, 7, 1 / 3, 0.5]),
    DTYPES,
)
@settings(max_examples=200)
def test_signed_power(values: list[float], c: float, dtype: torch.dtype) -> None:
    x = torch.tensor(values, dtype=dtype)
    kept = x.clone()
    result = signed_power(x, c)
    assert result.dtype == dtype
    assert torch.equal(x, kept)
    assert torch.equal(result.signbit(), x.signbit())  # zeros keep their sign too
    info = torch.finfo(dtype)
    for got, value in zip(result.tolist(), x.tolist(), strict=True):
        exact = exact_power(value, c)
        if abs(exact) > info.max:
            assert math.isinf(got)
        else:  # below the normal numbers a float is exact to its smallest number only
            assert (
                abs(got - exact)
                <= 2 * (c + 1) * info.eps * abs(exact) + 2 * info.smallest_normal * info.eps
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", [0.5, 1, 2, 2.5, 3, 15, 101, 2000, 2001])
def test_signed_power_at_the_ends(c: float, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0], dtype=dtype)
    result = signed_power(x, c)
    assert str(result.tolist()) == str([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0])
    assert result.data_ptr() != x.data_ptr()  # a new tensor, also where it equals x


@pytest.mark.parametrize("c", [0, -1, math.nan, math.inf])
def test_signed_power_refuses(c: float) -> None:
    with pytest.raises(InputError, match=r"^c = "):
        signed_power(torch.ones(2), c)


# The power mean


def check_mean(result: Tensor, models: Tensor, weights: Tensor, p: float) -> None:
    """|w̄^[p] − z̄| <= 8·p·eps·Σ a_j|z_j| per coordinate, and in the primal where signs agree.

    There Σ a_j|z_j| = |z̄|, and to first order an error of 8·p·eps·|z̄| in the dual is one of
    8·eps·|w̄| in the primal.
    """
    assert result.dtype == models.dtype
    assert result.isfinite().all()
    a, bound = weights.tolist(), 8 * eps(models.dtype)
    for got, column in zip(result.tolist(), models.T.tolist(), strict=True):
        terms = [mpf(share) * exact_power(w, p) for share, w in zip(a, column, strict=True)]
        exact, size = mpmath.fsum(terms), mpmath.fsum(terms, absolute=True)
        assert abs(exact_power(got, p) - exact) <= bound * p * size
        if abs(exact) == size:
            mean = exact_power(exact, 1 / mpf(p))
            assert abs(got - mean) <= bound * abs(mean)


@given(neighbourhoods(), POWERS)
@settings(max_examples=300)
@example((torch.tensor([[1e-8], [1e4]]), torch.tensor([0.5, 0.5])), 101)
@example((torch.tensor([[1e4], [-1e4]]), torch.tensor([0.5, 0.5])), 101)
@example(
    (
        torch.tensor([[1e-8], [-1e-8], [1e-8]], dtype=torch.float64),
        torch.tensor([0.25, 0.25, 0.5]).double(),
    ),
    101,
)
@example((torch.tensor([[0.0, -0.0], [-0.0, -0.0]]), torch.tensor([0.5, 0.5])), 3)
def test_power_mean(neighbourhood: tuple[Tensor, Tensor], p: float) -> None:
    models, weights = neighbourhood
    check_mean(power_mean(models, weights, p), models, weights, p)


@given(neighbourhoods(one_sign=True), POWERS)
@settings(max_examples=150)
def test_power_mean_of_one_sign(neighbourhood: tuple[Tensor, Tensor], p: float) -> None:
    """The primal bound, asked often; the mean lies between the smallest and the largest, and rises
    with p.
    """
    models, weights = neighbourhood
    weights = torch.where(weights == 0, 0.01, weights)
    weights = weights / weights.sum()
    result = power_mean(models, weights, p)
    check_mean(result, models, weights, p)
    room = 8 * eps(models.dtype)
    assert (result >= models.amin(0) * (1 - room)).all()
    assert (result <= models.amax(0) * (1 + room)).all()
    assert (power_mean(models, weights, p + 1) >= result * (1 - 2 * room)).all()


@given(neighbourhoods(), POWERS, st.data())
@settings(max_examples=60)
def test_several_means_at_once(
    neighbourhood: tuple[Tensor, Tensor], p: float, data: st.DataObject
) -> None:
    models, _ = neighbourhood
    n = data.draw(st.integers(0, 4))
    rows = data.draw(
        st.lists(st.floats(0.01, 1), min_size=n * len(models), max_size=n * len(models))
    )
    weights = torch.tensor(rows, dtype=data.draw(DTYPES)).reshape(n, len(models))
    result = power_mean(models, weights, p)
    assert result.shape == (n, models.shape[1])
    for row, a in zip(result, weights, strict=True):
        check_mean(row, models, a, p)


@given(magnitudes(), POWERS, DTYPES)
@settings(max_examples=100)
def test_a_device_alone_keeps_itself(value: float, p: float, dtype: torch.dtype) -> None:
    model = torch.tensor([[value, -value]], dtype=dtype)
    alone = power_mean(model, torch.ones(1, dtype=dtype), p)[None]
    assert ((alone - model).abs() <= 2 * eps(dtype) * model.abs()).all()


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=5),
    POWERS,
    DTYPES,
)
@settings(max_examples=100)
def test_always_finite(values: list[float], p: float, dtype: torch.dtype) -> None:
    """Any finite float, down to the subnormal ones and up to the largest."""
    models = torch.tensor(values, dtype=dtype)[:, None] * (
        1 - 1e-6
    )  # room for shares that sum to 1 + eps
    assert (
        power_mean(models, torch.full((len(values),), 1 / len(values), dtype=dtype), p)
        .isfinite()
        .all()
    )


@given(neighbourhoods(), POWERS, st.sampled_from([math.nan, math.inf, -math.inf]), st.data())
@settings(max_examples=100)
def test_no_silent_number(
    neighbourhood: tuple[Tensor, Tensor], p: float, wrong: float, data: st.DataObject
) -> None:
    """NaN and infinity come out of every coordinate that they go into with a weight, and of no
    other.
    """
    models, weights = neighbourhood
    j, coordinate = (
        data.draw(st.integers(0, len(models) - 1)),
        data.draw(st.integers(0, models.shape[1] - 1)),
    )
    sound = power_mean(models, weights, p)
    models[j, coordinate] = wrong
    result = power_mean(models, weights, p)
    touched = torch.zeros(models.shape[1], dtype=torch.bool)
    touched[coordinate] = bool(weights[j] != 0)
    assert not result[touched].isfinite().any()
    assert result[touched].isnan().all() or not math.isnan(wrong)
    assert torch.equal(result[~touched], sound[~touched])


def test_shapes() -> None:
    """Models of any shape and memory layout; a mean has the shape of one of them."""
    models, weights = torch.linspace(-1, 1, 60).reshape(3, 4, 5), torch.tensor([0.25, 0.25, 0.5])
    result = power_mean(models, weights, 3)
    assert result.shape == (4, 5)
    in_one_row = power_mean(models.reshape(3, 20), weights, 3)
    transposed = power_mean(models.transpose(1, 2), weights, 3)
    first = power_mean(models[:, 0, 0], weights, 3)
    assert in_one_row.shape == (20,)
    assert transposed.shape == (5, 4)
    assert first.shape == ()
    for mean in (result, in_one_row, transposed.T):
        check_mean(mean.flatten(), models.reshape(3, 20), weights, 3)
    check_mean(first[None], models[:, 0, :1], weights, 3)


def test_many_columns() -> None:
    """Columns are worked on in blocks: more than one block gives the same."""
    models = torch.from_numpy(draws.normal(0, "test", np.arange(3)[:, None], np.arange(50_000)))
    weights = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
    result = power_mean(models, weights, 3)
    naive = torch.einsum("k,kn->n", weights, models**3)
    size = torch.einsum("k,kn->n", weights, models.abs() ** 3)
    assert ((result**3 - naive).abs() <= 2 * 8 * 3 * eps(torch.float64) * size).all()


@pytest.mark.parametrize("p", [0, 0.999, -3, math.nan, math.inf, "3", None])
def test_p_is_refused(p: Any) -> None:
    models = torch.ones(2, 2)
    for attempt in (
        lambda: PowerMap(p),
        lambda: power_mean(models, torch.ones(2), p),
        lambda: bregman(models, models, p),
    ):
        with pytest.raises(InputError, match=r"^p = .* a number of at least 1"):
            attempt()


@pytest.mark.parametrize("shape", [(3,), (1,), (), (2, 3), (1, 2, 2)])
def test_weights_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"^weights = .* shape \[2\] or \[n, 2\]"):
        power_mean(torch.ones(2, 5), torch.ones(shape), 3)


def test_no_models_are_refused() -> None:
    with pytest.raises(InputError, match=r"^models = "):
        power_mean(torch.ones(0, 5), torch.ones(0), 3)


# The mirror map


@given(
    st.lists(magnitudes(), min_size=1, max_size=6),
    st.floats(1, 35) | st.sampled_from([1, 3, 15]),
    DTYPES,
)
@settings(max_examples=150)
def test_to_dual_and_back(values: list[float], p: float, dtype: torch.dtype) -> None:
    """Up to p = 35 float64 holds the dual of every weight from 1e-8 to 1e4."""
    mirror, w = PowerMap(p), torch.tensor(values, dtype=dtype)
    z = mirror.to_dual(w)
    assert mirror.fits(w).all()
    for got, value in zip(z.tolist(), w.tolist(), strict=True):
        assert abs(got - exact_power(value, p)) <= 2 * (p + 1) * eps(torch.float64) * abs(
            exact_power(value, p)
        )
    back = mirror.to_primal(z, dtype)
    assert back.dtype == dtype
    assert torch.equal(back.signbit(), w.signbit())
    # 8·eps is 8·p·eps in the dual. In float64 the exponent 1/p is itself rounded: that moves
    # z^(1/p) by up to |log w|·eps/2.
    room = 8 + (w.abs().log().abs() / 2 if dtype == torch.float64 else torch.zeros_like(w))
    assert ((back - w).abs() <= torch.where(w == 0, 0, room * eps(dtype) * w.abs())).all()


@given(st.lists(magnitudes(), min_size=1, max_size=6), DTYPES)
@settings(max_examples=30)
def test_p_1_is_the_identity(values: list[float], dtype: torch.dtype) -> None:
    w = torch.tensor(values, dtype=dtype)
    assert torch.equal(PowerMap(1).to_dual(w), w)
    assert torch.equal(PowerMap(1).to_primal(w), w)
    assert PowerMap(1).to_dual(w).dtype == dtype


@given(st.floats(1, 101), magnitudes(-30, 30))
@settings(max_examples=100)
def test_fits_says_where_the_dual_is_inside_float64(p: float, value: float) -> None:
    size = abs(exact_power(value, p))
    if size == 0 or 1e-279 < size < 1e279:
        assert PowerMap(p).fits(torch.tensor([value], dtype=torch.float64)).all()
    elif not 1e-281 < size < 1e281:
        assert not PowerMap(p).fits(torch.tensor([value], dtype=torch.float64)).any()


# The Bregman divergence


def exact_bregman(a: float, b: float, p: float) -> tuple[mpf, mpf]:
    """One coordinate's divergence as it is defined, and the size of its terms, which says what
    rounding may do.
    """
    phi = [mpmath.power(abs(mpf(x)), mpf(p) + 1) / (mpf(p) + 1) for x in (a, b)]
    slope = exact_power(b, p) * (mpf(a) - mpf(b))
    return phi[0] - phi[1] - slope, phi[0] + phi[1] * (1 + mpf(p)) + abs(exact_power(b, p) * mpf(a))


@given(st.lists(st.tuples(magnitudes(), magnitudes()), min_size=1, max_size=5), POWERS, DTYPES)
@settings(max_examples=150)
@example([(1e4, 1e4), (1.0, -2.0)], 101, torch.float32)
@example([(1e-8, -1e-8)], 101, torch.float64)
def test_bregman(pairs: list[tuple[float, float]], p: float, dtype: torch.dtype) -> None:
    a, b = torch.tensor(pairs, dtype=dtype).T
    check_bregman(bregman(a, b, p), a, b, p)


def check_bregman(result: Tensor, a: Tensor, b: Tensor, p: float) -> None:
    """Raise AssertionError unless this is the divergence of two vectors, to its accuracy."""
    assert result.shape == ()
    assert result >= 0
    parts = [exact_bregman(x, y, p) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    exact, size = (mpmath.fsum(part) for part in zip(*parts, strict=True))
    if exact > np.finfo(float).max:
        assert result.isinf()
    else:  # beyond float64's own ends, rounding is a matter of its smallest number
        assert abs(result.item() - exact) <= 4 * (p + 2) * eps(torch.float64) * min(
            size, mpf(1e308)
        ) + mpf(5e-324)


@given(neighbourhoods(), POWERS)
@settings(max_examples=50)
def test_bregman_of_a_stack_is_row_by_row_and_zero_at_home(
    neighbourhood: tuple[Tensor, Tensor], p: float
) -> None:
    models, _ = neighbourhood
    result = bregman(models, models[0], p)
    assert result.shape == models.shape[:1]
    for divergence, model in zip(result, models, strict=True):
        check_bregman(divergence, model, models[0], p)
    assert result[0] == 0


@given(st.lists(st.tuples(magnitudes(), magnitudes()), min_size=1, max_size=5))
@settings(max_examples=50)
def test_bregman_of_p_1_is_half_the_squared_distance(pairs: list[tuple[float, float]]) -> None:
    a, b = torch.tensor(pairs, dtype=torch.float64).T
    torch.testing.assert_close(bregman(a, b, 1), (a - b).square().sum() / 2, rtol=1e-14, atol=0)


@pytest.mark.parametrize("p", [1, 3, 101])
def test_bregman_of_nan_is_nan(p: float) -> None:
    assert bregman(torch.tensor([1.0, math.nan]), torch.ones(2), p).isnan()
    assert bregman(torch.ones(2), torch.tensor([1.0, math.nan]), p).isnan()
