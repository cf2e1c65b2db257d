"""Simulated time: clocks against an event loop, traces against a dictionary, resumes, results."""

from __future__ import annotations

import heapq
import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command import assert_refused, gossamer

import gossamer as gs
from gossamer.algorithms import GradientTracking, QuasiGlobalMomentum, TopK
from gossamer.engines import Plan, Simulator
from gossamer.errors import DataError, InputError
from gossamer.network import (
    Callback,
    Clock,
    Links,
    LogUniform,
    RandomPeer,
    Timing,
    TimingTrace,
    metropolis,
)
from gossamer.results.folder import RunFolder
from gossamer.study import spec
from gossamer.tasks.synthetic import LeastSquares

M = 6  # devices
N = 5  # parameters of a model
CHANGING = gs.Random(M, 0.4) & gs.LinkFailure(0.2) & gs.Churn(0.2, 0.5)
FLEET = Timing(
    LogUniform(0.01, 1.0), LogUniform(10.0, 1000.0, every=2), LogUniform(0.01, 0.5), seed=3
)


def plan_of(
    algorithm: Any, network: Any = CHANGING, timing: Timing | None = FLEET, rounds: int = 8
) -> Plan:
    problem = LeastSquares(devices=network.devices, dimension=N, samples=8)
    task = gs.Task(problem.load(), problem.split(), gs.LinearRegression(), 3)
    return Plan(task, network, algorithm, rounds, dtype="float64", threads=1, timing=timing)


def clock_of(simulator: Simulator) -> np.ndarray:
    return simulator.snapshot().tensors["engine/clock"].numpy()


def ran(plan: Plan) -> Simulator:
    simulator = Simulator(plan)
    simulator.advance(plan.rounds)
    return simulator


# -- the specification: independent devices, and events in the order of time ---------------------

# ("work", seconds, None), ("send", (receiver, message), seconds) or ("wait", messages, None)
Act = tuple[str, Any, Any]


def end_times(devices: list[Iterator[Act]]) -> list[float]:
    """Return the time at which each device has done all its acts.

    A device continues when its work ends or a message arrives.
    """
    number = itertools.count()
    events: list[tuple[float, int, int, Any]] = [
        (0.0, next(number), i, None) for i in range(len(devices))
    ]
    heapq.heapify(events)
    arrived: list[set[Any]] = [set() for _ in devices]
    wanted: dict[int, set[Any]] = {}
    end = [0.0] * len(devices)
    while events:
        now, _, i, message = heapq.heappop(events)
        if message is not None:
            arrived[i].add(message)
            if i not in wanted or not wanted[i] <= arrived[i]:
                continue  # the device works, or waits for another message
            del wanted[i]
        for kind, argument, seconds in devices[i]:
            end[i] = now
            if kind == "send":
                receiver, sent = argument
                heapq.heappush(events, (now + seconds, next(number), receiver, sent))
            elif kind == "work":
                heapq.heappush(events, (now + argument, next(number), i, None))
                break
            elif not argument <= arrived[i]:
                wanted[i] = argument
                break
        else:
            end[i] = now
    assert not wanted, "a device waits for a message that no device sends"
    return end


def device(
    i: int,
    plan: Plan,
    steps: Callable[[int, int], int],
    size: Callable[[int, int, int], float],
    ends_with: str,
) -> Iterator[Act]:
    """Yield the acts of one device: it computes and exchanges, except while it is away."""
    one = np.array([i])
    for t in range(plan.rounds):
        links = plan.network.links(t)
        if links.active is not None and not links.active[i]:
            continue
        takes = plan.algorithm.weights(links, t, plan.seed).dense()
        work = steps(t, i) * float(plan.timing.of("compute", t, one)[0])
        if ends_with == "mix" and work:
            yield "work", work, None
        for j in range(M):
            if j != i and takes[j, i] and (bytes_ := size(t, i, j)):
                latency = float(plan.timing.of("latency", t, np.array([j]), one)[0])
                rate = float(plan.timing.of("rate", t, np.array([j]), one)[0])
                yield "send", (j, (t, i)), latency + bytes_ / rate
        yield "wait", {(t, j) for j in range(M) if j != i and takes[i, j]}, None
        if ends_with == "step" and work:
            yield "work", work, None


