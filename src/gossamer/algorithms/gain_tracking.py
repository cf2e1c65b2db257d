"""Gradient tracking with a gain on the averaged displacement at first: see `gain_control`."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition
from gossamer.algorithms.directions import GradientTracking
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, method
from gossamer.algorithms.schedules import Rate, Switch


@method(
    "gain-tracking",
    label="Gain tracking",
    paper="ours, after Pu et al.",
    exact=True,
    tune={"eta": RATE},
)
@dataclass(frozen=True)
class GainTracking(Preset):
    """Gradient tracking with a gain at first.

    Args:
        eta: The learning rate: a number or a schedule.
        gain: The factor, above 0.
        rounds: The number of rounds with the gain.

    Example:
        >>> GainTracking(eta=0.05).label
        'Gain tracking'
    """

    eta: Rate = 0.01
    gain: float = 1.1
    rounds: int = 20

    def expand(self) -> Composition:
        return Composition(
            eta=self.eta,
            direction=GradientTracking(),
            gradient_at="local",
            anchor=True,
            gain=Switch(self.gain, self.rounds),
        )
