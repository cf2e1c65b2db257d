"""The simulator: measuring, counting, snapshots, devices that are away, divergence, plans."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.plans import CHANGING, M, images, plan_of, run, squares
from torch import Tensor

from gossamer._core.threads import available_threads
from gossamer.algorithms import (
    DPSGD,
    WPM,
    Algorithm,
    AllReduce,
    Constant,
    GainControl,
    Matched,
    Power,
    SwarmSGD,
    Switch,
)
from gossamer.engines import Measure, Plan, Simulator, Snapshot
from gossamer.errors import Diverged, InputError
from gossamer.mirror import power_mean, signed_power
from gossamer.network import (
    Callback,
    Churn,
    Full,
    LinkFailure,
    Links,
    Network,
    Random,
    Ring,
    Sequence,
    Star,
    matching,
    metropolis,
    one_pair,
    save,
)
from gossamer.tasks import Cnn, Mlp, Softmax, Worker

CPU = torch.device("cpu")


# -- measuring ----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [Softmax(), Cnn((2, 3), norm=True)])
@pytest.mark.parametrize(
    ("algorithm", "at"),
    [(DPSGD(0.05), "after_step"), (DPSGD(0.05), "after_mix"), (WPM(3, 0.05), "after_step")],
)
def test_the_merged_model_is_the_mean_of_those_that_take_part(
    algorithm: Algorithm, model: Any, at: Any
) -> None:
    """Against one model that is averaged by hand, with averaged BatchNorm statistics."""
    plan = plan_of(algorithm, CHANGING, 8, task=images(model), measure=Measure(at=at))
    simulator = Simulator(plan)
    seen_away = False
    for until in (0, 1, 3, 5, 8):
        simulator.advance(until)
        record = simulator.record()
        worker = worker_of(plan)
        present = list(range(M))
        halfway_round = plan.measures_halfway and until > 0
        active = None
        if until:
            active = plan.network.links(until if halfway_round else until - 1).active
        if active is not None and active.any():
            present = np.flatnonzero(active).tolist()
            seen_away |= len(present) < M
        w = simulator.models()
        buffers = {}
        for name in worker.buffers:
            own = simulator.snapshot().tensors["buffer/" + name]
            buffers[name] = own[:1]
            if own.is_floating_point():
                buffers[name] = own[present].mean(0, keepdim=True)
            worker.buffers[name].copy_(own)
        if halfway_round:
            w = halfway(plan, w, until, worker)
        mean = w[present].mean(0, keepdim=True)
        expected = worker.scores(mean, plan.metrics, buffers)
        assert record.merged["loss"] == pytest.approx(float(expected.loss), rel=1e-9)
        accuracy = float(expected.metrics["accuracy"])
        assert record.merged["accuracy"] == pytest.approx(accuracy, rel=1e-9)
        if algorithm.mirror_at(until).power == 1:
            assert record.merged_power == {}
            continue
        weights = torch.full((len(present),), 1 / len(present), dtype=w.dtype)
        power = power_mean(w[present], weights, 3)[None]
        expected = worker.scores(power, plan.metrics, buffers)
        assert record.merged_power["loss"] == pytest.approx(float(expected.loss), rel=1e-9)
    assert seen_away


def test_the_merged_model_can_be_switched_off() -> None:
    record = run(plan_of(WPM(3, 0.05), measure=Measure(merged=False))).record()
    assert record.merged == record.merged_power == {}


def test_a_falling_power_has_a_power_mean_in_every_record() -> None:
    """The columns of a run are the same in every row."""
    simulator = Simulator(plan_of(WPM(Switch(3, 6), 0.05), rounds=12))
    for until in (0, 3, 9, 12):
        simulator.advance(until)
        record = simulator.record()
        assert record.merged_power.keys() == record.merged.keys()
    assert record.merged_power == record.merged


def worker_of(plan: Plan) -> Worker:
    return plan.task.worker(
        np.arange(plan.task.devices), plan.seed, getattr(torch, plan.dtype), CPU
    )


def halfway(plan: Plan, w: Tensor, t: int, worker: Worker) -> Tensor:
    """Return the models in the middle of round t, written out for each algorithm."""
    algorithm = plan.algorithm
    links = plan.network.links(t)
    active = torch.ones(M, dtype=torch.bool)
    if links.active is not None:
        active = torch.from_numpy(links.active)
    match algorithm:
        case DPSGD(order="combine-then-adapt"):
            middle = torch.from_numpy(metropolis(links).dense()) @ w
        case WPM(order="combine-then-adapt"):
            p = algorithm.mirror_at(t).power
            assert p is not None
            middle = power_mean(w, torch.from_numpy(metropolis(links).dense()), p)
        case SwarmSGD():
            middle = w - 0.05 * worker.gradient(w, t)
            rule = one_pair if algorithm.pairs == "one" else matching
            active = torch.from_numpy(rule(links, t, plan.seed).active)
        case _:
            middle = w - 0.05 * worker.gradient(w, t)
    return torch.where(active[:, None], middle, w)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "network"),
    [(Softmax(), Ring(M)), (Cnn((2, 2), norm=True), CHANGING)],
    ids=["softmax", "batch norm, changing"],
)
@pytest.mark.parametrize(
    "algorithm",
    [
        DPSGD(0.05),
        DPSGD(0.05, order="adapt-then-combine"),
        WPM(3, 0.05, anchor=False),
        WPM(3, 0.001, Constant(), anchor=False),
        SwarmSGD(0.05),
        SwarmSGD(0.05, pairs="matching"),
        AllReduce(0.05),
    ],
    ids=repr,
)
def test_measured_after_the_step_or_after_the_mix(
    algorithm: Algorithm, model: Any, network: Network
) -> None:
    """One is the end of the last round, the other the middle of the next one.

    Measuring changes neither models nor traffic.
    """
    ends: list[Any] = ["after_step", "after_mix"]
    end, middle = ends if algorithm.ends_with == "step" else reversed(ends)
    unmeasured = run(plan_of(algorithm, network, 6, task=images(model)))
    for at in (end, middle):
        plan = plan_of(algorithm, network, 6, task=images(model), measure=Measure(at=at))
        simulator = Simulator(plan)
        for until in (0, 1, 2, 4, 6):
            simulator.advance(until)
            record = simulator.record()
            worker = worker_of(plan)
            w = simulator.models()
            for name, b in worker.buffers.items():
                b.copy_(simulator.snapshot().tensors["buffer/" + name])
            if at == middle and until > 0:
                buffers = {name: b.clone() for name, b in worker.buffers.items()}
                w = halfway(plan, w, until, worker)
                worker.buffers.update(buffers)
            scores = worker.scores(w, plan.metrics)
            np.testing.assert_allclose(record.loss, scores.loss, rtol=1e-10)
            np.testing.assert_allclose(record.metrics["accuracy"], scores.metrics["accuracy"])
            np.testing.assert_allclose(
                record.distance, (w - w.mean(0)).norm(dim=1), rtol=1e-9, atol=1e-12
            )
            p = algorithm.mirror_at(until).power
            assert p is not None
            centre = signed_power(signed_power(w, p).mean(0), 1 / p)
            np.testing.assert_allclose(
                record.power_distance, (w - centre).norm(dim=1), rtol=1e-9, atol=1e-12
            )
            assert record.round == until
        assert torch.equal(simulator.models(), unmeasured.models())
        assert simulator.record().messages == unmeasured.record().messages


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("network", [CHANGING, Star(M)], ids=["changing", "star"])
def test_bytes_and_messages(network: Network, dtype: Any) -> None:
    """A message is one model from one device to one neighbour, in the type of the models."""
    size = {"float32": 4, "float64": 8}[dtype]
    parameters = 5
    rounds = [network.links(t) for t in range(12)]
    linked = sum(2 * len(links) for links in rounds)
    one = sum(2 * (len(links) > 0) for links in rounds)
    for algorithm in (
        DPSGD(),
        WPM(3, anchor=False),
        WPM(3, 0.001, Constant(), anchor=False),
        WPM(Switch(5, 3)),
        DPSGD(order="adapt-then-combine"),
    ):
        record = run(plan_of(algorithm, network, dtype=dtype)).record()
        assert (record.messages, record.bytes) == (linked, linked * parameters * size)
    record = run(plan_of(SwarmSGD(local_steps=3), network, dtype=dtype)).record()
    assert (record.messages, record.bytes) == (one, one * parameters * size)
    paired = sum(2 * len(matching(links, t, 0).value) for t, links in enumerate(rounds))
    record = run(plan_of(SwarmSGD(pairs="matching"), network, dtype=dtype)).record()
    assert (record.messages, record.bytes) == (paired, paired * parameters * size)
    active = []
    for links in rounds:
        active.append(M if links.active is None else int(links.active.sum()))
    record = run(plan_of(AllReduce(), network, dtype=dtype)).record()
    assert record.messages == sum(2 * (k - 1) * k for k in active if k)
    assert record.bytes == sum(2 * (k - 1) * parameters * size for k in active if k)


# -- snapshots ----------------------------------------------------------------------------------


EVERY = [
    DPSGD(0.05),
    DPSGD(0.05, order="adapt-then-combine"),
    WPM(3, 0.01, Constant(), anchor=False),
    WPM(101, 0.01, Constant(), order="adapt-then-combine", anchor=False),
    WPM(15, 0.05, Power()),
    WPM(3, 0.05, Matched(), "local", anchor=False),
    WPM(Switch(5, 6), 0.05),
    SwarmSGD(0.05, local_steps=2),
    SwarmSGD(0.05, pairs="matching"),
    AllReduce(0.05),
    GainControl(0.05),
]
MODELS = {
    "softmax": Softmax(),
    "batch norm": Cnn((2, 2), norm=True),
    "dropout": Mlp((4,), dropout=0.3),
}


def equal(a: Snapshot, b: Snapshot) -> bool:
    if (a.round, a.messages, a.bytes) != (b.round, b.messages, b.bytes):
        return False
    if set(a.tensors) != set(b.tensors):
        return False
    for name, x in a.tensors.items():
        y = b.tensors[name]
        if x.dtype != y.dtype or not torch.equal(x, y):
            return False
    return True


RESUMED: list[tuple[Algorithm, str, str]] = []
for _algorithm in EVERY:
    RESUMED += [(_algorithm, "softmax", "float32"), (_algorithm, "softmax", "float64")]
# Buffers and keys of random values are the engine's: a few methods show that they are resumed.
for _algorithm in EVERY[:3]:
    RESUMED += [(_algorithm, "batch norm", "float32"), (_algorithm, "dropout", "float64")]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "model", "dtype"), RESUMED, ids=repr)
@pytest.mark.no_cover
def test_a_resumed_run_is_equal_bit_for_bit(algorithm: Algorithm, model: str, dtype: Any) -> None:
    """So is a rerun. Resuming from a snapshot does not change it."""
    plan = plan_of(algorithm, rounds=9, task=images(MODELS[model]), dtype=dtype)
    simulator = Simulator(plan)
    snapshots = []
    for until in (0, 1, 5):
        simulator.advance(until)
        snapshots.append(simulator.snapshot())
    simulator.advance(9)
    end = simulator.snapshot()
    assert any(name.startswith("buffer/") for name in end.tensors) == (model == "batch norm")
    assert equal(run(plan).snapshot(), end)
    for snapshot in [*snapshots, snapshots[-1]]:
        resumed = Simulator(plan, snapshot)
        resumed.record()
        resumed.advance(9)
        assert equal(resumed.snapshot(), end)


def test_stop_between_two_rounds() -> None:
    plan = plan_of(DPSGD(0.05))
    simulator = Simulator(plan)
    simulator.advance(12, stop=lambda: simulator.round == 5)
    assert simulator.round == 5
    assert equal(simulator.snapshot(), run(plan, 5).snapshot())
    simulator.advance(3)
    assert simulator.round == 5
    simulator.advance(12)
    assert equal(simulator.snapshot(), run(plan).snapshot())


def test_another_seed_is_another_run() -> None:
    plan = plan_of(DPSGD(0.05))
    assert not torch.equal(run(plan).models(), run(replace(plan, seed=1)).models())


# -- devices that are away ------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_devices_that_are_away_do_not_change(algorithm: Algorithm, model: str) -> None:
    """Neither their models nor their running statistics."""
    network = Full(M) & Churn(0.4, 0.4)
    plan = plan_of(algorithm, network, 8, task=images(MODELS[model]))
    simulator = Simulator(plan)
    moved = False
    for t in range(8):
        active = network.links(t).active
        assert active is not None
        before = simulator.snapshot().tensors | {"models": simulator.models().clone()}
        simulator.advance(t + 1)
        after = simulator.snapshot().tensors | {"models": simulator.models().clone()}
        for name in set(before) & set(after) - {"start"}:
            if before[name].dtype == after[name].dtype:
                assert torch.equal(before[name][~active], after[name][~active])
        moved |= bool((before["models"] != after["models"]).any())
    assert moved


def test_nothing_of_a_device_that_is_away_reaches_others() -> None:
    network = Callback(M, lambda t: Links.of(M, Full(M).links(0).pairs).keep(*without(5)))
    for algorithm in (
        DPSGD(0.05),
        WPM(3, 0.01, anchor=False),
        AllReduce(0.05),
        SwarmSGD(0.05, pairs="matching"),
    ):
        plan = plan_of(algorithm, network)
        normal = Simulator(plan)
        start = normal.snapshot()
        name = "w" if "w" in start.tensors else "z"
        start.tensors[name][5] = 1e6
        other = Simulator(plan, start)
        for simulator in (normal, other):
            simulator.advance(12)
        assert torch.equal(normal.models()[:5], other.models()[:5])


def without(device: int) -> tuple[Any, Any]:
    pairs = Full(M).links(0).pairs
    return (pairs != device).all(axis=1), np.arange(M) != device


def test_rounds_without_any_device_change_nothing() -> None:
    network = Callback(
        M, lambda t: Links.of(M, []).keep(np.zeros(0, dtype=bool), np.zeros(M, dtype=bool))
    )
    for algorithm in EVERY:
        simulator = run(plan_of(algorithm, network))
        assert torch.equal(simulator.models(), Simulator(simulator.plan).models())
        assert (simulator.record().messages, simulator.record().bytes) == (0, 0)


# -- divergence ---------------------------------------------------------------------------------


def burst(at: int, device: int) -> Callable[[int], list[float]]:
    """Return a schedule of η that makes one device diverge in one round."""
    return lambda t: [1e308 if t == at and i == device else 0.01 for i in range(M)]


@pytest.mark.parametrize("network", [Ring(M), Full(M) & LinkFailure(0.3)], ids=["ring", "failures"])
@pytest.mark.parametrize(
    "make",
    [
        lambda eta: DPSGD(eta),
        lambda eta: DPSGD(eta, order="adapt-then-combine"),
        lambda eta: WPM(3, eta, anchor=False),
        lambda eta: WPM(3, eta, order="adapt-then-combine", anchor=False),
        lambda eta: WPM(3, eta, Constant(), order="adapt-then-combine", anchor=False),
        lambda eta: WPM(15, eta, Matched(), "local"),
        lambda eta: AllReduce(eta),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_diverged_names_the_round_and_the_device(
    make: Callable[[Any], Algorithm], network: Network, dtype: Any
) -> None:
    """Also if the round ends with a mix, which spreads the values to other devices."""
    task = replace(squares(), batch=8)
    huge = replace(task, data=replace(task.data, y=task.data.y * 1e8))
    simulator = Simulator(plan_of(make(burst(at=4, device=3)), network, task=huge, dtype=dtype))
    with pytest.raises(Diverged, match=r"device 3 .* after round 5") as error:
        simulator.advance(12)
    assert (error.value.round, error.value.device, error.value.exit_code) == (5, 3, 3)
    assert simulator.round == 4


def test_a_rate_that_is_too_large_diverges() -> None:
    simulator = Simulator(plan_of(SwarmSGD(1e30, pairs="matching"), Ring(M), 200, dtype="float32"))
    with pytest.raises(Diverged) as error:
        simulator.advance(200)
    assert error.value.round == simulator.round + 1


# -- plans --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"network": Ring(M + 1)}, "network.devices"),
        ({"rounds": -1}, "rounds"),
        ({"threads": -1}, "threads"),
    ],
)
def test_refused_plans(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        replace(plan_of(DPSGD()), **changes)
    assert refusal.value.field == field


def test_a_network_with_a_last_round(tmp_path: Any) -> None:
    """Measuring in the middle of the next round needs the links of one more round."""
    save(Random(M, 0.5), tmp_path / "links.parquet", rounds=12)
    network = Sequence(tmp_path / "links.parquet")
    assert run(plan_of(DPSGD(), network)).record().round == 12
    with pytest.raises(InputError, match=r"^rounds = 13 .* at most 12"):
        plan_of(DPSGD(), network, 13)
    with pytest.raises(InputError, match=r"^rounds = 12 .* at most 11"):
        plan_of(DPSGD(), network, 12, measure=Measure(at="after_mix"))
    assert run(plan_of(DPSGD(), network, 11, measure=Measure(at="after_mix"))).record().round == 11
    mixed_last = plan_of(
        DPSGD(order="adapt-then-combine"), network, 12, measure=Measure(at="after_mix")
    )
    assert run(mixed_last).record().round == 12


def test_directed_links_are_refused() -> None:
    with pytest.raises(InputError, match="symmetric"):
        plan_of(DPSGD(), Callback(M, lambda t: [(0, 1)], directed=True))


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_an_unknown_torch_device(device: str) -> None:
    with pytest.raises(InputError, match=r"^device = "):
        Simulator(plan_of(DPSGD(), device=device))


def test_threads_are_chosen_by_the_work_or_as_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    small = plan_of(DPSGD())
    large = plan_of(DPSGD(), task=replace(squares(dimension=1000), batch=10_000))
    assert small.threads_to_use() == 1
    assert large.threads_to_use() == 7
    assert replace(small, threads=3).threads_to_use() == 3
    before = torch.get_num_threads()
    for threads in (1, 2):
        used: list[int] = []

        def stop(used: list[int] = used) -> bool:
            used.append(available_threads())
            return False

        Simulator(replace(small, threads=threads)).advance(1, stop)
        assert used == [threads]
        assert torch.get_num_threads() == before
