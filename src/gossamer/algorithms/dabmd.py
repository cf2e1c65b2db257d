"""DABMD: distributed any-batch mirror descent.

A round has a fixed time; a faster device gets through more mini-batches.

N. Eshraghi, B. Liang. "Distributed online optimization over a heterogeneous network with any-batch
mirror descent." ICML 2020; the form with a single consensus iteration per round, which averages
primal variables.

    g_i  = (1/b̄)·Σ_{s ≤ b_i} d_{i,s}(w_i)     b̄ = (1 + max_batches)/2, the mean of b
    y_i  = argmin ⟨g_i, y⟩ + D_φ(y, w_i)/η    = (w_i^[p] − η·g_i)^[1/p]
    w_i⁺ = Σ_j a_ij·y_j                       averaged in the primal (WPM averages in the dual)

Assumptions: symmetric links that connect all devices over every B rounds, and convex losses.
Analyses of mirror descent with averages in the primal also need D_φ(x, ·) to be convex (S.
Shahrampour, A. Jadbabaie, IEEE TAC 63, 2018). It is for p = 1 only, so p > 1 is an extension of
ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from gossamer import draws
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State
from gossamer.algorithms.registry import method
from gossamer.algorithms.schedules import Rate, at, check_eta
from gossamer.algorithms.steps import Constant, StepRule
from gossamer.errors import InputError
from gossamer.mirror import check_p, power_map


@method("dabmd", label="DABMD", paper="Eshraghi and Liang, ICML 2020")
@dataclass(frozen=True)
class DABMD(Algorithm):
    """A drawn number b_i(t) of mini-batches, from 1 to `max_batches`, for each device and round.

    Differences from the paper: the sum is divided by b̄ instead of b_i (not confirmed to be the
    paper's), so that a device with more batches also moves further. b is drawn alike for all, while
    the paper's devices differ in speed; otherwise the data of the fast would count more for good.
    The weights are not restricted to a set.

    Args:
        eta: The learning rate: a number or a schedule.
        p: The exponent of the mirror map.
        max_batches: The largest number of mini-batches per round.
        step: The step rule.
        seed: The seed of the drawn numbers.

    Example:
        >>> DABMD(eta=0.05, max_batches=4).label
        'DABMD'
    """

    eta: Rate = 0.01
    p: float = 1
    max_batches: int = 4
    step: StepRule = field(default_factory=Constant)
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_p(self.p)
        if self.max_batches < 1:
            raise InputError("max_batches", self.max_batches, "a whole number of at least 1")

    @property
    def needs_gradients(self) -> bool:
        return True

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return {"w": mix(self.halfway(state, grad, mix, t))}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w = state["w"]
        g = torch.zeros_like(w)
        devices = mix.devices.cpu().numpy()
        drawn = draws.below(self.max_batches, self.seed, "dabmd/batches", t, devices)
        b = 1 + torch.from_numpy(drawn).to(w.device)
        for s in range(int(b.max())):
            rows = (b > s).nonzero().squeeze(1)
            g[rows] += grad(w[rows], s, rows)
        g /= (1 + self.max_batches) / 2
        η = at(self.eta, t, mix.devices, w)
        return self.step(w.clone(), g, η, power_map(self.p), lambda: grad.loss(w))
