"""Samples that arrive over time: batches hold only what has arrived, on every engine."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gs
from gossamer.engines import Plan, Simulator
from gossamer.engines.events import start_events
from gossamer.fleet.methods import check_has_no_stream
from gossamer.study import Study, spec
from gossamer.tasks import splits

TIMING = gs.Timing(compute=gs.LogUniform(0.05, 0.5), rate=1e5, latency=0.01)


def study(algorithm: gs.Algorithm | None = None, **changes: object) -> Study:
    """Return a small study in float64 whose samples arrive slowly."""
    made = Study(
        algorithm or gs.DPSGD(eta=0.1),
        gs.RandomRing(10),
        gs.Digits(),
        gs.OneLabel(),
        gs.Softmax(),
        batch=4,
        rounds=6,
        dtype="float64",
        measure=gs.Measure(every=3, test=50),
        stream=gs.Stream(rate=2.0, start=3),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@given(
    rate=st.floats(0, 1e300),
    start=st.integers(1, 10**12),
    seconds=st.floats(0, 1e12),
    size=st.integers(1, 10**9),
)
def test_arrived(rate: float, start: int, seconds: float, size: int) -> None:
    stream = gs.Stream(rate=rate, start=start)
    (found,) = stream.arrived(np.array([seconds]), np.array([size])).tolist()
    came = rate * seconds
    expected = size if came >= size else min(size, start + math.floor(came))
    assert found == expected


def test_a_batch_is_drawn_from_the_first_samples() -> None:
    split = splits.Split(np.arange(100, 120), np.array([0, 8, 20]))
    arrived = np.array([2, 5])
    devices = np.arange(2)
    found = splits.batch(split, 0, 7, 0, 50, devices, arrived)
    assert set(found[0].tolist()) == {100, 101}
    assert set(found[1].tolist()) == {108, 109, 110, 111, 112}
    everything = splits.batch(split, 0, 7, 0, 50, devices, split.sizes)
    assert (everything == splits.batch(split, 0, 7, 0, 50, devices)).all()
    alone = splits.batch(split, 0, np.array([[7]]), 0, 50, devices[1:], arrived[1:])
    assert (alone[0] == found[1]).all()


def without_later_samples(plan: Plan, seconds: float) -> Plan:
    """Return the plan with the inputs of all samples that arrive later replaced by others."""
    task = plan.task
    assert plan.stream is not None
    arrived = plan.stream.arrived(np.full(task.devices, seconds), task.split.sizes)
    x = task.data.x.clone()
    for device, count in enumerate(arrived.tolist()):
        own = task.split.index[task.split.offsets[device] : task.split.offsets[device + 1]]
        x[torch.from_numpy(own[count:])] = -1.0
    return replace(plan, task=replace(task, data=replace(task.data, x=x)))


def test_rounds_see_what_has_arrived_when_they_begin() -> None:
    plan = study().plan()
    models = _after(Simulator(plan), 6)
    assert torch.equal(models, _after(Simulator(without_later_samples(plan, 5.0)), 6))
    assert not torch.equal(models, _after(Simulator(without_later_samples(plan, 3.0)), 6))


def test_with_a_timing_rounds_see_what_has_arrived_by_simulated_seconds() -> None:
    plan = study(timing=gs.Timing(compute=2.0, rate=1e300)).plan()
    models = _after(Simulator(plan), 6)
    assert torch.equal(models, _after(Simulator(without_later_samples(plan, 10.0)), 6))
    assert not torch.equal(models, _after(Simulator(without_later_samples(plan, 7.0)), 6))


@pytest.mark.parametrize("algorithm", [gs.DPSGD(0.1), gs.ADPSGD(0.1)], ids=repr)
def test_events_see_what_has_arrived_by_their_time(algorithm: gs.Algorithm) -> None:
    plan = study(algorithm, timing=TIMING).plan()
    models = _after(start_events(plan), 6)
    assert torch.equal(models, _after(start_events(plan, batched=False), 6))
    assert torch.equal(models, _after(start_events(without_later_samples(plan, 6.0)), 6))
    assert not torch.equal(models, _after(start_events(without_later_samples(plan, 3.0)), 6))


def test_local_steps_and_paired_rows_take_their_own_counts() -> None:
    plan = study(gs.SwarmSGD(eta=0.1, local_steps=3, pairs="matching")).plan()
    models = _after(Simulator(plan), 6)
    assert torch.equal(models, _after(Simulator(without_later_samples(plan, 5.0)), 6))


@pytest.mark.parametrize("timing", [None, TIMING])
@pytest.mark.parametrize("algorithm", [gs.DPSGD(0.1), gs.SwarmSGD(0.1)], ids=repr)
def test_a_stream_that_has_all_samples_at_the_start_changes_nothing(
    algorithm: gs.Algorithm, timing: gs.Timing | None
) -> None:
    streamed = study(algorithm, stream=gs.Stream(rate=0.0, start=10**6), timing=timing)
    plain = replace(streamed, stream=None)
    assert torch.equal(_after(Simulator(streamed.plan()), 6), _after(Simulator(plain.plan()), 6))


def test_a_resumed_run_is_the_same() -> None:
    plan = study(timing=TIMING).plan()
    first = Simulator(plan)
    first.advance(3)
    second = Simulator(plan, first.snapshot())
    assert torch.equal(_after(second, 6), _after(Simulator(plan), 6))


def _after(engine: Simulator, rounds: int) -> torch.Tensor:
    engine.advance(rounds)
    return engine.models()


def test_through_toml() -> None:
    made = study()
    (back,) = spec.studies(spec.to_table(made))
    assert back == made
    assert "stream" not in spec.to_table(replace(made, stream=None))


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("rate", {"rate": -1.0}),
        ("rate", {"rate": math.nan}),
        ("start", {"rate": 1.0, "start": 0}),
        ("start", {"rate": 1.0, "start": 1.5}),
    ],
)
def test_bad_input_is_refused(field: str, arguments: dict[str, float]) -> None:
    with pytest.raises(gs.InputError, match=f"{field} = .* is not accepted"):
        gs.Stream(**arguments)  # type: ignore[arg-type]


def test_whole_batches_are_refused() -> None:
    even = gs.LeastSquares(devices=10)
    with pytest.raises(gs.InputError, match="batch = 0 is not accepted"):
        study(data=even, split=gs.Iid(), model=gs.LinearRegression(), batch=0).plan()


def test_devices_refuse_a_stream() -> None:
    check_has_no_stream(None)
    with pytest.raises(gs.InputError, match="on devices all samples"):
        check_has_no_stream(gs.Stream(1.0))
