"""Every method of the catalogue: its naive loop, its optimum or neighbourhood, its invariants, its
rate, its refusals.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.agreement import both_to_the_end, check_against_reference
from support.methods import EVERY, MORE, M, made, takes
from torch import Tensor

from gossamer import algorithms, draws, testing
from gossamer.algorithms import (
    ADOM,
    D2,
    DABMD,
    DPSGD,
    EXTRA,
    METHODS,
    NIDS,
    WPM,
    Algorithm,
    AllReduce,
    ChocoSGD,
    Composition,
    Constant,
    Cosine,
    FastAveraging,
    FedAvg,
    GossipLearning,
    Gradient,
    LocalSGD,
    Mix,
    PushSum,
    Quantised,
    QuasiGlobal,
    State,
    SwarmSGD,
    Switch,
    TopK,
    Tracking,
    WPMPaper,
    WPMTracking,
)
from gossamer.engines import Plan, Simulator, Snapshot
from gossamer.errors import InputError
from gossamer.mirror import PowerMap
from gossamer.network import (
    BestConstant,
    Callback,
    Clients,
    Cycle,
    Full,
    Graph,
    Laplacian,
    LinkFailure,
    Matching,
    Metropolis,
    Network,
    OnePair,
    RandomPeer,
    RandomRing,
    Ring,
    Star,
    Timing,
    metropolis,
)
from gossamer.network import PushSum as PushSumWeights
from gossamer.network.weights import WeightRule
from gossamer.study import Study, spec
from gossamer.tasks import Iid, LinearRegression, LogisticRegression, Softmax, Task, from_arrays
from gossamer.tasks.synthetic import LeastSquares, Logistic

RULES: list[WeightRule] = [
    *(
        Metropolis(),
        Laplacian(),
        Laplacian(0.1),
        BestConstant(),
        OnePair(),
        Matching(),
        RandomPeer(),
        PushSumWeights(),
        Clients(),
    ),
]


# The promises to an engine, and the executable specification


@pytest.mark.parametrize("name", METHODS)
def test_conformance(name: str) -> None:
    assert testing.check(EVERY[name]) == takes(name)


PROBLEM_OF_ALL = LeastSquares(M, dimension=5, samples=8, heterogeneity=0.3)
SQUARES = Task(PROBLEM_OF_ALL.load(), PROBLEM_OF_ALL.split(), LinearRegression(), 0)
LABELS = np.arange(10 * M) % 3
POINTS = draws.normal(0, "points", np.arange(10 * M)[:, None], np.arange(4)) + LABELS[:, None]
CLASSES = Task(from_arrays(POINTS, LABELS, POINTS, LABELS), Iid().make(LABELS, M, 0), Softmax(), 4)


@pytest.mark.parametrize(
    ("name", "network"), [(name, network) for name in [*EVERY, *MORE] for network in takes(name)]
)
def test_equals_its_naive_loop(name: str, network: str) -> None:
    """To 1e-12 of the largest weight after every one of 20 rounds, with the same messages and the
    same bytes.
    """
    algorithm = (EVERY | MORE)[name]
    problem = LeastSquares(M, dimension=5, samples=8, heterogeneity=0.3)
    task = Task(problem.load(), problem.split(), LinearRegression(), 0 if name == "adom" else 3)
    plan = Plan(task, testing.NETWORKS[network], algorithm, 20, seed=1, dtype="float64")
    check_against_reference(plan)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("name", [*EVERY, *MORE])
def test_equals_its_naive_loop_in_float32(name: str) -> None:
    """To 1e-5 over 8 rounds: here the compiled kernels serve, where there are any."""
    plan = Plan(
        SQUARES if name == "adom" else CLASSES,
        testing.NETWORKS[takes(name)[0]],
        (EVERY | MORE)[name],
        8,
        seed=1,
        dtype="float32",
    )
    simulator, reference = both_to_the_end(plan)
    assert simulator.record().messages == reference.messages > 0


@dataclass(frozen=True)
class Bad(Algorithm):
    """D-PSGD that breaks one promise."""

    how: str

    def init(self, w0: Tensor) -> State:
        state = {"w": w0 + 1 if self.how == "start" else w0.clone()}
        return state | ({"rows": w0[:3].clone()} if self.how == "rows" else {})

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = mix(state["w"]) - 0.05 * grad(state["w"])
        if self.how == "random":
            w = w + 1e-9 * torch.rand(1)
        if self.how == "nan" and t == 3:
            w[2, 0] = np.nan
        if self.how == "memory":
            object.__setattr__(self, "_seen", getattr(self, "_seen", 0) + 1)
            w = w * (1 + 1e-9 * getattr(self, "_seen", 0))
        return {**state, "w": w}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return state["w"].mul_(0.9) if self.how == "measured" else mix(state["w"])

    def check(self, network: Network) -> None:
        if self.how == "refuses all" or network.directed:
            raise InputError(
                "network",
                "this one",
                "symmetric links" if self.how == "curt" else "links that go both ways",
            )

    def models(self, state: State) -> Tensor:
        if self.how == "type":
            return state["w"].double()
        return state["w"][:, :2] if self.how == "shape" else state["w"]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("start", "does not start from the shared model"),
        ("rows", "3 rows of 'rows'"),
        ("random", "another result when it runs again"),
        ("memory", "another result when it runs again"),
        ("nan", "diverged"),
        ("type", "turns float32 into torch.float64"),
        ("measured", "changed by being measured"),
        ("refuses all", "accepts none of the networks"),
        ("curt", "without saying what it needs"),
        ("shape", "shape"),
    ],
)
def test_the_conformance_suite_can_fail(how: str, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        testing.check(Bad(how))


# The optimum of a strongly convex problem, whose devices differ, over links that connect them only
# every two rounds

N = 8
PROBLEM = LeastSquares(N, dimension=5, samples=20, heterogeneity=1.0)
OPTIMUM = PROBLEM.optimum()
_RING = [(i, (i + 1) % N) for i in range(N)]
HALVES: Network = Cycle(
    (Graph(N, tuple(_RING[::2])), Graph(N, tuple(_RING[1::2])))
)  # B = 2: no round is connected
ONE_WAY: Network = Callback(N, lambda t: [(i, j) for i, j in _RING if (i + t) % 2], directed=True)
STATIC: Network = Graph(N, (*_RING, (0, 2), (1, 6), (3, 7), (4, 6)))


def own_curvatures() -> tuple[float, float]:
    """The largest and the smallest curvature of any device's own loss."""
    rows = PROBLEM.load().x.double().numpy().reshape(N, -1, 5)
    values = np.linalg.eigvalsh(rows.transpose(0, 2, 1) @ rows / rows.shape[1])
    return float(values.max()), float(values.min())


