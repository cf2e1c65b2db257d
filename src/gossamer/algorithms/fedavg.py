"""FedAvg: a parameter server and its clients.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. "Communication-efficient learning
of deep networks from decentralized data." AISTATS 2017.

    w_i ← w, then w_i ← w_i − η·d_i(w_i)   local_steps times, for the clients i that were drawn
    w⁺  = the mean of their w_i

It is not decentralized: it is a reference with a server that every active device reaches, whatever
the links. Its paper weighs clients by their numbers of samples and counts local work in epochs.
Here clients count alike, so that the problem is that of all other methods, the plain mean over
devices, and work is counted in batches.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate, at, check_eta
from gossamer.network.weights import Clients, WeightRule


@method(
    "fedavg",
    label="FedAvg",
    paper="McMahan et al., AISTATS 2017",
    needs="a server that all reach",
    exact=True,
    tune={"eta": RATE, "local_steps": Choice((1, 2, 4, 8))},
)
@dataclass(frozen=True)
class FedAvg(Algorithm):
    """A fraction of the active devices step from the server's model; the server keeps their mean.

    What is measured is the server's model. Every client of a round receives one vector and sends
    one. With one local step and all devices it is All-Reduce, counted as a parameter server.

    Args:
        eta: The learning rate: a number or a schedule.
        local_steps: The number of steps per client and round.
        fraction: The share of the active devices that are clients in a round.

    Example:
        >>> FedAvg(eta=0.05, local_steps=5, fraction=0.5).label
        'FedAvg'
    """

    eta: Rate = 0.01
    local_steps: int = 1
    fraction: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        Clients(self.fraction)
        check_local_steps(self.local_steps)

    @property
    def weights(self) -> WeightRule:
        return Clients(self.fraction)

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "server": w0[:1].clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w_server = mix.all_reduce(self.halfway(state, grad, mix, t), star=True)
        if w_server is None:
            return state
        return {"w": w_server.expand_as(state["w"]).clone(), "server": w_server}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w = state["server"].expand_as(state["w"]).clone()
        if mix.active is None:
            clients = torch.arange(len(w), device=w.device)
        else:
            clients = mix.active.nonzero().squeeze(1)
        if not len(clients):
            return w
        w_i = w[clients]
        η = at(self.eta, t, mix.devices[clients], w)
        w[clients] = descend_locally(w_i, grad, η, self.local_steps, clients)
        return w
