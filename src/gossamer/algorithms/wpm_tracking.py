"""WPM with gradient tracking.

The tracked gradient is averaged linearly, the models by their power mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition, mirror_of
from gossamer.algorithms.directions import GradientTracking
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, method
from gossamer.algorithms.schedules import Rate, Schedule
from gossamer.algorithms.wpm import FALLING


@method(
    "wpm-tracking",
    label="WPM tracking",
    paper="ours, after Du et al., WPM",
    exact=True,
    tune={"eta": RATE, "p": FALLING},
)
@dataclass(frozen=True)
class WPMTracking(Preset):
    """Gradient tracking with anchored power means of the models.

    Args:
        eta: The learning rate: a number or a schedule.
        p: The exponent: a number of at least 1, or a schedule.

    Example:
        >>> WPMTracking(eta=0.05).label
        'WPM tracking'
    """

    eta: Rate = 0.01
    p: float | Schedule = 3

    def expand(self) -> Composition:
        return Composition(
            mirror_of(self.p),
            self.eta,
            direction=GradientTracking(),
            gradient_at="local",
            anchor=True,
        )
