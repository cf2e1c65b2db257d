"""Scores of runs for tuning: rounds to a target, where a run that diverges never counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import gossamer as gs
from gossamer.study import rounds_to as first_round
from papers.search import Score


def rounds_to(run: gs.Run, target: float, column: str = "accuracy") -> float:
    """Return the first measured round at which a run reaches a target.

    Args:
        run: The run.
        target: The accuracy to reach.
        column: The metric.

    Returns:
        The round; infinite if the run does not reach the target, or diverges later.
    """
    if run.diverged:
        return math.inf
    return float(first_round(run.metrics["round"], run.metrics[column], target))


def final(run: gs.Run, column: str) -> float:
    """Return the last value of a metric; 0 if the run diverged."""
    if run.diverged:
        return 0.0
    return float(run.metrics[column][-1])


def score(runs: Sequence[gs.Run], target: float) -> Score:
    """Return the score of a setting.

    The first number is how many runs miss the target, the second the mean of the rounds that the
    others need, the third the final accuracy, negative.

    Args:
        runs: The runs of the setting, one per tuning seed.
        target: The accuracy to reach.
    """
    rounds = [rounds_to(run, target) for run in runs]
    reached = [t for t in rounds if math.isfinite(t)]
    mean = sum(reached) / len(reached) if reached else 0.0
    accuracy = sum(final(run, "accuracy") for run in runs) / len(runs)
    return float(len(rounds) - len(reached)), mean, -accuracy
