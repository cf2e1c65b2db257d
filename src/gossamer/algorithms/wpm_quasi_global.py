"""WPM with quasi-global momentum: a power mean while the devices spread out, p falling to 1."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition, mirror_of
from gossamer.algorithms.directions import QuasiGlobalMomentum
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.quasi_global import BETA
from gossamer.algorithms.registry import RATE, method
from gossamer.algorithms.schedules import Rate, Schedule, Switch
from gossamer.algorithms.wpm import FALLING


@method(
    "wpm-quasi-global",
    label="WPM quasi-global",
    paper="ours, after Du et al., WPM",
    tune={"eta": RATE, "beta": BETA, "p": FALLING},
)
@dataclass(frozen=True)
class WPMQuasiGlobal(Preset):
    """Quasi-global momentum, adapt-then-combine, with anchored power means.

    Args:
        eta: The learning rate: a number or a schedule.
        beta: The momentum coefficient β.
        p: The exponent: a number of at least 1, or a schedule.

    Example:
        >>> print(WPMQuasiGlobal().p)
        5 until round 20, then 1
    """

    eta: Rate = 0.01
    beta: float = 0.9
    p: float | Schedule = Switch(5, 20)  # noqa: RUF009 - frozen

    def expand(self) -> Composition:
        return Composition(
            mirror_of(self.p),
            self.eta,
            direction=QuasiGlobalMomentum(self.beta),
            order="adapt-then-combine",
            anchor=True,
        )
