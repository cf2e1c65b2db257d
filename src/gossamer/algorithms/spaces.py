"""The two spaces in which a composition keeps its state: models, or their duals.

If the rate of a step is the same for every coordinate, a mirror step is linear in the dual: WPM is
then plain gossip on z = w^[p], and a round needs a single root.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from gossamer.algorithms.base import Mix, State, descend
from gossamer.algorithms.steps import StepRule
from gossamer.mirror import MirrorMap, PowerMap, inside_float32

# From this exponent on a sum in float32 is well within the accuracy of the dual, 8·p·eps.
_FLOAT32_SUMS_FROM = 9


class Space(Protocol):
    """Mean, step and model of a point of the state."""

    @property
    def name(self) -> str:
        """The name of the point in the state."""

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean of the neighbourhood, times the gain."""

    def step(self, x: Tensor, d: Tensor) -> Tensor:
        """Return the point after a step from x along d."""

    @property
    def model(self) -> Callable[[Tensor], Tensor]:
        """The model of a point."""


@dataclass(frozen=True)
class PrimalSpace:
    """Points are models (less the start, if anchored)."""

    mix: Mix
    mirror: MirrorMap
    rule: StepRule
    eta: float | Tensor
    gain: float | Tensor
    model: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor], Tensor]
    name: ClassVar[str] = "w"

    def mean(self, x: Tensor) -> Tensor:
        return _amplified(self.mix.mean(x, self.mirror), self.gain)

    def step(self, x: Tensor, d: Tensor) -> Tensor:
        return self.rule(x, d, self.eta, self.mirror, lambda: self.loss(self.model(x)))


@dataclass(frozen=True)
class DualSpace:
    """Points are duals z = w^[p] of models (less the start, if anchored)."""

    mix: Mix
    p: float
    rate: float | Tensor
    gain: float | Tensor
    model: Callable[[Tensor], Tensor]
    name: ClassVar[str] = "z"

    def mean(self, z: Tensor) -> Tensor:
        accumulate = None if self.p >= _FLOAT32_SUMS_FROM else torch.float64
        return _amplified(self.mix(z, accumulate), self.gain**self.p)

    def step(self, z: Tensor, d: Tensor) -> Tensor:
        return descend(z, d, self.rate)


def _amplified(x: Tensor, gain: float | Tensor) -> Tensor:
    if isinstance(gain, float) and gain == 1:
        return x
    return gain * x


def move_to_dual(state: State, mirror: PowerMap, agree: Callable[[bool], bool]) -> State:
    """Return the state in the dual where its type can hold it: in float64 first, then in float32.

    All devices change together, and only while all are active: a device that is away keeps its
    rows, which must have the same form.

    Args:
        state: A state with models "w" or duals "z", and the shared "start".
        mirror: The power map.
        agree: Returns True if its argument is True in every process that holds devices.
    """
    if mirror.p == 1:
        return state
    if "w" in state:
        if not agree(bool(mirror.fits(state["w"]).all())):
            return state
        rest = {name: x for name, x in state.items() if name != "w"}
        return {"z": mirror.to_dual(state["w"]), **rest}
    z = state["z"]
    if z.dtype == state["start"].dtype or not agree(inside_float32(z)):
        return state
    return {**state, "z": z.float()}
