"""Methods on devices equal the simulator, by exchanges between neighbours only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.edges import RUN, GossipFleet, deadline, initial_models, run_in_threads
from torch import Tensor

import gossamer as gs
from gossamer.algorithms import Algorithm
from gossamer.engines import Plan, Simulator, Snapshot
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.errors import InputError
from gossamer.fleet.methods import (
    check_runs_on_devices,
    exchange_shapes,
    network_on_devices,
    scheduled_neighbours,
)
from gossamer.fleet.mix import PeerMix
from gossamer.fleet.protocol.edges import Edges
from gossamer.fleet.protocol.journal import Journal
from gossamer.fleet.protocol.messages import Kind
from gossamer.fleet.protocol.wire import Expected
from gossamer.fleet.transport.memory import Endpoint, Faults, Memory
from gossamer.mirror import MirrorMap, power_map, signed_power
from gossamer.network import Links
from gossamer.network.weights import (
    BestConstant,
    Laplacian,
    Metropolis,
    matching,
    metropolis,
)
from gossamer.tasks import LinearRegression, Task
from gossamer.tasks.synthetic import LeastSquares

pytestmark = pytest.mark.slow

M, ROUNDS = 6, 50
TRACE = gs.Random(M, 0.5, seed=3) & gs.LinkFailure(0.2)


def plan_of(method: Algorithm, dtype: str = "float64", rounds: int = ROUNDS) -> Plan:
    problem = LeastSquares(M, dimension=5, samples=9, heterogeneity=0.5)
    task = Task(problem.load(), problem.split(), LinearRegression(), 3)
    return Plan(task, TRACE, method, rounds, seed=1, dtype=dtype)  # type: ignore[arg-type]


def on_devices(
    plan: Plan,
    folder: Path,
    faults: Faults | None = None,
    wire: torch.dtype | None = None,
    initial: Snapshot | None = None,
) -> Tensor:
    """Return the final model of each device; each has its own thread and its own samples only."""
    network = Memory(faults)
    method = plan.algorithm
    devices = plan.task.devices
    dtype = getattr(torch, plan.dtype)
    trace = plan.network
    if trace.schedule:
        trace = gs.Full(M)  # devices have links to all, and follow the schedule
    network.link(map(tuple, trace.links(0).pairs.tolist()))
    for t in range(1, plan.rounds):
        network.schedule(t, lambda t=t: network.link(map(tuple, trace.links(t).pairs.tolist())))
    models: dict[int, Tensor] = {}
    committed: dict[int, int] = {}
    workers = []
    starts = []
    for i in range(devices):  # not in threads: modules are made with torch's only generator
        own = np.array([i])
        worker = plan.task.only(own).worker(own, plan.seed, dtype, torch.device("cpu"))
        workers.append(worker)
        starts.append(worker.start())

    def device(i: int) -> Callable[[Endpoint], None]:
        def run(endpoint: Endpoint) -> None:
            worker = workers[i]
            expected = Expected(
                RUN, frozenset(Kind), exchange_shapes(method, starts[i]), wire or dtype, 1e6
            )
            edges = Edges(endpoint, Journal(folder / str(i), sync=False), expected, network.now)
            with torch.no_grad():
                state = edges.start(
                    lambda: method.first_state(starts[i]), initial.round if initial else 0
                )
                if initial:
                    state = {
                        name: x[i : i + 1] if len(x) == devices else x
                        for name, x in initial.tensors.items()
                    }
                for t in range(edges.round, plan.rounds):
                    endpoint.sleep_until(t)
                    scheduled = scheduled_neighbours(plan.network, i, t)
                    mix = PeerMix(edges, method.weights, t, plan.seed, deadline, scheduled)
                    state = method.next_state(state, BatchGradient(worker, t), mix, t)
                    edges.finish(t, state)
            models[i] = method.models(state)[0]
            committed[i] = edges.counts["committed"]
            assert faults or not edges.counts["in doubt"] + edges.counts["failed"]

        return run

    run_in_threads(network, {i: device(i) for i in range(devices)})
    assert sum(committed.values()) > plan.rounds - (initial.round if initial else 0)
    return torch.stack([models[i] for i in range(devices)])


METHODS: dict[str, Algorithm] = {
    "wpm p=1": gs.WPM(1, 0.02, anchor=False),
    "wpm p=3 robust": gs.WPM(3, 0.02),
    "wpm p=3 constant": gs.WPM(
        3, 0.02, gs.Constant(), anchor=False
    ),  # in the simulator it goes over to the dual
    "swarm-sgd": gs.SwarmSGD(0.05, local_steps=2, pairs="matching"),
    "quasi-global": gs.Composition(
        eta=0.02, direction=gs.QuasiGlobalMomentum(0.9), order="adapt-then-combine"
    ),
    "tracking": gs.Composition(eta=0.02, direction=gs.GradientTracking()),
    "d-psgd": gs.DPSGD(0.02),
    "guarded": gs.Guarded(gs.DPSGD(0.02), gs.TrimmedMean(0.34)),
    "choco-sgd": gs.Composition(eta=0.02, compress=gs.TopK(0.4), pull=0.5),
    "laplacian": gs.Composition(eta=0.02, weights=Laplacian(0.15)),
    "aims": gs.AIMS(9, 0.02),
    "local gain": gs.Composition(eta=0.02, anchor=True, gain=gs.ByDivergence(1.1)),
    "sinh": gs.Composition(gs.SinhMap(0.3), 0.02, gs.Constant(), anchor=True),
    "arcsinh": gs.Composition(gs.ArcsinhMap(0.3), 0.02, gs.Constant()),
    "falling p": gs.WPM(gs.Switch(5, 20), 0.02),
    "momentum": gs.Momentum(0.01, nesterov=True),
    "d-adam": gs.DAdam(0.005),
    "quasi-global-adam": gs.QuasiGlobalAdam(0.005),
    "noloco": gs.NoLoCo(0.002, local_steps=3),
    "k-gt": gs.KGT(0.01, local_steps=2),
    "adamw, clipped": gs.LocalSGD(0.005, 2, optimizer=gs.AdamW(), clip_norm=1.0),
}


# Methods whose state is followed for all rounds; the others for as many as their schedules need.
LONG = ("wpm p=3 robust", "tracking", "choco-sgd")


@pytest.mark.parametrize("name", METHODS)
def test_devices_equal_the_simulator(name: str, tmp_path: Path) -> None:
    rounds = 24
    if name in LONG:
        rounds = ROUNDS
    plan = plan_of(METHODS[name], rounds=rounds)
    simulator = Simulator(plan)
    simulator.advance(rounds)
    expected = simulator.models()
    torch.testing.assert_close(
        on_devices(plan, tmp_path), expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max())
    )


@pytest.mark.parametrize(
    "name", ["wpm p=1", "wpm p=3 robust", "swarm-sgd", "quasi-global", "tracking"]
)
def test_devices_equal_the_simulator_in_float32(name: str, tmp_path: Path) -> None:
    plan = plan_of(METHODS[name], "float32")
    simulator = Simulator(plan)
    simulator.advance(ROUNDS)
    expected = simulator.models()
    torch.testing.assert_close(
        on_devices(plan, tmp_path), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max())
    )


SCHEDULES = {
    "base graph": gs.BaseGraph(M),
    "equi-static": gs.EquiStatic(M, basis=2, seed=4),
    "equi-dyn": gs.EquiDyn(M, seed=1),
    "two in turn": gs.Cycle((gs.BaseGraph(M, 2), gs.OnePeerExponential(M))),
}


@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("d-psgd", "base graph"),
        ("wpm p=3 robust", "two in turn"),
        ("swarm-sgd", "equi-static"),
        ("laplacian", "equi-dyn"),
    ],
)
def test_devices_follow_a_schedule(name: str, network: str, tmp_path: Path) -> None:
    plan = replace(plan_of(METHODS[name], rounds=20), network=SCHEDULES[network])
    simulator = Simulator(plan)
    simulator.advance(20)
    expected = simulator.models()
    torch.testing.assert_close(
        on_devices(plan, tmp_path), expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max())
    )


def test_devices_know_schedules_only() -> None:
    base = gs.BaseGraph(M)
    assert network_on_devices(base & gs.LinkFailure(0.3), M) == base
    assert network_on_devices(SCHEDULES["two in turn"], M) == SCHEDULES["two in turn"]
    for other in (gs.Ring(M), gs.Cycle((base, gs.Ring(M))), TRACE):
        assert network_on_devices(other, M) == gs.Full(M)
        assert scheduled_neighbours(gs.Full(M), 0, 0) is None


@pytest.mark.parametrize("model", ["whole", "adapters"])
def test_transformers_on_devices_equal_the_simulator(model: str, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="the extra gossamer[hf] is not installed")
    from support.hugging_face import adapter_study

    plan = adapter_study(tmp_path / "base", adapters=model == "adapters").plan()
    simulator = Simulator(plan)
    simulator.advance(plan.rounds)
    expected = simulator.models()
    torch.testing.assert_close(
        on_devices(plan, tmp_path / "devices"), expected, rtol=1e-11, atol=1e-11
    )


def test_p_15_equals_the_simulator_round_by_round(tmp_path: Path) -> None:
    """One round from equal states: for such a p the dynamics amplify rounding."""
    simulator = Simulator(plan_of(gs.WPM(15, 0.02)))
    for t in range(12):
        before = simulator.snapshot()
        simulator.advance(t + 1)
        here = on_devices(replace(simulator.plan, rounds=t + 1), tmp_path / str(t), initial=before)
        torch.testing.assert_close(here, simulator.models(), rtol=1e-12, atol=1e-13)


class OneMix(Algorithm):
    """A round that is one mean in the dual of a mirror map, or one power mean."""

    def __init__(self, p: float | MirrorMap) -> None:
        self.mirror = p
        if isinstance(p, int | float):
            self.mirror = power_map(p)

    def round(self, state, grad, mix, t):  # type: ignore[no-untyped-def]
        return {"w": mix.mean(state["w"], self.mirror)}

    def halfway(self, state, grad, mix, t):  # type: ignore[no-untyped-def]
        return state["w"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("p", [1.0, 2.5, 15.0, 101.0])
def test_a_power_mean_equals_that_of_the_stack(
    p: float, dtype: torch.dtype, tmp_path: Path
) -> None:
    """In the dual, |z̄ − z̄'| ≤ 8·p·eps·Σ a_j|z_j|, scaled by the largest of the neighbourhood."""
    w = initial_models(5, dtype)
    links = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2)]
    network = Memory()
    network.link(links)
    fleet = GossipFleet(network, tmp_path, w, OneMix(p), rounds=1, wire=dtype)
    fleet.run()
    weights = metropolis(Links.of(5, links))
    there = StackedMix(weights, torch.arange(5), 4, Traffic()).mean(w, power_map(p))
    here = fleet.stacked("w")
    a = torch.from_numpy(weights.dense())
    for i in range(5):
        scale = w[a[i] > 0].double().abs().amax(0)
        z, z_here, z_there = (signed_power(x.double() / scale, p) for x in (w, here[i], there[i]))
        assert ((z_here - z_there).abs() <= 8 * p * torch.finfo(dtype).eps * (a[i] @ z.abs())).all()


