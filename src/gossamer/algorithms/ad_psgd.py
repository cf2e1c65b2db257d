"""AD-PSGD: asynchronous decentralized parallel stochastic gradient descent.

X. Lian, W. Zhang, C. Zhang, J. Liu. "Asynchronous Decentralized Parallel Stochastic Gradient
Descent." ICML 2018.

    d_i = ∇f_i(ŵ_i)                      ŵ_i is w_i as it was when computing began
    w_i⁺ = w_j⁺ = (w_i + w_j)/2          with a random neighbour j, at any time
    w_i ← w_i − η·d_i                    when the gradient is ready
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer.algorithms.asynchronous import Asynchronous, average_with
from gossamer.algorithms.base import Gradient, Mix, State, check_choice, descend
from gossamer.algorithms.registry import method
from gossamer.algorithms.schedules import Rate, at, check_eta
from gossamer.network.weights import Matching, WeightRule


@method("ad-psgd", label="AD-PSGD", paper="Lian et al., ICML 2018")
@dataclass(frozen=True)
class ADPSGD(Asynchronous):
    """Devices average in pairs while they compute; a gradient may be older than the model.

    In the paper an average is one atomic operation. Here the models travel for as long as the link
    needs, and both devices then move by half of the difference of what was sent, which keeps the
    mean of all models. On engines with rounds the pairs are those of a random matching and no
    gradient is stale.

    Args:
        eta: The learning rate: a number or a schedule.
        on_cut: What becomes of models whose contact ends before they have arrived: "drop" them, or
            "keep" them until the same two devices meet again, where they continue. Without effect
            in rounds.

    Example:
        >>> ADPSGD(eta=0.05).label
        'AD-PSGD'
    """

    eta: Rate = 0.01
    on_cut: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_choice("on_cut", self.on_cut, ("drop", "keep"))

    # -- without rounds ---------------------------------------------------------------------------

    def step(self, state: State, w_read: Tensor, grad: Gradient, devices: Tensor, t: int) -> State:
        w = state["w"]
        return {"w": descend(w, grad(w_read), at(self.eta, t, devices, w))}

    @property
    def message(self) -> str:
        return "w"

    @property
    def averaged(self) -> str:
        return "w"

    def send(self, state: State, devices: Tensor, number: Tensor) -> tuple[State, Tensor]:
        return state, state["w"]

    def receive(self, state: State, received: Tensor, sent: Tensor) -> State:
        return {**state, "w": average_with(state["w"], received, sent)}

    # -- in rounds --------------------------------------------------------------------------------

    @property
    def weights(self) -> WeightRule:
        return Matching()

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "step"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = state["w"]
        d = grad(w)
        return {"w": descend(mix(w), d, at(self.eta, t, mix.devices, w))}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return mix(state["w"])
