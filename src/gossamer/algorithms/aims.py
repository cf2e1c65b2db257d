"""AIMS: aggregation in the mirror space, with a convexity that follows the divergence.

R. Yang, H. Du, A. Wibisono, P. Baker. "Aggregation in the Mirror Space (AIMS): fast, accurate
distributed machine learning in military settings." arXiv:2210.16181, 2022. What is public of it
says that the convexity of the mirror function adapts to how far the models diverge, not how. The
rule here is ours, in terms of what a device sees of its neighbours:

    x_i = w_i − w₀
    δ_i = Σ_j a_ij·‖x_i − x_j‖² / Σ_j a_ij·(‖x_i‖² + ‖x_j‖²)    over its neighbours, at most 1
    p_i = 1 + (p − 1)·δ_i, as a whole number

Then the weighted power-p_i mean and the mirror step of `WPM`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer.algorithms.base import Point
from gossamer.algorithms.composition import Composition, PowerSchedule
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import ByDivergence, Rate
from gossamer.algorithms.steps import Safe, StepRule
from gossamer.mirror import check_p


@method(
    "aims",
    label="AIMS",
    paper="Yang et al. 2022; our rule for p",
    tune={"eta": RATE, "p": Choice((3, 5, 9, 15, 31))},
)
@dataclass(frozen=True)
class AIMS(Preset):
    """The weighted power mean with an exponent of each device's own, by its neighbours' distance.

    Args:
        p: The exponent where the models of the neighbours have nothing in common with the device's,
            at least 1; it is 1 where they are equal.
        eta: The learning rate: a number or a schedule.
        step: The step rule.
        gradient_at: Take the gradient at w_i ("local") or at w̄_i ("aggregate").
        anchor: Let mean, step and divergence act on w − w₀, the distance from the shared start.

    Example:
        >>> print(AIMS(p=15).expand().mirror.p)
        1 to 15 by divergence
    """

    p: float = 15
    eta: Rate = 0.01
    step: StepRule = field(default_factory=Safe)
    gradient_at: Point = "aggregate"
    anchor: bool = True

    def expand(self) -> Composition:
        check_p(self.p)
        return Composition(
            PowerSchedule(ByDivergence(self.p)),
            self.eta,
            self.step,
            self.gradient_at,
            anchor=self.anchor,
        )
