"""FedAvg: a parameter server and its clients. Not decentralised: the reference that a star with a server in it gives.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. "Communication-efficient learning of deep networks from
decentralized data." AISTATS 2017.

Assumes a server that every device can reach whenever it is here, whatever the links.

Its paper weighs clients by their numbers of samples and counts local work in epochs. Here they count alike, so that the
problem is that of all other methods, the plain mean over devices, and work is counted in batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, descend
from gossamer.algorithms.schedules import Schedule, at, check_eta
from gossamer.errors import InputError
from gossamer.network.weights import Clients, WeightRule


@register("algorithm", "fedavg")
@dataclass(frozen=True)
class FedAvg(Algorithm):
    """A `fraction` of the devices that are here take `local_steps` steps from the server's model; it keeps their mean.

        w_i ← w, then w_i ← w_i − η·d_i(w_i)   local_steps times, for the clients i that were drawn
        w⁺ = the mean of their w_i

    What is measured is the server's model. Every client of a round receives one vector and sends one. With one local step
    and all devices it is All-Reduce, counted as a parameter server.

    >>> FedAvg(eta=0.05, local_steps=5, fraction=0.5).label
    'FedAvg 5 local steps'
    """

    eta: float | Schedule = 0.01
    local_steps: int = 1
    fraction: float = 1.0

    def __post_init__(self) -> None:
        check_eta(self.eta)
        Clients(self.fraction)
        if self.local_steps < 1:
            raise InputError("local_steps", self.local_steps, "a whole number of at least 1")

    @property
    def weights(self) -> WeightRule:
        return Clients(self.fraction)

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    @property
    def label(self) -> str:
        return f"FedAvg {self.local_steps} local steps" if self.local_steps > 1 else "FedAvg"

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "server": w0[:1].clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        if mix.everywhere(mix.active is not None and not mix.active.any()):
            return state
        w_server = mix.mean(self.halfway(state, grad, mix, t), star=True)
        return {"w": w_server.expand_as(state["w"]).clone(), "server": w_server}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w = state["server"].expand_as(state["w"]).clone()
        clients = (
            torch.arange(len(w), device=w.device)
            if mix.active is None
            else mix.active.nonzero().squeeze(1)
        )
        w_i, η = w[clients], at(self.eta, t, mix.devices[clients], w)
        for step in range(self.local_steps if len(clients) else 0):
            w_i = descend(w_i, grad(w_i, step, clients), η)
        w[clients] = w_i
        return w
