"""Gossip learning: models walk from device to device, and are merged by their age where they meet.

I. Hegedűs, G. Danner, M. Jelasity. "Decentralized learning works: an empirical comparison of gossip learning and federated
learning." Journal of Parallel and Distributed Computing 148, 2021; after R. Ormándi, I. Hegedűs, M. Jelasity. "Gossip
learning with linear models on fully distributed data." Concurrency and Computation 25, 2013.

Assumes that over many rounds everybody meets everybody, by links of any direction. The mean is not kept, nor is
it in expectation: an older model has more of a say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, descend
from gossamer.algorithms.schedules import Schedule, at, check_eta
from gossamer.network.weights import RandomPeer, WeightRule


@register("algorithm", "gossip-learning")
@dataclass(frozen=True)
class GossipLearning(Algorithm):
    """Each device sends its model w and its age t to one neighbour, drawn at random; who receives, merges and steps.

        a = t_r/(t + t_r), 0 if both are 0      t ← max(t, t_r)      w ← (1 − a)·w + a·w_r
        w ← w − η·d(w)                           t ← t + 1

    Once for every model received, in the order of the senders' numbers; who receives none does nothing. (Its paper has no
    rounds: models arrive one by one. Here all of a round are sent before the first is received.) The age counts steps where
    the authors' code counts samples: the same a, for all batches are of one size. That code can also divide η by the age;
    here η goes by the rounds. Sampled models and token accounts are left out.

    >>> GossipLearning(eta=0.05).label
    'gossip learning'
    """

    eta: float | Schedule = 0.01

    def __post_init__(self) -> None:
        check_eta(self.eta)

    @property
    def weights(self) -> WeightRule:
        return RandomPeer()

    @property
    def label(self) -> str:
        return "gossip learning"

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "age": torch.zeros_like(w0[:, :1])}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return self._received(state, mix, t, grad)

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return self._received(state, mix, t, None)["w"]

    def _received(self, state: State, mix: Mix, t: int, grad: Gradient | None) -> State:
        """What the round's models make of a state: merged, and after each a step where there is a gradient."""
        w, age = state["w"].clone(), state["age"].clone()
        for k, (to, w_r, t_r) in enumerate(_arrivals(w, age, mix)):
            a = t_r / (age[to] + t_r).clamp_min(1)
            w[to], age[to] = torch.lerp(w[to], w_r, a), torch.maximum(age[to], t_r)
            if grad:
                w[to] = descend(w[to], grad(w[to], k, to), at(self.eta, t, mix.devices[to], w))
                age[to] += 1
        return {"w": w, "age": age}


def _arrivals(w: Tensor, age: Tensor, mix: Mix) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """First the first model that each device receives, then the second, …: the receivers' rows, the models, their ages."""
    inbox = mix.neighbours(torch.cat([w, age], 1))
    sent = (inbox.receiver != inbox.sender) & (inbox.weight != 0)
    receiver, value = inbox.receiver[sent], inbox.value[sent]
    turn = torch.arange(len(receiver), device=w.device) - torch.searchsorted(receiver, receiver)
    for k in range(int(turn.max()) + 1 if len(turn) else 0):
        yield receiver[turn == k], value[turn == k, :-1], value[turn == k, -1:]
