"""The events engine: its timeline, its waves, and the same methods as in rounds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gs
from gossamer.engines import Events, Simulator
from gossamer.engines.events import EventEngine, Timeline
from gossamer.engines.events.waves import waves
from gossamer.study import Study
from gossamer.study.pools import pool_on

SLOW_AND_FAST = gs.Timing(compute=gs.LogUniform(0.05, 0.5), rate=1e6, latency=0.01)
# Power means in a stack differ in the last bit from those of a pair.
POWER_MEANS = ("wpm", "wpm-paper", "wpm-local-steps", "wpm-quasi-global", "wpm-tracking")
REFUSED = {
    "adom": "single links",
    "all-reduce": "single links",
    "diloco": "single links",
    "fedavg": "single links",
    "choco-sgd": "whole vectors",
    "wpm-compressed": "whole vectors",
    "d2": "never change",
    "extra": "never change",
    "nids": "never change",
}


def study(algorithm: gs.Algorithm, network: gs.Network, **changes: object) -> Study:
    """Return a small study in float64."""
    made = Study(
        algorithm,
        network,
        gs.Digits(),
        gs.OneLabel(),
        gs.Softmax(),
        batch=4,
        rounds=6,
        dtype="float64",
        timing=SLOW_AND_FAST,
        measure=gs.Measure(every=3, test=50),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(set(gs.METHODS) - set(REFUSED)))
def test_waves_equal_one_meeting_after_the_other(name: str) -> None:
    plan = study(gs.METHODS[name].make(), gs.RandomRing(12)).plan()
    together = EventEngine(plan)
    naive = EventEngine(plan, batched=False)
    together.advance(4)
    naive.advance(4)
    assert together.record().messages == naive.record().messages > 0
    if name in POWER_MEANS:
        assert torch.allclose(together.models(), naive.models(), rtol=1e-12, atol=1e-14)
    else:
        assert torch.equal(together.models(), naive.models())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_methods_that_need_more_than_a_pair_are_refused(name: str) -> None:
    method = gs.METHODS[name].make()
    made = study(method, gs.Ring(11))  # D² refuses rings of even length
    if name == "adom":
        made = replace(made, data=gs.LeastSquares(devices=11), batch=0, split=gs.Iid())
    with pytest.raises(gs.InputError, match=REFUSED[name]):
        EventEngine(made.plan())


class _Matchings(gs.Network):
    """Random pairs: every device has one neighbour per round."""

    devices = 10

    def links(self, t: int) -> gs.Links:
        order = np.random.default_rng(t).permutation(10)
        return gs.Links.of(10, order.reshape(5, 2))


@pytest.mark.parametrize("name", ["d-psgd", "quasi-global", "tracking", "wpm", "push-sum"])
def test_equal_steps_and_instant_links_give_the_rounds_of_the_simulator(name: str) -> None:
    instant = gs.Timing(compute=1.0, rate=1e300)
    plan = study(gs.METHODS[name].make(), _Matchings(), timing=instant).plan()
    events = EventEngine(plan, seconds_per_round=1.0, patience=0.0)
    rounds = Simulator(plan)
    events.advance(6)
    rounds.advance(6)
    if name in POWER_MEANS:
        assert torch.allclose(events.models(), rounds.models(), rtol=1e-12, atol=1e-14)
    else:
        assert torch.equal(events.models(), rounds.models())
    assert events.record().bytes == rounds.record().bytes


@pytest.mark.parametrize("every", [1, 3])
def test_a_resumed_run_is_the_same(every: int) -> None:
    plan = study(gs.QuasiGlobal(eta=0.1), gs.RandomRing(10) & gs.Churn(0.3, 0.5)).plan()
    whole = EventEngine(plan)
    whole.advance(6)
    engine = EventEngine(plan)
    for until in range(every, 6 + every, every):
        engine.advance(min(6, until))
        engine = EventEngine(plan, snapshot=engine.snapshot())
    assert torch.equal(engine.models(), whole.models())
    assert engine.record().bytes == whole.record().bytes


def test_a_checkpoint_of_another_engine_is_refused() -> None:
    plan = study(gs.DPSGD(0.1), gs.RandomRing(10)).plan()
    with pytest.raises(gs.DataError, match="events engine"):
        EventEngine(plan, snapshot=Simulator(replace(plan, timing=None)).snapshot())
    with pytest.raises(gs.DataError, match="--engine events"):
        Simulator(plan, EventEngine(plan).snapshot())


@given(
    seed=st.integers(0, 1000),
    seconds=st.floats(0.3, 3.0),
    patience=st.floats(0.0, 3.0),
    latency=st.floats(0.0, 2.0),
)
@settings(max_examples=40, deadline=None)
def test_timeline(seed: int, seconds: float, patience: float, latency: float) -> None:
    """Every device's rounds follow each other, and pairs are linked when they end."""
    timing = gs.Timing(gs.LogUniform(0.1, 1.0), rate=1e6, latency=latency, seed=seed)
    network = gs.Random(10, density=0.3, seed=seed) & gs.Churn(0.2, 0.5, seed=seed)
    plan = study(gs.DPSGD(), network, timing=timing, seed=seed).plan()
    line = Timeline(plan, 1000.0, seconds, patience)
    assert plan.timing is not None
    compute = plan.timing.of("compute", 0, np.arange(10))
    last = np.zeros(10)
    done = np.zeros(10, dtype=np.int64)
    now = 0.0
    for t in range(8):
        links = plan.network.links(t)
        linked = set(map(tuple, links.pairs.tolist()))
        meetings = line.advance(t)
        for time, a, b, a_round, b_round in zip(
            meetings.time, meetings.a, meetings.b, meetings.a_round, meetings.b_round, strict=True
        ):
            assert now <= time <= (t + 1) * seconds
            assert time >= t * seconds
            now = time
            for device, own_round in ((a, a_round), (b, b_round)):
                if device >= 0:
                    assert own_round == done[device]
                    assert time >= last[device] + compute[device] - 1e-9
                    done[device] += 1
                    last[device] = time
            if b >= 0:
                assert a < b
                assert (a, b) in linked


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 6)), max_size=40))
def test_waves_keep_the_order_of_every_device(pairs: list[tuple[int, int]]) -> None:
    pairs = [(a, b) for a, b in pairs if a != b]
    a = np.array([pair[0] for pair in pairs], dtype=np.int64)
    b = np.array([pair[1] for pair in pairs], dtype=np.int64)
    found = waves(a, b, 7)
    flat = [int(k) for wave in found for k in wave]
    assert sorted(flat) == list(range(len(pairs)))
    for wave in found:
        devices = [d for k in wave for d in pairs[k] if d >= 0]
        assert len(devices) == len(set(devices))
    for device in range(7):
        own = [k for k in flat if device in pairs[k]]
        assert own == sorted(own)