def with_a_late_transfer(method: OneMix, w: Tensor, folder: Path) -> GossipFleet:
    """Return two devices after three rounds, in the first of which one acknowledgement is lost."""
    network = Memory()
    network.link([(0, 1)])

    def lose_on(*ways: tuple[int, int]) -> None:
        network.faults = Faults(one_way=frozenset(ways))

    network.schedule(0.0005, lambda: lose_on((0, 1)))
    network.schedule(0.5, lose_on)
    fleet = GossipFleet(network, folder, w, method, rounds=3, wire=w.dtype)
    fleet.run()
    assert fleet.counts[1]["settled"] == 1
    return fleet


@pytest.mark.parametrize("mirror", [gs.SinhMap(10.0), gs.ArcsinhMap(0.1)], ids=str)
def test_a_late_transfer_preserves_the_mean_in_the_dual(mirror: MirrorMap, tmp_path: Path) -> None:
    w = initial_models(2)
    end = with_a_late_transfer(OneMix(mirror), w, tmp_path).stacked("w")
    torch.testing.assert_close(
        mirror.to_dual(end).mean(0), mirror.to_dual(w).mean(0), rtol=1e-9, atol=0.0
    )


def test_a_late_transfer_neither_underflows_nor_overflows(tmp_path: Path) -> None:
    """At p = 15, values of 1e-6 and 1e3 have duals of 1e-90 and 1e45, outside float32."""
    w = initial_models(2, torch.float32)
    fleet = with_a_late_transfer(OneMix(15), w, tmp_path)
    start, end = (
        signed_power(x.double() / w.double().abs().amax(0), 15) for x in (w, fleet.stacked("w"))
    )
    assert ((end.mean(0) - start.mean(0)).abs() <= 15 * 2e-7 * start.abs().mean(0)).all()


