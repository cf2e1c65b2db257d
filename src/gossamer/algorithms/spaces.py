"""The spaces in which a composition computes: models, or their duals.

If the rate of a step is the same for every coordinate, a mirror step is linear in the dual: WPM is
then plain gossip on z = w^[p], and a round needs a single root. In `LocalSpace`, p and gain differ
by device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from gossamer.algorithms import neighbourhoods
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


@dataclass(eq=False)
class LocalSpace:
    """Points are models (less the start, if anchored); maps and gain of each device are its own.

    They follow from the vectors that the device receives for the mean; before it, a step takes the
    maps of devices that agree.

    Args:
        mix: The links of the round.
        maps: Returns the mirror maps for the devices' divergence, with the rows that use each.
        rule: The step rule.
        eta: The learning rate.
        gain: Returns the gain for the devices' divergence.
        model: Returns the model of a point.
        loss: Returns the batch loss of every device at models.
    """

    mix: Mix
    maps: Callable[[Tensor], list[tuple[MirrorMap, Tensor]]]
    rule: StepRule
    eta: float | Tensor
    gain: Callable[[Tensor], float | Tensor]
    model: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor], Tensor]
    name: ClassVar[str] = "w"
    _maps: list[tuple[MirrorMap, Tensor]] = field(default_factory=list)

    def mean(self, x: Tensor) -> Tensor:
        near = self.mix.neighbours(x)
        divergence = neighbourhoods.divergence(near, len(x))
        self._maps = self.maps(divergence)
        result = torch.empty_like(x)
        for mirror, rows in self._maps:
            part = near
            if len(rows) < len(x):
                part = neighbourhoods.of_receivers(near, rows, len(x))
            result[rows] = neighbourhoods.mean(part, x[rows], mirror)
        return _amplified(result, self.gain(divergence))

    def step(self, x: Tensor, d: Tensor) -> Tensor:
        result = torch.empty_like(x)
        for mirror, rows in self._maps or self.maps(x.new_zeros(len(x))):
            eta = self.eta if isinstance(self.eta, float) else self.eta[rows]
            loss = self._loss_of(x, rows)
            result[rows] = self.rule(x[rows], d[rows], eta, mirror, loss)
        return result

    def _loss_of(self, x: Tensor, rows: Tensor) -> Callable[[], Tensor]:
        return lambda: self.loss(self.model(x))[rows]


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
