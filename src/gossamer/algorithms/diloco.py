"""DiLoCo: many local steps, then Nesterov momentum along the mean of the outer gradients.

A. Douillard, Q. Feng, A. A. Rusu, R. Chhaparia, Y. Donchev, A. Kuncoro, M. Ranzato, A. Szlam,
J. Shen. "DiLoCo: distributed low-communication training of language models." 2023,
arXiv:2311.08105.

    θ_i ← θ, then θ_i ← θ_i − η·d_i(θ_i)    local_steps times, by AdamW
    Δ   = (1/m)·Σ_i (θ − θ_i)               the outer gradient, by an all-reduce
    b⁺  = μ·b + Δ                           θ⁺ = θ − η_o·(Δ + μ·b⁺)

It is not decentralized: it is a reference with an all-reduce. The outer gradients are averaged and
sent; θ and b are equal on all devices; the memory of AdamW stays on its device.
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
from gossamer.network.weights import Clients, WeightRule


@method(
    "diloco",
    label="DiLoCo",
    paper="Douillard et al., 2023",
    needs="the mean of all devices",
    tune={"eta": ADAM_RATE, "local_steps": Choice((5, 10, 20))},
)
@dataclass(frozen=True)
class DiLoCo(Algorithm):
    """Local steps on every active device, then one outer step of the model that all share.

    A device that comes back starts from the shared model; that message is not counted. In the paper
    a device that is cut off goes on from its own model.

    Args:
        eta: The learning rate of the local steps: a number or a schedule of the round.
        local_steps: The number of steps per round; 500 in the paper.
        outer_eta: The learning rate η_o of the outer step.
        outer_momentum: The momentum coefficient μ of the outer step.
        optimizer: The optimiser of the local steps.

    Example:
        >>> DiLoCo(eta=0.001, local_steps=100).label
        'DiLoCo'
    """

    eta: Rate = 0.001
    local_steps: int = 20
    outer_eta: float = 0.7
    outer_momentum: float = 0.9
    optimizer: Optimizer = field(default=AdamW(weight_decay=0.1), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_local_steps(self.local_steps)
        check_positive(outer_eta=self.outer_eta)
        check_coefficients(outer_momentum=self.outer_momentum)

    @property
    def weights(self) -> WeightRule:
        return Clients()  # no links: any network will do

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def init(self, w0: Tensor) -> State:
        shared = w0[:1].clone()
        return {"w": w0.clone(), "shared": shared, "momentum": torch.zeros_like(shared)}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        θ = state["shared"]
        Δ = mix.all_reduce(θ - self.halfway(state, grad, mix, t))
        if Δ is None:
            return state
        μ = self.outer_momentum
        b = μ * state["momentum"] + Δ
        θ = θ - self.outer_eta * (Δ + μ * b)
        return {"w": θ.expand_as(state["w"]).clone(), "shared": θ, "momentum": b}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        θ = state["shared"].expand_as(state["w"]).clone()
        return descend_locally(θ, grad, at(self.eta, t, mix.devices, θ), self.local_steps)
