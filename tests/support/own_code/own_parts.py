"""The parts of study.toml in this folder: what a user's own module looks like."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gossamer.algorithms import Algorithm, Gradient, Mix, State
from gossamer.network import Links, Network
from gossamer.tasks import Data

from .own_layers import body


def make(data: Data, width: int = 16) -> nn.Module:
    features = data.x[0].numel()
    outputs = nn.Linear(width, data.classes or 1)
    return nn.Sequential(nn.Flatten(), *body(features, width), outputs)


def focal(outputs: Tensor, targets: Tensor, gamma: float = 2.0) -> Tensor:
    log_p = outputs.log_softmax(1).gather(1, targets[:, None]).squeeze(1)
    weight: Tensor = (1 - log_p.exp()) ** gamma
    return -weight * log_p


def missed(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of the samples that are classified wrongly, as a total and a count."""
    wrong = (outputs.argmax(1) != targets).sum()
    return torch.stack([wrong, torch.tensor(len(targets))])


@dataclass(frozen=True)
class Pairs(Network):
    """Devices 0-1 and 2-3 meet in even rounds, 1-2 and 3-0 in odd ones."""

    devices: int = 4
    seed: int = 0

    def links(self, t: int) -> Links:
        shift = (t + self.seed) % 2
        pairs = []
        for a in range(shift, self.devices, 2):
            pairs.append((a, (a + 1) % self.devices))
        return Links.of(self.devices, pairs)


@dataclass(frozen=True)
class Damped(Algorithm):
    """Average, then step along a running mean of the gradients."""

    eta: float = 0.1
    beta: float = 0.5

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "d": torch.zeros_like(w0)}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = state["w"]
        d = self.beta * state["d"] + grad(w)
        return {"w": mix(w) - self.eta * d, "d": d}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return mix(state["w"])
