"""WPM that sends compressed changes: w + γ·(M(ŵ) − ŵ), with M the power mean; see `choco_sgd`."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition, mirror_of
from gossamer.algorithms.compression import Compressor, TopK
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, method
from gossamer.algorithms.schedules import Rate, Schedule
from gossamer.algorithms.wpm import FALLING
from gossamer.errors import InputError


@method(
    "wpm-compressed",
    label="WPM compressed",
    paper="ours, after Du et al., WPM",
    tune={"eta": RATE, "p": FALLING},
)
@dataclass(frozen=True)
class WPMCompressed(Preset):
    """A step, then the anchored power mean of what the neighbours know.

    Args:
        eta: The learning rate: a number or a schedule.
        p: The exponent: a number of at least 1, or a schedule.
        compress: The compressor C.
        pull: The consensus rate γ, above 0 and at most 1.

    Example:
        >>> WPMCompressed(eta=0.05).label
        'WPM compressed'
    """

    eta: Rate = 0.01
    p: float | Schedule = 3
    compress: Compressor = TopK(0.1)  # noqa: RUF009 - frozen
    pull: float = 0.3

    def expand(self) -> Composition:
        if self.compress is None:
            raise InputError("compress", None, "a compressor, such as TopK(0.1)")
        return Composition(
            mirror_of(self.p),
            self.eta,
            order="adapt-then-combine",
            anchor=True,
            compress=self.compress,
            pull=self.pull,
        )
