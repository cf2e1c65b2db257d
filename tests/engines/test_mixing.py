"""The mix of a stack of devices: linear and power means, dense and sparse, of any magnitude."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.accuracy import assert_power_means_agree
from support.plans import plan_of, run, squares
from torch import Tensor

from gossamer import draws
from gossamer.algorithms import DPSGD, WPM, Algorithm, SwarmSGD
from gossamer.backend import limits
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.mirror import IdentityMap, PowerMap, power_map, power_mean
from gossamer.network import ErdosRenyi, Full, Links, Ring, metropolis
from gossamer.network.weights import Weights


def magnitudes(m: int, n: int, dtype: torch.dtype, lowest: float = -8) -> Tensor:
    """Return weights of any sign from 10^lowest to 1e4, some of them zero.

    The weights of every seventh column have the same magnitude.
    """
    i = np.arange(m)[:, None]
    j = np.arange(n)
    exponent = lowest + (4 - lowest) * draws.uniform(0, "exponent", np.where(j % 7 == 0, 0, i), j)
    sign = np.where(draws.uniform(0, "sign", i, j) < 0.4, -1.0, 1.0)
    zero = draws.uniform(0, "zero", i, j) < 0.1
    return torch.from_numpy(np.where(zero, 0.0, sign * 10.0**exponent)).to(dtype)


def mix_of(weights: Weights) -> StackedMix:
    return StackedMix(weights, torch.arange(weights.devices), 8, Traffic())


DENSE = metropolis(ErdosRenyi(20, 0.3).links(0))
SPARSE = metropolis(ErdosRenyi(90, 0.03).links(0))


@pytest.mark.usefixtures("every_backend")
@pytest.mark.parametrize("weights", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("p", [1.5, 2.0, 3.0, 15.0, 35.0, 101.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lowest", [-8.0, -3.0, 3.0])
def test_power_mean_of_any_magnitudes(
    weights: Weights, p: float, dtype: torch.dtype, lowest: float
) -> None:
    """For example 1e-8 beside 1e4 in one neighbourhood at p = 101, whose dual exceeds float64."""
    w = magnitudes(weights.devices, 150, dtype, lowest)
    expected = power_mean(w, torch.from_numpy(weights.dense()), p)
    mix = mix_of(weights)
    assert_power_means_agree(mix.mean(w, power_map(p)), expected, w, weights, p)
    assert_power_means_agree(scaled_power_means(mix, w, p), expected, w, weights, p)


@pytest.mark.usefixtures("every_backend")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_more_columns_than_one_block(dtype: torch.dtype) -> None:
    """A matrix product may sum in another order for another number of columns."""
    w = magnitudes(20, 9000, dtype)
    whole = mix_of(DENSE).mean(w, power_map(101.0))
    for columns in (slice(0, 3), slice(3270, 3290), slice(8990, 9000)):
        part = w[:, columns]
        expected = mix_of(DENSE).mean(part, power_map(101.0))
        assert_power_means_agree(whole[:, columns], expected, part, DENSE, 101.0)


def scaled_power_means(mix: StackedMix, w: Tensor, p: float) -> Tensor:
    assert mix.products is not None
    return mix.products.scaled_power_means(w, p)


def is_sparse(mix: StackedMix, dtype: torch.dtype) -> bool:
    assert mix.products is not None
    return mix.products.is_sparse(dtype)


@pytest.mark.usefixtures("every_backend")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_linear_mix_dense_and_sparse(dtype: torch.dtype) -> None:
    """Both formats compute Σ_j a_ij·x_j."""
    for weights, sparse in ((DENSE, False), (SPARSE, True)):
        mix = mix_of(weights)
        x = magnitudes(weights.devices, 30, dtype)
        assert is_sparse(mix, dtype) == sparse
        exact = weights.dense() @ x.double().numpy()
        size = weights.dense() @ x.double().abs().numpy()
        for result in (mix(x), mix.mean(x, IdentityMap()), mix(x, torch.float64)):
            assert result.dtype == dtype
            assert result.data_ptr() != x.data_ptr()
            error = np.abs(result.double().numpy() - exact)
            assert (error <= 8 * torch.finfo(dtype).eps * size).all()


def test_only_sparse_links_use_a_sparse_format() -> None:
    for dtype in (torch.float32, torch.float64):
        assert not is_sparse(mix_of(metropolis(Full(90).links(0))), dtype)
        assert is_sparse(mix_of(metropolis(Ring(90).links(0))), dtype)


@pytest.mark.usefixtures("every_backend")
@pytest.mark.parametrize("weights", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("p", [1.0, 3.0, 101.0])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_values_that_are_not_finite_stay_so(weights: Weights, p: float, wrong: float) -> None:
    x = magnitudes(weights.devices, 4, torch.float32)
    x[3, 2] = wrong
    touched = torch.from_numpy(weights.dense()[3] != 0)
    mix = mix_of(weights)
    for result in (mix.mean(x, power_map(p)), scaled_power_means(mix, x, p)):
        assert not result[touched, 2].isfinite().any()
        assert result[:, [0, 1, 3]].isfinite().all()


def test_devices_without_links_keep_their_vectors() -> None:
    for m in (1, 2):
        x = magnitudes(m, 40, torch.float64)
        mix = mix_of(metropolis(Links.of(m, [])))
        assert torch.equal(mix(x), x)
        torch.testing.assert_close(mix.mean(x, PowerMap(101.0)), x, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    "algorithm",
    [DPSGD(0.05), WPM(3, 0.01, anchor=False), SwarmSGD(0.05, pairs="matching"), WPM(15)],
    ids=repr,
)
def test_runs_are_equal_with_dense_and_sparse_weights(
    algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(algorithm, ErdosRenyi(80, 0.02), 10, task=squares(80))
    sparse = run(plan).models()
    always_dense = dict.fromkeys(limits.SPARSE_BELOW, 10**9)
    monkeypatch.setattr(limits, "SPARSE_BELOW", always_dense)
    torch.testing.assert_close(run(plan).models(), sparse, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("every_backend")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_mean_that_overflows_float64_is_scaled(dtype: torch.dtype) -> None:
    # 1e4 to the power 101 exceeds float64.
    w = torch.tensor([[1e4, 1e-8], [9e3, 1e4], [-8e3, 2e-8]], dtype=dtype)
    weights = metropolis(Links.of(3, [(0, 1), (1, 2)]))
    expected = power_mean(w, torch.from_numpy(weights.dense()), 101)
    assert_power_means_agree(mix_of(weights).mean(w, power_map(101)), expected, w, weights, 101)
