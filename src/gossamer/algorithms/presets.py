"""A preset: a method that is another algorithm with some of its settings fixed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Literal

from torch import Tensor

from gossamer.algorithms.base import Algorithm, Gradient, Mix, State
from gossamer.algorithms.local_step import PLAIN_SGD, LocalStep
from gossamer.errors import InputError
from gossamer.mirror import MirrorMap
from gossamer.network.base import Network
from gossamer.network.weights import WeightRule


class Preset(Algorithm):
    """A method that stands for another one, mostly a `Composition`.

    Subclasses are frozen dataclasses.
    """

    @abstractmethod
    def expand(self) -> Algorithm:
        """Return the algorithm that this method stands for."""

    def __post_init__(self) -> None:
        self._inner  # noqa: B018 - refuses settings that are not accepted

    @cached_property
    def _inner(self) -> Algorithm:
        """The expanded algorithm with the local step of this method."""
        inner = self.expand()
        optimizer = self.optimizer
        if inner.optimizer != PLAIN_SGD:
            if optimizer != PLAIN_SGD:
                accepted = "none: this method has an optimiser of its own; D-PSGD takes any"
                raise InputError("optimizer", optimizer, accepted)
            optimizer = inner.optimizer
        return replace(
            inner, optimizer=optimizer, weight_decay=self.weight_decay, clip_norm=self.clip_norm
        )

    @property
    def local_step(self) -> LocalStep:
        return self._inner.local_step

    @property
    def needs_gradients(self) -> bool:
        return self._inner.needs_gradients

    @property
    def weights(self) -> WeightRule:
        return self._inner.weights

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return self._inner.ends_with

    @property
    def without_rounds(self) -> Literal["no", "in pairs", "in the background"]:
        return self._inner.without_rounds

    def init(self, w0: Tensor) -> State:
        return self._inner.init(w0)

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return self._inner.round(state, grad, mix, t)

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return self._inner.halfway(state, grad, mix, t)

    def models(self, state: State) -> Tensor:
        return self._inner.models(state)

    def compact(self, state: State, agree: Callable[[bool], bool]) -> State:
        return self._inner.compact(state, agree)

    def check(self, network: Network) -> None:
        super().check(network)
        self._inner.check(network)

    def mirror_at(self, t: int) -> MirrorMap:
        return self._inner.mirror_at(t)
