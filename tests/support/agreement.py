"""Runs of the simulator beside those of the executable specification, `support.reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gossamer import draws
from gossamer.engines import Plan, Simulator
from support.reference import Reference


def check_against_reference(plan: Plan) -> None:
    """Models, messages and bytes of a plan in float64 are those of the reference."""
    simulator, reference = both_to_the_end(plan)
    record = simulator.record()
    assert record.messages == reference.messages > 0
    assert record.bytes == pytest.approx(8 * reference.elements_sent, rel=1e-14)


def both_to_the_end(plan: Plan) -> tuple[Simulator, Reference]:
    """Run both; the models are equal after every round, relative to the largest weight.

    To 1e-12 in float64 and 1e-5 in float32. Where z crosses zero its root is ill-conditioned: more
    is allowed there, as much as rounding makes of two runs of the reference itself.
    """
    simulator = Simulator(plan)
    reference = Reference(plan)
    gaps = []
    for until in range(1, plan.rounds + 1):
        simulator.advance(until)
        reference.advance(until)
        gaps.append(distance(simulator.models().numpy(), reference.models()))
    promised = {"float32": 1e-5, "float64": 1e-12}[plan.dtype]
    if max(gaps) > promised:
        for until, (gap, allowed) in enumerate(zip(gaps, rounding(plan), strict=True), 1):
            assert gap <= max(promised, allowed), f"after round {until}"
    return simulator, reference


def distance(models: Any, expected: Any) -> float:
    """Return the largest difference, relative to the largest weight."""
    return float(np.abs(models - expected).max() / np.abs(expected).max())


def rounding(plan: Plan) -> list[float]:
    """Return, per round, how far apart rounding errors may take two runs that are both right.

    Half of the accuracy that is promised, 4·eps of each weight or 4·p·eps of its dual, is applied
    to the state before every round of the reference, in four runs; four times what becomes of it
    is allowed.
    """
    eps = torch.finfo(getattr(torch, plan.dtype)).eps
    reference = Reference(plan)
    perturbed = [Reference(plan) for _ in range(4)]
    allowed = []
    for t in range(plan.rounds):
        reference.advance(t + 1)
        for k, run in enumerate(perturbed):
            for i, x in run.x.items():
                noise = draws.uniform(k, "rounding", t, i, np.arange(len(x))) * 2 - 1
                run.x[i] = x * (1 + 4 * eps * noise)
            run.advance(t + 1)
        apart = [distance(run.models(), reference.models()) for run in perturbed]
        allowed.append(4 * max(apart))
    return allowed