def test_bfloat16_on_the_wire(tmp_path: Path) -> None:
    """Models differ from the simulator's by rounding; test_edges checks that the mean does not."""
    plan = plan_of(gs.WPM(1, 0.02, anchor=False), "float32")
    simulator = Simulator(plan)
    simulator.advance(ROUNDS)
    there = simulator.models()
    here = on_devices(plan, tmp_path, wire=torch.bfloat16)
    torch.testing.assert_close(here, there, rtol=0, atol=0.02 * float(there.abs().max()))
    torch.testing.assert_close(
        here.mean(0), there.mean(0), rtol=1e-2, atol=1e-3 * float(there.abs().max())
    )


@pytest.mark.parametrize("name", ["wpm p=1", "wpm p=3 robust", "swarm-sgd", "tracking"])
def test_methods_tolerate_faults(name: str, tmp_path: Path) -> None:
    """With steps, devices end near those of an undisturbed run."""
    plan = plan_of(METHODS[name])
    faults = Faults(seed=1, drop=0.15, delay=0.1, by=0.4)
    undisturbed = Simulator(plan)
    undisturbed.advance(ROUNDS)
    there = undisturbed.models()
    here = on_devices(plan, tmp_path, faults)
    assert (here.mean(0) - there.mean(0)).norm() < 0.25 * there.mean(0).norm()


