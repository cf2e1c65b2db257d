"""D-PSGD: decentralized parallel stochastic gradient descent.

X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu. "Can decentralized algorithms outperform centralized algorithms?
A case study for decentralized parallel stochastic gradient descent." NeurIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import (
    ORDERS,
    POINTS,
    Algorithm,
    Gradient,
    Mix,
    Order,
    Point,
    State,
    check_choice,
    descend,
)
from gossamer.algorithms.schedules import Schedule, at, check_eta


@register("algorithm", "dpsgd")
@dataclass(frozen=True)
class DPSGD(Algorithm):
    """w_i⁺ = Σ_j a_ij·w_j − η·d_i, with d_i at w_i ("local", as its paper has it) or at the mean ("aggregate").

    Adapt-then-combine: w_i⁺ = Σ_j a_ij·(w_j − η·d_j).

    >>> DPSGD(eta=0.01)
    DPSGD(eta=0.01, gradient_at='local', order='combine-then-adapt')
    """

    eta: float | Schedule = 0.01
    gradient_at: Point = "local"
    order: Order = "combine-then-adapt"

    def __post_init__(self) -> None:
        check_eta(self.eta)
        check_choice("gradient_at", self.gradient_at, POINTS)
        check_choice("order", self.order, ORDERS)

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "step" if self.order == "combine-then-adapt" else "mix"

    @property
    def label(self) -> str:
        return "D-PSGD"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w, η = state["w"], at(self.eta, t, mix.devices, state["w"])
        if self.order == "adapt-then-combine":
            return {"w": mix(descend(w, grad(w), η))}
        w_mean = mix(w)
        d = grad(w if self.gradient_at == "local" else w_mean)
        return {"w": descend(w_mean, d, η)}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w, η = state["w"], at(self.eta, t, mix.devices, state["w"])
        return mix(w) if self.order == "combine-then-adapt" else descend(w.clone(), grad(w), η)
