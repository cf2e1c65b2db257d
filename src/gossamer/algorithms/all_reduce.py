"""All-Reduce SGD: every device has the exact average in every round.

It is not decentralized: it is the upper bound of a comparison.

    w⁺ = (1/m)·Σ_j (w_j − η·d_j)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, descend
from gossamer.algorithms.registry import method
from gossamer.algorithms.schedules import Rate, at, check_eta
from gossamer.network.weights import Clients, WeightRule


@method(
    "all-reduce",
    label="All-Reduce",
    paper="centralised reference",
    needs="the mean of all devices",
    exact=True,
)
@dataclass(frozen=True)
class AllReduce(Algorithm):
    """Plain SGD with the batches of all active devices, whatever the links.

    Args:
        eta: The learning rate: a number or a schedule.

    Example:
        >>> AllReduce(eta=0.01)
        AllReduce(eta=0.01)
    """

    eta: Rate = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)

    @property
    def weights(self) -> WeightRule:
        return Clients()  # no links: any network will do

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        stepped = self.halfway(state, grad, mix, t)
        w_mean = mix.all_reduce(stepped)
        if w_mean is None:
            return state
        return {"w": w_mean.expand_as(stepped).clone()}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w = state["w"].clone()
        return descend(w, grad(w), at(self.eta, t, mix.devices, w))
