"""The conformance suite: what every method owes an engine, whatever it is. Run it on your own by one call.

>>> from gossamer import DPSGD
>>> check(DPSGD(eta=0.05))
['churn', 'changing', 'static']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms import Algorithm
from gossamer.engines import Measure, Plan, Simulator
from gossamer.errors import InputError
from gossamer.network import Callback, Churn, Graph, LinkFailure, Network, Random, RandomRing
from gossamer.tasks import LinearRegression, Task
from gossamer.tasks.synthetic import LeastSquares

DEVICES = 7
NETWORKS: dict[str, Network] = {
    "churn": Random(DEVICES, 0.5) & LinkFailure(0.2) & Churn(0.1, 0.5),
    "changing": RandomRing(DEVICES),
    "static": Graph(DEVICES, tuple((i, (i + 1) % DEVICES) for i in range(DEVICES))),
    "one-way": Callback(
        DEVICES, lambda t: [(i, (i + 1 + t % 3) % DEVICES) for i in range(DEVICES)], directed=True
    ),
}


def check(algorithm: Algorithm, rounds: int = 12) -> list[str]:
    """Raise an AssertionError with a sentence where a method breaks a promise; the names of the networks that it took.

    On each network it is either refused, with a sentence about the network, or it: starts from the shared model; gives one
    finite model a device, of the type asked for; comes out the same bit for bit when run again, and when stopped half-way
    and resumed from a snapshot; leaves a device that is away as it was; can be measured in the middle of a round without
    being changed by it.
    """
    taken = []
    for name, network in NETWORKS.items():
        try:
            plan = _plan(algorithm, network, rounds)
            _check_on(plan)
        except InputError as refusal:
            _expect(
                refusal.field == "network",
                algorithm,
                f"refuses the {name} network by another field: {refusal}",
            )
            _expect(
                len(refusal.accepted.split()) > 2,
                algorithm,
                f"refuses the {name} network without a sentence: {refusal}",
            )
        else:
            taken.append(name)
    _expect(bool(taken), algorithm, "takes none of the networks: churn, changing, static, one-way")
    return taken


def _plan(algorithm: Algorithm, network: Network, rounds: int) -> Plan:
    """A least-squares problem by mini-batches, or by all samples where the method asks for that."""
    problem = LeastSquares(DEVICES, dimension=5, samples=9, heterogeneity=0.5)
    task = Task(problem.load(), problem.split(), LinearRegression(), 3)
    plan = Plan(task, network, algorithm, rounds, seed=1, dtype="float64")
    try:
        Simulator(plan).advance(1)
    except InputError as refusal:
        if refusal.field != "batch":
            raise
        return replace(plan, task=replace(task, batch=0))
    return plan


def _check_on(plan: Plan) -> None:
    method = plan.algorithm
    simulator = Simulator(plan)
    start = plan.task.learner.init(plan.seed).expand(DEVICES, -1)
    shape = simulator.models().shape
    _expect(
        shape == start.shape,
        method,
        f"has models of shape {tuple(shape)}, not {tuple(start.shape)}",
    )
    _expect(
        torch.allclose(simulator.models(), start),
        method,
        "does not start from the shared model: see init",
    )
    for t in range(plan.rounds):
        here, before = plan.network.links(t).active, simulator.models().clone()
        simulator.advance(t + 1)
        models = simulator.models()
        _expect(
            models.shape == shape,
            method,
            f"has models of shape {tuple(models.shape)} after round {t + 1}",
        )
        _expect(
            bool(models.isfinite().all()),
            method,
            f"has a model that is not finite after round {t + 1}",
        )
        if here is not None:
            away = torch.from_numpy(np.flatnonzero(~here))
            _expect(
                torch.equal(models[away], before[away]),
                method,
                f"moves a device that is away in round {t}",
            )
    for name, x in simulator.snapshot().tensors.items():
        _expect(
            len(x) in (1, DEVICES),
            method,
            f"has {len(x)} rows of {name!r} in its state, not one a device, or one for all",
        )
    _expect(
        _same(simulator, lambda: _run(plan)), method, "does not come out the same when run again"
    )
    _expect(
        _same(simulator, lambda: _resumed(plan)),
        method,
        "does not go on from a snapshot as if it had never stopped",
    )
    for at in ("after_step", "after_mix"):
        measured = Simulator(replace(plan, measure=Measure(at=at)))
        for t in range(plan.rounds):
            measured.advance(t + 1)
            measured.record()
        _expect(
            _same(simulator, partial(_identity, measured)),
            method,
            f"is changed by being measured {at}: see halfway",
        )
    single = Simulator(replace(plan, dtype="float32"))
    single.advance(plan.rounds)
    _expect(
        single.models().dtype == torch.float32, method, f"makes {single.models().dtype} of float32"
    )


def _run(plan: Plan) -> Simulator:
    simulator = Simulator(plan)
    simulator.advance(plan.rounds)
    return simulator


def _resumed(plan: Plan) -> Simulator:
    first = Simulator(plan)
    first.advance(plan.rounds // 2)
    second = Simulator(plan, first.snapshot())
    second.advance(plan.rounds)
    return second


def _same(simulator: Simulator, other: Callable[[], Simulator]) -> bool:
    """Whether another run has the same state and traffic, bit for bit."""
    one, two = simulator.snapshot(), other().snapshot()
    counted = (one.messages, one.bytes) == (two.messages, two.bytes)
    return (
        counted
        and one.tensors.keys() == two.tensors.keys()
        and all(map(_equal, one.tensors.values(), two.tensors.values()))
    )


def _identity(simulator: Simulator) -> Simulator:
    return simulator


def _equal(x: Tensor, y: Tensor) -> bool:
    return x.dtype == y.dtype and torch.equal(x, y)


def _expect(holds: bool, algorithm: Algorithm, otherwise: str) -> None:
    if not holds:
        raise AssertionError(f"{algorithm.label} {otherwise}")
