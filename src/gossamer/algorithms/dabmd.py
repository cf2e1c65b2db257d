"""DABMD: distributed any-batch mirror descent. A round has a fixed time; who is faster gets through more mini-batches.

N. Eshraghi, B. Liang. "Distributed online optimization over a heterogeneous network with any-batch mirror descent." ICML
2020; the form with a single consensus iteration a round, which averages primal variables.

Assumes symmetric links that connect all devices over every B rounds, and convex losses. Analyses of mirror descent that
averages in the primal also ask that D_φ(x, ·) be convex (S. Shahrampour, A. Jadbabaie, IEEE TAC 63, 2018): it is for p = 1
alone, so that p > 1 is our extension.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from gossamer import draws
from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State
from gossamer.algorithms.schedules import Schedule, at, check_eta
from gossamer.algorithms.steps import Constant, StepRule
from gossamer.errors import InputError
from gossamer.mirror import check_p


@register("algorithm", "dabmd")
@dataclass(frozen=True)
class DABMD(Algorithm):
    """b_i(t) mini-batches, drawn from 1 … `max_batches` for each device and round; each counts alike, whoever had it.

        g_i = (1/b̄)·Σ_{s ≤ b_i} d_{i,s}(w_i)      b̄ = (1 + max_batches)/2, the mean of b
        y_i = argmin ⟨g_i, y⟩ + D_φ(y, w_i)/η     φ(w) = ‖w‖^{p+1}_{p+1}/(p + 1): y_i = (w_i^[p] − η·g_i)^[1/p]
        w_i⁺ = Σ_j a_ij·y_j                        averaged in the primal (WPM averages in the dual)

    Ours, and not confirmed to be the paper's: the sum is divided by b̄ rather than by b_i, so that who got through more also
    moves further. Ours, knowingly: b is drawn alike for all, while the paper's devices differ in speed; else the data of the
    fast would count more for good. And there is no set that the weights have to stay in.

    >>> DABMD(eta=0.05, max_batches=4).label
    'DABMD p=1'
    """

    eta: float | Schedule = 0.01
    p: float = 1
    max_batches: int = 4
    step: StepRule = field(default_factory=Constant)
    seed: int = 0

    def __post_init__(self) -> None:
        check_eta(self.eta)
        check_p(self.p)
        if self.max_batches < 1:
            raise InputError("max_batches", self.max_batches, "a whole number of at least 1")

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    @property
    def label(self) -> str:
        return f"DABMD p={self.p:g}"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return {"w": mix(self.halfway(state, grad, mix, t))}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w, g = state["w"], torch.zeros_like(state["w"])
        drawn = draws.below(
            self.max_batches, self.seed, "dabmd/batches", t, mix.devices.cpu().numpy()
        )
        b = 1 + torch.from_numpy(drawn).to(w.device)
        for s in range(int(b.max())):
            rows = (b > s).nonzero().squeeze(1)
            g[rows] += grad(w[rows], s, rows)
        g /= (1 + self.max_batches) / 2
        return self.step(
            w.clone(), g, at(self.eta, t, mix.devices, w), float(self.p), lambda: grad.loss(w)
        )
