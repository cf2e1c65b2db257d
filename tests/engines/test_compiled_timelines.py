"""Compiled timelines against the loops in Python: the same events and states, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gs
from gossamer.backend import (
    compiled_timeline,
    copy_rows,
    get_rows,
    neighbours,
    set_rows,
    wave_numbers,
)
from gossamer.engines import Events, Plan
from gossamer.engines.events.background import BackgroundTimeline
from gossamer.engines.events.timeline import Timeline
from gossamer.study import Study
from gossamer.tasks import splits

DEVICES = 12
ROUNDS = 6
MESSAGE_BYTES = 2600.0

METHODS: list[gs.Algorithm] = [
    gs.ADPSGD(0.1),
    gs.DivShare(0.1),
    gs.SwarmSGD(0.1, local_steps=3),
    gs.GossipLearning(0.1),
    gs.PushSum(0.1),
]

needs_kernels = pytest.mark.skipif(
    compiled_timeline("pair_events") is None, reason="there is no compiled code to compare with"
)
a_plan = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        # Equal durations: many events at the same time, whose order is drawn.
        "compute": st.sampled_from([0.25, gs.LogUniform(0.02, 2.0)]),
        "rate": st.sampled_from([1e300, gs.LogUniform(2e3, 1e6)]),
        "latency": st.sampled_from([0.0, 0.125, 1.5]),
        "churn": st.booleans(),
        "battery": st.sampled_from([None, 3.0]),
    }
)


def plan(
    algorithm: gs.Algorithm,
    seed: int,
    compute: float | gs.LogUniform,
    rate: float | gs.LogUniform,
    latency: float,
    churn: bool,
    battery: float | None,
) -> Plan:
    """Return a run over a network in which contacts are cut."""
    network: gs.Network = gs.Random(DEVICES, density=0.3, seed=seed)
    if churn:
        network = network & gs.Churn(0.2, 0.5, seed=seed)
    energy = None
    if battery is not None:
        energy = gs.Energy(step=0.7, byte=1e-4, battery=battery, charge=4.0)
    timing = gs.Timing(compute, rate, latency, seed=seed)
    made = Study(algorithm, network, timing=timing, energy=energy, seed=seed, events=Events())
    return made.plan()


def same(compiled: Timeline | BackgroundTimeline, plain: Timeline | BackgroundTimeline) -> int:
    """Compare both in every round. Return the number of events."""
    count = 0
    for t in range(ROUNDS):
        found = compiled.advance(t)
        expected = plain.advance(t)
        for name in ("time", "kind", "a", "b", "a_count", "b_count"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert found.cut_bytes == expected.cut_bytes
        assert compiled.total_steps == plain.total_steps
        state = plain.tensors()
        for name, x in compiled.tensors().items():
            assert torch.equal(x, state[name]), name
            assert x.dtype == state[name].dtype
        count += len(found)
    return count


@needs_kernels
@given(drawn=a_plan, seconds=st.sampled_from([0.5, 1.0, 1.7]), patience=st.floats(0.0, 2.0))
@settings(max_examples=60, deadline=None)
def test_pairs(drawn: dict[str, object], seconds: float, patience: float) -> None:
    made = plan(gs.DPSGD(0.1), **drawn)  # type: ignore[arg-type]
    lines = [Timeline(made, MESSAGE_BYTES, seconds, patience, compiled=c) for c in (True, False)]
    same(*lines)


@needs_kernels
@given(drawn=a_plan, seconds=st.sampled_from([0.5, 1.0, 1.7]), method=st.sampled_from(METHODS))
@settings(max_examples=100, deadline=None)
def test_background(drawn: dict[str, object], seconds: float, method: gs.Algorithm) -> None:
    # A device that sends again at once would never end with messages that take no time.
    drawn = {**drawn, "latency": max(float(drawn["latency"]), 0.01)}  # type: ignore[arg-type]
    made = plan(method, **drawn)  # type: ignore[arg-type]
    lines = [BackgroundTimeline(made, MESSAGE_BYTES, seconds, compiled=c) for c in (True, False)]
    same(*lines)


@needs_kernels
def test_many_steps_per_round() -> None:
    """The buffers grow, and a round that is played again gives the same."""
    given = {"seed": 3, "compute": 0.001, "rate": 1e6, "latency": 0.0005}
    made = plan(gs.ADPSGD(0.1), **given, churn=False, battery=None)  # type: ignore[arg-type]
    lines = [BackgroundTimeline(made, 100.0, 1.0, compiled=c) for c in (True, False)]
    assert same(*lines) > ROUNDS * DEVICES * 1000


@needs_kernels
def test_resumed_in_compiled_code() -> None:
    given = {"seed": 1, "compute": gs.LogUniform(0.05, 0.5), "rate": 1e4, "latency": 0.1}
    made = plan(gs.ADPSGD(0.1), **given, churn=True, battery=3.0)  # type: ignore[arg-type]
    plain = BackgroundTimeline(made, MESSAGE_BYTES, 1.0, compiled=False)
    plain.advance(0)
    compiled = BackgroundTimeline(made, MESSAGE_BYTES, 1.0)
    compiled.restore(plain.tensors())
    found = compiled.advance(1)
    expected = plain.advance(1)
    np.testing.assert_array_equal(found.time, expected.time)
    np.testing.assert_array_equal(found.a, expected.a)


def test_plain_code_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_BACKEND", "torch")
    assert compiled_timeline("pair_events") is None
    assert compiled_timeline("background_events") is None


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30)


@given(PAIRS)
def test_neighbours(pairs: list[tuple[int, int]]) -> None:
    links = gs.Links.of(7, pairs)
    found = neighbours(7, links.a, links.b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOSSAMER_BACKEND", "torch")
        expected = neighbours(7, links.a, links.b)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 6), st.integers(0, 2)), max_size=40),
)
def test_wave_numbers(events: list[tuple[int, int, int]]) -> None:
    columns = np.array(events, dtype=np.int64).reshape(-1, 3)
    a, b, turn = columns.T  # not contiguous
    found = wave_numbers(a, b, turn, 3, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOSSAMER_BACKEND", "torch")
        expected = wave_numbers(a, b, turn, 3, 7)
    np.testing.assert_array_equal(found, expected)
    assert (found % 3 == turn).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("contiguous", [True, False])
def test_rows(dtype: torch.dtype, contiguous: bool) -> None:
    x = torch.zeros(9, 5, dtype=dtype)
    if not contiguous:
        x = torch.zeros(5, 9, dtype=dtype).T
    rows = torch.tensor([8, 0, 3])
    values = torch.arange(15).reshape(3, 5).to(dtype)
    expected = x.clone()
    expected[rows] = values
    set_rows(x, rows, values)
    assert torch.equal(x, expected)
    assert torch.equal(get_rows(x, rows), values)
    target = torch.zeros_like(x)
    copy_rows(target, rows, x)
    assert torch.equal(target, x)


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8),
    seed=st.integers(0, 100),
    batch=st.integers(1, 40),
    several=st.booleans(),
)
def test_batches(sizes: list[int], seed: int, batch: int, several: bool) -> None:
    """Compiled code draws the samples that `draws.below` draws."""
    parts = np.split(np.random.default_rng(seed).permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    split = splits.from_lists(parts)
    devices = np.arange(len(sizes))[::-1]
    t = np.arange(3)[:, None, None] if several else 5 * devices[:, None]
    found = splits.batch(split, seed, t, 2, batch, devices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOSSAMER_BACKEND", "torch")
        expected = splits.batch(split, seed, t, 2, batch, devices)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
