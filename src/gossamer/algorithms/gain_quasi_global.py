"""Quasi-global momentum with a gain on the averaged displacement at first: see `gain_control`."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition
from gossamer.algorithms.directions import QuasiGlobalMomentum
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, method
from gossamer.algorithms.schedules import Rate, Switch


@method(
    "gain-quasi-global",
    label="Gain quasi-global",
    paper="ours, after Lin et al.",
    tune={"eta": RATE},
)
@dataclass(frozen=True)
class GainQuasiGlobal(Preset):
    """Quasi-global momentum, adapt-then-combine, with a gain at first.

    Args:
        eta: The learning rate: a number or a schedule.
        beta: The momentum coefficient β.
        gain: The factor, above 0.
        rounds: The number of rounds with the gain.

    Example:
        >>> GainQuasiGlobal(eta=0.05).label
        'Gain quasi-global'
    """

    eta: Rate = 0.01
    beta: float = 0.9
    gain: float = 1.05
    rounds: int = 20

    def expand(self) -> Composition:
        return Composition(
            eta=self.eta,
            direction=QuasiGlobalMomentum(self.beta),
            order="adapt-then-combine",
            anchor=True,
            gain=Switch(self.gain, self.rounds),
        )
