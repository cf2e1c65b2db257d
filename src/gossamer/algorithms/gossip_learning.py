"""Gossip learning: models walk from device to device and are merged by their age where they meet.

I. Hegedűs, G. Danner, M. Jelasity. "Decentralized learning works: an empirical comparison of gossip
learning and federated learning." Journal of Parallel and Distributed Computing 148, 2021; after
R. Ormándi, I. Hegedűs, M. Jelasity. "Gossip learning with linear models on fully distributed data."
Concurrency and Computation 25, 2013.

    a = t_r/(t + t_r), 0 if both are 0      t ← max(t, t_r)      w ← (1 − a)·w + a·w_r
    w ← w − η·d(w)                           t ← t + 1

Assumption: over many rounds every device meets every other, by links of any direction. The mean of
the models is not kept, not even in expectation: an older model has more weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.algorithms.base import Gradient, Mix, State, descend
from gossamer.algorithms.registry import method
from gossamer.algorithms.schedules import Rate, at, check_eta
from gossamer.network.weights import RandomPeer, WeightRule


@method(
    "gossip-learning",
    label="Gossip learning",
    paper="Hegedűs, Danner and Jelasity, JPDC 148, 2021",
    needs="any links, one-way too",
)
@dataclass(frozen=True)
class GossipLearning(Asynchronous):
    """Each device sends its model w and its age t to one random neighbour, which merges and steps.

    It does so once for every model received, in the order of the senders' numbers; a device that
    receives none does nothing. Its paper has no rounds: models arrive one by one. In rounds all
    models of a round are sent before the first is received. Without rounds a device merges a model
    when it arrives, as in the paper, but steps all the time, not once per model. The age counts
    steps where the authors' code counts samples, which gives the same a for batches of one size.
    That code can also divide η by the age; here η depends on the round. Sampled models and token
    accounts are left out.

    Args:
        eta: The learning rate: a number or a schedule.

    Example:
        >>> GossipLearning(eta=0.05).label
        'Gossip learning'
    """

    eta: Rate = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)

    # -- without rounds ---------------------------------------------------------------------------

    @property
    def exchange(self) -> Literal["both", "one-way"]:
        return "one-way"

    def step(self, state: State, w_read: Tensor, grad: Gradient, devices: Tensor, t: int) -> State:
        w = state["w"]
        w = descend(w, grad(w_read), at(self.eta, t, devices, w))
        return {**state, "w": w, "age": state["age"] + 1}

    def send(self, state: State, devices: Tensor, number: Tensor) -> tuple[State, Tensor]:
        return state, torch.cat([state["w"], state["age"]], 1)

    def receive(self, state: State, received: Tensor, sent: Tensor) -> State:
        w, age = _merge(state["w"], state["age"], received[:, :-1], received[:, -1:])
        return {**state, "w": w, "age": age}

    # -- in rounds --------------------------------------------------------------------------------

    @property
    def weights(self) -> WeightRule:
        return RandomPeer()

    @property
    def merges_one_by_one(self) -> bool:
        return True

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "age": torch.zeros_like(w0[:, :1])}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return self._receive(state, mix, t, grad)

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return self._receive(state, mix, t, None)["w"]

    def _receive(self, state: State, mix: Mix, t: int, grad: Gradient | None) -> State:
        """Merge the models of the round; after each take a step if there is a gradient."""
        w = state["w"].clone()
        age = state["age"].clone()
        for k, (to, w_r, t_r) in enumerate(_arrivals(w, age, mix)):
            w[to], age[to] = _merge(w[to], age[to], w_r, t_r)
            if grad:
                w[to] = descend(w[to], grad(w[to], k, to), at(self.eta, t, mix.devices[to], w))
                age[to] += 1
        return {"w": w, "age": age}


def _merge(w: Tensor, age: Tensor, w_r: Tensor, t_r: Tensor) -> tuple[Tensor, Tensor]:
    """Return models and ages after each device has received one model."""
    a = t_r / (age + t_r).clamp_min(1)
    return torch.lerp(w, w_r, a), torch.maximum(age, t_r)


def _arrivals(w: Tensor, age: Tensor, mix: Mix) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield receivers, models and ages: first the first model of each device, then the second."""
    inbox = mix.neighbours(torch.cat([w, age], 1))
    sent = (inbox.receiver != inbox.sender) & (inbox.weight != 0)
    receiver = inbox.receiver[sent]
    value = inbox.value[sent]
    turn = torch.arange(len(receiver), device=w.device) - torch.searchsorted(receiver, receiver)
    turns = int(turn.max()) + 1 if len(turn) else 0
    for k in range(turns):
        now = turn == k
        yield receiver[now], value[now, :-1], value[now, -1:]
