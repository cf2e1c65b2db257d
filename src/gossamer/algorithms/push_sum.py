"""Push-sum: stochastic gradient push, for one-way links.

M. Assran, N. Loizou, N. Ballas, M. Rabbat. "Stochastic gradient push for distributed deep
learning." ICML 2019; after A. Nedić, A. Olshevsky. "Distributed optimization over time-varying
directed graphs." IEEE TAC 60, 2015.

    x_i ← x_i − η·d_i(z_i)                          a step, with the gradient at the model
    x_i⁺ = Σ_j p_ij·x_j     w_i⁺ = Σ_j p_ij·w_j     p_ij = 1/(1 + out-degree of j)
    z_i⁺ = x_i⁺/w_i⁺                                the model

Assumption: over every B rounds the links lead from every device to every other. A device needs to
know how many it sends to, not who receives. The sum of x is kept, so that the mean on which devices
agree is right although the weights of a row do not sum to 1.

Without rounds two devices that meet send each other half of x and w, and add what they receive;
what did not arrive is added again by its sender.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.algorithms.base import Gradient, Mix, State, descend
from gossamer.algorithms.registry import method
from gossamer.algorithms.schedules import Rate, at, check_eta
from gossamer.network import weights as rules


@method(
    "push-sum",
    label="Push-sum",
    paper="Assran et al., ICML 2019; Nedić and Olshevsky, 2015",
    needs="any links, one-way too",
    baseline=True,
)
@dataclass(frozen=True)
class PushSum(Asynchronous):
    """Each device splits x over itself and its receivers; the pushed weight w undoes the bias.

    Args:
        eta: The learning rate: a number or a schedule.

    Example:
        >>> PushSum(eta=0.05).label
        'Push-sum'
    """

    eta: Rate = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)

    # -- without rounds ---------------------------------------------------------------------------

    def step(self, state: State, w_read: Tensor, grad: Gradient, devices: Tensor, t: int) -> State:
        x = state["x"]
        return {**state, "x": descend(x, grad(w_read), at(self.eta, t, devices, x))}

    def send(self, state: State, devices: Tensor, number: Tensor) -> tuple[State, Tensor]:
        half = torch.cat([state["x"], state["weight"]], 1) / 2
        return self._add(state, -half), half

    def receive(self, state: State, received: Tensor, sent: Tensor) -> State:
        return self._add(state, received)

    def undo_send(self, state: State, sent: Tensor) -> State:
        return self._add(state, sent)

    def _add(self, state: State, mass: Tensor) -> State:
        x = state["x"] + mass[:, :-1]
        return {**state, "x": x, "weight": state["weight"] + mass[:, -1:]}

    # -- in rounds --------------------------------------------------------------------------------

    @property
    def weights(self) -> rules.WeightRule:
        return rules.PushSum()

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def init(self, w0: Tensor) -> State:
        return {"x": w0.clone(), "weight": torch.ones_like(w0[:, :1])}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        x = self._stepped(state, grad, mix, t)
        pushed = mix(torch.cat([x, state["weight"]], 1))  # one message: the vector and its weight
        return {"x": pushed[:, :-1].contiguous(), "weight": pushed[:, -1:].contiguous()}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return self._stepped(state, grad, mix, t) / state["weight"]

    def models(self, state: State) -> Tensor:
        return state["x"] / state["weight"]

    def _stepped(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        z = self.models(state)
        return descend(state["x"].clone(), grad(z), at(self.eta, t, mix.devices, z))
