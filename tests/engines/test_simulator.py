"""The simulator: mixing, measuring, counting, stopping and going on, away devices, divergence, consensus."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.accuracy import assert_power_means_agree
from torch import Tensor

from gossamer import draws
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
    Safe,
    SwarmSGD,
    Switch,
)
from gossamer.engines import Measure, Plan, Simulator, Snapshot
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.errors import Diverged, InputError
from gossamer.mirror import IdentityMap, PowerMap, power_map, power_mean, signed_power
from gossamer.network import (
    Callback,
    Churn,
    Cycle,
    ErdosRenyi,
    Full,
    Graph,
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
from gossamer.network.weights import Weights
from gossamer.tasks import Cnn, Iid, LinearRegression, Mlp, Softmax, Task, Worker, from_arrays
from gossamer.tasks.synthetic import LeastSquares
from gossamer.theory import check_assumption1

M = 6
CHANGING = Random(M, 0.5) & LinkFailure(0.2) & Churn(0.15, 0.5)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """A simulator sets torch's threads for the whole process: put them back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def squares(devices: int = M, dimension: int = 5) -> Task:
    problem = LeastSquares(devices=devices, dimension=dimension, samples=8)
    return Task(problem.load(), problem.split(), LinearRegression(), 3)


def images(model: Any, devices: int = M) -> Task:
    """Little pictures of three classes."""
    y = draws.below(3, 0, "y", np.arange(60))
    x = (
        draws.normal(0, "x", np.arange(60)[:, None], np.arange(16)).reshape(60, 1, 4, 4)
        + y[:, None, None, None]
    )
    return Task(from_arrays(x, y, x[:20], y[:20]), Iid().make(y, devices, 0), model, 4)


def plan_of(
    algorithm: Algorithm, network: Network = CHANGING, rounds: int = 12, **changes: Any
) -> Plan:
    return Plan(
        changes.pop("task", None) or squares(),
        network,
        algorithm,
        rounds,
        **{"dtype": "float64", **changes},
    )


def ran(plan: Plan, until: int | None = None) -> Simulator:
    simulator = Simulator(plan)
    simulator.advance(plan.rounds if until is None else until)
    return simulator


# Mixing


def magnitudes(m: int, n: int, dtype: torch.dtype, lowest: float = -8) -> Tensor:
    """Weights of any sign from 10^lowest to 1e4, mixed freely; every seventh column of one size, some of them zero."""
    i, j = np.arange(m)[:, None], np.arange(n)
    exponent = lowest + (4 - lowest) * draws.uniform(0, "exponent", np.where(j % 7 == 0, 0, i), j)
    sign = np.where(draws.uniform(0, "sign", i, j) < 0.4, -1.0, 1.0)
    zero = draws.uniform(0, "zero", i, j) < 0.1
    return torch.from_numpy(np.where(zero, 0.0, sign * 10.0**exponent)).to(dtype)


def mix_of(weights: Weights) -> StackedMix:
    return StackedMix(weights, torch.arange(weights.devices), 8, Traffic())


