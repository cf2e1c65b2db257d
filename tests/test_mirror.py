"""Compare the mirror map with mpmath.

The tests cover p from 1 to 101, any mix of weights from 1e-8 to 1e4, float32 and float64.
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
from gossamer.mirror import (
    ArcsinhMap,
    MirrorMap,
    PowerMap,
    SinhMap,
    bregman,
    power_mean,
    signed_power,
)

DTYPES = st.sampled_from([torch.float32, torch.float64])
POWERS = st.one_of(st.sampled_from([1, 2, 3, 2.5, 15, 31, 101]), st.floats(1, 101))


@pytest.fixture(autouse=True)
def _digits() -> Any:
    """Set 50 digits; mpmath exponents are unbounded, so the oracle never under- or overflows."""
    with mpmath.workdps(50):
        yield


def magnitudes(lowest: float = -8, highest: float = 4) -> st.SearchStrategy[float]:
    """Draw ±10^lowest … ±10^highest, log-uniform, and ±0 and ±1."""
    size = st.floats(lowest, highest).map(lambda exponent: 10.0**exponent)
    return st.one_of(size, size.map(lambda x: -x), st.sampled_from([0.0, -0.0, 1.0, -1.0]))


def exact_power(x: float | mpf, c: float) -> mpf:
    """Return x^[c] with negligible rounding error."""
    return mpmath.sign(x) * mpmath.power(abs(mpf(x)), mpf(c)) if x else mpf(0)


def eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


@st.composite
def neighbourhoods(draw: st.DrawFn, one_sign: bool = False) -> tuple[Tensor, Tensor]:
    """Draw models [k, n] and weights [k] of one dtype; the weights sum to 1 up to rounding."""
    k = draw(st.integers(1, 6))
    n = draw(st.integers(1, 4))
    dtype = draw(DTYPES)
    values = draw(st.lists(magnitudes(), min_size=k * n, max_size=k * n))
    models = torch.tensor(values, dtype=dtype).reshape(k, n)
    shares = np.array(draw(st.lists(st.floats(0.01, 1) | st.just(0.0), min_size=k, max_size=k)))
    shares = shares / shares.sum() if shares.any() else np.full(k, 1 / k)
    return models.abs() if one_sign else models, torch.tensor(shares, dtype=dtype)


# Signed power


@given(
    st.lists(magnitudes(), min_size=1, max_size=6),
    st.floats(1e-3, 12) | st.sampled_from([1, 2, 3, 4, 7, 1 / 3, 0.5]),
    DTYPES,
)
@settings(max_examples=200)
def test_signed_power(values: list[float], c: float, dtype: torch.dtype) -> None:
    """`signed_power` matches mpmath, keeps signs and dtype, and leaves its input unchanged."""
    x = torch.tensor(values, dtype=dtype)
    kept = x.clone()
    result = signed_power(x, c)
    assert result.dtype == dtype
    assert torch.equal(x, kept)
    assert torch.equal(result.signbit(), x.signbit())  # including zeros
    info = torch.finfo(dtype)
    for got, value in zip(result.tolist(), x.tolist(), strict=True):
        exact = exact_power(value, c)
        if abs(exact) > info.max:
            assert math.isinf(got)
        else:  # the absolute term bounds the rounding of subnormals
            assert (
                abs(got - exact)
                <= 2 * (c + 1) * info.eps * abs(exact) + 2 * info.smallest_normal * info.eps
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", [0.5, 1, 2, 2.5, 3, 15, 101, 2000, 2001])
def test_signed_power_of_special_values(c: float, dtype: torch.dtype) -> None:
    """Zeros, infinities, NaN and ±1 are fixed points; the result is a new tensor."""
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0], dtype=dtype)
    result = signed_power(x, c)
    assert str(result.tolist()) == str([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0])
    assert result.data_ptr() != x.data_ptr()  # a new tensor even if it equals x


@pytest.mark.parametrize("c", [0, -1, math.nan, math.inf])
def test_signed_power_rejects_invalid_exponent(c: float) -> None:
    """An exponent that is not positive and finite raises InputError."""
    with pytest.raises(InputError, match=r"^c = "):
        signed_power(torch.ones(2), c)


# Power mean


def check_mean(result: Tensor, models: Tensor, weights: Tensor, p: float) -> None:
    """Raise AssertionError unless |w̄^[p] − z̄| <= 8·p·eps·Σ a_j|z_j| per coordinate.

    Where all signs agree, the error in the primal is checked too. There Σ a_j|z_j| = |z̄|, and to
    first order an error of 8·p·eps·|z̄| in the dual equals one of 8·eps·|w̄| in the primal.
    """
    assert result.dtype == models.dtype
    assert result.isfinite().all()
    a = weights.tolist()
    bound = 8 * eps(models.dtype)
    for got, column in zip(result.tolist(), models.T.tolist(), strict=True):
        terms = []
        for share, w in zip(a, column, strict=True):
            terms.append(mpf(share) * exact_power(w, p))
        exact = mpmath.fsum(terms)
        size = mpmath.fsum(terms, absolute=True)
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
    """The power mean matches mpmath for any mix of magnitudes and signs."""
    models, weights = neighbourhood
    check_mean(power_mean(models, weights, p), models, weights, p)


@given(neighbourhoods(one_sign=True), POWERS)
@settings(max_examples=150)
def test_power_mean_of_one_sign(neighbourhood: tuple[Tensor, Tensor], p: float) -> None:
    """The mean of non-negative values meets the bound in the primal.

    It lies between the smallest and the largest value and does not decrease with p.
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
def test_power_mean_with_several_weight_rows(
    neighbourhood: tuple[Tensor, Tensor], p: float, data: st.DataObject
) -> None:
    """Weights of shape [n, k] give n means, each equal to the mean of its row."""
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
def test_power_mean_of_one_model(value: float, p: float, dtype: torch.dtype) -> None:
    """The power mean of a single model is the model, to 2·eps."""
    model = torch.tensor([[value, -value]], dtype=dtype)
    alone = power_mean(model, torch.ones(1, dtype=dtype), p)[None]
    assert ((alone - model).abs() <= 2 * eps(dtype) * model.abs()).all()


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=5),
    POWERS,
    DTYPES,
)
@settings(max_examples=100)
def test_power_mean_of_finite_values_is_finite(
    values: list[float], p: float, dtype: torch.dtype
) -> None:
    """The mean is finite for any finite floats, from subnormal values to the largest."""
    # The weights may sum to 1 + eps; the factor avoids overflow.
    models = torch.tensor(values, dtype=dtype)[:, None] * (1 - 1e-6)
    assert (
        power_mean(models, torch.full((len(values),), 1 / len(values), dtype=dtype), p)
        .isfinite()
        .all()
    )


