"""Gain control: D-PSGD whose averaged displacement from the start is multiplied by a gain at first.

It is the control of WPM. Where few of n devices move a coordinate, the mean divides the move by n
and the power mean by n^(1/p): most of what a power mean gains is this inflation of the shared
displacement. A gain without any power mean gives it too, for the first rounds:

    w̄_i = w₀ + gain·(Σ_j a_ij·w_j − w₀)
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate, Switch


@method(
    "gain-control",
    label="Gain control",
    paper="ours, the control of WPM",
    tune={"eta": RATE, "gain": Choice((1.05, 1.1))},
)
@dataclass(frozen=True)
class GainControl(Preset):
    """D-PSGD with a gain at first, the gradient at the aggregate.

    Args:
        eta: The learning rate: a number or a schedule.
        gain: The factor, above 0.
        rounds: The number of rounds with the gain.

    Example:
        >>> print(GainControl().expand().gain)
        1.05 until round 20, then 1
    """

    eta: Rate = 0.01
    gain: float = 1.05
    rounds: int = 20

    def expand(self) -> Composition:
        return Composition(eta=self.eta, anchor=True, gain=Switch(self.gain, self.rounds))
