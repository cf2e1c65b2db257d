"""D-PSGD: decentralized parallel stochastic gradient descent.

X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu. "Can decentralized algorithms outperform
centralized algorithms? A case study for decentralized parallel stochastic gradient descent."
NeurIPS 2017.

    w_i⁺ = Σ_j a_ij·w_j − η·d_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

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
from gossamer.algorithms.registry import method
from gossamer.algorithms.schedules import Rate, at, check_eta


@method("d-psgd", label="D-PSGD", paper="Lian et al., NeurIPS 2017", baseline=True)
@dataclass(frozen=True)
class DPSGD(Algorithm):
    """Gossip and a gradient step in every round.

    Args:
        eta: The learning rate: a number or a schedule.
        gradient_at: Take the gradient d_i at w_i ("local", as in the paper) or at the mean of the
            neighbourhood ("aggregate").
        order: "combine-then-adapt", or "adapt-then-combine": w_i⁺ = Σ_j a_ij·(w_j − η·d_j).

    Example:
        >>> DPSGD(eta=0.01)
        DPSGD(eta=0.01, gradient_at='local', order='combine-then-adapt')
    """

    eta: Rate = 0.01
    gradient_at: Point = "local"
    order: Order = "combine-then-adapt"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_choice("gradient_at", self.gradient_at, POINTS)
        check_choice("order", self.order, ORDERS)

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "step" if self.order == "combine-then-adapt" else "mix"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = state["w"]
        η = at(self.eta, t, mix.devices, w)
        if self.order == "adapt-then-combine":
            return {"w": mix(descend(w, grad(w), η))}
        w_mean = mix(w)
        d = grad(w if self.gradient_at == "local" else w_mean)
        return {"w": descend(w_mean, d, η)}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w = state["w"]
        if self.order == "combine-then-adapt":
            return mix(w)
        return descend(w.clone(), grad(w), at(self.eta, t, mix.devices, w))
