"""η, p and gain as functions of the round, or of what a device sees.

A schedule is any callable from the round to a number, or to one number per device. A local schedule
follows what each device sees: how far its neighbours' models are from its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.errors import InputError

Schedule = Callable[[int], float | Sequence[float]]
Rate = float | Schedule


@dataclass(frozen=True)
class LocalSchedule(ABC):
    """A schedule that sees the state: one value per device, from what this device receives.

    `Composition` takes it for p and gain. It costs no messages: a device compares the models that
    it receives for the mean with its own. Subclasses are frozen dataclasses.
    """

    @property
    @abstractmethod
    def lowest(self) -> float:
        """The lowest value."""

    @abstractmethod
    def __call__(self, t: int, divergence: Tensor) -> Tensor:
        """Return the value of every device.

        Args:
            t: The round.
            divergence: For every device, how far its neighbours are from it, from 0 to 1: see
                `gossamer.algorithms.neighbourhoods.divergence`.
        """


@register("schedule", "by-divergence")
@dataclass(frozen=True)
class ByDivergence(LocalSchedule):
    """From `least` to `most` by how far the neighbours are from a device in this round.

    The value is `least` where all have the same model (less the start, if anchored), and for a
    device without neighbours; it is `most` where the models have nothing in common.

    Args:
        most: The value at divergence 1.
        least: The value at divergence 0.

    Example:
        >>> ByDivergence(15)(0, torch.tensor([0.0, 0.5, 1.0]))
        tensor([ 1.,  8., 15.])
    """

    most: float
    least: float = 1.0

    def __post_init__(self) -> None:
        _not_negative(most=self.most, least=self.least)

    @property
    def lowest(self) -> float:
        return min(self.most, self.least)

    def __call__(self, t: int, divergence: Tensor) -> Tensor:
        return self.least + (self.most - self.least) * divergence

    def __str__(self) -> str:
        return f"{self.least:g} to {self.most:g} by divergence"


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise InputError(name, value, "a number of at least 0")


def check_positive(**values: float) -> None:
    """Raise InputError for the first value that is not above 0 and finite.

    Args:
        values: The values by the names of their fields.
    """
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise InputError(name, value, "a number above 0")


@register("schedule", "inverse-sqrt")
@dataclass(frozen=True)
class InverseSqrt:
    """start / √(1 + t/every): the classic rate of subgradient methods.

    Args:
        start: The value in round 0.
        every: The number of rounds after which t counts 1.
    """

    start: float
    every: float = 1.0
    lowest: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        _not_negative(start=self.start)
        check_positive(every=self.every)

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
    """From start to end along half a cosine, then end.

    Args:
        start: The value in round 0.
        rounds: The number of rounds of the fall.
        end: The value afterwards.
    """

    start: float
    rounds: int
    end: float = 0.0

    def __post_init__(self) -> None:
        _not_negative(start=self.start, end=self.end)
        check_positive(rounds=self.rounds)

    @property
    def lowest(self) -> float:
        return min(self.start, self.end)

    def __call__(self, t: int) -> float:
        share = min(t / self.rounds, 1.0)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * share)) / 2


@register("schedule", "switch")
@dataclass(frozen=True)
class Switch:
    """One value for some rounds, another afterwards.

    Args:
        first: The value before the switch.
        rounds: The number of rounds before the switch.
        then: The value after the switch.

    Example:
        >>> print(Switch(5, 20))
        5 until round 20, then 1
    """

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

    def __str__(self) -> str:
        return f"{self.first:g} until round {self.rounds}, then {self.then:g}"


@register("schedule", "warmup")
@dataclass(frozen=True)
class Warmup:
    """A linear rise over the first rounds, then a number or another schedule, from its beginning.

    In round t < rounds the value is (t + 1)/rounds of the first value of `then`.

    Args:
        rounds: The number of rounds of the rise.
        then: What follows: a number or a schedule, whose round 0 is the round after the rise.

    Example:
        >>> eta = Warmup(4, Cosine(0.1, 100, end=0.01))
        >>> [round(eta(t), 3) for t in (0, 1, 3, 4, 54, 104)]
        [0.025, 0.05, 0.1, 0.1, 0.055, 0.01]
    """

    rounds: int
    then: Rate

    def __post_init__(self) -> None:
        check_positive(rounds=self.rounds)
        if isinstance(self.then, int | float):
            _not_negative(then=self.then)
        check_not_local("then", self.then)

    @property
    def lowest(self) -> float:
        return lowest(self.then) / self.rounds

    def __call__(self, t: int) -> float | Sequence[float]:
        if t >= self.rounds:
            return self._then(t - self.rounds)
        share = (t + 1) / self.rounds
        first = self._then(0)
        if isinstance(first, int | float):
            return share * first
        return [share * value for value in first]

    def _then(self, t: int) -> float | Sequence[float]:
        if isinstance(self.then, int | float):
            return self.then
        return self.then(t)


# What a schedule may return for a round.
_ACCEPTED_VALUES = "a function that returns one number, or one number per device"


def at(value: float | Schedule, t: int, devices: Tensor, like: Tensor) -> float | Tensor:
    """Return the value in round t.

    Args:
        value: A number or a schedule.
        t: The round.
        devices: The numbers of the devices in the stack.
        like: A tensor of the type and device to use.

    Returns:
        A float, or a tensor [devices, 1] if the schedule gives one number per device.
    """
    if isinstance(value, int | float):
        return float(value)
    found = value(t)
    try:
        now = torch.as_tensor(found, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError("schedule", found, _ACCEPTED_VALUES) from None
    if now.dim() == 0:
        return now.item()
    if now.dim() > 1:
        raise InputError("schedule", list(now.shape), _ACCEPTED_VALUES)
    try:
        return now.to(like.device, like.dtype)[devices][:, None]
    except IndexError:
        raise InputError("schedule", list(now.shape), _ACCEPTED_VALUES) from None


def check_eta(eta: float | Schedule) -> None:
    """Raise InputError if a rate is negative, not finite or too large for any step.

    Args:
        eta: A number or a schedule; schedules are not evaluated.
    """
    if isinstance(eta, int | float) and not 0 <= eta <= 1e30:
        raise InputError("eta", eta, "a number of at least 0, and at most 1e30")
    check_not_local("eta", eta)


def check_not_local(field: str, value: object) -> None:
    """Raise InputError for a schedule that sees the state, where only p and gain may follow it.

    Args:
        field: The name of the value in the message.
        value: The value.
    """
    if isinstance(value, LocalSchedule):
        raise InputError(field, value, "a number, or a schedule of the round")


def check_constant_eta(eta: float | Schedule, method: str) -> None:
    """Raise InputError for a schedule too: an exact method takes back a step of the same rate.

    Args:
        eta: The rate.
        method: The name of the method in the message.
    """
    check_eta(eta)
    if callable(eta):
        raise InputError(
            "eta", eta, f"a number: {method} is exact only at a rate that never changes"
        )


def lowest(value: float | Schedule | LocalSchedule) -> float:
    """Return the lowest value that a number or a schedule of this module can take; 1 for others.

    Args:
        value: A number or a schedule.
    """
    if isinstance(value, int | float):
        return value
    return float(getattr(value, "lowest", 1))
