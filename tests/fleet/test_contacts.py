"""The pace of contacts: methods in meetings equal the simulator, and devices that join late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.edges import RUN, run_in_threads
from torch import Tensor

import gossamer as gs
from gossamer.algorithms import Algorithm
from gossamer.engines import Plan, Simulator
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.errors import InputError
from gossamer.fleet.methods import check_runs_in_meetings, exchange_shapes
from gossamer.fleet.mix import MeetingMix
from gossamer.fleet.protocol.journal import Journal
from gossamer.fleet.protocol.meetings import Meetings
from gossamer.fleet.protocol.messages import MEETING_KINDS
from gossamer.fleet.protocol.wire import Expected
from gossamer.fleet.settings import Fleet
from gossamer.fleet.transport.memory import Endpoint, Memory
from gossamer.network import Network
from gossamer.tasks import LinearRegression, Task
from gossamer.tasks.synthetic import LeastSquares

ROUNDS = 20

METHODS: dict[str, Algorithm] = {
    "d-psgd": gs.DPSGD(0.02),
    "wpm p=3": gs.WPM(3, 0.02),
    "wpm p=15": gs.WPM(15, 0.02, anchor=False),
    "quasi-global": gs.QuasiGlobal(eta=0.02),
    "tracking": gs.Tracking(eta=0.02),
    "guarded": gs.Guarded(gs.DPSGD(0.02), gs.TrimmedMean(0.34)),
    "sinh": gs.Composition(gs.SinhMap(0.3), 0.02, gs.Constant(), anchor=True),
}


def in_meetings(plan: Plan, folder: Path) -> Tensor:
    """Return the models of two devices that meet in every round of theirs, without a clock."""
    network = Memory()
    network.link([(0, 1)])
    method = plan.algorithm
    models: dict[int, Tensor] = {}
    workers = []
    for i in range(2):
        own = np.array([i])
        workers.append(
            plan.task.only(own).worker(own, plan.seed, torch.float64, torch.device("cpu"))
        )
    starts = [worker.start() for worker in workers]

    def device(i: int) -> Callable[[Endpoint], None]:
        def run(endpoint: Endpoint) -> None:
            shapes = exchange_shapes(method, starts[i], proposals=False)
            expected = Expected(RUN, MEETING_KINDS, shapes, torch.float64, 1e6)
            journal = Journal(folder / str(i), sync=False)
            edges = Meetings(endpoint, journal, expected, network.now)
            with torch.no_grad():
                state = edges.start(lambda: method.first_state(starts[i]))
                for t in range(plan.rounds):
                    endpoint.sleep_until(network.now() + 0.1 + 0.3 * i)  # one is slower
                    mix = MeetingMix(edges, method.weights, network.now, 5.0, 5.0)
                    state = method.next_state(state, BatchGradient(workers[i], t), mix, t)
                    edges.finish(t, state)
            models[i] = method.models(state)[0]
            assert not edges.counts["in doubt"] + edges.counts["failed"]

        return run

    run_in_threads(network, {i: device(i) for i in range(2)})
    return torch.stack([models[i] for i in range(2)])


@pytest.mark.parametrize("name", METHODS)
def test_two_devices_equal_the_simulator(name: str, tmp_path: Path) -> None:
    """Two devices that always meet are a network of two whose link is always there."""
    problem = LeastSquares(2, dimension=5, samples=9, heterogeneity=0.5)
    task = Task(problem.load(), problem.split(), LinearRegression(), 3)
    plan = Plan(task, gs.Full(2), METHODS[name], ROUNDS, seed=1, dtype="float64")
    check_runs_in_meetings(plan.algorithm, plan.network, plan.rounds)
    simulator = Simulator(plan)
    simulator.advance(ROUNDS)
    expected = plan.algorithm.models(simulator.snapshot().tensors)
    torch.testing.assert_close(in_meetings(plan, tmp_path), expected, rtol=1e-10, atol=1e-12)


REFUSED: dict[str, tuple[Algorithm, Network, str]] = {
    "swarm-sgd": (gs.SwarmSGD(pairs="matching"), gs.Full(4), "computes while messages travel"),
    "p changes": (
        gs.WPM(gs.Switch(5, 20, 1)),
        gs.Full(4),
        "a power p that is the same in all rounds",
    ),
    "compressed": (gs.ChocoSGD(eta=0.1), gs.Full(4), "whole vectors"),
    "schedule": (gs.DPSGD(), gs.BaseGraph(4), "no common rounds"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_method_that_needs_common_rounds_is_refused(name: str) -> None:
    method, network, why = REFUSED[name]
    with pytest.raises(InputError, match=why):
        check_runs_in_meetings(method, network, rounds=100)


@pytest.mark.parametrize(
    ("key", "value"), [("pace", "rounds"), ("patience", -1.0), ("timeout", 0.0)]
)
def test_settings_out_of_range_are_refused(key: str, value: object) -> None:
    with pytest.raises(InputError, match=key):
        Fleet(**{key: value})  # type: ignore[arg-type]


def joining(
    folder: Path, begins: dict[int, float], lone: frozenset[int] = frozenset()
) -> tuple[dict[int, Tensor], dict[int, float]]:
    """Return the first model of each device, and when it had it. Models are the device's number.

    Args:
        folder: Where each device has its folder.
        begins: When each device begins, in seconds.
        lone: Devices without links.
    """
    network = Memory()
    network.link([(a, b) for a in begins for b in begins if a < b and not {a, b} & lone])
    started: dict[int, Tensor] = {}
    times: dict[int, float] = {}
    method = gs.DPSGD()

    def device(i: int) -> Callable[[Endpoint], None]:
        def run(endpoint: Endpoint) -> None:
            endpoint.sleep_until(begins[i])
            expected = Expected(RUN, MEETING_KINDS, ((3,),), torch.float64, 1e6, start=(3,))
            edges = Meetings(endpoint, Journal(folder / str(i), sync=False), expected, network.now)

            def new() -> dict[str, Tensor]:
                model = edges.request_model(network.now() + 4.0)
                own = torch.full((1, 3), float(i), dtype=torch.float64)
                return {"w": own if model is None else model[None]}

            w = edges.start(new)["w"]
            started[i] = w.clone()
            times[i] = network.now()
            while network.now() < 20.0:
                t = edges.round
                w = MeetingMix(edges, method.weights, network.now, 1.0, 1.0)(w)
                edges.finish(t, {"w": w})
                edges.send_models(w[0])
                endpoint.sleep_until(network.now() + 0.1)

        return run

    run_in_threads(network, {i: device(i) for i in begins})
    return started, times


def test_a_late_device_starts_from_a_model_of_its_neighbours(tmp_path: Path) -> None:
    started, times = joining(tmp_path, {0: 0.0, 1: 0.0, 2: 10.0})
    torch.testing.assert_close(started[2], torch.full((1, 3), 0.5).double())
    assert times[2] < 12.0


def test_devices_that_are_all_new_do_not_wait_for_each_other(tmp_path: Path) -> None:
    started, times = joining(tmp_path, {0: 0.0, 1: 0.0, 2: 0.01, 3: 0.0}, frozenset({3}))
    for i in range(3):
        assert torch.equal(started[i], torch.full((1, 3), float(i)).double())
        assert times[i] < 0.1
    assert times[3] >= 4.0, "a device that sees nobody looks for somebody first"
