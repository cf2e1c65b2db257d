"""η and p as functions of the round. A schedule is any callable t → number, or t → one number a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import InputError

Schedule = Callable[[int], float | Sequence[float]]


@dataclass(frozen=True)
class InverseSqrt:
    """start / √(1 + t/every): the classic rate of subgradient methods."""

    start: float
    every: float = 1.0

    def __call__(self, t: int) -> float:
        return self.start / math.sqrt(1 + t / self.every)


@dataclass(frozen=True)
class Inverse:
    """start / (1 + t/every): for strongly convex problems."""

    start: float
    every: float = 1.0

    def __call__(self, t: int) -> float:
        return self.start / (1 + t / self.every)


@dataclass(frozen=True)
class Cosine:
    """From start to end along half a cosine in `rounds` rounds, then end."""

    start: float
    rounds: int
    end: float = 0.0

    def __call__(self, t: int) -> float:
        share = min(t / self.rounds, 1.0)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class Switch:
    """`first` for `rounds` rounds, `then` ever after: `Switch(5, 20)` is p = 5 for 20 rounds, then 1."""

    first: float
    rounds: int
    then: float = 1.0

    def __call__(self, t: int) -> float:
        return self.first if t < self.rounds else self.then


def at(value: float | Schedule, t: int, devices: Tensor, like: Tensor) -> float | Tensor:
    """The value in round t: a float, or [devices, 1] where the schedule gives one number a device."""
    if isinstance(value, int | float):
        return float(value)
    now = value(t)
    if isinstance(now, int | float):
        return float(now)
    return torch.as_tensor(now, dtype=like.dtype, device=like.device)[devices][:, None]


def check_eta(eta: float | Schedule) -> None:
    if isinstance(eta, int | float) and not 0 <= eta < math.inf:
        raise InputError("eta", eta, "a number of at least 0")
