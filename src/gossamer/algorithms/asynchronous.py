"""The interface of methods without rounds: devices train while their messages travel.

The events engine calls four operations, each for a stack of devices to which it happens:

    step       a gradient is ready; it was computed at the model as it was when computing began
    send       the device begins to send to a neighbour
    receive    a neighbour's message has arrived
    undo_send  the contact ended before the message had arrived, and it is not kept

A device computes all the time. After `steps_between_messages` steps it begins an exchange with a
random neighbour in contact, and goes on computing while the message travels.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.local_step import Gradient, State


@dataclass(frozen=True)
class Asynchronous(Algorithm):
    """A method that the events engine runs without rounds; other engines run its `round`."""

    @property
    def without_rounds(self) -> Literal["no", "in pairs", "in the background"]:
        return "in the background"

    @property
    def exchange(self) -> Literal["both", "one-way"]:
        """Whether both devices of an exchange send, or only the one that begins it."""
        return "both"

    @property
    def steps_between_messages(self) -> int:
        """Number of steps of its own after which a device begins an exchange."""
        return 1

    @property
    def sending(self) -> Literal["one", "each", "always"]:
        """How many exchanges a device begins, one after the other.

        "one": One, after `steps_between_messages` steps. "each": One with each neighbour in contact
        after every step. "always": The next one as soon as the last one has ended.
        """
        return "one"

    @property
    def on_cut(self) -> Literal["drop", "keep"]:
        """What becomes of a message whose contact ends before it has arrived.

        "drop": It is lost. "keep": It continues where it stopped when the two devices meet again; a
        device keeps one exchange, the last one that was cut.
        """
        return "drop"

    @property
    def message(self) -> str | None:
        """Name of the tensor of the state that `send` returns as it is, with the state unchanged.

        The events engine then copies it without a call of `send`. None: `send` makes the message.
        """
        return None

    @property
    def averaged(self) -> str | None:
        """Name of the tensor of the state that `receive` moves as `average_with` does, and no more.

        The events engine then averages it in place without calls of `receive`. None: `receive` does
        something else.
        """
        return None

    def init_asynchronous(self, w0: Tensor) -> State:
        """Return the first state of a run without rounds.

        Args:
            w0: The stacked start [devices, parameters].
        """
        return self.init(w0)

    @abstractmethod
    def step(self, state: State, w_read: Tensor, grad: Gradient, devices: Tensor, t: int) -> State:
        """Apply a gradient that was computed at w_read, and return the next state.

        Args:
            state: The state now, whose tensors may be overwritten or returned.
            w_read: The models as they were when the devices began to compute.
            grad: The gradients.
            devices: The numbers of the devices.
            t: The round of the network, which schedules follow.
        """

    @abstractmethod
    def send(self, state: State, devices: Tensor, number: Tensor) -> tuple[State, Tensor]:
        """Return the state of the devices that begin to send, and their messages, one per row.

        Args:
            state: The state now, whose tensors may be returned but not overwritten.
            devices: The numbers of the devices.
            number: How many messages each of them has sent before.
        """

    @abstractmethod
    def receive(self, state: State, received: Tensor, sent: Tensor) -> State:
        """Return the state of the devices to which a message has arrived.

        Args:
            state: The state now, whose tensors may be overwritten or returned.
            received: The neighbours' messages.
            sent: What the devices themselves sent in the same exchange; if the exchange is one-way,
                it has no meaning.
        """

    def undo_send(self, state: State, sent: Tensor) -> State:
        """Return the state of the devices whose message did not arrive.

        Args:
            state: The state now, whose tensors may be returned but not overwritten.
            sent: Their messages.
        """
        return state

    def first_asynchronous_state(self, w0: Tensor) -> State:
        """Return the first state with the memory of the optimiser. The events engine calls it.

        Args:
            w0: The stacked start [devices, parameters].
        """
        return {**self.init_asynchronous(w0), **self.local_step.init(w0)}

    def next_step(
        self, state: State, w_read: Tensor, grad: Gradient, devices: Tensor, t: int
    ) -> State:
        """Take a step with the optimiser, and return the next state. The events engine calls it.

        Args:
            state: The state now, whose tensors may be overwritten or returned.
            w_read: The models as they were when the devices began to compute.
            grad: The gradients.
            devices: The numbers of the devices.
            t: The round of the network.
        """
        local_step = self.local_step
        if local_step.plain:
            return self.step(state, w_read, grad, devices, t)
        directions = local_step.gradient(grad, state)
        return {**self.step(state, w_read, directions, devices, t), **directions.state()}


def average_with(w: Tensor, received: Tensor, sent: Tensor) -> Tensor:
    """Move w by half of the difference of two messages, in place.

    Whatever happened to w since the device sent, the sum of the two devices' models stays the same:
    one moves by as much as the other. If nothing happened, both have the average.

    Args:
        w: The models, which are overwritten.
        received: The neighbours' messages.
        sent: The devices' own messages.

    Returns:
        w.
    """
    return w.add_(received - sent, alpha=0.5)
