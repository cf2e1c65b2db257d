"""SWIFT: devices average with the last models that they have received, and never wait.

M. Bornstein, T. Rabbani, E. Wang, A. S. Bedi, F. Huang. "SWIFT: Rapid Decentralized Federated
Learning via Wait-Free Model Communication." ICLR 2023.

    send w_i to every neighbour; each stores it in place of the one before
    d_i = ∇f_i(w_i)
    w_i ← (w_i + Σ_j w_j)/(1 + n_i)      in every local_steps-th step; w_j are the n_i stored models
    w_i ← w_i − η·d_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gossamer._core import checks
from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.algorithms.base import (
    Gradient,
    Mix,
    State,
    check_local_steps,
    descend,
    descend_locally,
)
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate, at, check_eta


@method(
    "swift",
    label="SWIFT",
    paper="Bornstein et al., ICLR 2023",
    tune={"eta": RATE, "local_steps": Choice((1, 2, 4))},
)
@dataclass(frozen=True)
class SWIFT(Asynchronous):
    """Each device averages with its neighbours' last models, however old, without waiting.

    The paper stores a model of every neighbour of a static graph and weighs them by how often the
    devices step. Here a device stores the models of the neighbours that it heard last, at most
    `memory` of them, and all weigh the same. On engines with rounds no model is stale.

    Args:
        eta: The learning rate: a number or a schedule.
        local_steps: Number of steps from one average to the next. In rounds, steps per round.
        memory: Number of neighbours whose models a device stores. Without effect in rounds.

    Example:
        >>> SWIFT(eta=0.05).label
        'SWIFT'
    """

    eta: Rate = 0.01
    local_steps: int = 1
    memory: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_local_steps(self.local_steps)
        checks.whole("memory", self.memory, 1, 1000)

    # -- without rounds ---------------------------------------------------------------------------

    @property
    def exchange(self) -> Literal["both", "one-way"]:
        return "one-way"

    @property
    def sending(self) -> Literal["one", "each", "always"]:
        return "each"

    def init_asynchronous(self, w0: Tensor) -> State:
        devices = len(w0)
        return {
            "w": w0.clone(),
            "steps": w0.new_zeros(devices, 1),
            "stored": w0.new_zeros(devices, self.memory * w0.shape[1]),
            "sender": w0.new_full((devices, self.memory), -1.0),
            # The number of the arrival of each stored model; 0 where none is stored.
            "arrival": w0.new_zeros(devices, self.memory),
        }

    def step(self, state: State, w_read: Tensor, grad: Gradient, devices: Tensor, t: int) -> State:
        w = state["w"]
        steps = (state["steps"] + 1) % self.local_steps
        w = torch.where(steps == 0, self._mean(state), w)
        w = descend(w, grad(w_read), at(self.eta, t, devices, w))
        return {**state, "w": w, "steps": steps}

    def send(self, state: State, devices: Tensor, number: Tensor) -> tuple[State, Tensor]:
        w = state["w"]
        return state, torch.cat([w, devices[:, None].to(w.dtype)], 1)

    def receive(self, state: State, received: Tensor, sent: Tensor) -> State:
        w_r = received[:, :-1]
        sender = received[:, -1:]
        slot = self._slot(state, sender)
        stored = state["stored"].view(len(w_r), self.memory, -1)
        rows = torch.arange(len(w_r), device=w_r.device)
        stored[rows, slot] = w_r
        number = state["arrival"].amax(1, keepdim=True) + 1
        return {
            **state,
            "stored": stored.flatten(1),
            "sender": state["sender"].scatter(1, slot[:, None], sender),
            "arrival": state["arrival"].scatter(1, slot[:, None], number),
        }

    def _slot(self, state: State, sender: Tensor) -> Tensor:
        """Return where to store a model: in place of the sender's last one, or of the oldest."""
        known = state["sender"] == sender
        oldest = state["arrival"].argmin(1)
        return torch.where(known.any(1), known.to(torch.int64).argmax(1), oldest)

    def _mean(self, state: State) -> Tensor:
        """Return the mean of each device's model and the stored ones."""
        total = state["w"].clone()
        stored = state["stored"].view(len(total), self.memory, -1)
        for slot in range(self.memory):  # empty ones are 0
            total += stored[:, slot]
        count = (state["arrival"] > 0).sum(1, keepdim=True)
        return total / (1 + count)

    # -- in rounds --------------------------------------------------------------------------------

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "step"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        η = at(self.eta, t, mix.devices, state["w"])
        w = self._before_the_average(state, grad, mix, t)
        d = grad(w, self.local_steps - 1)
        return {"w": descend(mix(w), d, η)}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return mix(self._before_the_average(state, grad, mix, t))

    def _before_the_average(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w = state["w"].clone()
        return descend_locally(w, grad, at(self.eta, t, mix.devices, w), self.local_steps - 1)
