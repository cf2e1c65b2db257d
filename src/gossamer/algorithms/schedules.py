"""η and p as functions of the round. A schedule is any callable t → number, or t → one number a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.mirror import check_p

Schedule = Callable[[int], float | Sequence[float]]


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise InputError(name, value, "a number of at least 0")


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise InputError(name, value, "a number above 0")


@register("schedule", "inverse-sqrt")
@dataclass(frozen=True)
class InverseSqrt:
    """start / √(1 + t/every): the classic rate of subgradient methods."""

    start: float
    every: float = 1.0
    lowest: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        _not_negative(start=self.start)
        _positive(every=self.every)

    def __call__(self, t: int) -> float:
        return self.start / math.sqrt(1 + t / self.every)


@register("schedule", "inverse")
@dataclass(frozen=True)
class Inverse(InverseSqrt):
    """start / (1 + t/every): for strongly convex problems."""

    def __call__(self, t: int) -> float:
        return self.start / (1 + t / self.every)


@register("schedule", "cosine")
@dataclass(frozen=True)
class Cosine:
    """From start to end along half a cosine in `rounds` rounds, then end."""

    start: float
    rounds: int
    end: float = 0.0

    def __post_init__(self) -> None:
        _not_negative(start=self.start, end=self.end)
        _positive(rounds=self.rounds)

    @property
    def lowest(self) -> float:
        return min(self.start, self.end)

    def __call__(self, t: int) -> float:
        share = min(t / self.rounds, 1.0)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * share)) / 2


@register("schedule", "switch")
@dataclass(frozen=True)
class Switch:
    """`first` for `rounds` rounds, `then` ever after: `Switch(5, 20)` is p = 5 for 20 rounds, then 1."""

    first: float
    rounds: int
    then: float = 1.0

    def __post_init__(self) -> None:
        _not_negative(first=self.first, rounds=self.rounds, then=self.then)

    @property
    def lowest(self) -> float:
        return min(self.first, self.then)

    def __call__(self, t: int) -> float:
        return self.first if t < self.rounds else self.then


def at(value: float | Schedule, t: int, devices: Tensor, like: Tensor) -> float | Tensor:
    """The value in round t: a float, or [devices, 1] where the schedule gives one number a device."""
    if isinstance(value, int | float):
        return float(value)
    now = torch.as_tensor(value(t), dtype=torch.float64)
    return now.item() if now.dim() == 0 else now.to(like.device, like.dtype)[devices][:, None]


def check_eta(eta: float | Schedule) -> None:
    """Refuse a rate that is negative, not finite, or beyond what a step could survive."""
    if isinstance(eta, int | float) and not 0 <= eta <= 1e30:
        raise InputError("eta", eta, "a number of at least 0, and at most 1e30")


def check_constant_eta(eta: float | Schedule, method: str) -> None:
    """Refuse a schedule too: the step that an exact method takes back has to be of the same rate as the one it takes."""
    check_eta(eta)
    if callable(eta):
        raise InputError(
            "eta", eta, f"a number: {method} is exact only at a rate that never changes"
        )


def check_p_schedule(p: float | Schedule) -> None:
    """Refuse a p, or a schedule of ours, that is ever below 1."""
    if isinstance(p, int | float):
        check_p(p)
    elif getattr(p, "lowest", 1) < 1:
        raise InputError("p", p, "a schedule that never falls below 1")
