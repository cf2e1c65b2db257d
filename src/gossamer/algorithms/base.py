"""The interface between a method and the engine that runs it.

An algorithm is written once, for a stack of models: every tensor of its state has a leading axis of
the devices that this process holds (all of them, a shard, or one). It sees the network only through
`mix` and the data only through `grad`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from gossamer.algorithms.local_step import PLAIN_SGD, Gradient, LocalStep, State
from gossamer.algorithms.optimizers import Optimizer
from gossamer.errors import InputError
from gossamer.mirror import IdentityMap, MirrorMap
from gossamer.network.base import Network
from gossamer.network.weights import NetworkWeights, WeightRule

__all__ = [
    "ORDERS",
    "POINTS",
    "Algorithm",
    "Gradient",
    "Mix",
    "Neighbours",
    "Order",
    "Point",
    "State",
    "check_choice",
    "check_local_steps",
    "check_static",
    "descend",
    "descend_locally",
]

Order = Literal["combine-then-adapt", "adapt-then-combine"]
Point = Literal["local", "aggregate"]
ORDERS = ("combine-then-adapt", "adapt-then-combine")
POINTS = ("local", "aggregate")


class Neighbours(NamedTuple):
    """The vectors that devices hold when they mix: one row per (receiver, sender) pair, ascending.

    Attributes:
        receiver: Row of the stack. Every device is also a receiver of its own vector.
        sender: Row of the stack, or a number beyond it for a device that another process holds.
        weight: The weight a_ij.
        value: The sender's vector as it was received.
    """

    receiver: Tensor
    sender: Tensor
    weight: Tensor
    value: Tensor


class Mix(Protocol):
    """The links of one round, as an algorithm sees them."""

    @property
    def devices(self) -> Tensor:
        """The numbers of the devices in this stack."""

    @property
    def active(self) -> Tensor | None:
        """A mask of the rows that take part in the round, or None if all do."""

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Tensor:
        """Return Σ_j a_ij·x_j for every device i of the stack.

        Args:
            x: One row per device.
            accumulate: The type in which to sum, if not that of x.

        Returns:
            A new tensor like x.
        """

    def mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        """Return the weighted mean of the neighbourhood in the dual, ∇φ⁻¹(Σ_j a_ij·∇φ(w_j)).

        For a power map it is computed without overflow or underflow; for the identity it is the
        linear mix.
        """

    def neighbours(self, x: Tensor) -> Neighbours:
        """Return the vectors that every device receives, link by link, and its own."""

    def with_message_size(self, message: int, first: int) -> Mix:
        """Return the same mix with another message size, for methods that send less than x.

        Args:
            message: Bytes of a message to a neighbour of the previous round.
            first: Bytes of a message to a neighbour that was none in the previous round.
        """

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        """Return the exact average over all active devices, as one row; None if there are none.

        Only engines that hold the whole network offer it.

        Args:
            x: One row per device.
            star: Count the traffic of a server (every device sends its vector and receives one)
                instead of that of a ring all-reduce.
        """


@dataclass(frozen=True)
class Algorithm(ABC):
    """A method. Subclasses are frozen dataclasses.

    Engines call `first_state`, `next_state` and `halfway_models`, which apply the local step and
    call what a method defines: `init`, `round` and `halfway`.

    Args:
        optimizer: What turns the gradient of a local step into its direction: `SGD`, `Adam`,
            `AdamW`. Its memory stays with its device.
        weight_decay: λ of the L2 decay: λ·w is added to the gradient.
        clip_norm: Scale the gradient of each device to at most this norm, before the decay. None:
            no limit.

    Example:
        D-PSGD in full:

        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class MyDPSGD(Algorithm):
        ...     eta: float = 0.01
        ...
        ...     def round(self, state, grad, mix, t):
        ...         w = state["w"]
        ...         return {"w": mix(w) - self.eta * grad(w)}
        ...
        ...     def halfway(self, state, grad, mix, t):
        ...         return mix(state["w"])
    """

    optimizer: Optimizer = dataclasses.field(default=PLAIN_SGD, kw_only=True)
    weight_decay: float = dataclasses.field(default=0.0, kw_only=True)
    clip_norm: float | None = dataclasses.field(default=None, kw_only=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__repr__" not in vars(cls):
            cls.__repr__ = Algorithm.__repr__  # type: ignore[method-assign] # kept by `dataclass`

    def __post_init__(self) -> None:
        if self.optimizer.has_memory and self.needs_gradients:
            accepted = (
                "SGD without momentum: this method needs gradients, and the directions of an "
                "optimiser are none"
            )
            raise InputError("optimizer", self.optimizer, accepted)
        self.local_step  # noqa: B018 - refuses values that are not accepted

    def __repr__(self) -> str:
        """Return the fields as dataclasses do, without a local step that is at its default."""
        shown = []
        for field in sorted(dataclasses.fields(self), key=lambda field: bool(field.kw_only)):
            value = getattr(self, field.name)
            if field.init and not (field.kw_only and value == field.default):
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"

    @property
    def weights(self) -> WeightRule:
        """The rule that turns the links of a round into weights a_ij."""
        return NetworkWeights()

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        """The last part of a round: its models are measured "after_step" or "after_mix"."""
        return "step"

    @property
    def label(self) -> str:
        """The name in tables and legends."""
        return self.labelled(type(self).__name__)

    @property
    def local_step(self) -> LocalStep:
        """What happens to a gradient before the method steps along it."""
        return LocalStep(self.optimizer, self.weight_decay, self.clip_norm)

    @property
    def needs_gradients(self) -> bool:
        """True if the method takes no optimiser with memory, since it computes with gradients."""
        return False

    @property
    def connected_rounds(self) -> bool:
        """True if the links of every round must connect all devices."""
        return False

    @property
    def merges_one_by_one(self) -> bool:
        """True if received models are merged one at a time instead of by a weighted mean."""
        return False

    @property
    def without_rounds(self) -> Literal["no", "in pairs", "in the background"]:
        """How the events engine runs the method.

        "in pairs": A meeting of two devices is a round of the method for them, and a device that is
        ready waits for a neighbour. "in the background": Devices compute while their messages
        travel, so gradients may be stale. "no": The method needs common rounds.
        """
        if self.connected_rounds or self.weights.sums == "nothing":
            return "no"
        return "in pairs"

    def init(self, w0: Tensor) -> State:
        """Return the first state from the stacked start w0 [devices, parameters]."""
        return {"w": w0.clone()}

    @abstractmethod
    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        """Run one round and return the next state.

        The tensors of `state` may be overwritten or returned.
        """

    @abstractmethod
    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        """Return the models in the middle of round t, without changing the state.

        They are those after the mix if a round ends with the step, and those after the step if it
        ends with the mix.
        """

    def first_state(self, w0: Tensor) -> State:
        """Return the first state with the memory of the optimiser. Engines call it.

        Args:
            w0: The stacked start [devices, parameters].
        """
        state = self.init(w0)
        _check_state(self, "init", state, {})
        return {**state, **self.local_step.init(w0)}

    def next_state(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        """Run one round with the optimiser, and return the next state. Engines call it.

        Args:
            state: The state, whose tensors may be overwritten or returned.
            grad: The gradients of the round.
            mix: The links of the round.
            t: The round.
        """
        local_step = self.local_step
        forms = {name: _form(x) for name, x in state.items()}
        if local_step.plain:
            after = self.round(state, grad, mix, t)
            _check_state(self, "round", after, forms)
            return after
        directions = local_step.gradient(grad, state)
        after = {**self.round(state, directions, mix, t), **directions.state()}
        _check_state(self, "round", after, forms)
        return after

    def halfway_models(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        """Return the models in the middle of round t, without changing the state. Engines call it.

        Args:
            state: The state.
            grad: The gradients of the round.
            mix: The links of the round.
            t: The round.
        """
        local_step = self.local_step
        if local_step.plain:
            return self.halfway(state, grad, mix, t)
        directions = local_step.gradient(grad, state).without_effect()
        return self.halfway(state, directions, mix, t)

    def labelled(self, name: str) -> str:
        """Return a name for tables with what differs in the local step: "D-PSGD Adam clip 1".

        Args:
            name: The method's own name.
        """
        own = LocalStep(self.optimizer, self.weight_decay, self.clip_norm)
        more = own.label(type(self).optimizer)
        return f"{name} {more}".strip()

    def models(self, state: State) -> Tensor:
        """Return the models [devices, parameters] of a state."""
        return state["w"]

    def compact(self, state: State, agree: Callable[[bool], bool]) -> State:
        """Return an equivalent state that is cheaper to compute with.

        The simulator calls it after every round.

        Args:
            state: The state after a round.
            agree: Returns True if its argument is True in every process that holds devices. All
                processes must call it the same number of times.
        """
        return state

    def check(self, network: Network) -> None:
        """Raise InputError if the method does not support a network."""
        if network.directed and not self.weights.one_way:
            accepted = f"symmetric links, which {self.label} needs; push-sum takes one-way ones"
            raise InputError("network", "directed", accepted)

    def mirror_at(self, t: int) -> MirrorMap:
        """Return the mirror map of round t, for the distance to the mean in its dual."""
        return IdentityMap()


def _form(x: Tensor) -> tuple[torch.Size, torch.dtype]:
    """Return what a tensor of a state keeps from round to round."""
    return x.shape, x.dtype


def _check_state(
    algorithm: Algorithm,
    function: str,
    state: Any,
    forms: dict[str, tuple[torch.Size, torch.dtype]],
) -> None:
    """Raise InputError if a method returns what is no state, or one of another form.

    Args:
        algorithm: The method.
        function: The name of its function that returned the state.
        state: What it returned.
        forms: The shape and type of every tensor of the state before; empty at the start.
    """
    field = f"{type(algorithm).__name__}.{function}(…)"
    if not isinstance(state, dict) or not all(isinstance(x, Tensor) for x in state.values()):
        raise InputError(field, state, "a dictionary of tensors, each with one row per device")
    for name, (shape, dtype) in forms.items():
        if name not in state:
            raise InputError(field, sorted(state), f"the whole state, with {name!r}")
        if _form(state[name]) != (shape, dtype):
            x = state[name]
            found = f"{name!r}: {list(x.shape)} of {x.dtype}"
            raise InputError(
                field, found, f"{name!r} with shape {list(shape)} of {dtype}, as before"
            )


def descend(w: Tensor, d: Tensor, eta: float | Tensor) -> Tensor:
    """Compute w − η·d in place.

    It is the one kernel of every linear step, so that WPM with p = 1 equals D-PSGD bit for bit.

    Args:
        w: The models, which are overwritten.
        d: The direction.
        eta: The learning rate: a number, or one per device as [devices, 1].

    Returns:
        w.
    """
    if isinstance(eta, float):
        return w.sub_(d, alpha=eta)
    return w.sub_(eta * d)


def descend_locally(
    w: Tensor, grad: Gradient, eta: float | Tensor, steps: int, rows: Tensor | None = None
) -> Tensor:
    """Take the local steps of a round from w, in place.

    Args:
        w: The models, which are overwritten.
        grad: The gradients of the round.
        eta: The learning rate: a number, or one per row as [rows, 1].
        steps: The number of steps.
        rows: The rows of the stack that w holds. None: all.

    Returns:
        w.
    """
    for step in range(steps):
        w = descend(w, grad(w, step, rows), eta)
    return w


def check_static(method: Algorithm, network: Network) -> None:
    """Raise InputError if links change: an exact method's memory holds for one weight matrix.

    Args:
        method: The method, which is named in the message.
        network: The network.
    """
    if network.period != 1:
        accepted = (
            f"links that never change, which {method.label} needs; "
            "gradient tracking is exact on changing ones"
        )
        raise InputError("network", type(network).__name__, accepted)


def check_local_steps(local_steps: int) -> None:
    """Raise InputError for fewer than one local step per round.

    Args:
        local_steps: The number.
    """
    if local_steps < 1:
        raise InputError("local_steps", local_steps, "a whole number of at least 1")


def check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise InputError if a value is not one of the choices.

    Args:
        field: The name of the value in the message.
        value: The value.
        choices: What is accepted.
    """
    if value not in choices:
        raise InputError(field, value, "one of " + ", ".join(repr(c) for c in choices))
