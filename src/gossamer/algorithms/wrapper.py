"""Wrappers: algorithms that change what another method receives from its neighbours.

The method inside is given a mix that is computed link by link, from `mix.neighbours`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import torch
from torch import Tensor

from gossamer.algorithms import neighbourhoods
from gossamer.algorithms.base import Algorithm, Gradient, Mix, Neighbours, State
from gossamer.algorithms.local_step import PLAIN_SGD, LocalStep
from gossamer.algorithms.optimizers import Optimizer
from gossamer.mirror import IdentityMap, MirrorMap
from gossamer.network.base import Network
from gossamer.network.weights import WeightRule


@dataclass(frozen=True)
class LinkMix:
    """A `Mix` computed from the vectors that each device receives; subclasses define those."""

    mix: Mix

    @abstractmethod
    def neighbours(self, x: Tensor) -> Neighbours: ...

    @abstractmethod
    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None: ...

    @property
    def devices(self) -> Tensor:
        return self.mix.devices

    @property
    def active(self) -> Tensor | None:
        return self.mix.active

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Tensor:
        return self.mean(x, IdentityMap())  # always summed in float64

    def mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        flat = w.reshape(len(w), -1)
        return neighbourhoods.mean(self.neighbours(flat), flat, mirror).view_as(w)

    def with_message_size(self, message: int, first: int) -> Self:
        return replace(self, mix=self.mix.with_message_size(message, first))


@dataclass(frozen=True)
class Wrapper(Algorithm):
    """A method with another mix; everything else is the method's own."""

    algorithm: Algorithm
    # The local step is that of the method inside.
    optimizer: Optimizer = field(default=PLAIN_SGD, init=False)
    weight_decay: float = field(default=0.0, init=False)
    clip_norm: float | None = field(default=None, init=False)

    @abstractmethod
    def through(self, mix: Mix, t: int) -> Mix:
        """Return the mix that the method inside is given in round t."""

    @property
    def changes_messages(self) -> bool:
        """True if it changes what devices send, so that a guard must be inside."""
        return False

    @property
    def weights(self) -> WeightRule:
        return self.algorithm.weights

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return self.algorithm.ends_with

    @property
    def local_step(self) -> LocalStep:
        return self.algorithm.local_step

    def init(self, w0: Tensor) -> State:
        return self.algorithm.init(w0)

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return self.algorithm.round(state, grad, self.through(mix, t), t)

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return self.algorithm.halfway(state, grad, self.through(mix, t), t)

    def models(self, state: State) -> Tensor:
        return self.algorithm.models(state)

    def check(self, network: Network) -> None:
        self.algorithm.check(network)

    def mirror_at(self, t: int) -> MirrorMap:
        return self.algorithm.mirror_at(t)

    @property
    def connected_rounds(self) -> bool:
        return self.algorithm.connected_rounds

    @property
    def without_rounds(self) -> Literal["no", "in pairs", "in the background"]:
        return "no" if self.algorithm.without_rounds == "no" else "in pairs"

    @property
    def merges_one_by_one(self) -> bool:
        return self.algorithm.merges_one_by_one