def simulator(
    algorithm: Algorithm, network: Network, rounds: int, batch: int = 0, seed: int = 0
) -> Simulator:
    task = Task(PROBLEM.load(), PROBLEM.split(), LinearRegression(), batch)
    return Simulator(Plan(task, network, algorithm, rounds, seed=seed, dtype="float64"))


def error(algorithm: Algorithm, network: Network, rounds: int) -> float:
    """The distance from the optimum, root mean square over the devices and the last third of the
    rounds.
    """
    run = simulator(algorithm, network, rounds)
    run.advance(rounds * 2 // 3)
    squares = []
    while run.round < rounds:
        run.advance(run.round + 1)
        squares.append(((run.models().numpy() - OPTIMUM) ** 2).sum(1).mean())
    return float(np.sqrt(np.mean(squares)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, entry in METHODS.items() if entry.exact])
def test_exact_methods_find_the_optimum(name: str) -> None:
    smoothness, convexity = own_curvatures()
    # By theory chi = 10.2 here; a smaller one is bolder, and it still holds. ADOM's own theory asks
    # for connected rounds.
    algorithm = ADOM(smoothness, convexity, chi=2) if name == "adom" else made(name, eta=0.08)
    network = (
        STATIC if name in ("extra", "d2", "nids") else RandomRing(N) if name == "adom" else HALVES
    )
    run = simulator(algorithm, network, 1600)
    run.advance(800)
    half_way = np.abs(run.models().numpy() - OPTIMUM).max()
    run.advance(1600)
    wrong = np.abs(run.models().numpy() - OPTIMUM).max()
    assert wrong < 1e-11
    assert half_way < 1e-5


# The rate at which a method starts, and what four times less of it has to give. At p = 1 the
# distance is of the first order in η, so it falls by 4; 3 is asked for, since the second order
# shows at these rates (measured: 3.2 to 3.9). The methods that draw pairs or batches have noise
# too, whose distance is of the order √η: by 2 at least; 1.9 is asked for.
NEAR: dict[str, tuple[float, float, dict[str, Any]]] = {
    "d-psgd": (0.04, 3.0, {}),
    "fast-averaging": (0.04, 3.0, {}),
    "gossip-learning": (0.08, 3.0, {}),
    "swarm-sgd": (0.08, 1.9, {}),
    "local-sgd": (0.02, 3.0, {}),
    "choco-sgd": (0.02, 3.0, {}),
    "quasi-global": (0.04, 3.0, {}),
    "dabmd": (0.08, 1.9, {}),
    "push-sum": (0.04, 3.0, {}),
    "gain-control": (0.04, 3.0, {}),
    "gain-quasi-global": (0.04, 3.0, {}),
    "wpm-quasi-global": (0.04, 3.0, {}),
    # Their p falls to 1, as it should; at a constant p see below.
    "wpm": (0.04, 3.0, {"p": Switch(3, 50)}),
    "wpm-local-steps": (0.02, 3.0, {"p": Switch(3, 50)}),
    "wpm-compressed": (0.02, 3.0, {"p": Switch(3, 50)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NEAR)
def test_other_methods_reach_a_neighbourhood_that_shrinks_with_eta(name: str) -> None:
    eta, factor, more = NEAR[name]
    network = ONE_WAY if name == "push-sum" else HALVES
    # η·rounds is what counts; a pair a round moves two devices of eight, local steps move each four
    # times.
    way = {"swarm-sgd": 48, "local-sgd": 4, "wpm-local-steps": 4}.get(name, 12)
    large, small = (error(made(name, eta=e, **more), network, int(way / e)) for e in (eta, eta / 4))
    assert large > factor * small
    assert large < 4.5 * small  # and not to the optimum: these methods are not exact
    assert small < 0.1


def test_every_entry_is_exact_or_near() -> None:
    exact = {name for name, entry in METHODS.items() if entry.exact}
    assert exact | set(NEAR) | {"dgd", "wpm-paper"} == set(METHODS)
    assert not exact & set(NEAR)


@pytest.mark.slow
def test_a_rate_that_falls_leads_to_the_optimum() -> None:
    """Nedić and Ozdaglar: the distance is of the order of η(t) = η/√(1 + t), so it halves in four
    times the rounds.
    """
    early, late = (error(made("dgd", eta=0.3), HALVES, rounds) for rounds in (250, 1000))
    assert 1.8 < early / late < 2.2  # measured: 1.94


@pytest.mark.slow
def test_wpm_by_its_theory_reaches_a_neighbourhood_that_shrinks() -> None:
    """At a constant rate in the dual: by at least 4^(1/p) for a quarter of η, what D_φ's uniform
    convexity gives.
    """
    for make in (
        lambda eta: WPM(3, eta, Constant(), anchor=False),
        lambda eta: WPMPaper(3, eta**0.4),
    ):  # the same rates: η₀^(1 + 3/2)
        large, small = (error(make(eta), HALVES, 2000) for eta in (0.005, 0.00125))
        assert large > 4 ** (1 / 3) * small
        assert small < 0.06


@pytest.mark.slow
def test_the_safe_step_at_a_constant_p_misses_the_optimum_whatever_eta() -> None:
    """A limit that is known: a coordinate whose devices pull both ways is held at its start.

    That is why p falls to 1.
    """
    large, small = (error(WPM(3, eta), HALVES, int(12 / eta)) for eta in (0.02, 0.005))
    assert small > 0.1
    assert large < 1.5 * small


# What a method keeps


@pytest.mark.parametrize(
    "algorithm",
    [
        DPSGD(0.0),
        DPSGD(0.0, order="adapt-then-combine"),
        FastAveraging(0.0),
        LocalSGD(0.0),
        ChocoSGD(0.0),
        ChocoSGD(0.0, Quantised(3), 0.5),
        Tracking(0.0),
        QuasiGlobal(0.0),
        SwarmSGD(0.0),
        SwarmSGD(0.0, pairs="matching"),
        DABMD(0.0),
        AllReduce(0.0),
        EXTRA(0.0),
        D2(0.0),
        NIDS(0.0),
    ],
    ids=lambda algorithm: algorithm.label,
)
def test_without_a_step_the_mean_is_kept(algorithm: Algorithm) -> None:
    """By every method with doubly stochastic weights, from models that differ, while devices come
    and go.
    """
    static = isinstance(algorithm, EXTRA | D2 | NIDS)
    network = testing.NETWORKS[
        "static" if static else "changing" if isinstance(algorithm, AllReduce) else "churn"
    ]
    run = differing(algorithm, network)
    before = run.models().clone()
    run.advance(30)
    torch.testing.assert_close(run.models().mean(0), before.mean(0), rtol=0, atol=1e-12)
    assert run.models().std(0).max() < before.std(0).max()


def differing(algorithm: Algorithm, network: Network) -> Simulator:
    """A run from models that differ."""
    problem = LeastSquares(M, dimension=5, samples=8)
    task = Task(problem.load(), problem.split(), LinearRegression(), 3)
    plan = Plan(task, network, algorithm, 30, seed=2, dtype="float64")
    w0 = torch.from_numpy(np.sin(np.arange(5.0 * M).reshape(M, 5)))
    return Simulator(plan, Snapshot(0, 0, 0, algorithm.init(w0)))


@pytest.mark.parametrize("network", testing.NETWORKS)
def test_push_sum_keeps_the_sum_and_agrees_on_the_mean(network: str) -> None:
    run = differing(PushSum(0.0), testing.NETWORKS[network])
    before = run.models().mean(0)
    for t in range(30):
        run.advance(t + 1)
        state = run.snapshot().tensors
        torch.testing.assert_close(state["x"].sum(0), M * before, rtol=0, atol=1e-12)
        torch.testing.assert_close(
            state["weight"].sum(), torch.tensor(float(M)).double(), rtol=0, atol=1e-12
        )
    assert (
        run.models() - before
    ).abs().max() < 0.2  # from a spread of 1: rows do not sum to 1, but the ratio is right


@pytest.mark.parametrize("p", [1, 3])
def test_what_is_tracked_sums_to_the_gradients(p: float) -> None:
    """Σ y = Σ g in every round, of those who are away too."""
    run = differing(WPMTracking(0.02, p), testing.NETWORKS["churn"])
    for t in range(30):
        run.advance(t + 1)
        state = run.snapshot().tensors
        torch.testing.assert_close(
            state["tracked"].sum(0), state["gradient"].sum(0), rtol=0, atol=1e-12
        )


def test_adom_stays_in_the_dual_space() -> None:
    """Σ z = Σ z_f = 0."""
    run = simulator(ADOM(*own_curvatures(), chi=4), RandomRing(N), 50)
    run.advance(50)
    for name in ("z", "z_f"):
        z = run.snapshot().tensors[name]
        assert z.sum(0).abs().max() < 1e-12 < z.abs().max()


# Claimed rates


def slope(values: Callable[[float], float], at: tuple[float, ...]) -> float:
    """Of log(value) over log(at)."""
    return float(np.polyfit(np.log(at), np.log([values(x) for x in at]), 1)[0])


CURVATURE = PROBLEM.load().x.double().numpy().T @ PROBLEM.load().x.double().numpy() / (20 * N)
ROUNDS = (64, 256, 1024)


def mean_square_gradient(algorithm: Callable[[int], Algorithm], rounds: int, seeds: int) -> float:
    """(1/T)·Σ_t ‖∇f(w̄_t)‖², by single samples: what the theorems for D-PSGD and SwarmSGD bound."""
    total = 0.0
    for seed in range(seeds):
        run = simulator(algorithm(rounds), HALVES, rounds, batch=1, seed=seed)
        for t in range(rounds):
            gradient = CURVATURE @ (run.models().numpy().mean(0) - OPTIMUM)
            total += float(gradient @ gradient) / (rounds * seeds)
            run.advance(t + 1)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        lambda T: DPSGD(0.5 / T**0.5),
        lambda T: SwarmSGD(1 / T**0.5),
        lambda T: SwarmSGD(1 / T**0.5, pairs="matching"),
    ],
    ids=["D-PSGD", "SwarmSGD", "SwarmSGD matching"],
)
def test_the_rate_of_dpsgd_and_swarm(algorithm: Callable[[int], Algorithm]) -> None:
    """Claimed.

    T^(−1/2) with η ~ T^(−1/2). Measured −0.49 to −0.52 by two seeds, whose spread is about 0.03.
    """
    assert slope(lambda T: mean_square_gradient(algorithm, int(T), 2), ROUNDS) == pytest.approx(
        -0.5, abs=0.1
    )


def test_dpsgd_is_off_by_the_first_order_of_eta() -> None:
    """Claimed: distance O(η) at a constant rate.

    Measured 0.93: the second order still shows at 0.04.
    """
    assert slope(
        lambda eta: error(DPSGD(eta), HALVES, int(10 / eta)), (0.04, 0.02, 0.01)
    ) == pytest.approx(1, abs=0.12)


@pytest.mark.slow
def test_the_rate_of_gradient_tracking() -> None:
    """Claimed: geometric, by 1 − O(η·μ) a round. Measured 1.01 in η, and 0.75·η beside μ = 0.72."""

    def rate(eta: float) -> float:
        n = int(10 / eta)
        run = simulator(Tracking(eta), HALVES, 2 * n)
        left = []
        for until in (n, 2 * n):
            run.advance(until)
            left.append(np.linalg.norm(run.models().numpy() - OPTIMUM))
        return float(np.log(left[0] / left[1]) / n)

    assert slope(rate, (0.08, 0.04, 0.02)) == pytest.approx(1, abs=0.1)
    assert rate(0.04) == pytest.approx(0.04 * PROBLEM.strong_convexity(), rel=0.15)


@pytest.mark.slow
def test_the_rate_of_adom() -> None:
    """Claimed (Theorem 1): the squared distance falls by 1 − √(μ/L)/(7χ) a round.

    Measured: by 2.6 times as much.
    """
    network, (L, μ) = RandomRing(N), own_curvatures()
    spectra = [
        np.linalg.eigvalsh(np.eye(N) - metropolis(network.links(t)).dense()) for t in range(20)
    ]
    chi = 2 / min(spectrum[1] for spectrum in spectra)
    run, left = simulator(ADOM(L, μ, chi), network, 2000), []
    for until in (1000, 2000):
        run.advance(until)
        left.append(((run.models().numpy() - OPTIMUM) ** 2).sum())
    assert left[1] < left[0] * (1 - (μ / L) ** 0.5 / (7 * chi)) ** 1000


@pytest.mark.slow
def test_the_rate_of_wpm() -> None:
    """Claimed (Theorem 1): regret/T = O(T^(−1/(p+1))) with η ~ T^(−p/(p+1)).

    An upper bound: measured −0.54 at p = 3.
    """

    def regret(T: float) -> float:
        run, total = (
            simulator(WPM(3, 0.5 * T**-0.75, Constant(), anchor=False), HALVES, int(T)),
            0.0,
        )
        for t in range(int(T)):
            off = run.models().numpy() - OPTIMUM
            total += float(np.einsum("ij,jk,ik->", off, CURVATURE, off)) / (2 * N * T)
            run.advance(t + 1)
        return total

    assert slope(regret, ROUNDS) < -1 / 4


# What is particular to a method


def test_chocos_memory_when_links_change() -> None:
    """All know the start.

    A change is enough for whom one sent to in the round before; any other is sent all of it.
    """
    linked = {0: [(0, 1)], 1: [], 2: [(0, 1), (1, 2)], 3: [(0, 1)], 4: [(1, 2)]}
    network = Callback(3, lambda t: linked[t % 5])
    problem = LeastSquares(3, dimension=10, samples=8)
    task = Task(problem.load(), problem.split(), LinearRegression(), 3)
    run = Simulator(Plan(task, network, ChocoSGD(0.05, TopK(0.2)), 5))
    change, whole = 2 * (4 + 4), 10 * 4  # two numbers and their places; ten numbers
    sent = []
    for t in range(5):
        run.advance(t + 1)
        sent.append(run.record().bytes)
    assert np.diff(sent, prepend=0).tolist() == [2 * change, 0, 4 * whole, 2 * change, 2 * whole]


def test_chocos_links_that_stay_cost_changes_alone() -> None:
    problem = LeastSquares(N, dimension=10, samples=8)
    task = Task(problem.load(), problem.split(), LinearRegression(), 3)
    for network in (
        Ring(N),
        Ring(N) & LinkFailure(0.0),
    ):  # nothing fails, but the second no longer says that it is static
        run = Simulator(Plan(task, network, ChocoSGD(0.05, TopK(0.2)), 6))
        run.advance(3)
        run = Simulator(
            run.plan, run.snapshot()
        )  # going on from a snapshot meets no new neighbours either
        run.advance(6)
        assert run.record().bytes == 6 * 2 * N * 2 * (4 + 4)


def test_fedavg_of_all_by_one_step_is_all_reduce() -> None:
    for network in (HALVES, ONE_WAY):
        server = simulator(FedAvg(0.05), network, 20, batch=3)
        server.advance(20)
        ring = simulator(AllReduce(0.05), network, 20, batch=3)
        ring.advance(20)
        torch.testing.assert_close(server.models(), ring.models(), rtol=0, atol=1e-12)
        assert server.record().messages == 20 * 2 * N
        assert server.record().bytes == 20 * 2 * N * 5 * 8


@dataclass(frozen=True)
class Linked(AllReduce):
    """All-Reduce that is given links which it does not use."""

    @property
    def weights(self) -> WeightRule:
        return Metropolis()


@pytest.mark.parametrize("network", ["churn", "changing", "static"])
def test_all_reduce_is_the_same_with_links_and_without(network: str) -> None:
    """Bit for bit, with the same traffic and the same clock."""
    problem = LeastSquares(M, dimension=5, samples=8)
    task = Task(problem.load(), problem.split(), LinearRegression(), 3)
    plan = Plan(
        task,
        testing.NETWORKS[network],
        AllReduce(0.05),
        20,
        timing=Timing(compute=0.5, rate=100.0, latency=0.25),
    )
    runs = [
        Simulator(replace(plan, algorithm=algorithm))
        for algorithm in (AllReduce(0.05), Linked(0.05))
    ]
    for run in runs:
        run.advance(20)
    one, two = (run.snapshot() for run in runs)
    assert (one.messages, one.bytes) == (two.messages, two.bytes)
    assert all(torch.equal(x, two.tensors[name]) for name, x in one.tensors.items())


def test_clients_are_a_fraction_drawn_anew() -> None:
    rule, links = Clients(0.25), Full(40).links(0)
    drawn = np.array([rule(links, t, 0).active for t in range(400)])
    assert (drawn.sum(1) == 10).all()
    assert np.abs(drawn.mean(0) - 0.25).max() < 5 * np.sqrt(
        0.25 * 0.75 / 400
    )  # five standard deviations
    away = links.keep(np.zeros(len(links), dtype=bool), np.arange(40) < 4)
    assert rule(away, 0, 0).active.nonzero()[0].max() < 4
    nobody = links.keep(np.zeros(len(links), dtype=bool), np.zeros(40, dtype=bool))
    assert not rule(nobody, 0, 0).active.any()


def test_fedavg_waits_for_its_clients() -> None:
    """Compute, send, wait for the slowest, receive: all by the link to the server, numbered after
    the devices.
    """
    plan = simulator(FedAvg(0.05, local_steps=2), Star(N), 3).plan
    run = Simulator(replace(plan, timing=Timing(compute=0.5, rate=100.0, latency=0.25)))
    run.advance(3)
    assert run.record().seconds == pytest.approx(3 * (2 * 0.5 + 2 * (0.25 + 5 * 8 / 100)))


def test_a_server_without_clients_keeps_its_model() -> None:
    def links(t: int) -> Any:
        every = Full(N).links(0)
        return (
            every
            if t % 2
            else every.keep(np.zeros(len(every), dtype=bool), np.zeros(N, dtype=bool))
        )

    run = simulator(FedAvg(0.05), Callback(N, links), 4)
    run.advance(3)
    before = run.models().clone()
    assert torch.equal(run.snapshot().tensors["server"].expand(N, -1), before)
    run.advance(4)
    assert not torch.equal(run.models(), before)


def test_gossip_learning_merges_by_age() -> None:
    """A model that has seen nothing has no say; who receives nothing does nothing."""
    method = GossipLearning(0.0)
    network = Callback(3, lambda t: [(0, 1)], directed=True)
    problem = LeastSquares(3, dimension=2, samples=8)
    plan = Plan(
        Task(problem.load(), problem.split(), LinearRegression(), 3),
        network,
        method,
        2,
        dtype="float64",
    )
    w = torch.tensor([[4.0, 0.0], [0.0, 4.0], [1.0, 1.0]]).double()
    for ages, merged in (([0, 5, 0], [0.0, 4.0]), ([3, 1, 0], [3.0, 1.0]), ([0, 0, 0], [0.0, 4.0])):
        run = Simulator(
            plan, Snapshot(0, 0, 0, {"w": w.clone(), "age": torch.tensor(ages).double()[:, None]})
        )
        run.advance(1)
        assert run.models().tolist() == [[4.0, 0.0], merged, [1.0, 1.0]]
        assert run.snapshot().tensors["age"][:, 0].tolist() == [ages[0], max(ages[:2]) + 1, ages[2]]


def test_gossip_learning_moves_the_mean_even_where_all_have_as_many_neighbours() -> None:
    """Two devices swap models: the older one has more of a say with both."""
    problem = LeastSquares(2, dimension=2, samples=8)
    plan = Plan(
        Task(problem.load(), problem.split(), LinearRegression(), 3),
        Full(2),
        GossipLearning(0.0),
        1,
        dtype="float64",
    )
    start = {
        "w": torch.tensor([[4.0, 0.0], [0.0, 4.0]]).double(),
        "age": torch.tensor([[3.0], [1.0]]).double(),
    }
    run = Simulator(plan, Snapshot(0, 0, 0, start))
    run.advance(1)
    assert run.models().tolist() == [[3.0, 1.0], [3.0, 1.0]]


def test_a_random_peer_keeps_the_mean_in_expectation_only_among_equals() -> None:
    """Rows sum to 1.

    Columns do on average on a ring; on a star the hub's is 1/m of itself and half of one leaf, m =
    4.
    """
    for network in (Ring(7), Star(4)):
        drawn = np.array([RandomPeer()(network.links(0), t, 0).dense() for t in range(2000)])
        np.testing.assert_allclose(drawn.sum(2), 1, rtol=1e-14)
        column = drawn.sum(1).mean(0)
        if isinstance(network, Star):
            assert column[0] == pytest.approx(1 / 4 + 1 / 2)
        else:
            assert np.abs(column - 1).max() < 5 * drawn.sum(1).std() / np.sqrt(
                2000
            )  # five standard deviations
            assert drawn.sum(1).std() > 0.1


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_rule_says_what_its_weights_sum_to(rule: WeightRule) -> None:
    drawn = np.array(
        [rule(RandomRing(9).links(t) if t else Star(9).links(0), t, 0).dense() for t in range(8)]
    )
    rows, columns = (bool(np.allclose(drawn.sum(axis), 1)) for axis in (2, 1))
    if np.array_equal(drawn, np.broadcast_to(np.eye(9), drawn.shape)):
        assert rule.sums == "nothing"
    else:
        assert (
            rule.sums
            == {(True, True): "both", (True, False): "rows", (False, True): "columns"}[
                rows, columns
            ]
        )


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantised_is_unbiased_before_it_is_divided_and_within_its_bound(bits: int) -> None:
    """Levels of the largest size; τ bounds the variance, and (1 + τ)·C(x) is x on average."""
    n, rounds, levels = 12, 3000, 2 ** (bits - 1) - 1
    x = torch.from_numpy(np.cos(np.arange(1.0, n + 1)))
    tau = min(n / levels**2, np.sqrt(n) / levels)
    one = torch.tensor([0])
    drawn = (1 + tau) * torch.cat([Quantised(bits)(x[None], one, t) for t in range(rounds)])
    level = drawn * levels / x.abs().max()
    torch.testing.assert_close(level, level.round(), rtol=0, atol=1e-9)
    assert level.abs().max() < levels + 0.5
    off = drawn - x
    assert (
        off.mean(0).abs() <= 5 * off.std(0) / rounds**0.5 + 1e-12
    ).all()  # five standard deviations
    assert 0 < off.square().sum(1).mean() <= tau * x.square().sum()


def test_quasi_global_momentum_outlives_a_rate_of_zero() -> None:
    run = simulator(QuasiGlobal(Cosine(0.05, 10)), HALVES, 30)
    run.advance(30)
    assert run.models().isfinite().all()


def test_an_anchor_changes_nothing_at_p_1_even_compressed() -> None:
    runs = [
        simulator(Composition(eta=0.05, anchor=anchor, compress=TopK(0.4), pull=0.5), HALVES, 20)
        for anchor in (False, True)
    ]
    for run in runs:
        run.advance(20)
    assert torch.equal(runs[0].models(), runs[1].models())


# Refusals


@pytest.mark.parametrize(
    ("algorithm", "network", "words"),
    [
        (EXTRA(0.1), HALVES, "never change, which EXTRA needs"),
        (D2(0.1), RandomRing(N), "never change, which D² needs"),
        (NIDS(0.1), RandomRing(N, every=5), "never change, which NIDS needs"),
        (NIDS(0.1), ONE_WAY, "push-sum takes one-way ones"),
        (D2(0.1), Ring(N), "no eigenvalue of -1/3 or below"),  # a ring of an even number: just -1/3
        (D2(0.1), Ring(5000), "at most 4000"),
        (ADOM(), ONE_WAY, "symmetric links"),
        (ADOM(), Graph(N, tuple(_RING[::2])), "connect all devices in every round"),
        (Tracking(), ONE_WAY, "symmetric links"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_networks_outside_the_assumptions_are_refused(
    algorithm: Algorithm, network: Network, words: str
) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        algorithm.check(network)
    assert refusal.value.field == "network"


def test_static_methods_take_links_that_were_drawn_once() -> None:
    for method in (EXTRA(0.1), NIDS(0.1)):
        method.check(RandomRing(N, every=0))


@pytest.mark.parametrize(
    ("field", "task"),
    [
        ("batch", lambda: Task(PROBLEM.load(), PROBLEM.split(), LinearRegression(), 4)),
        ("model", lambda: Task((p := Logistic(N)).load(), p.split(), LogisticRegression(), 0)),
        (
            "model.l2",
            lambda: Task(
                (p := LeastSquares(N, samples=8)).load(), p.split(), LinearRegression(), 0
            ),
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_dual_problem_that_is_not_at_hand_is_refused(
    field: str, task: Callable[[], Task], dtype: Any
) -> None:
    with pytest.raises(InputError) as refusal:
        Simulator(Plan(task(), Full(N), ADOM(), 1, dtype=dtype)).advance(1)
    assert refusal.value.field == field


def test_what_adom_asks_for_does_not_lead_in_circles() -> None:
    """The refusal of batches names all that must change, since each part alone is refused too."""
    with pytest.raises(
        InputError,
        match=r"batch = 32 .* give 0, with .*least-squares.* as many samples on every device",
    ):
        Simulator(Study(ADOM(), RandomRing(10)).plan()).advance(1)


def test_l2_makes_the_dual_problem_whole() -> None:
    problem = LeastSquares(N, samples=8)
    run = Simulator(
        Plan(Task(problem.load(), problem.split(), LinearRegression(l2=0.1), 0), Full(N), ADOM(), 3)
    )
    run.advance(3)
    assert run.models().isfinite().all()


def test_the_conjugate_undoes_the_gradient() -> None:
    task = Task(PROBLEM.load(), PROBLEM.split(), LinearRegression(l2=0.01), 0)
    worker = task.worker(np.arange(N), 0, torch.float64, torch.device("cpu"))
    w = torch.from_numpy(np.cos(np.arange(5.0 * N).reshape(N, 5)))
    torch.testing.assert_close(
        worker.conjugate(worker.gradient(w, 0).clone()), w, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: FedAvg(fraction=0), "fraction"),
        (lambda: FedAvg(fraction=1.5), "fraction"),
        (lambda: FedAvg(local_steps=0), "local_steps"),
        (lambda: FedAvg(-1), "eta"),
        (lambda: DABMD(max_batches=0), "max_batches"),
        (lambda: DABMD(p=0.5), "p"),
        (lambda: ADOM(smoothness=0), "smoothness"),
        (lambda: ADOM(1.0, 2.0), "strong_convexity"),
        (lambda: ADOM(chi=0.5), "chi"),
        (lambda: EXTRA(-1), "eta"),
        (lambda: D2(np.inf), "eta"),
        (lambda: NIDS(np.nan), "eta"),
        *((lambda method=method: method(Cosine(0.1, 50)), "eta") for method in (EXTRA, D2, NIDS)),
        (lambda: Composition(PowerMap(3), weights=PushSumWeights()), "weights"),
        (lambda: Composition(PowerMap(3), weights=Clients()), "weights"),
        (
            lambda: Composition(direction=algorithms.GradientTracking(), weights=RandomPeer()),
            "weights",
        ),
        (lambda: PushSum(-1), "eta"),
        (lambda: GossipLearning(-1), "eta"),
    ],
)
def test_refusals(make: Callable[[], Algorithm], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        make()
    assert refusal.value.field == field


# The catalogue itself


@pytest.mark.parametrize("name", METHODS)
def test_an_entry_says_where_it_comes_from_and_goes_through_toml(name: str) -> None:
    entry = METHODS[name]
    assert (Path(algorithms.__file__).parent / entry.file).is_file()
    assert entry.paper
    assert entry.needs
    study = Study(entry.make())
    assert spec.studies(tomllib.loads(spec.dumps(study))) == [study]


def test_every_method_that_a_spec_can_name_is_in_the_catalogue() -> None:
    made = {type(entry.make()) for entry in METHODS.values()}
    others = {algorithms.Guarded, algorithms.Broken, Composition}
    assert made == set(spec.KINDS["algorithm"].values()) - others
