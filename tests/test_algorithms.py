"""Every algorithm in the simulator against the executable specification of reference.py, and the identities among them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference, neighbours_of, power

from gossamer.algorithms import (
    DPSGD,
    WPM,
    Algorithm,
    AllReduce,
    Constant,
    Cosine,
    Inverse,
    InverseSqrt,
    Matched,
    Power,
    Ratio,
    Safe,
    SwarmSGD,
    Switch,
)
from gossamer.engines import Plan, Simulator
from gossamer.errors import InputError
from gossamer.network import Churn, Full, GilbertElliott, LinkFailure, Network, Random, RandomRing, Ring, Star
from gossamer.tasks import LinearRegression, LogisticRegression, Mlp, Softmax, Task, from_arrays
from gossamer.tasks.splits import Iid
from gossamer.tasks.synthetic import LeastSquares, Logistic

M = 6
NETWORKS: dict[str, Network] = {
    "churn": Random(M, 0.5) & LinkFailure(0.2) & Churn(0.1, 0.5),
    "bursts": Random(M, 0.5, seed=4) & GilbertElliott(0.1, 0.4),
    "ring": RandomRing(M),
    "star": Star(M),
}
RULES = [Constant(), Power(), Matched(), Safe(), Ratio("norm"), Ratio("printed")]
WAYS: list[dict[str, Any]] = [
    {"gradient_at": "aggregate"},
    {"gradient_at": "local"},
    {"order": "adapt-then-combine"},
]


def squares(heterogeneity: float = 0.3, batch: int = 3) -> Task:
    problem = LeastSquares(devices=M, dimension=5, samples=8, heterogeneity=heterogeneity)
    return Task(problem.load(), problem.split(), LinearRegression(), batch)


def plan_of(algorithm: Algorithm, network: Network = NETWORKS["churn"], rounds: int = 30, **changes: Any) -> Plan:
    return Plan(changes.pop("task", None) or squares(), network, algorithm, rounds, **{"dtype": "float64", **changes})


def check_against_reference(plan: Plan) -> None:
    """Equal to 1e-12 of the largest weight after every round, and the same number of messages and bytes."""
    simulator, reference = Simulator(plan), Reference(plan)
    for until in range(1, plan.rounds + 1):
        simulator.advance(until)
        reference.advance(until)
        expected = reference.models()
        gap = np.abs(simulator.models().numpy() - expected).max() / np.abs(expected).max()
        assert gap <= 1e-12, f"after round {until}"
    record = simulator.record()
    assert record.messages == reference.messages > 0
    assert record.bytes == pytest.approx(8 * reference.numbers_sent, rel=1e-14)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "algorithm",
    [
        *(DPSGD(0.05, **way) for way in WAYS),
        SwarmSGD(0.05),
        SwarmSGD(0.05, local_steps=3),
        SwarmSGD(0.05, pairs="matching"),
        SwarmSGD(0.05, local_steps=3, pairs="matching"),
        AllReduce(0.05),
    ],
    ids=repr,
)
def test_linear_methods_equal_the_reference(algorithm: Algorithm, network: str) -> None:
    check_against_reference(plan_of(algorithm, NETWORKS[network]))


GRID = list(itertools.product((1, 2, 2.5, 3, 5, 15), RULES, WAYS, (False, True)))


@pytest.mark.parametrize("p", [3, 15])
@pytest.mark.parametrize("number", range(len(GRID) // 6))
def test_wpm_equals_the_reference(number: int, p: float) -> None:
    _, rule, way, anchor = GRID[number]
    network = list(NETWORKS)[number % len(NETWORKS)]
    check_against_reference(plan_of(WPM(p, 0.02, rule, anchor=anchor, **way), NETWORKS[network]))
