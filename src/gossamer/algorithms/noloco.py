"""NoLoCo: DiLoCo without an all-reduce: random pairs take the outer step together.

J. Kolehmainen, N. Blagoev, J. Donaghy, O. Ersoy, C. Nies. "NoLoCo: no-all-reduce low communication
training method for large models." 2025, arXiv:2506.10911.

    θ_i ← φ_i, then θ_i ← θ_i − η·d_i(θ_i)    local_steps times, by AdamW
    Δ_i = φ_i − θ_i                           the outer gradient
    δ_i⁺ = α·δ_i − β·mean(Δ) − γ·(φ_i − mean(φ))     means over the pair
    φ_i⁺ = φ_i + δ_i⁺

The pair exchanges Δ and φ, two vectors. δ and the memory of AdamW stay on their device. The pull γ
towards the mean of the pair is what keeps the models together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from gossamer.algorithms.base import (
    Algorithm,
    Gradient,
    Mix,
    State,
    check_local_steps,
    descend_locally,
)
from gossamer.algorithms.optimizers import AdamW, Optimizer, check_coefficients
from gossamer.algorithms.registry import ADAM_RATE, Choice, method
from gossamer.algorithms.schedules import Rate, at, check_eta, check_positive
from gossamer.network.weights import Matching, WeightRule


@method(
    "noloco",
    label="NoLoCo",
    paper="Kolehmainen et al., 2025",
    tune={"eta": ADAM_RATE, "local_steps": Choice((5, 10, 20))},
)
@dataclass(frozen=True)
class NoLoCo(Algorithm):
    """Local steps on every device, then an outer step of each random pair.

    Differences from the paper: pairs form among the links of a round by `Matching`, so that a
    device may remain without a partner; it then takes the outer step with its own Δ and φ. The
    paper's random routes between the stages of a pipeline are left out.

    Args:
        eta: The learning rate of the local steps: a number or a schedule of the round.
        local_steps: The number of steps per round.
        outer_eta: The learning rate β of the outer step.
        outer_momentum: The momentum coefficient α of the outer step.
        pull: γ, which the authors' code sets to β.
        optimizer: The optimiser of the local steps.

    Example:
        >>> NoLoCo(eta=0.001, local_steps=50).label
        'NoLoCo'
    """

    eta: Rate = 0.001
    local_steps: int = 20
    outer_eta: float = 0.7
    outer_momentum: float = 0.5
    pull: float = 0.7
    optimizer: Optimizer = field(default=AdamW(weight_decay=0.1), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_local_steps(self.local_steps)
        check_positive(outer_eta=self.outer_eta, pull=self.pull)
        check_coefficients(outer_momentum=self.outer_momentum)

    @property
    def weights(self) -> WeightRule:
        return Matching()

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "momentum": torch.zeros_like(w0)}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        φ = state["w"]
        Δ = φ - self.halfway(state, grad, mix, t)
        Δ_mean, φ_mean = mix(torch.cat([Δ, φ], 1)).chunk(2, 1)
        δ = (
            self.outer_momentum * state["momentum"]
            - self.outer_eta * Δ_mean
            - self.pull * (φ - φ_mean)
        )
        return {"w": φ + δ, "momentum": δ}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        θ = state["w"].clone()
        return descend_locally(θ, grad, at(self.eta, t, mix.devices, θ), self.local_steps)