def paired(plan: Plan) -> Callable[[int, int], int]:
    """Return the gradient steps of SwarmSGD: a device computes only if it is paired."""
    return lambda t, i: (
        2 * bool(plan.algorithm.weights(plan.network.links(t), t, plan.seed).active[i])
    )


VECTOR = N * 8
METHODS = {
    "combine, adapt": (gs.DPSGD(0.05), 1, VECTOR),
    "adapt, combine": (gs.DPSGD(0.05, order="adapt-then-combine"), 1, VECTOR),
    "power mean": (gs.WPM(3, 0.05, anchor=False), 1, VECTOR),
    "local steps": (
        gs.Composition(
            eta=0.05, local_steps=3, direction=QuasiGlobalMomentum(0.5), order="adapt-then-combine"
        ),
        3,
        VECTOR,
    ),
    "two vectors in one message": (
        gs.Composition(eta=0.05, direction=GradientTracking()),
        None,
        2 * VECTOR,
    ),
    "one way": (gs.Composition(eta=0.05, weights=RandomPeer()), 1, VECTOR),
    "one pair": (gs.SwarmSGD(0.05, 2), paired, VECTOR),
    "pairs": (gs.SwarmSGD(0.05, 2, "matching"), paired, VECTOR),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "network",
    [CHANGING, gs.Star(M), gs.Ring(M) & gs.Churn(0.3, 0.5)],
    ids=["changing", "star", "ring"],
)
def test_the_clocks_are_those_of_independent_devices(name: str, network: Any) -> None:
    algorithm, steps, size = METHODS[name]
    plan = plan_of(algorithm, network)
    if steps is None:  # count the gradient steps of the method
        alone = ran(
            replace(plan, network=Callback(M, lambda t: []), rounds=1, timing=Timing(1.0, 1.0))
        )
        steps = int(clock_of(alone)[0])
        assert steps in (1, 2)
    count = steps(plan) if callable(steps) else lambda t, i: steps
    expected = end_times(
        [device(i, plan, count, lambda t, i, j: size, algorithm.ends_with) for i in range(M)]
    )
    simulator = ran(plan)
    np.testing.assert_allclose(clock_of(simulator), expected, rtol=1e-13)
    assert simulator.record().seconds == clock_of(simulator).max() > 0


def test_compressed_messages_are_faster_and_the_first_to_a_neighbour_is_complete() -> None:
    network = gs.Random(M, 0.4, every=3)
    plan = plan_of(gs.Composition(eta=0.05, compress=TopK(0.2)), network, rounds=9)
    pairs = [set(map(tuple, network.links(t).pairs.tolist())) for t in range(9)]
    known = [pairs[0], *pairs]  # all devices know the shared start

    def size(t: int, i: int, j: int) -> float:
        if (min(i, j), max(i, j)) in known[t]:
            return 8 + 4  # one value of five, and its index
        return VECTOR

    expected = end_times([device(i, plan, lambda t, i: 1, size, "step") for i in range(M)])
    np.testing.assert_allclose(clock_of(ran(plan)), expected, rtol=1e-13)
    assert (
        ran(plan).record().seconds < ran(replace(plan, algorithm=gs.DPSGD(0.05))).record().seconds
    )


@pytest.mark.parametrize("network", [gs.Full(M), CHANGING], ids=["all here", "some away"])
def test_all_reduce_takes_the_steps_of_a_ring(network: Any) -> None:
    plan = plan_of(gs.AllReduce(0.05), network)
    now = [0.0] * M
    for t in range(plan.rounds):
        links = network.links(t)
        ring = []
        for i in range(M):
            if links.active is None or links.active[i]:
                ring.append(i)
        now = [
            now[i] + (i in ring) * float(FLEET.of("compute", t, np.array([i]))[0]) for i in range(M)
        ]
        for _ in range(2 * (len(ring) - 1)):
            slowest = 0.0
            for i, j in zip(ring, ring[1:] + ring[:1], strict=True):
                latency = float(FLEET.of("latency", t, np.array([i]), np.array([j]))[0])
                rate = float(FLEET.of("rate", t, np.array([i]), np.array([j]))[0])
                slowest = max(slowest, latency + VECTOR / len(ring) / rate)
            done = max(now[i] for i in ring) + slowest
            now = [done if i in ring else now[i] for i in range(M)]
    np.testing.assert_allclose(clock_of(ran(plan)), now, rtol=1e-12)