@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_pairs(drop: float, tmp_path: Path) -> None:
    """Pairs are those of the simulator's matching, or some of them if messages are lost."""
    network = Memory(Faults(seed=4, drop=drop))
    links = TRACE.links(0)
    network.link(map(tuple, links.pairs.tolist()))
    found: dict[int, int | None] = {}

    def device(i: int) -> Callable[[Endpoint], None]:
        def run(endpoint: Endpoint) -> None:
            expected = Expected(RUN, frozenset(Kind), ((1,), (2,)), torch.float32, 1e6)
            edges = Edges(endpoint, Journal(tmp_path / str(i), sync=False), expected, network.now)
            edges.start(dict)
            mix = PeerMix(edges, gs.SwarmSGD(pairs="matching").weights, 0, 7, deadline)
            active = mix.active
            assert active is not None
            mixed = mix(torch.full((1, 2), float(i)))
            committed = mixed[0, 0].item() != i
            assert not committed or active.item()
            found[i] = round(2 * mixed[0, 0].item()) - i if committed else None

        return run

    run_in_threads(network, {i: device(i) for i in range(M)})
    pairs = {(i, j) for i, j in found.items() if j is not None and i < j}
    assert all(found[j] == i for i, j in pairs)
    weights = matching(links, 0, 7)
    there = set(zip(weights.a.tolist(), weights.b.tolist(), strict=True))
    assert pairs == there if drop == 0 else pairs <= there
    assert there


