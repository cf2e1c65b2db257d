"""Tuning: every method with its own best rate, on seeds that are not reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import gossamer as gs
from gossamer.study import Study
from papers.wpm.paper import Results, Scale, rounds_to_target, studies


@dataclass(frozen=True)
class Method:
    """A method as a function of its rate."""

    name: str
    at: Callable[[float], gs.Algorithm]


@dataclass(frozen=True)
class Tuned:
    """The best rate on the tuning seeds. `edge`: it is at the edge of the grid."""

    eta: float
    edge: bool


def on_tuning_seeds(scale: Scale) -> Scale:
    return replace(scale, first_seed=scale.tuning_seeds[0], seeds=len(scale.tuning_seeds))


def grid(scale: Scale, methods: Iterable[Method], devices: int, split: str) -> list[Study]:
    """Return the runs that tuning needs."""
    return studies(
        on_tuning_seeds(scale),
        [(method.at(eta), devices, split) for method in methods for eta in scale.grid],
    )


def tuned(results: Results, method: Method, devices: int, split: str, target: float) -> Tuned:
    """Return the rate with the fewest rounds to the target.

    A run that does not reach the target counts as twice its length.
    """
    scale = results.scale
    count = rounds_to_target(scale, target)
    tuning = results.under(on_tuning_seeds(scale))

    def cost(eta: float) -> tuple[float, float]:
        cells = tuning.cells((method.at(eta), devices, split))
        return sum(count(cell) or 2 * scale.rounds for cell in cells), -sum(
            _final(cell) for cell in cells
        )

    best = min(scale.grid, key=cost)
    return Tuned(best, best in (scale.grid[0], scale.grid[-1]))


def _final(cell: gs.Run) -> float:
    accuracy = float(cell.metrics["accuracy"][-1])
    return accuracy if not cell.diverged and math.isfinite(accuracy) else 0.0