def test_a_server_waits_for_all_active_devices() -> None:
    clock = Clock(FLEET, np.arange(M) * 0.1)
    active = np.arange(M) != 2
    clock.average(4, active, 40.0, star=True)
    trips = []
    for i in range(M):
        trips.append(float(FLEET.carrying(4, np.array([i]), np.array([M]), 40.0)[0]))
    received = max(0.1 * i + trips[i] for i in range(M) if active[i])
    for i in range(M):
        expected = received + trips[i] if active[i] else 0.1 * i
        np.testing.assert_allclose(clock.now[i], expected)


@settings(max_examples=60)
@given(st.data())
def test_a_slower_link_or_device_never_ends_anything_earlier(data: st.DataObject) -> None:
    links = []
    for pairs in data.draw(st.lists(st.lists(st.tuples(*[st.integers(0, M - 1)] * 2)), max_size=6)):
        links.append(Links.of(M, pairs))
    seconds = []
    for _ in links:
        seconds.append([data.draw(st.floats(0, 9)) for _ in range(M + M * M)])
    column = data.draw(st.integers(0, M + M * M - 1))
    row = data.draw(st.integers(0, max(0, len(links) - 1)))
    slower = [list(values) for values in seconds]
    if slower:
        slower[row][column] += data.draw(st.floats(0, 9))

    class TableTiming(Timing):
        """Times from a table; rates are infinite."""

        table: Any = None

        def of(self, name: Any, t: int, *ids: Any) -> Any:
            values = np.array(self.table[t])
            if name == "compute":
                return values[ids[0]]
            if name == "latency":
                return values[M + ids[0] * M + ids[1]]
            return np.inf

    ends = []
    for table in (seconds, slower):
        timing = TableTiming(1.0, 1.0)
        object.__setattr__(timing, "table", table)
        clock = Clock(timing, np.zeros(M))
        history = []
        for t, round_ in enumerate(links):
            before = clock.now.copy()
            clock.compute(t, np.ones(M, dtype=np.int64))
            clock.exchange(t, metropolis(round_), 1.0)
            assert (clock.now >= before).all()
            history.append(clock.now.copy())
        ends.append(np.array(history))
    assert (ends[1] >= ends[0]).all()


def test_without_links_seconds_are_rounds_times_compute() -> None:
    plan = plan_of(gs.DPSGD(0.05), Callback(M, lambda t: []), Timing(0.25, 1e-3, 99.0))
    assert clock_of(ran(plan)).tolist() == [8 * 0.25] * M
    assert (
        ran(plan_of(gs.AllReduce(), Callback(1, lambda t: []), Timing(0.25, 1e-3, 99.0)))
        .record()
        .seconds
        == 2.0
    )


def test_a_device_that_is_away_keeps_its_clock() -> None:
    gone = Callback(
        M, lambda t: Links(M, *np.empty((2, 0), dtype=np.int64), active=np.arange(M) != 2)
    )
    assert clock_of(ran(plan_of(gs.DPSGD(0.05), gone, Timing(0.25, 1.0)))).tolist() == [
        2,
        2,
        0,
        2,
        2,
        2,
    ]


def test_a_delay_spreads_by_one_neighbour_per_round() -> None:
    """On a line whose first device is slow, device k is delayed from round k on: no barrier."""
    line = Callback(M, lambda t: [(i, i + 1) for i in range(M - 1)])
    clock = Clock(Timing(1.0, 1.0, 0.0), np.zeros(M))
    clock.now[0] = 100.0
    for t in range(M - 1):
        clock.exchange(t, metropolis(line.links(t)), 1e-9)
        assert (clock.now >= 100).tolist() == [k <= t + 1 for k in range(M)]


