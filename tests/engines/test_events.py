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
from gossamer.engines.events import Timeline, start_events
from gossamer.engines.events.waves import waves
from gossamer.engines.events.without_rounds import AsynchronousEngine
from gossamer.study import Study, spec
from gossamer.study.pools import Processes
from gossamer.study.sweep import sweep

SLOW_AND_FAST = gs.Timing(compute=gs.LogUniform(0.05, 0.5), rate=1e6, latency=0.01)
IN_PAIRS = sorted(
    name for name, method in gs.METHODS.items() if method.without_rounds == "in pairs"
)
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
    together = start_events(plan)
    naive = start_events(plan, batched=False)
    together.advance(4)
    naive.advance(4)
    assert together.record().messages == naive.record().messages > 0
    assert torch.equal(together.models(), naive.models())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_methods_that_need_more_than_a_pair_are_refused(name: str) -> None:
    method = gs.METHODS[name].make()
    made = study(method, gs.Ring(11))  # D² refuses rings of even length
    if name == "adom":
        made = replace(made, data=gs.LeastSquares(devices=11), batch=0, split=gs.Iid())
    with pytest.raises(gs.InputError, match=REFUSED[name]):
        start_events(made.plan())


def test_methods_say_how_they_run_without_rounds() -> None:
    refused = {name for name, method in gs.METHODS.items() if method.without_rounds == "no"}
    assert refused == set(REFUSED)
    for name in set(gs.METHODS) - refused:
        engine = start_events(study(gs.METHODS[name].make(), gs.RandomRing(10)).plan())
        expected = "in pairs"
        if isinstance(engine, AsynchronousEngine):
            expected = "in the background"
        assert gs.METHODS[name].without_rounds == expected, name
    guarded = gs.Guarded(gs.ADPSGD(), gs.Clip(1.0))
    assert guarded.without_rounds == "in pairs"


class _Matchings(gs.Network):
    """Random pairs: every device has one neighbour per round."""

    devices = 10

    def links(self, t: int) -> gs.Links:
        order = np.random.default_rng(t).permutation(10)
        return gs.Links.of(10, order.reshape(5, 2))


@pytest.mark.parametrize("name", IN_PAIRS)
def test_equal_steps_and_instant_links_give_the_rounds_of_the_simulator(name: str) -> None:
    instant = gs.Timing(compute=1.0, rate=1e300)
    plan = study(gs.METHODS[name].make(), _Matchings(), timing=instant).plan()
    events = start_events(plan, seconds_per_round=1.0, patience=0.0)
    rounds = Simulator(plan)
    events.advance(6)
    rounds.advance(6)
    assert torch.equal(events.models(), rounds.models())
    assert events.record().bytes == rounds.record().bytes


@pytest.mark.parametrize("every", [1, 3])
def test_a_resumed_run_is_the_same(every: int) -> None:
    plan = study(gs.QuasiGlobal(eta=0.1), gs.RandomRing(10) & gs.Churn(0.3, 0.5)).plan()
    whole = start_events(plan)
    whole.advance(6)
    engine = start_events(plan)
    for until in range(every, 6 + every, every):
        engine.advance(min(6, until))
        engine = start_events(plan, snapshot=engine.snapshot())
    assert torch.equal(engine.models(), whole.models())
    assert engine.record().bytes == whole.record().bytes


def test_a_checkpoint_of_another_engine_is_refused() -> None:
    plan = study(gs.DPSGD(0.1), gs.RandomRing(10)).plan()
    with pytest.raises(gs.DataError, match="events engine"):
        start_events(plan, snapshot=Simulator(replace(plan, timing=None)).snapshot())
    with pytest.raises(gs.DataError, match="--engine events"):
        Simulator(plan, start_events(plan).snapshot())


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
            meetings.time, meetings.a, meetings.b, meetings.a_count, meetings.b_count, strict=True
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


EVENTS = st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 6), st.integers(0, 4)), max_size=40)


@given(EVENTS)
def test_waves_keep_the_order_of_every_device(events: list[tuple[int, int, int]]) -> None:
    events = [event for event in events if event[0] != event[1]]
    a, b, kind = (np.array([event[k] for event in events], dtype=np.int64) for k in range(3))
    found = waves(a, b, kind, 7)
    flat = [int(k) for wave in found for k in wave]
    assert sorted(flat) == list(range(len(events)))
    for wave in found:
        assert len(wave)
        assert len(set(kind[wave])) == 1
        devices = [d for k in wave for d in events[k][:2] if d >= 0]
        assert len(devices) == len(set(devices))
    for device in range(7):
        own = [k for k in flat if device in events[k][:2]]
        assert own == sorted(own)


