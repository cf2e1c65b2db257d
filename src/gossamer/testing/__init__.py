"""The conformance suite: what every algorithm guarantees to an engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms import Algorithm
from gossamer.engines import Measure, Plan, Simulator, Snapshot
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.mixing import Traffic
from gossamer.errors import InputError
from gossamer.network import Callback, Churn, Graph, LinkFailure, Network, Random, RandomRing
from gossamer.network.base import BoolArray
from gossamer.tasks import LinearRegression, Task
from gossamer.tasks.synthetic import LeastSquares
from gossamer.testing.rows import Round

DEVICES = 7


def _one_way_links(t: int) -> list[tuple[int, int]]:
    """Return links from every device to one other, which changes from round to round."""
    return [(i, (i + 1 + t % 3) % DEVICES) for i in range(DEVICES)]


NETWORKS: dict[str, Network] = {
    "churn": Random(DEVICES, 0.5) & LinkFailure(0.2) & Churn(0.1, 0.5),
    "changing": RandomRing(DEVICES),
    "static": Graph(DEVICES, tuple((i, (i + 1) % DEVICES) for i in range(DEVICES))),
    "one-way": Callback(DEVICES, _one_way_links, directed=True),
}


def check(algorithm: Algorithm, rounds: int = 12) -> list[str]:
    """Check that an algorithm meets the contract of `Algorithm`.

    The algorithm runs on four networks: "churn" (links fail, devices leave and return), "changing"
    (a new ring in every round), "static" (a ring) and "one-way" (directed links). On each of them
    it either refuses the network with an `InputError` that says what it needs, or it

    - starts from the shared initial model,
    - has one finite model per device after every round, of the type that the plan asks for,
    - gives the same result, bit for bit, when it runs again,
    - gives the same result when it stops halfway and resumes from a snapshot,
    - does not change the state of devices that are away,
    - computes each device's row from that device's rows and from what `mix` and `grad` return for
      it: a device that is alone in its stack gets the same as one among all,
    - can be measured in the middle of a round without being changed by it.

    Args:
        algorithm: The algorithm to check.
        rounds: Number of rounds per network.

    Returns:
        The names of the networks that the algorithm accepts.

    Raises:
        AssertionError: If it breaks the contract. The message says where.

    Example:
        >>> from gossamer import DPSGD
        >>> check(DPSGD(eta=0.05))
        ['churn', 'changing', 'static']
    """
    accepted = []
    for name, network in NETWORKS.items():
        try:
            plan = conformance_plan(algorithm, network, rounds)
            _check_plan(plan)
        except InputError as refusal:
            if refusal.field == "algorithm":  # it is no method
                raise
            _check_refusal(algorithm, name, refusal)
        else:
            accepted.append(name)
    _expect(bool(accepted), algorithm, f"accepts none of the networks: {', '.join(NETWORKS)}")
    return accepted


def conformance_plan(algorithm: Algorithm, network: Network, rounds: int) -> Plan:
    """Return a plan for a small least-squares problem.

    Args:
        algorithm: The algorithm.
        network: A network of `DEVICES` devices.
        rounds: Number of rounds.

    Returns:
        A plan with batches of three samples, or with all samples if the algorithm requires that.
    """
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


def _check_refusal(algorithm: Algorithm, network: str, refusal: InputError) -> None:
    _expect(
        refusal.field == "network",
        algorithm,
        f"refuses the {network} network with another field: {refusal}",
    )
    _expect(
        len(refusal.accepted.split()) > 2,
        algorithm,
        f"refuses the {network} network without saying what it needs: {refusal}",
    )


def _check_plan(plan: Plan) -> None:
    _check_rows(plan)
    end = _check_rounds(plan)
    _expect(_equal(end, _run(plan)), plan.algorithm, "gives another result when it runs again")
    _expect(
        _equal(end, _run_and_resume(plan)),
        plan.algorithm,
        "gives another result when it resumes from a snapshot",
    )
    for at in ("after_step", "after_mix"):
        _expect(
            _equal(end, _run_and_measure(replace(plan, measure=Measure(at=at)))),
            plan.algorithm,
            f"is changed by being measured {at}: see halfway",
        )
    single = Simulator(replace(plan, dtype="float32"))
    single.advance(plan.rounds)
    dtype = single.models().dtype
    _expect(dtype == torch.float32, plan.algorithm, f"turns float32 into {dtype}")


def _check_rows(plan: Plan) -> None:
    """Check that the rows of the devices meet in `mix` only."""
    simulator = Simulator(plan)
    for t in sorted({0, min(1, plan.rounds - 1), plan.rounds - 1}):
        simulator.advance(t)
        mix = simulator.make_mix(plan.network.links(t), t, Traffic())
        grad = BatchGradient(simulator.worker, t)
        with torch.no_grad():
            state = simulator.snapshot().tensors
            problem = Round(plan.algorithm, state, grad, mix, t).problem()
        _expect(problem is None, plan.algorithm, str(problem))


def _check_rounds(plan: Plan) -> Snapshot:
    """Check the models before and after every round. Return the final state."""
    algorithm = plan.algorithm
    simulator = Simulator(plan)
    start = plan.task.learner.init(plan.seed).expand(DEVICES, -1)
    _check_shape(algorithm, simulator.models(), start, "at the start")
    _expect(
        torch.allclose(simulator.models(), start),
        algorithm,
        "does not start from the shared model: see init",
    )
    for t in range(plan.rounds):
        before = simulator.models().clone()
        simulator.advance(t + 1)
        models = simulator.models()
        _check_shape(algorithm, models, start, f"after round {t + 1}")
        _expect(
            bool(models.isfinite().all()),
            algorithm,
            f"has a model that is not finite after round {t + 1}",
        )
        away = _away(plan.network.links(t).active)
        _expect(
            torch.equal(models[away], before[away]),
            algorithm,
            f"moves a device that is away in round {t}",
        )
    end = simulator.snapshot()
    for name, x in end.tensors.items():
        _expect(
            len(x) in (1, DEVICES),
            algorithm,
            f"has {len(x)} rows of {name!r} in its state, not one per device or one for all",
        )
    return end


def _check_shape(algorithm: Algorithm, models: Tensor, start: Tensor, when: str) -> None:
    shape = tuple(models.shape)
    expected = tuple(start.shape)
    _expect(shape == expected, algorithm, f"has models of shape {shape}, not {expected}, {when}")


def _away(active: BoolArray | None) -> Tensor:
    """Return the numbers of the devices that are away."""
    if active is None:
        return torch.empty(0, dtype=torch.int64)
    return torch.from_numpy(np.flatnonzero(~active))


def _run(plan: Plan) -> Snapshot:
    simulator = Simulator(plan)
    simulator.advance(plan.rounds)
    return simulator.snapshot()


def _run_and_resume(plan: Plan) -> Snapshot:
    first = Simulator(plan)
    first.advance(plan.rounds // 2)
    second = Simulator(plan, first.snapshot())
    second.advance(plan.rounds)
    return second.snapshot()


def _run_and_measure(plan: Plan) -> Snapshot:
    simulator = Simulator(plan)
    for t in range(plan.rounds):
        simulator.advance(t + 1)
        simulator.record()
    return simulator.snapshot()


def _equal(one: Snapshot, other: Snapshot) -> bool:
    """True if two snapshots have the same tensors and traffic, bit for bit."""
    if (one.messages, one.bytes) != (other.messages, other.bytes):
        return False
    if one.tensors.keys() != other.tensors.keys():
        return False
    for x, y in zip(one.tensors.values(), other.tensors.values(), strict=True):
        if x.dtype != y.dtype or not torch.equal(x, y):
            return False
    return True


def _expect(holds: bool, algorithm: Algorithm, otherwise: str) -> None:
    if not holds:
        raise AssertionError(f"{algorithm.label} {otherwise}")