def test_many_devices() -> None:
    m = 100_000
    clock = Clock(replace(FLEET, seed=1), np.zeros(m))
    for t in range(2):
        clock.compute(t, np.ones(m, dtype=np.int64))
        clock.exchange(t, metropolis(gs.Ring(m).links(t)), 40.0)
    assert 1 < np.median(clock.now) < clock.now.max() < 2 * (1.0 + 0.5 + 40.0 / 10.0)


# -- quantities -----------------------------------------------------------------------------------


def test_draws_are_between_their_bounds_and_by_name() -> None:
    a, b = np.triu_indices(100, 1)
    rate = Timing(1.0, LogUniform(10.0, 1000.0), seed=5).of("rate", 0, a, b)
    assert 10 <= rate.min() < 12 < 900 < rate.max() <= 1000
    # Uniform in the logarithm: of 4950 rates as many are below the geometric mean as above.
    assert 0.48 < (rate < 100).mean() < 0.52
    timing = Timing(1.0, LogUniform(10.0, 1000.0), seed=5)
    # In both directions, in any order, in every round.
    assert (timing.of("rate", 7, b[::-3], a[::-3]) == rate[::-3]).all()
    assert (replace(timing, seed=6).of("rate", 0, a, b) != rate).all()
    redrawn = Timing(1.0, LogUniform(10.0, 1000.0, every=3), seed=5)
    drawn = np.array([redrawn.of("rate", t, a, b) for t in range(6)])
    assert (drawn[0] == drawn[2]).all()
    assert (drawn[3] == drawn[5]).all()
    assert (drawn[2] != drawn[3]).all()
    both = Timing(LogUniform(1.0, 9.0), 1.0, LogUniform(1.0, 9.0))
    assert (both.of("compute", 0, a) != both.of("latency", 0, a, b)).all()


rows = st.lists(
    st.tuples(*[st.integers(0, 4)] * 2, st.integers(0, 5), st.floats(0.1, 9)), max_size=20
).map(
    lambda lines: list(
        {(min(a, b), max(a, b), t): (a, b, t, rate) for a, b, t, rate in lines if a != b}.values()
    )
)