DENSE, SPARSE = metropolis(ErdosRenyi(20, 0.3).links(0)), metropolis(ErdosRenyi(90, 0.03).links(0))


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("weights", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("p", [1.5, 2.0, 3.0, 15.0, 35.0, 101.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lowest", [-8.0, -3.0, 3.0])
def test_power_mean_of_any_magnitudes(
    weights: Weights, p: float, dtype: torch.dtype, lowest: float
) -> None:
    """Down to 1e-8 at p = 101 beside 1e4 in one neighbourhood: what does not fit float64 takes the scaled way."""
    w = magnitudes(weights.devices, 150, dtype, lowest)
    expected = power_mean(w, torch.from_numpy(weights.dense()), p)
    mix = mix_of(weights)
    assert_power_means_agree(mix.mean(w, power_map(p)), expected, w, weights, p)
    assert_power_means_agree(mix._scaled_power_mean(w, p), expected, w, weights, p)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_more_columns_than_one_block(dtype: torch.dtype) -> None:
    """A matrix product may sum in another order for another number of columns."""
    w = magnitudes(20, 9000, dtype)
    whole = mix_of(DENSE).mean(w, power_map(101.0))
    for columns in (slice(0, 3), slice(3270, 3290), slice(8990, 9000)):
        part = w[:, columns]
        expected = mix_of(DENSE).mean(part, power_map(101.0))
        assert_power_means_agree(whole[:, columns], expected, part, DENSE, 101.0)


def is_sparse(mix: StackedMix, dtype: torch.dtype) -> bool:
    matrix = mix._matrix(dtype, 0)
    return not isinstance(matrix, Tensor) or matrix.layout == torch.sparse_csr


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_linear_mix_dense_and_sparse(dtype: torch.dtype) -> None:
    """Whatever is faster is taken; both are Σ_j a_ij·x_j."""
    for weights, sparse in ((DENSE, False), (SPARSE, True)):
        mix, x = mix_of(weights), magnitudes(weights.devices, 30, dtype)
        assert is_sparse(mix, dtype) == sparse
        exact = weights.dense() @ x.double().numpy()
        size = weights.dense() @ x.double().abs().numpy()
        for result in (mix(x), mix.mean(x, IdentityMap()), mix(x, torch.float64)):
            assert result.dtype == dtype
            assert result.data_ptr() != x.data_ptr()
            assert (
                np.abs(result.double().numpy() - exact) <= 8 * torch.finfo(dtype).eps * size
            ).all()


def test_a_crowded_network_is_mixed_densely_however_large() -> None:
    for dtype in (torch.float32, torch.float64):
        assert not is_sparse(mix_of(metropolis(Full(90).links(0))), dtype)
        assert is_sparse(mix_of(metropolis(Ring(90).links(0))), dtype)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("weights", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("p", [1.0, 3.0, 101.0])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_is_never_a_silent_number(
    weights: Weights, p: float, wrong: float
) -> None:
    x = magnitudes(weights.devices, 4, torch.float32)
    x[3, 2] = wrong
    touched = torch.from_numpy(weights.dense()[3] != 0)
    for result in (mix_of(weights).mean(x, power_map(p)), mix_of(weights)._scaled_power_mean(x, p)):
        assert not result[touched, 2].isfinite().any()
        assert result[:, [0, 1, 3]].isfinite().all()


def test_rounds_with_other_numbers_of_devices() -> None:
    """One device alone, and two that never meet, mix to themselves."""
    for m in (1, 2):
        x, mix = magnitudes(m, 40, torch.float64), mix_of(metropolis(Links.of(m, [])))
        assert torch.equal(mix(x), x)
        torch.testing.assert_close(mix.mean(x, PowerMap(101.0)), x, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    "algorithm",
    [DPSGD(0.05), WPM(3, 0.01, anchor=False), SwarmSGD(0.05, pairs="matching"), WPM(15)],
    ids=repr,
)
def test_the_simulator_mixes_alike_densely_and_sparsely(
    algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(algorithm, ErdosRenyi(80, 0.02), 10, task=squares(80))
    sparse = ran(plan).models()

    def dense_only(self: StackedMix, dtype: torch.dtype, block: int) -> Tensor:
        return torch.from_numpy(self.weights.dense()).to(dtype)

    monkeypatch.setattr(StackedMix, "_matrix", dense_only)
    torch.testing.assert_close(ran(plan).models(), sparse, rtol=0, atol=1e-12)


# Measuring


def worker_of(plan: Plan) -> Worker:
    return plan.task.worker(
        np.arange(plan.task.devices), plan.seed, getattr(torch, plan.dtype), CPU
    )


def halfway(plan: Plan, w: Tensor, t: int, worker: Worker) -> Tensor:
    """What the other half of round t begins with, written out for each algorithm."""
    algorithm, links = plan.algorithm, plan.network.links(t)
    here = (
        torch.ones(M, dtype=torch.bool) if links.active is None else torch.from_numpy(links.active)
    )
    match algorithm:
        case DPSGD(order="combine-then-adapt"):
            middle = torch.from_numpy(metropolis(links).dense()) @ w
        case WPM(order="combine-then-adapt"):
            p = algorithm.mirror_at(t).power
            assert p is not None
            middle = power_mean(w, torch.from_numpy(metropolis(links).dense()), p)
        case SwarmSGD():
            middle = w - 0.05 * worker.gradient(w, t)
            here = torch.from_numpy(
                (one_pair if algorithm.pairs == "one" else matching)(links, t, plan.seed).active
            )
        case _:
            middle = w - 0.05 * worker.gradient(w, t)
    return torch.where(here[:, None], middle, w)


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
    """One of the two is the end of the last round, the other the middle of the coming one; measuring changes nothing."""
    ends: list[Any] = ["after_step", "after_mix"]
    end, middle = ends if algorithm.ends_with == "step" else reversed(ends)
    undisturbed = ran(plan_of(algorithm, network, 6, task=images(model)))
    for at in (end, middle):
        plan = plan_of(algorithm, network, 6, task=images(model), measure=Measure(at=at))
        simulator = Simulator(plan)
        for until in (0, 1, 2, 4, 6):
            simulator.advance(until)
            record = simulator.record()
            worker, w = worker_of(plan), simulator.models()
            for name, b in worker.buffers.items():
                b.copy_(simulator.snapshot().tensors["buffer/" + name])
            if at == middle and until > 0:
                buffers = {name: b.clone() for name, b in worker.buffers.items()}
                w = halfway(plan, w, until, worker)
                worker.buffers.update(buffers)
            scores = worker.scores(w)
            np.testing.assert_allclose(record.loss, scores.loss, rtol=1e-10)
            np.testing.assert_allclose(record.accuracy, scores.accuracy)
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
        assert torch.equal(simulator.models(), undisturbed.models())
        assert simulator.record().messages == undisturbed.record().messages


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("network", [CHANGING, Star(M)], ids=["changing", "star"])
def test_bytes_and_messages(network: Network, dtype: Any) -> None:
    """A message is one model from one device to one neighbour, in the models' own type."""
    size, parameters = {"float32": 4, "float64": 8}[dtype], 5
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
        record = ran(plan_of(algorithm, network, dtype=dtype)).record()
        assert (record.messages, record.bytes) == (linked, linked * parameters * size)
    record = ran(plan_of(SwarmSGD(local_steps=3), network, dtype=dtype)).record()
    assert (record.messages, record.bytes) == (one, one * parameters * size)
    paired = sum(2 * len(matching(links, t, 0).value) for t, links in enumerate(rounds))
    record = ran(plan_of(SwarmSGD(pairs="matching"), network, dtype=dtype)).record()
    assert (record.messages, record.bytes) == (paired, paired * parameters * size)
    here = [M if links.active is None else int(links.active.sum()) for links in rounds]
    record = ran(plan_of(AllReduce(), network, dtype=dtype)).record()
    assert record.messages == sum(2 * (k - 1) * k for k in here if k)
    assert record.bytes == sum(2 * (k - 1) * parameters * size for k in here if k)


# Going on


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


def same(a: Snapshot, b: Snapshot) -> bool:
    return (
        (a.round, a.messages, a.bytes, set(a.tensors))
        == (b.round, b.messages, b.bytes, set(b.tensors))
        and all(a.tensors[name].dtype == b.tensors[name].dtype for name in a.tensors)
        and all(torch.equal(a.tensors[name], b.tensors[name]) for name in a.tensors)
    )


@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        ("softmax", "float32"),
        ("softmax", "float64"),
        ("batch norm", "float32"),
        ("dropout", "float64"),
    ],
)
@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_a_run_from_a_snapshot_goes_on_bit_for_bit(
    algorithm: Algorithm, model: str, dtype: Any
) -> None:
    """Reruns are equal too; a snapshot stays what it was, whoever goes on from it."""
    plan = plan_of(algorithm, rounds=9, task=images(MODELS[model]), dtype=dtype)
    simulator = Simulator(plan)
    snapshots = []
    for until in (0, 1, 5):
        simulator.advance(until)
        snapshots.append(simulator.snapshot())
    simulator.advance(9)
    end = simulator.snapshot()
    assert any(name.startswith("buffer/") for name in end.tensors) == (model == "batch norm")
    assert same(ran(plan).snapshot(), end)
    for snapshot in [*snapshots, snapshots[-1]]:
        resumed = Simulator(plan, snapshot)
        resumed.record()
        resumed.advance(9)
        assert same(resumed.snapshot(), end)


def test_stop_between_two_rounds() -> None:
    plan = plan_of(DPSGD(0.05))
    simulator = Simulator(plan)
    simulator.advance(12, stop=lambda: simulator.round == 5)
    assert simulator.round == 5
    assert same(simulator.snapshot(), ran(plan, 5).snapshot())
    simulator.advance(3)
    assert simulator.round == 5
    simulator.advance(12)
    assert same(simulator.snapshot(), ran(plan).snapshot())


def test_another_seed_is_another_run() -> None:
    plan = plan_of(DPSGD(0.05))
    assert not torch.equal(ran(plan).models(), ran(replace(plan, seed=1)).models())


# Who is away


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_who_is_away_does_not_move(algorithm: Algorithm, model: str) -> None:
    """Neither its model nor its running statistics; the others do not hear of it."""
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


def test_what_an_away_device_has_reaches_nobody() -> None:
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


def test_nobody_is_there() -> None:
    """Rounds without any device, and without any link, leave everybody where they were (or to themselves)."""
    network = Callback(
        M, lambda t: Links.of(M, []).keep(np.zeros(0, dtype=bool), np.zeros(M, dtype=bool))
    )
    for algorithm in EVERY:
        simulator = ran(plan_of(algorithm, network))
        assert torch.equal(simulator.models(), Simulator(simulator.plan).models())
        assert (simulator.record().messages, simulator.record().bytes) == (0, 0)


# Divergence


def burst(at: int, device: int) -> Callable[[int], list[float]]:
    """η that makes one device leave the finite numbers in one round."""
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
    """Also where the round ends with a mix, which spreads the damage to devices that are sound."""
    task = replace(squares(), batch=8)
    huge = replace(task, data=replace(task.data, y=task.data.y * 1e8))
    simulator = Simulator(plan_of(make(burst(at=4, device=3)), network, task=huge, dtype=dtype))
    with pytest.raises(Diverged, match=r"device 3 .* after round 5") as error:
        simulator.advance(12)
    assert (error.value.round, error.value.device, error.value.exit_code) == (5, 3, 3)
    assert simulator.round == 4  # four rounds were well


def test_a_run_that_blows_up_by_itself_is_stopped() -> None:
    simulator = Simulator(plan_of(SwarmSGD(1e30, pairs="matching"), Ring(M), 200, dtype="float32"))
    with pytest.raises(Diverged) as error:
        simulator.advance(200)
    assert error.value.round == simulator.round + 1


# Plans


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


def test_a_network_with_an_end(tmp_path: Any) -> None:
    """The middle of the coming round needs one round of links more than the run has."""
    save(Random(M, 0.5), tmp_path / "links.parquet", rounds=12)
    network = Sequence(tmp_path / "links.parquet")
    assert ran(plan_of(DPSGD(), network)).record().round == 12
    with pytest.raises(InputError, match=r"^rounds = 13 .* at most 12"):
        plan_of(DPSGD(), network, 13)
    with pytest.raises(InputError, match=r"^rounds = 12 .* at most 11"):
        plan_of(DPSGD(), network, 12, measure=Measure(at="after_mix"))
    assert ran(plan_of(DPSGD(), network, 11, measure=Measure(at="after_mix"))).record().round == 11
    mixed_last = plan_of(
        DPSGD(order="adapt-then-combine"), network, 12, measure=Measure(at="after_mix")
    )
    assert ran(mixed_last).record().round == 12


def test_directed_links_are_refused() -> None:
    with pytest.raises(InputError, match="symmetric"):
        plan_of(DPSGD(), Callback(M, lambda t: [(0, 1)], directed=True))


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_a_device_that_is_not_there(device: str) -> None:
    with pytest.raises(InputError, match=r"^device = "):
        Simulator(plan_of(DPSGD(), device=device))


def test_threads_are_chosen_by_the_work_or_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    small, large = (
        plan_of(DPSGD()),
        plan_of(DPSGD(), task=replace(squares(dimension=1000), batch=10_000)),
    )
    assert [plan.threads_to_use() for plan in (small, large, replace(small, threads=3))] == [
        1,
        7,
        3,
    ]
    before = torch.get_num_threads()
    for threads in (1, 2):
        used: list[int] = []

        def stop(used: list[int] = used) -> bool:
            used.append(available_threads())
            return False

        Simulator(replace(small, threads=threads)).advance(1, stop)
        assert used == [threads]
        assert torch.get_num_threads() == before


# What the theory says of mixing alone


def scattered(algorithm: Algorithm, network: Network, rounds: int) -> Simulator:
    """A simulator whose devices start apart, of both signs."""
    plan = plan_of(algorithm, network, rounds)
    w = torch.from_numpy(draws.normal(0, "scattered", np.arange(M)[:, None], np.arange(5)))
    return Simulator(
        plan, Snapshot(0, 0, 0, {"w": w, "start": torch.zeros(1, 5, dtype=torch.float64)})
    )


PAIRS = Cycle(
    (Graph(M, ((0, 1), (2, 3))), Graph(M, ()), Graph(M, ((3, 4), (1, 2))), Graph(M, ((4, 5),)))
)


@pytest.mark.parametrize("network", [CHANGING, PAIRS, Ring(M)], ids=["changing", "pairs", "ring"])
@pytest.mark.parametrize("rule", [Constant(), Safe()], ids=repr)
@pytest.mark.parametrize("p", [1, 3, 15])
def test_pure_mixing_keeps_the_mean(network: Network, rule: Any, p: float) -> None:
    """Doubly stochastic weights keep the arithmetic mean for p = 1, and the mean of the duals for p > 1."""
    simulator = scattered(WPM(p, 0.0, rule, anchor=False), network, 40)
    z = signed_power(simulator.models(), p)
    for until in range(1, 41):
        simulator.advance(until)
        now = signed_power(simulator.models(), p)
        assert ((now.mean(0) - z.mean(0)).abs() <= 40 * 8 * p * 2.0**-52 * z.abs().mean(0)).all()
    assert not torch.equal(now, z)


@pytest.mark.parametrize("network", [CHANGING, PAIRS, Ring(M)], ids=["changing", "pairs", "ring"])
@pytest.mark.parametrize("p", [1, 3])
def test_mixing_over_b_connected_links_reaches_consensus(network: Network, p: float) -> None:
    """No round of `PAIRS` is connected, but every four rounds together are: that is enough, and the limit is the mean."""
    rounds = 400
    assert check_assumption1(network, rounds).holds
    simulator = scattered(WPM(p, 0.0, Constant(), anchor=False), network, rounds)
    centre = signed_power(signed_power(simulator.models(), p).mean(0), 1 / p)
    simulator.advance(rounds)
    torch.testing.assert_close(simulator.models(), centre.expand(M, -1), rtol=0, atol=1e-9)


def test_mixing_over_links_that_never_meet_does_not() -> None:
    apart = Graph(M, ((0, 1), (1, 2), (3, 4), (4, 5)))
    assert not check_assumption1(apart, 400).holds
    simulator = scattered(DPSGD(0.0), apart, 400)
    simulator.advance(400)
    w = simulator.models()
    assert (w[0] - w[2]).norm() < 1e-9
    assert (w[0] - w[3]).norm() > 0.1


def test_everybody_linked_is_all_reduce() -> None:
    """D-PSGD over a full network, adapt-then-combine, is plain SGD with the batches of all."""
    everybody = ran(plan_of(AllReduce(0.05)), 12)
    gossip = ran(plan_of(DPSGD(0.05, order="adapt-then-combine"), Full(M)))
    full = ran(replace(everybody.plan, network=Full(M)))
    torch.testing.assert_close(gossip.models(), full.models(), rtol=0, atol=1e-12)
    assert torch.equal(full.models(), full.models()[:1].expand(M, -1))


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_mean_that_overflows_float64_is_scaled(dtype: torch.dtype) -> None:
    w = torch.tensor(
        [[1e4, 1e-8], [9e3, 1e4], [-8e3, 2e-8]], dtype=dtype
    )  # 1e4 to the power 101 is far beyond float64
    weights = metropolis(Links.of(3, [(0, 1), (1, 2)]))
    expected = power_mean(w, torch.from_numpy(weights.dense()), 101)
    assert_power_means_agree(mix_of(weights).mean(w, power_map(101)), expected, w, weights, 101)
