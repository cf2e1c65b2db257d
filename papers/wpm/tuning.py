"""Tuned learning rates: every method has its own best rate, on seeds that are not reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import gossamer as gs
from gossamer.study import Study
from papers.wpm.paper import Results, Scale, rounds_to_target, studies


@dataclass(frozen=True)
class Method:
    """A method as a function of its learning rate.

    Attributes:
        name: Its name in tables.
        at: A function that returns the method with a learning rate.
    """

    name: str
    at: Callable[[float], gs.Algorithm]


@dataclass(frozen=True)
class Tuned:
    """The result of tuning.

    Attributes:
        eta: The rate that reached the target in the fewest rounds.
        edge: True if it is the first or last of the grid, so that a better one may lie beyond.
    """

    eta: float
    edge: bool


def on_tuning_seeds(scale: Scale) -> Scale:
    """Return the same setting with the seeds for tuning."""
    return replace(scale, first_seed=scale.tuning_seeds[0], seeds=len(scale.tuning_seeds))


def grid(scale: Scale, methods: Iterable[Method], devices: int, split: str) -> list[Study]:
    """Return the runs that tuning needs.

    Args:
        scale: The setting with the grid of rates and the tuning seeds.
        methods: The methods to tune.
        devices: Number of devices.
        split: Name of the split.
    """
    keys = [(method.at(eta), devices, split) for method in methods for eta in scale.grid]
    return studies(on_tuning_seeds(scale), keys)


def tuned(results: Results, method: Method, devices: int, split: str, target: float) -> Tuned:
    """Return the best rate of the grid: the one with the fewest rounds to the target.

    A run that does not reach the target counts as twice its length. Equal rates are ordered by
    their final accuracy.

    Args:
        results: The results of the runs of `grid`.
        method: The method.
        devices: Number of devices.
        split: Name of the split.
        target: The accuracy to reach.
    """
    scale = results.scale
    count = rounds_to_target(scale, target)
    tuning = results.under(on_tuning_seeds(scale))

    def cost(eta: float) -> tuple[float, float]:
        runs = tuning.cells((method.at(eta), devices, split))
        rounds = sum(count(run) or 2 * scale.rounds for run in runs)
        accuracy = sum(_final_accuracy(run) for run in runs)
        return rounds, -accuracy

    best = min(scale.grid, key=cost)
    return Tuned(best, best in (scale.grid[0], scale.grid[-1]))


def _final_accuracy(run: gs.Run) -> float:
    accuracy = float(run.metrics["accuracy"][-1])
    if run.diverged or not math.isfinite(accuracy):
        return 0.0
    return accuracy