def test_a_contact_that_is_too_short_is_cut() -> None:
    """A message takes 5 s and links last 1 s: nothing arrives, and what was sent is counted."""
    timing = gs.Timing(compute=0.2, rate=1040.0)  # 5,200 bytes in float64
    engine = start_events(study(gs.DPSGD(0.1), _Matchings(), timing=timing).plan())
    engine.advance(6)
    record = engine.record()
    assert record.messages == 0
    assert 0 < record.bytes < 10 * 6 * 1040


def test_fast_devices_take_more_steps(tmp_path: Path) -> None:
    trace = tmp_path / "compute.csv"
    trace.write_text("device,compute\n" + "".join(f"{i},{0.1 if i else 1.0}\n" for i in range(10)))
    timing = gs.Timing(gs.TimingTrace(trace), rate=1e9)
    engine = start_events(study(gs.DPSGD(0.1), gs.Full(10), timing=timing).plan())
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


@pytest.mark.parametrize("field", ["seconds_per_round", "patience", "patience_seconds"])
def test_bad_settings(field: str) -> None:
    with pytest.raises(gs.InputError, match=field):
        Events(**{field: -1.0})


def test_a_round_lasts_as_long_as_the_network_says() -> None:
    network = gs.Mobility(10, radius=0.5, seconds_per_round=5.0) & gs.LinkFailure(0.1)
    run = gs.run(study(gs.DPSGD(0.1), network), engine=Events())
    assert list(run.metrics["simulated_seconds"]) == [0.0, 15.0, 30.0]


def test_the_engine_is_a_part_of_the_study(tmp_path: Path) -> None:
    """The same run in rounds has another digest, and a run folder knows which of them it holds."""
    in_rounds = study(gs.DPSGD(0.1), gs.RandomRing(10))
    without = replace(in_rounds, events=Events(patience=2.0))
    text = spec.dumps(without)
    assert spec.studies(spec.parse(text)) == [without]
    assert spec.digest(without) != spec.digest(in_rounds)
    done = gs.run(in_rounds, tmp_path, engine=Events(patience=2.0))
    assert done.study == without
    again = gs.run(without, tmp_path, resume=True)
    assert again.summary["accuracy"] == done.summary["accuracy"]
    with pytest.raises(gs.DataError, match="engine"):
        gs.run(in_rounds, tmp_path, resume=True)


def test_compare_and_sweep(tmp_path: Path) -> None:
    events = Events()
    studies = [
        replace(study(method, gs.RandomRing(10)), events=events)
        for method in (gs.DPSGD(0.1), gs.ADPSGD(0.1))
    ]
    for method in gs.compare(studies, out=tmp_path / "compare"):
        assert method.runs[0].summary["simulated_seconds"] == 6
        assert "steps" in method.runs[0].metrics
    for run in sweep(studies, tmp_path / "sweep", Processes(1)):
        assert run.summary["simulated_seconds"] == 6
        assert "steps" in run.metrics


def test_ray_refuses_a_run_without_rounds() -> None:
    without = replace(study(gs.DPSGD(0.1), gs.RandomRing(10)), events=Events())
    with pytest.raises(gs.InputError, match="one process"):
        gs.run(without, engine=gs.Ray())


@pytest.mark.slow
def test_tune(tmp_path: Path) -> None:
    """The search leaves out methods that need rounds, and says why."""
    file = tmp_path / "spec.toml"
    text = spec.dumps(replace(study(gs.DPSGD(0.1), gs.RandomRing(10)), rounds=20))
    file.write_text(text)
    command = [sys.executable, "-m", "gossamer", "tune", str(file), "--engine", "events", "--json"]
    command += ["--methods", "ad-psgd,choco-sgd", "--budget", "36", "--for", "seconds", "-q"]
    command += ["--target", "0.3", "--out", str(tmp_path / "tune")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    winner = (tmp_path / "tune" / "winner.toml").read_text()
    assert 'kind = "events"' in winner
    assert "whole vectors" in done.stdout


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


@pytest.mark.parametrize("method", [gs.DPSGD(0.1), gs.ADPSGD(0.1)], ids=repr)
def test_compute_times_from_a_trace(method: gs.Algorithm, tmp_path: Path) -> None:
    """Device i takes (i + 1)/8 s per step; from round 2 on, all take a quarter of a second."""
    file = tmp_path / "compute.csv"
    lines = ["device,round,compute"]
    for device in range(10):
        lines += [f"{device},0,{(device + 1) / 8}", f"{device},2,0.25"]
    file.write_text("\n".join(lines) + "\n")
    alone = gs.Callback(10, lambda t: [])
    timing = gs.Timing(compute=gs.TimingTrace(file), rate=1e6)
    engine = start_events(study(method, alone, timing=timing).plan(), patience=0.0)
    engine.advance(2)
    assert engine.record().steps == sum(int(2 / ((device + 1) / 8)) for device in range(10))
    before = engine.record().steps
    engine.advance(6)
    # A step that has begun before takes its old time.
    assert engine.record().steps - before in range(10 * 16 - 20, 10 * 16 + 1)
