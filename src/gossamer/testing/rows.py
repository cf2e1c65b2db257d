"""Check that the rows of a stack meet in `mix` only.

On a real device, or in a shard, a method holds one row or some rows, not those of all devices. So a
round is run twice: with all devices in one stack, which records what `mix` and `grad` return, and
for every device alone, which replays that device's part. The two must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gossamer.algorithms import Algorithm, Gradient, Mix, Neighbours, State
from gossamer.testing.calls import (
    Call,
    Calls,
    Differs,
    RecordedGradient,
    RecordedMix,
    ReplayedCalls,
    ReplayedGradient,
    ReplayedMix,
    close,
    copy_state,
)

_RULE = (
    "only mix, mix.mean, mix.neighbours and mix.all_reduce may combine rows, not a mean, a sum, an "
    "index, a roll or a product over the first axis"
)
_ROWS = (
    "it depends on the number or the order of the rows; mix.devices has the numbers of the "
    "devices, gossamer.draws random numbers by device"
)


@dataclass(frozen=True)
class Round:
    """One round of all devices: what a method is given, and what it does with it.

    Args:
        algorithm: The method.
        state: The state at the start of the round.
        grad: The gradients.
        mix: The links.
        t: The round.
    """

    algorithm: Algorithm
    state: State
    grad: Gradient
    mix: Mix
    t: int

    def problem(self) -> str | None:
        """Return what is wrong with the rows of the round, as the end of a sentence; else None."""
        algorithm = self.algorithm
        return (
            self._problem_of(lambda *given: algorithm.next_state(*given))
            or self._problem_of(lambda *given: {"halfway": algorithm.halfway_models(*given)})
            or self._problem_of(lambda state, *given: {"models": algorithm.models(state)})
        )

    def _problem_of(self, function: Callable[..., Mapping[str, Tensor]]) -> str | None:
        """Return what is wrong with one function of the method; None if nothing is."""
        try:
            recorded = self._record(function)
            again = self._record(function)
        except AttributeError as error:
            if not isinstance(error.obj, RecordedMix | RecordedGradient):
                raise
            return f"uses {error.name!r} of mix or grad, which a method is not given on a device"
        for name, x in recorded.result.items():
            if not torch.equal(x, again.result[name]):
                return f"gives another result when it runs again: {name!r} in round {self.t}"
        for row in self._active():
            found = recorded.difference(row)
            if found:
                return recorded.leak() or found
        return None

    def _record(self, function: Callable[..., Mapping[str, Tensor]]) -> _Recorded:
        """Run a function of the method for all devices, and keep its calls."""
        calls = Calls()
        grad = RecordedGradient(self.grad, calls.grad)
        mix = RecordedMix(self.mix, calls.mix)
        result = function(copy_state(self.state), grad, mix, self.t)
        return _Recorded(self, function, calls, copy_state(dict(result)))

    def _active(self) -> list[int]:
        """Return the rows of the devices that take part in the round."""
        rows = range(len(self.mix.devices))
        active = self.mix.active
        if active is None:
            return list(rows)
        return [row for row in rows if bool(active[row])]


@dataclass(frozen=True)
class _Recorded:
    """A function of a method that was run for all devices.

    Args:
        round: The round.
        function: The function: from state, grad, mix and t to named tensors.
        calls: The calls that it made.
        result: What it returned.
    """

    round: Round
    function: Callable[..., Mapping[str, Tensor]]
    calls: Calls
    result: State

    # -- one device alone -------------------------------------------------------------------------

    def difference(self, row: int) -> str | None:
        """Return what differs for a device that is alone in its stack; None if nothing does.

        Args:
            row: The row of the device.
        """
        try:
            alone = self._alone(row)
        except Differs as found:
            return self._says(row, f"gives another value of {found}")
        except Exception as error:
            return self._says(row, f"fails with {type(error).__name__} ({error})")
        for name, x in self.result.items():
            if name not in alone or not close(alone[name], _own_row(x, row, len(self._devices))):
                return self._says(row, f"gives another {name!r}")
        return None

    def _alone(self, row: int) -> Mapping[str, Tensor]:
        """Run the function for one device alone."""
        state = {}
        for name, x in self.round.state.items():
            state[name] = _own_row(x, row, len(self._devices)).clone()
        calls = self.calls.of_device(row)
        active = self.round.mix.active
        if active is not None:
            active = active[[row]]
        mix = ReplayedMix(self._devices[[row]], active, ReplayedCalls(calls.mix, strict=True))
        grad = ReplayedGradient(ReplayedCalls(calls.grad, strict=True))
        return self.function(state, grad, mix, self.round.t)

    def _says(self, row: int, what: str) -> str:
        device = int(self._devices[row])
        return f"{what} in round {self.round.t} if device {device} is alone in its stack: {_ROWS}"

    @property
    def _devices(self) -> Tensor:
        return self.round.mix.devices

    # -- the row that was used without `mix` ------------------------------------------------------

    def leak(self) -> str | None:
        """Return which row is used for another device; None if none is found.

        Rows of the state, of gradients and of results of `mix` are changed one by one, while all
        calls return what was recorded: nothing may change for the other devices.
        """
        before = self._effects(self.round.state, self.calls)
        for source, row, state, calls in self._changes():
            after = self._effects(state, calls)
            for name, x in before.items():
                other = _changed_row(x, after.get(name), row, len(self._devices))
                if other is not None:
                    receiver, sender = self._devices[[other, row]].tolist()
                    return (
                        f"lets {name} of device {receiver} depend on {source} of device {sender} "
                        f"without mix in round {self.round.t}: {_RULE}"
                    )
        return None

    def _changes(self) -> Iterator[tuple[str, int, State, Calls]]:
        """Yield what a method is given with one row changed: its source, the row, the rest."""
        for row in range(len(self._devices)):
            for name, x in self.round.state.items():
                if len(x) == len(self._devices) and x.is_floating_point():
                    state = self.round.state | {name: _with_changed_row(x, row)}
                    yield f"the {name!r}", row, state, self.calls
            for k, call in enumerate(self.calls.grad):
                if row in call.rows and len(call.result) == len(call.rows):
                    changed = _with_changed_result(call, call.rows.index(row))
                    grad = [*self.calls.grad[:k], changed, *self.calls.grad[k + 1 :]]
                    yield "the gradient", row, self.round.state, Calls(self.calls.mix, grad)
            for k, call in enumerate(self.calls.mix):
                if call.name != "mix.all_reduce":
                    changed = _with_changed_result(call, row)
                    mix = [*self.calls.mix[:k], changed, *self.calls.mix[k + 1 :]]
                    source = f"the result of {call.name}"
                    yield source, row, self.round.state, Calls(mix, self.calls.grad)

    def _effects(self, state: State, calls: Calls) -> dict[str, Tensor]:
        """Return what the function makes of a state: results, and what it passes to its calls."""
        mix_calls = ReplayedCalls(calls.mix, strict=False)
        grad_calls = ReplayedCalls(calls.grad, strict=False)
        mix = ReplayedMix(self._devices, self.round.mix.active, mix_calls)
        try:
            result = self.function(
                copy_state(state), ReplayedGradient(grad_calls), mix, self.round.t
            )
        except Exception:  # the method refuses such values
            return {}
        effects = {}
        for played in (mix_calls, grad_calls):
            for call, given in zip(played.calls, played.given, strict=False):
                if len(call.rows) == len(self._devices):
                    effects[call.argument] = given
        for name, x in result.items():
            effects[f"the next {name!r}"] = x
        return effects


def _own_row(x: Tensor, row: int, devices: int) -> Tensor:
    """Return a device's row; a tensor of one row is the same for all."""
    if len(x) == devices:
        return x[[row]]
    return x


def _changed_row(x: Tensor, y: Tensor | None, row: int, devices: int) -> int | None:
    """Return a row, other than the given one, in which two tensors differ; None if there is none.

    Rows are compared exactly: whatever has not been touched is computed alike.
    """
    if y is None or x.shape != y.shape or len(x) != devices:
        return None
    for other in range(devices):
        if other != row and not torch.equal(x[other], y[other]):
            return other
    return None


def _with_changed_row(x: Tensor, row: int) -> Tensor:
    """Return a copy of a tensor with another row."""
    changed = x.clone()
    changed[row] = changed[row] * 1.5 + 0.125
    return changed


def _with_changed_result(call: Call, place: int) -> Call:
    """Return a call with another result for one device."""
    result: Any = call.result
    if isinstance(result, Neighbours):
        value = result.value.clone()
        value[result.receiver == place] *= 1.5
        return replace(call, result=result._replace(value=value))
    return replace(call, result=_with_changed_row(result, place))