@settings(max_examples=60)
@given(rows, st.integers(0, 7))
def test_a_trace_of_links_holds_from_its_round_on(
    tmp_path_factory: Any, lines: list[Any], t: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "links.csv"
    path.write_text(
        "# measured\nround,a,b,rate\n"
        + "".join(f"{t},{a},{b},{rate!r}\n" for a, b, t, rate in lines)
    )
    timing = Timing(1.0, TimingTrace(path, default=7.5))
    for i, j in itertools.permutations(range(5), 2):
        known = {when: rate for a, b, when, rate in lines if {a, b} == {i, j} and when <= t}
        expected = known[max(known)] if known else 7.5
        assert timing.of("rate", t, np.array([i]), np.array([j])).tolist() == [expected]
    a, b = np.triu_indices(5, 1)
    one_by_one = []
    for k in range(len(a)):
        one_by_one.append(timing.of("rate", t, a[k : k + 1], b[k : k + 1])[0])
    assert timing.of("rate", t, a, b).tolist() == one_by_one


def test_a_trace_of_devices(tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text("device,compute\n2,0.5\n\n0,0.25 # the new one\n1,0\n")
    trace = TimingTrace(tmp_path / "devices.csv")
    assert Timing(trace, 1.0).of("compute", 3, np.arange(3)).tolist() == [0.25, 0.0, 0.5]
    with pytest.raises(
        DataError,
        match=r"devices\.csv has no compute for device 3 in round 0; add a line, or give a default",
    ):
        Simulator(plan_of(gs.DPSGD(), timing=Timing(trace, 1.0))).advance(1)
    (tmp_path / "links.csv").write_text("a,b,latency,rate\n0,1,2,4\n")
    both = TimingTrace(tmp_path / "links.csv")
    zero = np.array([0])
    one = np.array([1])
    assert Timing(1.0, both, both).carrying(0, one, zero, 10.0).tolist() == [2 + 10 / 4]
    with pytest.raises(DataError, match="has no rate for the link 0–2 in round 9"):
        Timing(1.0, both).of("rate", 9, one * 2, zero)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected names of columns such as device,compute or a,b,round,rate, not ''"),
        ("0,1,5\n", "line 1: expected names of columns"),
        ("a,b\n", "line 1: expected names of columns"),
        ("a,rate\n", "line 1: expected names of columns"),
        ("a,b,rate,rate\n", "line 1: expected names of columns"),
        ("a,b,speed\n", "line 1: expected names of columns"),
        ("device,rate\n", "line 1: expected names of columns"),
        ("device,a,b,compute\n", "line 1: expected names of columns"),
        ("a,b,rate\n0,1\n", "line 2: expected 3 values (a,b,rate), not '0 1'"),
        ("a,b,rate\n0,1,fast\n", "line 2: the rate 'fast' is not a finite number"),
        ("a,b,rate\n0,1,0\n", "line 2: the rate 0 is not a number above 0"),
        ("a,b,latency\n0,1,-1\n", "line 2: the latency -1 is not a number from 0"),
        ("a,b,latency\n0,1,inf\n", "line 2: the latency 'inf' is not a finite number"),
        ("a,b,latency\n0,-1,1\n", "line 2: the b -1 is not a whole number from 0"),
        ("a,b,latency\n0.5,1,1\n", "line 2: the a 0.5 is not a whole number from 0"),
        ("a,b,round,rate\n0,1,1e9,1\n", "line 2: the round 1e9 is not a whole number from 0"),
        (
            "device,compute\n10000000,1\n",
            "line 2: the device 10000000 is not a whole number from 0",
        ),
        ("a,b,round,rate\n3,1,7,1\n0,1,7,1\n1,3,7,2\n", "two values for the link 1–3 in one round"),
        ("device,compute\n4,1\n4,1\n", "two values for device 4 in one round"),
        ("device,compute\n\x00\xff,1\n", "UTF-8"),
    ],
)
def test_unusable_traces_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError) as refusal:
        TimingTrace(path)
    assert reason in str(refusal.value)
    assert str(path) in str(refusal.value)


def test_a_missing_or_large_trace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        TimingTrace(tmp_path / "none.csv")
    (tmp_path / "large.csv").write_text("device,compute\n" + "0,1\n" * 9)
    monkeypatch.setattr("gossamer.network.traces.reader.MAX_BYTES", 20)
    with pytest.raises(DataError, match="a trace may have 20"):
        TimingTrace(tmp_path / "large.csv")


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Timing(-1.0, 1.0), "compute"),
        (lambda: Timing(float("nan"), 1.0), "compute"),
        (lambda: Timing("fast", 1.0), "compute"),
        (lambda: Timing(1.0, 0.0), "rate"),
        (lambda: Timing(1.0, float("inf")), "rate"),
        (lambda: Timing(1.0, 1.0, -0.1), "latency"),
        (lambda: Timing(1.0, 1.0, seed=0.5), "seed"),
        (lambda: LogUniform(0.0, 1.0), "low"),
        (lambda: LogUniform(1.0, float("inf")), "high"),
        (lambda: LogUniform(2.0, 1.0), "high"),
        (lambda: LogUniform(1.0, 2.0, every=-1), "every"),
        (lambda: Timing(1.0, TimingTrace("devices.csv")), "rate"),
        (lambda: Timing(TimingTrace("devices.csv", -1.0), 1.0), "compute.default"),
    ],
)
def test_invalid_arguments_are_refused(
    make: Callable[[], Any], field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("devices.csv").write_text("device,compute\n0,1\n")
    with pytest.raises(InputError) as refusal:
        make()
    assert refusal.value.field == field


# -- runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm", [gs.DPSGD(0.05), gs.SwarmSGD(0.05, 2, "matching"), gs.AllReduce(0.05)], ids=repr
)
def test_a_resumed_run_has_the_same_clocks_bit_for_bit(algorithm: Any, tmp_path: Path) -> None:
    plan = plan_of(algorithm)
    whole = ran(plan)
    for stop in (0, 1, 5):
        simulator = Simulator(plan)
        simulator.advance(stop)
        snapshot = simulator.snapshot()
        simulator.advance(plan.rounds)  # the snapshot is a copy
        folder = RunFolder(tmp_path)
        folder.write_snapshot(snapshot)
        resumed = Simulator(plan, folder.snapshot())
        resumed.record()  # measuring takes no simulated time
        resumed.advance(plan.rounds)
        assert clock_of(resumed).tobytes() == clock_of(whole).tobytes()
        assert resumed.snapshot().tensors.keys() == whole.snapshot().tensors.keys()


