"""WPM with local steps between two power means."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition, mirror_of
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate, Schedule
from gossamer.algorithms.wpm import FALLING


@method(
    "wpm-local-steps",
    label="WPM local steps",
    paper="ours, after Du et al., WPM",
    tune={"eta": RATE, "p": FALLING, "local_steps": Choice((2, 4, 8))},
)
@dataclass(frozen=True)
class WPMLocalSteps(Preset):
    """Local steps, then the anchored power mean.

    Args:
        eta: The learning rate: a number or a schedule.
        p: The exponent: a number of at least 1, or a schedule.
        local_steps: The number of steps per round.

    Example:
        >>> WPMLocalSteps(eta=0.05).label
        'WPM local steps'
    """

    eta: Rate = 0.01
    p: float | Schedule = 3
    local_steps: int = 4

    def expand(self) -> Composition:
        return Composition(
            mirror_of(self.p),
            self.eta,
            local_steps=self.local_steps,
            order="adapt-then-combine",
            anchor=True,
        )