@given(neighbourhoods(), POWERS, st.sampled_from([math.nan, math.inf, -math.inf]), st.data())
@settings(max_examples=100)
def test_non_finite_values_propagate(
    neighbourhood: tuple[Tensor, Tensor], p: float, wrong: float, data: st.DataObject
) -> None:
    """NaN and infinity with a nonzero weight propagate to their coordinate and to no other."""
    models, weights = neighbourhood
    j = data.draw(st.integers(0, len(models) - 1))
    coordinate = data.draw(st.integers(0, models.shape[1] - 1))
    sound = power_mean(models, weights, p)
    models[j, coordinate] = wrong
    result = power_mean(models, weights, p)
    touched = torch.zeros(models.shape[1], dtype=torch.bool)
    touched[coordinate] = bool(weights[j] != 0)
    assert not result[touched].isfinite().any()
    assert result[touched].isnan().all() or not math.isnan(wrong)
    assert torch.equal(result[~touched], sound[~touched])


def test_power_mean_shapes() -> None:
    """Models may have any shape and memory layout; the mean has the shape of one model."""
    models = torch.linspace(-1, 1, 60).reshape(3, 4, 5)
    weights = torch.tensor([0.25, 0.25, 0.5])
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


def test_power_mean_across_blocks() -> None:
    """Columns are processed in blocks; the mean over several blocks equals the naive mean."""
    models = torch.from_numpy(draws.normal(0, "test", np.arange(3)[:, None], np.arange(50_000)))
    weights = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
    result = power_mean(models, weights, 3)
    naive = torch.einsum("k,kn->n", weights, models**3)
    size = torch.einsum("k,kn->n", weights, models.abs() ** 3)
    assert ((result**3 - naive).abs() <= 2 * 8 * 3 * eps(torch.float64) * size).all()


@pytest.mark.parametrize("p", [0, 0.999, -3, math.nan, math.inf, "3", None])
def test_invalid_p_raises(p: Any) -> None:
    """Every function that takes p raises InputError for a p below 1 or not a finite number."""
    models = torch.ones(2, 2)
    for attempt in (
        lambda: PowerMap(p),
        lambda: power_mean(models, torch.ones(2), p),
        lambda: bregman(models, models, p),
    ):
        with pytest.raises(InputError, match=r"^p = .* a number of at least 1"):
            attempt()


@pytest.mark.parametrize("shape", [(3,), (1,), (), (2, 3), (1, 2, 2)])
def test_weights_of_wrong_shape_raise(shape: tuple[int, ...]) -> None:
    """Weights whose shape does not fit the models raise InputError."""
    with pytest.raises(InputError, match=r"^weights = .* shape \[2\] or \[n, 2\]"):
        power_mean(torch.ones(2, 5), torch.ones(shape), 3)


