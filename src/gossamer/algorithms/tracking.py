"""Gradient tracking: every device follows an estimate of the mean gradient. Twice the bytes.

S. Pu, A. Nedić. "Distributed stochastic gradient tracking methods." Mathematical Programming 187,
2021; with the push and pull of S. Pu, W. Shi, J. Xu, A. Nedić. "Push–pull gradient methods for
distributed optimization in networks." IEEE TAC 66, 2021, on symmetric links.

    y_t  = A·y_{t−1} + g_t − g_{t−1}
    w⁺   = A·w − η·A·y_t
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition
from gossamer.algorithms.directions import GradientTracking
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, method
from gossamer.algorithms.schedules import Rate


@method(
    "tracking",
    label="Tracking",
    paper="Pu and Nedić, Math. Programming 187, 2021; Pu et al., IEEE TAC 66, 2021",
    exact=True,
    tune={"eta": RATE},
)
@dataclass(frozen=True)
class Tracking(Preset):
    """Gradient tracking, combine-then-adapt, with the gradient at the device's own model.

    Args:
        eta: The learning rate: a number or a schedule.

    Example:
        >>> Tracking(eta=0.05).label
        'Tracking'
    """

    eta: Rate = 0.01

    def expand(self) -> Composition:
        return Composition(eta=self.eta, direction=GradientTracking(), gradient_at="local")