def test_neighbours_link_by_link(tmp_path: Path) -> None:
    network = Memory()
    network.link([(0, 1), (1, 2)])
    seen = {}

    def device(i: int) -> Callable[[Endpoint], None]:
        def run(endpoint: Endpoint) -> None:
            edges = Edges(
                endpoint,
                Journal(tmp_path / str(i), sync=False),
                Expected(RUN, frozenset(Kind), ((2,),), torch.float32, 1e6),
                network.now,
            )
            seen[i] = PeerMix(edges, Metropolis(), 0, 0, deadline).neighbours(
                torch.full((1, 2), float(i))
            )

        return run

    run_in_threads(network, {i: device(i) for i in range(3)})
    assert seen[1].value[:, 0].tolist() == [0, 1, 2]
    assert seen[1].sender.tolist() == [1, 0, 2]
    assert seen[1].receiver.tolist() == [0, 0, 0]
    torch.testing.assert_close(seen[1].weight, torch.full((3,), 1 / 3))
    torch.testing.assert_close(seen[0].weight, torch.tensor([2 / 3, 1 / 3]))


REFUSED: dict[str, tuple[Algorithm, str]] = {
    "one pair": (gs.SwarmSGD(), "matching"),
    "best constant": (gs.Composition(weights=BestConstant()), "whole network"),
    "laplacian": (gs.Composition(weights=Laplacian()), "whole network"),
    "all-reduce": (gs.AllReduce(), "average over all devices"),
    "fedavg": (gs.FedAvg(), "average over all devices"),
    "diloco": (gs.DiLoCo(), "average over all devices"),
    "adom": (gs.ADOM(), "connected in every round"),
    "guarded adom": (gs.Guarded(gs.ADOM(), gs.Median()), "connected in every round"),
    "extra": (gs.EXTRA(), "never change"),
    "nids": (gs.NIDS(), "never change"),
    "d2": (gs.D2(), "never change"),
    "push-sum": (gs.PushSum(), "same for both ends"),
    "gossip learning": (gs.GossipLearning(), "same for both ends"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_method_that_needs_the_whole_network_is_refused(name: str) -> None:
    method, reason = REFUSED[name]
    with pytest.raises(InputError, match=reason) as refusal:
        check_runs_on_devices(method)
    assert (refusal.value.field, refusal.value.value) == ("algorithm", method.label)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_runs_on_devices_is_accepted(name: str) -> None:
    check_runs_on_devices(METHODS[name])
    check_runs_on_devices(replace(gs.Broken(METHODS[name]), sends="noise"))


def test_shapes() -> None:
    w0 = torch.zeros(1, 5)
    assert exchange_shapes(METHODS["swarm-sgd"], w0) == ((1,), (5,))
    assert exchange_shapes(METHODS["tracking"], w0) == ((5,), (5,))
    assert exchange_shapes(METHODS["guarded"], w0) == ((5,),)
    assert exchange_shapes(METHODS["noloco"], w0) == ((1,), (10,))
    assert exchange_shapes(METHODS["k-gt"], w0) == ((10,),)
    assert exchange_shapes(METHODS["d-adam"], w0) == ((5,),)


def test_what_a_device_does_not_offer(tmp_path: Path) -> None:
    endpoint = Memory().endpoint(0)
    edges = Edges(
        endpoint, Journal(tmp_path), Expected(RUN, frozenset(Kind), ((5,),), torch.float32, 1e6)
    )
    mix = PeerMix(edges, Metropolis(), 0, 0, deadline)
    assert mix.active is None
    assert mix.with_message_size(1, 2) is mix
    assert mix.devices.tolist() == [0]
    with pytest.raises(InputError, match="average over all devices"):
        mix.all_reduce(torch.zeros(1, 5))
