"""Small plans for tests of the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from gossamer import draws
from gossamer.algorithms import Algorithm
from gossamer.engines import Plan, Simulator
from gossamer.network import Churn, LinkFailure, Network, Random
from gossamer.tasks import Iid, LinearRegression, Task, from_arrays
from gossamer.tasks.synthetic import LeastSquares

M = 6
CHANGING = Random(M, 0.5) & LinkFailure(0.2) & Churn(0.15, 0.5)


def squares(devices: int = M, dimension: int = 5) -> Task:
    """Return a least-squares task."""
    problem = LeastSquares(devices=devices, dimension=dimension, samples=8)
    return Task(problem.load(), problem.split(), LinearRegression(), 3)


def images(model: Any, devices: int = M) -> Task:
    """Return a task of 4 × 4 images of three classes."""
    y = draws.below(3, 0, "y", np.arange(60))
    noise = draws.normal(0, "x", np.arange(60)[:, None], np.arange(16)).reshape(60, 1, 4, 4)
    x = noise + y[:, None, None, None]
    return Task(from_arrays(x, y, x[:20], y[:20]), Iid().make(y, devices, 0), model, 4)


def plan_of(
    algorithm: Algorithm,
    network: Network = CHANGING,
    rounds: int = 12,
    *,
    task: Task | None = None,
    dtype: Any = "float64",
    **settings: Any,
) -> Plan:
    """Return a plan, by default of a least-squares task in float64."""
    return Plan(task or squares(), network, algorithm, rounds, dtype=dtype, **settings)


def run(plan: Plan, until: int | None = None) -> Simulator:
    """Return a simulator that has run a plan, to its end or to a round."""
    simulator = Simulator(plan)
    simulator.advance(plan.rounds if until is None else until)
    return simulator
