"""Fast linear averaging: D-PSGD with the weights I − α·L, with the best α of each round.

L. Xiao, S. Boyd. "Fast linear iterations for distributed averaging." Systems & Control Letters 53,
2004.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import method
from gossamer.algorithms.schedules import Rate
from gossamer.network.weights import BestConstant, WeightRule


@method(
    "fast-averaging",
    label="Fast averaging",
    paper="Xiao and Boyd, Systems & Control Letters 53, 2004",
    needs="symmetric links; all of a round's known",
)
@dataclass(frozen=True)
class FastAveraging(Preset):
    """D-PSGD with the weights of the fastest averaging.

    Args:
        eta: The learning rate: a number or a schedule.
        weights: The rule that turns links into weights.

    Example:
        >>> FastAveraging(eta=0.05).weights
        BestConstant()
    """

    eta: Rate = 0.01
    weights: WeightRule = BestConstant()  # noqa: RUF009 - frozen

    def expand(self) -> Composition:
        return Composition(eta=self.eta, gradient_at="local", weights=self.weights)