def test_empty_models_raise() -> None:
    """The power mean of zero models raises InputError."""
    with pytest.raises(InputError, match=r"^models = "):
        power_mean(torch.ones(0, 5), torch.ones(0), 3)


# Mirror map


@given(
    st.lists(magnitudes(), min_size=1, max_size=6),
    st.floats(1, 35) | st.sampled_from([1, 3, 15]),
    DTYPES,
)
@settings(max_examples=150)
def test_to_dual_and_to_primal(values: list[float], p: float, dtype: torch.dtype) -> None:
    """Both maps match mpmath; float64 holds the duals of 1e-8 to 1e4 up to p = 35."""
    mirror = PowerMap(p)
    w = torch.tensor(values, dtype=dtype)
    z = mirror.to_dual(w)
    assert mirror.fits(w).all()
    for got, value in zip(z.tolist(), w.tolist(), strict=True):
        assert abs(got - exact_power(value, p)) <= 2 * (p + 1) * eps(torch.float64) * abs(
            exact_power(value, p)
        )
    back = mirror.to_primal(z, dtype)
    assert back.dtype == dtype
    assert torch.equal(back.signbit(), w.signbit())
    # 8·eps equals 8·p·eps in the dual. In float64 the exponent 1/p is itself rounded, which moves
    # z^(1/p) by up to |log w|·eps/2.
    room = 8 + (w.abs().log().abs() / 2 if dtype == torch.float64 else torch.zeros_like(w))
    assert ((back - w).abs() <= torch.where(w == 0, 0, room * eps(dtype) * w.abs())).all()


@given(st.lists(magnitudes(), min_size=1, max_size=6), DTYPES)
@settings(max_examples=30)
def test_p_1_is_the_identity(values: list[float], dtype: torch.dtype) -> None:
    """At p = 1 both maps return their argument bit for bit, in its dtype."""
    w = torch.tensor(values, dtype=dtype)
    assert torch.equal(PowerMap(1).to_dual(w), w)
    assert torch.equal(PowerMap(1).to_primal(w), w)
    assert PowerMap(1).to_dual(w).dtype == dtype


@given(st.floats(1, 101), magnitudes(-30, 30))
@settings(max_examples=100)
def test_fits_is_true_where_float64_holds_the_dual(p: float, value: float) -> None:
    """`fits` is True for zero and for duals between 1e-280 and 1e280, approximately."""
    size = abs(exact_power(value, p))
    if size == 0 or 1e-279 < size < 1e279:
        assert PowerMap(p).fits(torch.tensor([value], dtype=torch.float64)).all()
    elif not 1e-281 < size < 1e281:
        assert not PowerMap(p).fits(torch.tensor([value], dtype=torch.float64)).any()


# Bregman divergence


def exact_bregman(a: float, b: float, p: float) -> tuple[mpf, mpf]:
    """Return the divergence of one coordinate by its definition, and the size of its terms.

    The size bounds the rounding error.
    """
    phi = [mpmath.power(abs(mpf(x)), mpf(p) + 1) / (mpf(p) + 1) for x in (a, b)]
    slope = exact_power(b, p) * (mpf(a) - mpf(b))
    return phi[0] - phi[1] - slope, phi[0] + phi[1] * (1 + mpf(p)) + abs(exact_power(b, p) * mpf(a))


@given(st.lists(st.tuples(magnitudes(), magnitudes()), min_size=1, max_size=5), POWERS, DTYPES)
@settings(max_examples=150)
@example([(1e4, 1e4), (1.0, -2.0)], 101, torch.float32)
@example([(1e-8, -1e-8)], 101, torch.float64)
def test_bregman(pairs: list[tuple[float, float]], p: float, dtype: torch.dtype) -> None:
    """`bregman` of two vectors matches its definition in mpmath."""
    a, b = torch.tensor(pairs, dtype=dtype).T
    check_bregman(bregman(a, b, p), a, b, p)


def check_bregman(result: Tensor, a: Tensor, b: Tensor, p: float) -> None:
    """Raise AssertionError unless the result is the divergence of a and b, up to rounding."""
    assert result.shape == ()
    assert result >= 0
    parts = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        parts.append(exact_bregman(x, y, p))
    exact, size = (mpmath.fsum(part) for part in zip(*parts, strict=True))
    if exact > np.finfo(float).max:
        assert result.isinf()
    else:  # 1e308 and 5e-324 account for terms outside the range of float64
        assert abs(result.item() - exact) <= 4 * (p + 2) * eps(torch.float64) * min(
            size, mpf(1e308)
        ) + mpf(5e-324)


