"""Schedules that see the state, the divergence that they see, and mirror maps that are no powers.

The conformance suite and the naive loop cover them too, as methods of `support.methods`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans import CHANGING, M, plan_of
from torch import Tensor

import gossamer as gs
from gossamer.algorithms.base import Neighbours
from gossamer.algorithms.neighbourhoods import divergence, of_receivers
from gossamer.engines import Simulator
from gossamer.errors import InputError
from gossamer.network import metropolis

VALUES = st.floats(-1e3, 1e3) | st.just(0.0)


@st.composite
def networks(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], Tensor]:
    """Draw weights [m, m] of a random graph and vectors [m, n]."""
    m = draw(st.integers(1, 5))
    seed = draw(st.integers(0, 100))
    n = draw(st.integers(1, 3))
    values = draw(st.lists(VALUES, min_size=m * n, max_size=m * n))
    a = np.eye(1)
    if m > 1:
        a = metropolis(gs.ErdosRenyi(m, 0.5, seed=seed).links(0)).dense()
    return a, torch.tensor(values, dtype=torch.float64).view(m, n)


def near_of(a: np.ndarray[Any, Any], x: Tensor) -> Neighbours:
    """Return what devices receive, the own vectors included."""
    held = torch.from_numpy((a != 0) | np.eye(len(a), dtype=bool))
    receiver, sender = held.nonzero(as_tuple=True)
    return Neighbours(receiver, sender, torch.from_numpy(a)[receiver, sender], x[sender])


@given(networks())
@settings(max_examples=150)
def test_divergence(drawn: tuple[np.ndarray[Any, Any], Tensor]) -> None:
    """It equals a loop over pairs, is 0 to 1, and does not depend on the scale."""
    a, x = drawn
    m = len(a)
    got = divergence(near_of(a, x), m)
    for i in range(m):
        apart = 0.0
        size = 0.0
        for j in range(m):
            if i != j:
                apart += a[i, j] * float(((x[i] - x[j]) ** 2).sum())
                size += a[i, j] * float((x[i] ** 2).sum() + (x[j] ** 2).sum())
        expected = min(apart / size, 1.0) if size > 0 else 0.0
        assert got[i].item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    torch.testing.assert_close(divergence(near_of(a, 4 * x), m), got)
    same = x[:1].expand_as(x)
    assert not divergence(near_of(a, same), m).any()


@given(networks(), st.data())
def test_some_receivers_keep_their_vectors(
    drawn: tuple[np.ndarray[Any, Any], Tensor], data: st.DataObject
) -> None:
    a, x = drawn
    rows = sorted(data.draw(st.sets(st.integers(0, len(a) - 1), min_size=1)))
    near = near_of(a, x)
    kept = of_receivers(near, torch.tensor(rows), len(a))
    for new, old in enumerate(rows):
        assert torch.equal(kept.value[kept.receiver == new], near.value[near.receiver == old])
        assert torch.equal(kept.weight[kept.receiver == new], near.weight[near.receiver == old])


def test_p_follows_the_divergence() -> None:
    """Every device has its own power: a whole number from 1 to the largest."""
    seen: list[float] = []
    schedule = gs.PowerSchedule(gs.ByDivergence(9))
    for mirror, rows in schedule.maps(0, torch.tensor([0.0, 0.24, 0.26, 1.0, 0.0])):
        assert mirror.power is not None
        seen += [mirror.power] * len(rows)
    assert seen == [1, 1, 3, 3, 9]


def test_equal_models_are_averaged_by_d_psgd() -> None:
    """At divergence 0 AIMS is WPM with p = 1; later rounds differ."""
    plan = plan_of(gs.AIMS(9, 0.05), CHANGING, 12)
    aims = Simulator(plan)
    dpsgd = Simulator(plan_of(gs.WPM(1, 0.05), CHANGING, 12))
    for simulator in (aims, dpsgd):
        simulator.advance(1)
    torch.testing.assert_close(aims.models(), dpsgd.models(), rtol=1e-6, atol=1e-7)
    for simulator in (aims, dpsgd):
        simulator.advance(12)
    assert (aims.models() - dpsgd.models()).abs().max() > 1e-4


def test_a_local_p_that_cannot_change_is_that_of_wpm() -> None:
    """ByDivergence(3, 3) is p = 3 for all, and a local gain of 1 changes nothing."""
    local = gs.Composition(
        gs.PowerSchedule(gs.ByDivergence(3, 3)), 0.05, anchor=True, gain=gs.ByDivergence(1)
    )
    one = Simulator(plan_of(local, CHANGING, 12, dtype="float64"))
    other = Simulator(plan_of(gs.WPM(3, 0.05), CHANGING, 12, dtype="float64"))
    one.advance(12)
    other.advance(12)
    torch.testing.assert_close(one.models(), other.models(), rtol=1e-10, atol=1e-12)
    assert one.record().bytes == other.record().bytes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gs.DPSGD(gs.ByDivergence(1)), "a number, or a schedule of the round"),
        (lambda: gs.Warmup(3, gs.ByDivergence(1)), "a number, or a schedule of the round"),
        (lambda: gs.ByDivergence(-1), "most = -1"),
        (lambda: gs.WPM(gs.ByDivergence(5, 0.5)), "never falls below 1"),
        (lambda: gs.AIMS(0.5), "p = 0.5"),
        (
            lambda: gs.WPM(gs.ByDivergence(5), order="adapt-then-combine"),
            "knows its neighbours only after it has mixed",
        ),
        (lambda: gs.Composition(gain=gs.ByDivergence(1.1)), "anchor = true"),
        (lambda: gs.Composition(gs.SinhMap(1)), '"constant" or "plain"'),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


MAPS = {
    "sinh": (
        gs.SinhMap(0.3),
        lambda x: 0.3 * np.sinh(x / 0.3),
        lambda z: 0.3 * np.arcsinh(z / 0.3),
    ),
    "arcsinh": (
        gs.ArcsinhMap(0.3),
        lambda x: 0.3 * np.arcsinh(x / 0.3),
        lambda z: 0.3 * np.sinh(z / 0.3),
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_round_in_the_dual(name: str) -> None:
    """w⁺ = ∇φ⁻¹(Σ_j a_ij·∇φ(w_j) − η·d_i), device by device."""
    mirror, forward, inverse = MAPS[name]
    method = gs.Composition(mirror, 0.05, gs.Constant(), gradient_at="local")
    plan = plan_of(method, gs.Ring(M), 6, dtype="float64")
    simulator = Simulator(plan)
    worker = plan.task.worker(np.arange(M), plan.seed, torch.float64, torch.device("cpu"))
    a = metropolis(plan.network.links(0)).dense()
    for t in range(6):
        w = simulator.models().clone()
        d = worker.gradient(w.clone(), t).numpy()
        expected = inverse(a @ forward(w.numpy()) - 0.05 * d)
        simulator.advance(t + 1)
        np.testing.assert_allclose(simulator.models().numpy(), expected, rtol=1e-10, atol=1e-12)
