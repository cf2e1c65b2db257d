"""The interface between a method and the engine that runs it.

An algorithm is written once, for a stack of models: every tensor of its state has a leading axis of
the devices that this process holds (all of them, a shard, or one). It sees the network only through
`mix` and the data only through `grad`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from gossamer.errors import InputError
from gossamer.mirror import IdentityMap, MirrorMap
from gossamer.network.base import Network
from gossamer.network.weights import Metropolis, WeightRule

State = dict[str, Tensor]
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


class Gradient(Protocol):
    """The data of one round, as an algorithm sees them."""

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        """Return each device's stochastic gradient at its row of w.

        The next call may overwrite the result.

        Args:
            w: One model per row.
            step: The local step of the round, which decides the batch.
            rows: The rows of the stack that w holds. None: all.
        """

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        """Return each device's loss at its row of w on the same batch."""

    def conjugate(self, z: Tensor) -> Tensor:
        """Return ∇f_i*(z_i), the point where the gradient of device i's loss is z_i.

        Only tasks that have it in closed form offer it.
        """


class Algorithm(ABC):
    """A method. Subclasses are frozen dataclasses.

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

    @property
    def weights(self) -> WeightRule:
        """The rule that turns the links of a round into weights a_ij."""
        return Metropolis()

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        """The last part of a round: its models are measured "after_step" or "after_mix"."""
        return "step"

    @property
    def label(self) -> str:
        """The name in tables and legends."""
        return type(self).__name__

    @property
    def connected_rounds(self) -> bool:
        """True if the links of every round must connect all devices."""
        return False

    @property
    def merges_one_by_one(self) -> bool:
        """True if received models are merged one at a time instead of by a weighted mean."""
        return False

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


def check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise InputError if a value is not one of the choices.

    Args:
        field: The name of the value in the message.
        value: The value.
        choices: What is accepted.
    """
    if value not in choices:
        raise InputError(field, value, "one of " + ", ".join(repr(c) for c in choices))