@pytest.mark.parametrize("at", ["after_step", "after_mix"])
def test_a_timing_changes_nothing_but_the_seconds(at: Any) -> None:
    study = gs.Study(
        gs.DPSGD(0.1), gs.Random(10, 0.3), batch=4, rounds=6, measure=gs.Measure(every=2, at=at)
    )
    plain = gs.run(study)
    timed = gs.run(replace(study, timing=Timing(1.0, 1e6)))
    for name in plain.models:
        assert torch.equal(plain.models[name], timed.models[name])
    assert timed.metrics.keys() - plain.metrics.keys() == {"simulated_seconds"}
    assert timed.summary.keys() - plain.summary.keys() == {
        "simulated_seconds",
        "seconds_to",
        "seconds_to_merged",
    }
    for name in plain.metrics:
        assert np.array_equal(plain.metrics[name], timed.metrics[name], equal_nan=True)
    seconds = timed.metrics["simulated_seconds"]
    assert seconds[0] == 0
    assert (np.diff(seconds) > 2).all()  # two steps of one second each, and the messages
    assert timed.summary["simulated_seconds"] == seconds[-1]


def test_seconds_to_a_target_are_those_of_the_round_that_reached_it(tmp_path: Path) -> None:
    measure = gs.Measure(
        every=5,
        targets=(
            "accuracy >= 0.3",
            "accuracy >= 1",
            "loss <= 2",
        ),
    )
    study = gs.Study(gs.DPSGD(0.2), gs.Random(10, 0.3), rounds=20, measure=measure, timing=FLEET)
    done = gs.run(study, tmp_path / "out")
    for target in ("accuracy >= 0.3", "loss <= 2"):
        reached = done.summary["rounds_to"][target]
        assert reached is not None
        seconds = done.metrics["simulated_seconds"][reached // 5]
        assert done.summary["seconds_to"][target] == seconds
    assert done.summary["seconds_to"]["accuracy >= 1"] is None
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == done.summary
    (method,) = gs.compare([study], seeds=2)
    assert method.seconds_to("accuracy >= 1").mean == math.inf
    both = [run.summary["seconds_to"]["accuracy >= 0.3"] for run in method.runs]
    assert method.seconds_to("accuracy >= 0.3").mean == np.mean(both)
    assert both[0] != both[1]  # another seed: other links, other times


def test_the_seed_of_the_timing_follows_that_of_the_study() -> None:
    study = gs.Study(timing=FLEET, seed=1)
    assert study.timing == replace(FLEET, seed=FLEET.seed + 1)
    assert study.with_seed(4).timing == replace(FLEET, seed=FLEET.seed + 4)
    table: dict[str, Any] = {
        "seed": 7,
        "timing": {"compute": 1, "rate": {"kind": "log-uniform", "low": 1, "high": 2}},
    }
    assert spec.studies(table)[0].timing == Timing(1.0, LogUniform(1.0, 2.0), seed=7)
    assert spec.studies(table, seed=9)[0].timing.seed == 9
    assert spec.studies({**table, "timing": {**table["timing"], "seed": 2}})[0].timing.seed == 2


def test_studies_with_other_timings_are_not_compared() -> None:
    first = gs.Study(gs.DPSGD(), timing=FLEET)
    second = gs.Study(gs.AllReduce(), timing=replace(FLEET, compute=9.0))
    with pytest.raises(InputError, match=r"timing\.compute"):
        gs.compare([first, second])


# -- the command ----------------------------------------------------------------------------------

SPEC = """
rounds = 20
batch = 8
[network]
kind = "ring"
devices = 10
[measure]
every = 5
targets = ["accuracy >= 0.3", "accuracy >= 1"]
[timing]
compute = 0.02
rate = { kind = "log-uniform", low = 1e5, high = 1e6 }
latency = { kind = "trace", path = "links.csv", default = 0.5 }
[[algorithm]]
kind = "d-psgd"
eta = 0.2
[[algorithm]]
kind = "all-reduce"
eta = 0.2
"""


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(SPEC)
    Path("links.csv").write_text("a,b,latency\n0,1,0.01\n")


@pytest.mark.usefixtures("_here")
def test_compare_shows_seconds_to_each_target() -> None:
    done = gossamer("compare", "a.toml", "-q", "--out", "out")
    assert (done.code, done.err) == (0, "")
    head = []
    for line in done.out.splitlines():
        if "rounds" in line and "seconds" in line:
            head.append(line)
    words = head[-1].split()
    assert words[:5] == ["accuracy", "difference", "worst", "best", "merged"]
    assert words[5:7] == ["rounds", "seconds"]
    assert words[7:11] == ["merged", "rounds", "merged", "seconds"]
    for name, label in (("d-psgd", "D-PSGD"), ("all-reduce", "All-Reduce")):
        summary = json.loads(Path(f"out/{name}-seed0/summary.json").read_text())
        row = next(line.split() for line in done.out.splitlines() if line.strip().startswith(label))
        seconds = summary["seconds_to"]["accuracy >= 0.3"]
        label_to_loss = 6
        if label == "All-Reduce":  # its difference to the first method
            label_to_loss += 1
        assert row[label_to_loss : label_to_loss + 2] == [
            str(summary["rounds_to"]["accuracy >= 0.3"]),
            f"{seconds:.2f}",
        ]
        assert row.count("–") == 2  # rounds and seconds to the target of 1
    assert gossamer("compare", "a.toml", "-q", "--out", "out").out == done.out


@pytest.mark.usefixtures("_here")
def test_run_resumes_and_shows_no_seconds_without_a_timing() -> None:
    one = ["--set", "algorithm={kind='d-psgd',eta=0.2}"]
    assert "seconds" in gossamer("run", "a.toml", "-q", "--out", "timed", *one).out
    assert gossamer("run", "timed/spec.toml", "-q", "--out", "timed", "--resume").code == 0
    other = gossamer(
        "run", "timed/spec.toml", "-q", "--out", "timed", "--resume", "--set", "timing.compute=0.5"
    )
    assert_refused(other, "timing.compute was 0.02 and is now 0.5")
    Path("b.toml").write_text(SPEC.partition("[timing]")[0])
    plain = gossamer("run", "b.toml", "-q", "--out", "plain")
    assert "seconds" not in plain.out
    assert "simulated_seconds" not in RunFolder(Path("plain")).metrics()


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("timing=5", ["timing = 5", "a table"]),
        ("timing={rate=1}", ["timing.compute is missing: give a number or a table with a kind"]),
        ("timing.compute=-1", ["timing.compute = -1", "a number of at least 0"]),
        ("timing.compute='soon'", ["timing.compute = 'soon'", "a number or a table with a kind"]),
        ("timing.speed=1", ["timing.speed is not a known key", "compute, rate, latency, seed"]),
        ("timing.rate.kind=drawn", ["timing.rate.kind = 'drawn'", "'log-uniform', 'trace'"]),
        ("timing.rate={kind='log-uniform',low=1}", ["timing.rate.high is missing"]),
        ("timing.rate={kind='log-uniform',low=2,high=1}", ["timing.rate.high = 1", "at least low"]),
        (
            "timing.rate={kind='trace',path='links.csv'}",
            ["timing.rate = ", 'a column "rate"', "latency"],
        ),
        ("timing.rate={kind='trace',path='none.csv'}", ["none.csv cannot be read"]),
        ("timing.latency.default=-1", ["timing.latency.default = -1"]),
    ],
)
def test_the_command_names_what_a_timing_accepts(setting: str, parts: list[str]) -> None:
    assert_refused(gossamer("compare", "a.toml", "-q", "--set", setting), *parts)
    assert not Path("runs").exists()