@given(neighbourhoods(), POWERS)
@settings(max_examples=50)
def test_bregman_of_a_stack(neighbourhood: tuple[Tensor, Tensor], p: float) -> None:
    """A stack gives one divergence per row; the divergence of a model from itself is 0."""
    models, _ = neighbourhood
    result = bregman(models, models[0], p)
    assert result.shape == models.shape[:1]
    for divergence, model in zip(result, models, strict=True):
        check_bregman(divergence, model, models[0], p)
    assert result[0] == 0


@given(st.lists(st.tuples(magnitudes(), magnitudes()), min_size=1, max_size=5))
@settings(max_examples=50)
def test_bregman_at_p_1_is_half_the_squared_distance(pairs: list[tuple[float, float]]) -> None:
    """At p = 1 the divergence equals ‖a − b‖²/2 to a relative error of 1e-14."""
    a, b = torch.tensor(pairs, dtype=torch.float64).T
    torch.testing.assert_close(bregman(a, b, 1), (a - b).square().sum() / 2, rtol=1e-14, atol=0)


@pytest.mark.parametrize("p", [1, 3, 101])
def test_bregman_of_nan_is_nan(p: float) -> None:
    """NaN in either argument gives NaN."""
    assert bregman(torch.tensor([1.0, math.nan]), torch.ones(2), p).isnan()
    assert bregman(torch.ones(2), torch.tensor([1.0, math.nan]), p).isnan()


# Mirror maps that are no powers


SCALES = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)
EXACT: dict[type[MirrorMap], tuple[Any, Any]] = {
    SinhMap: (mpmath.sinh, mpmath.asinh),
    ArcsinhMap: (mpmath.asinh, mpmath.sinh),
}
OTHER_MAPS = st.one_of(st.builds(SinhMap, SCALES), st.builds(ArcsinhMap, SCALES))


@st.composite
def maps_and_weights(draw: st.DrawFn) -> tuple[Any, Tensor]:
    """Draw a map and weights of one dtype that are inside its range, in ascending order."""
    mirror: Any = draw(OTHER_MAPS)
    dtype = draw(DTYPES)
    values = draw(st.lists(magnitudes(), min_size=1, max_size=6, unique=True))
    w = torch.tensor(sorted(values), dtype=dtype).unique()
    if isinstance(mirror, SinhMap):
        w = w[w.abs() < 700 * mirror.scale]
    return mirror, w


@given(maps_and_weights())
@settings(max_examples=200)
def test_maps_and_their_inverses(drawn: tuple[Any, Tensor]) -> None:
    """Both directions match mpmath in float64, and the inverse returns the weights."""
    mirror, w = drawn
    forward, inverse = EXACT[type(mirror)]
    s = mpf(mirror.scale)
    z = mirror.to_dual(w)
    assert z.dtype == torch.float64
    for got, value in zip(z.tolist(), w.tolist(), strict=True):
        x = mpf(value) / s
        # Rounding x by eps changes sinh(x) by x·coth(x)·eps.
        bound = 8 * eps(torch.float64) * (1 + abs(x))
        assert abs(got - s * forward(x)) <= bound * abs(s * forward(x))
    for got, value in zip(mirror.to_primal(z).tolist(), z.tolist(), strict=True):
        x = mpf(value) / s
        bound = 8 * eps(torch.float64) * (1 + abs(x))
        assert abs(got - s * inverse(x)) <= bound * abs(s * inverse(x))
    back = mirror.to_primal(z, w.dtype)
    assert back.dtype == w.dtype
    torch.testing.assert_close(back, w, rtol=1e-13 if w.dtype == torch.float64 else 2e-7, atol=0.0)


@given(maps_and_weights())
def test_potentials_are_strictly_convex(drawn: tuple[Any, Tensor]) -> None:
    """∇φ is odd and increases strictly, so that φ is strictly convex and even."""
    mirror, w = drawn
    z = mirror.to_dual(w)
    apart = w.double().diff() > 1e-12 * w.double().abs()[1:]
    assert (z.diff()[apart] > 0).all()
    assert torch.equal(mirror.to_dual(-w), -z)


@given(OTHER_MAPS, neighbourhoods())
def test_means_lie_between_the_models(mirror: Any, neighbourhood: tuple[Tensor, Tensor]) -> None:
    """The mean in the dual is between the least and the largest, and finite in the range."""
    models, _ = neighbourhood
    if isinstance(mirror, SinhMap):
        models = models.clamp(-700 * mirror.scale, 700 * mirror.scale)
    result = mirror.mean(models)
    assert result.dtype == models.dtype
    assert result.isfinite().all()
    slack = 1e-6 * models.abs().amax(0)
    assert (result <= models.amax(0) + slack).all()
    assert (result >= models.amin(0) - slack).all()


@pytest.mark.parametrize("kind", [SinhMap, ArcsinhMap])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_maps_reject_an_invalid_scale(kind: Any, scale: float) -> None:
    with pytest.raises(InputError, match=r"^scale = "):
        kind(scale)
