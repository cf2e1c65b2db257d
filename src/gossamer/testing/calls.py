"""What a method asks of `mix` and `grad` in a round: recorded, and replayed.

A replay answers every call with what was recorded, for all devices or for one alone. Whatever then
reaches a device from another one has not come through `mix`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gossamer.algorithms import Gradient, Mix, Neighbours, State
from gossamer.mirror import MirrorMap


class Differs(Exception):
    """Raised when a replayed method asks for something else than what was recorded.

    Args:
        what: What differs, as in "what is passed to mix".
    """


@dataclass(frozen=True)
class Call:
    """One call of `mix` or `grad`.

    Args:
        name: What was called, such as "mix.neighbours".
        given: The tensor that was passed.
        result: What was returned.
        rows: The rows of the stack that `given` holds.
    """

    name: str
    given: Tensor
    result: Any
    rows: list[int]

    @property
    def argument(self) -> str:
        """What the tensor that was passed means."""
        if self.name.startswith("grad"):
            return "the point of the gradient"
        return f"what is passed to {self.name}"

    def of_device(self, row: int) -> Call:
        """Return the call as one device alone would make it.

        Args:
            row: The row of the device.
        """
        place = [self.rows.index(row)]
        return Call(self.name, self.given[place], _result_of(self.result, row, place), [0])


@dataclass
class Calls:
    """The calls of one round, in order."""

    mix: list[Call] = field(default_factory=list)
    grad: list[Call] = field(default_factory=list)

    def of_device(self, row: int) -> Calls:
        """Return the calls of one device.

        Args:
            row: The row of the device in the stack.
        """
        own = Calls()
        for call in self.mix:
            own.mix.append(call.of_device(row))
        for call in self.grad:
            if row in call.rows:
                own.grad.append(call.of_device(row))
        return own


def _result_of(result: Any, row: int, place: list[int]) -> Any:
    """Return what one device receives of a result."""
    if isinstance(result, Neighbours):
        return _own_neighbours(result, row)
    if result is None or len(result) == 1:  # the result of an all-reduce is the same for all
        return result
    return result[place]


def _own_neighbours(near: Neighbours, row: int) -> Neighbours:
    """Return the vectors that one device receives; itself is row 0, others are beyond it."""
    own = near.receiver == row
    sender = torch.arange(1, int(own.sum()) + 1)
    sender[near.sender[own] == row] = 0
    return Neighbours(torch.zeros_like(sender), sender, near.weight[own], near.value[own])


@dataclass(frozen=True)
class RecordedMix:
    """A `Mix` that keeps its calls."""

    mix: Mix
    calls: list[Call]

    @property
    def devices(self) -> Tensor:
        return self.mix.devices

    @property
    def active(self) -> Tensor | None:
        return self.mix.active

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Any:
        return self._keep("mix", x, self.mix(x, accumulate))

    def mean(self, w: Tensor, mirror: MirrorMap) -> Any:
        return self._keep("mix.mean", w, self.mix.mean(w, mirror))

    def neighbours(self, x: Tensor) -> Any:
        return self._keep("mix.neighbours", x, self.mix.neighbours(x))

    def with_message_size(self, message: int, first: int) -> RecordedMix:
        return RecordedMix(self.mix.with_message_size(message, first), self.calls)

    def all_reduce(self, x: Tensor, star: bool = False) -> Any:
        return self._keep("mix.all_reduce", x, self.mix.all_reduce(x, star))

    def _keep(self, name: str, x: Tensor, result: Any) -> Any:
        self.calls.append(Call(name, x.clone(), _copy(result), list(range(len(x)))))
        return result


@dataclass(frozen=True)
class RecordedGradient:
    """A `Gradient` that keeps its calls."""

    grad: Gradient
    calls: list[Call]

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        return self._keep("grad", w, rows, self.grad(w, step, rows))

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        return self._keep("grad.loss", w, None, self.grad.loss(w, step))

    def conjugate(self, z: Tensor) -> Tensor:
        return self._keep("grad.conjugate", z, None, self.grad.conjugate(z))

    def _keep(self, name: str, w: Tensor, rows: Tensor | None, result: Tensor) -> Tensor:
        self.calls.append(Call(name, w.clone(), result.clone(), _numbers(w, rows)))
        return result


@dataclass
class ReplayedCalls:
    """Answers calls with what was recorded.

    Args:
        calls: The recorded calls.
        strict: Raise `Differs` if a call passes something else than what was recorded.
        given: What was passed, call by call.
    """

    calls: Sequence[Call]
    strict: bool
    given: list[Tensor] = field(default_factory=list)

    def answer(self, name: str, x: Tensor) -> Any:
        """Return the recorded result of the next call.

        Args:
            name: What is called.
            x: What is passed.

        Raises:
            Differs: If it is another call, or if it is strict and x is another tensor.
        """
        if len(self.given) == len(self.calls) or self.calls[len(self.given)].name != name:
            raise Differs("the order of the calls of mix and grad")
        call = self.calls[len(self.given)]
        if self.strict and not close(x, call.given):
            raise Differs(call.argument)
        self.given.append(x.clone())
        return _copy(call.result)


@dataclass(frozen=True)
class ReplayedMix:
    """A `Mix` that answers with recorded results."""

    devices: Tensor
    active: Tensor | None
    calls: ReplayedCalls

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Any:
        return self.calls.answer("mix", x)

    def mean(self, w: Tensor, mirror: MirrorMap) -> Any:
        return self.calls.answer("mix.mean", w)

    def neighbours(self, x: Tensor) -> Any:
        return self.calls.answer("mix.neighbours", x)

    def with_message_size(self, message: int, first: int) -> ReplayedMix:
        return self

    def all_reduce(self, x: Tensor, star: bool = False) -> Any:
        return self.calls.answer("mix.all_reduce", x)


@dataclass(frozen=True)
class ReplayedGradient:
    """A `Gradient` that answers with recorded results."""

    calls: ReplayedCalls

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Any:
        if len(w) == 0:  # the device takes no step
            return w
        return self.calls.answer("grad", w)

    def loss(self, w: Tensor, step: int = 0) -> Any:
        return self.calls.answer("grad.loss", w)

    def conjugate(self, z: Tensor) -> Any:
        return self.calls.answer("grad.conjugate", z)


# Between a stack of all devices and one of one device, sums may be rounded otherwise.
_RELATIVE = 1e-7


def close(x: Tensor, y: Tensor) -> bool:
    """Return True if two tensors are equal but for rounding.

    Args:
        x: A tensor.
        y: Another one.
    """
    if x.shape != y.shape:
        return False
    if not x.is_floating_point() or x.numel() == 0:
        return torch.equal(x, y)
    return bool(((x - y).abs() <= _RELATIVE * y.abs().max()).all())


def copy_state(state: State) -> State:
    """Return a copy of a state.

    Args:
        state: The state.
    """
    return {name: x.clone() for name, x in state.items()}


def _numbers(w: Tensor, rows: Tensor | None) -> list[int]:
    """Return the rows of the stack that a tensor holds."""
    if rows is None:
        return list(range(len(w)))
    return [int(row) for row in rows]


def _copy(result: Any) -> Any:
    if isinstance(result, Neighbours):
        return Neighbours(*(x.clone() for x in result))
    if result is None:
        return None
    return result.clone()
