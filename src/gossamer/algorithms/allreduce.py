"""All-Reduce SGD: every device has the exact average in every round. Not decentralised: the ceiling of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, descend
from gossamer.algorithms.schedules import Schedule, at, check_eta
from gossamer.network.weights import Clients, WeightRule


@register("algorithm", "allreduce")
@dataclass(frozen=True)
class AllReduce(Algorithm):
    """w⁺ = (1/m)·Σ_j (w_j − η·d_j), whatever the links: plain SGD with the batches of all devices that are here.

    >>> AllReduce(eta=0.01)
    AllReduce(eta=0.01)
    """

    eta: float | Schedule = 0.01

    def __post_init__(self) -> None:
        check_eta(self.eta)

    @property
    def weights(self) -> WeightRule:
        return Clients()  # no links: any network will do

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        stepped = self.halfway(state, grad, mix, t)
        return {"w": mix.mean(stepped).expand_as(stepped).clone()}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w = state["w"].clone()
        return descend(w, grad(w), at(self.eta, t, mix.devices, w))