def test_a_contact_that_is_too_short_is_cut() -> None:
    """A message takes 5 s and links last 1 s: nothing arrives, and what was sent is counted."""
    timing = gs.Timing(compute=0.2, rate=1040.0)  # 5,200 bytes in float64
    engine = EventEngine(study(gs.DPSGD(0.1), _Matchings(), timing=timing).plan())
    engine.advance(6)
    record = engine.record()
    assert record.messages == 0
    assert 0 < record.bytes < 10 * 6 * 1040


def test_fast_devices_take_more_steps(tmp_path: Path) -> None:
    trace = tmp_path / "compute.csv"
    trace.write_text("device,compute\n" + "".join(f"{i},{0.1 if i else 1.0}\n" for i in range(10)))
    timing = gs.Timing(gs.TimingTrace(trace), rate=1e9)
    engine = EventEngine(study(gs.DPSGD(0.1), gs.Full(10), timing=timing).plan())
    engine.advance(6)
    rounds = engine.snapshot().tensors["engine/events/rounds"]
    assert rounds[0] <= 6
    assert rounds[1:].min() > 25


@pytest.mark.parametrize(
    ("engine", "changes", "message"),
    [
        (Events(), {"timing": None}, "timing"),
        (Events(), {"timing": gs.Timing(compute=0.0, rate=1.0)}, "timing.compute"),
    ],
)
def test_bad_input(engine: Events, changes: dict[str, object], message: str) -> None:
    plan = study(gs.DPSGD(0.1), gs.RandomRing(10), **changes).plan()
    with pytest.raises(gs.InputError, match=message):
        engine.start(plan)


@pytest.mark.parametrize("field", ["seconds_per_round", "patience"])
def test_bad_settings(field: str) -> None:
    with pytest.raises(gs.InputError, match=field):
        Events(**{field: -1.0})


def test_a_round_lasts_as_long_as_the_network_says() -> None:
    network = gs.Mobility(10, radius=0.5, seconds_per_round=5.0) & gs.LinkFailure(0.1)
    run = gs.run(study(gs.DPSGD(0.1), network), engine=Events())
    assert list(run.metrics["simulated_seconds"]) == [0.0, 15.0, 30.0]


def test_several_runs_are_refused() -> None:
    with pytest.raises(gs.InputError, match=r"gossamer run"), pool_on(Events()):
        pass


def test_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gossamer", "run", "--engine", "events", "-q"]
    command += ["--set", "rounds=4", "--out", str(tmp_path / "run")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "timing" in refused.stderr
    assert "Traceback" not in refused.stderr
    command += ["--set", "timing.compute=0.1", "--set", "timing.rate=1e6"]
    subprocess.run(command, check=True, capture_output=True)
    assert gs.Run.read(tmp_path / "run").summary["simulated_seconds"] == 4
