"""The seam between a method and where it runs.

An algorithm is written once, for a stack of models: every tensor of its state has a leading axis of the devices that this
process holds (all of them, a shard, or one). It sees the network only through `mix` and the data only through `grad`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from gossamer.errors import InputError
from gossamer.network.base import Network
from gossamer.network.weights import Metropolis, WeightRule

State = dict[str, Tensor]
Order = Literal["combine-then-adapt", "adapt-then-combine"]
Point = Literal["local", "aggregate"]


class Neighbours(NamedTuple):
    """What devices have in front of them: a row for each (receiver, sender), itself included, in ascending order.

    `receiver` is a row of the stack, and so is `sender`, or a number beyond them for a device that another process holds;
    `weight` is a_ij; `value` is the sender's vector, as it was received.
    """

    receiver: Tensor
    sender: Tensor
    weight: Tensor
    value: Tensor


class Mix(Protocol):
    """One round's links, as an algorithm sees them."""

    @property
    def devices(self) -> Tensor:
        """The numbers of the devices in this stack."""

    @property
    def active(self) -> Tensor | None:
        """Which rows take part in the round (None: all)."""

    @property
    def linear(self) -> bool:
        """Whether a mix is the weighted sum of what was sent, and nothing looks at that before: see `wrapper`."""

    def __call__(self, x: Tensor) -> Tensor:
        """Σ_j a_ij·x_j for every device i of the stack: a new tensor."""

    def exactly(self, x: Tensor) -> Tensor:
        """The same, summed in float64: for what a root or the like would make of the order of a sum."""

    def power_mean(self, w: Tensor, p: float) -> Tensor:
        """(Σ_j a_ij·w_j^[p])^[1/p] without overflow or underflow: a new tensor. The linear mix where p = 1."""

    def neighbours(self, x: Tensor) -> Neighbours:
        """What every device has in front of it when it mixes, link by link: for methods that a weighted sum does not serve."""

    def sending(self, message: int, first: int) -> Mix:
        """The same mix, counted as messages of so many bytes; `first` bytes to a neighbour that was none last round.

        For what devices know of each other from before, and only send the change of.
        """

    def mean(self, x: Tensor, star: bool = False) -> Tensor:
        """The exact average over *all* devices that are here, one row; only engines that know the whole network offer it.

        It is counted as a ring all-reduce, or as a `star`: everyone sends its vector to a server and gets one back.
        """

    def everywhere(self, holds: bool) -> bool:
        """Whether something holds in every process that has some of the devices; false where nobody can know.

        For what all have to do alike, such as sending another form of their state from now on.
        """


class Gradient(Protocol):
    """One round's data, as an algorithm sees them."""

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        """Each device's stochastic gradient at its row of w, on its batch for this round and local step.

        `rows` says which rows of the stack w holds (None: all). The next call may overwrite the result.
        """

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        """Each device's loss at its row of w on the same batch."""

    def conjugate(self, z: Tensor) -> Tensor:
        """∇f_i*(z_i): where the gradient of device i's own loss is z_i. Only tasks that have it in closed form offer it."""


class Algorithm(ABC):
    """A method. Subclasses are frozen dataclasses."""

    @property
    def weights(self) -> WeightRule:
        """How a round's links become the weights a_ij."""
        return Metropolis()

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        """What a round ends with: its models are then "after_step" or "after_mix"."""
        return "step"

    @property
    def label(self) -> str:
        """A short name for tables and legends."""
        return type(self).__name__

    def init(self, w0: Tensor) -> State:
        """The state from the stacked start w0 [devices, parameters]."""
        return {"w": w0.clone()}

    @abstractmethod
    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        """One round. The tensors of `state` may be overwritten or returned."""

    @abstractmethod
    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        """The models in the middle of round t: after the mix where the round ends with the step, and the other way round."""

    def models(self, state: State) -> Tensor:
        """The models [devices, parameters] that a state stands for."""
        return state["w"]

    def check(self, network: Network) -> None:
        """Refuse a network that is outside what the method assumes."""
        if network.directed and not self.weights.one_way:
            raise InputError(
                "network",
                "directed",
                f"symmetric links, which {self.label} needs; push-sum takes one-way ones",
            )

    def p_at(self, t: int) -> float:
        """The power of the mean in round t, for the distance to the power mean."""
        return 1.0


def descend(w: Tensor, d: Tensor, eta: float | Tensor) -> Tensor:
    """w − η·d, in place: the one kernel of every linear step, so that p = 1 and D-PSGD are equal bit for bit."""
    return w.sub_(d, alpha=eta) if isinstance(eta, float) else w.sub_(eta * d)


def check_static(method: Algorithm, network: Network) -> None:
    """Refuse links that change: an exact method's memory is of the very weights that it goes on with."""
    if network.period != 1:
        accepted = f"links that never change, which {method.label} needs; gradient tracking is exact on changing ones"
        raise InputError("network", type(network).__name__, accepted)


def check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(field, value, "one of " + ", ".join(repr(c) for c in choices))


ORDERS = ("combine-then-adapt", "adapt-then-combine")
POINTS = ("local", "aggregate")
