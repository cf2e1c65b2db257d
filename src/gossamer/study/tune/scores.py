"""How the candidates of a search are scored, ranked and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from gossamer.results.run import Run
from gossamer.results.statistics import Interval, interval, rounds_to
from gossamer.study.space import Candidate

Goal = Literal["rounds", "bytes", "seconds"]
GOALS: tuple[str, ...] = get_args(Goal)

_COLUMNS = {"rounds": "round", "bytes": "bytes", "seconds": "simulated_seconds"}
_KEPT_COLUMNS = (*_COLUMNS.values(), "accuracy", "accuracy_worst")
_TINY = 1e-12  # no division by zero

Curve = dict[str, Any]  # measurements by column


def curve_of(run: Run) -> Curve | None:
    """Return the measurements of a run that scores need, or None if it diverged.

    Args:
        run: A run that has ended.
    """
    if run.diverged:
        return None
    return {name: run.metrics[name] for name in _KEPT_COLUMNS if name in run.metrics}


@dataclass(frozen=True)
class Score:
    """What a candidate achieved.

    Attributes:
        candidate: The method with its settings.
        curves: The measurements on each seed, or None where it diverged.
    """

    candidate: Candidate
    curves: tuple[Curve | None, ...]

    @property
    def diverged(self) -> int:
        """The number of seeds on which it diverged."""
        return self.curves.count(None)

    def to_target(self, goal: Goal, target: float | None) -> list[float | None]:
        """Return what each seed took to reach a target.

        Args:
            goal: The unit.
            target: The mean accuracy to reach.

        Returns:
            One value per seed; None where the target was not reached.
        """
        taken: list[float | None] = []
        for curve in self.curves:
            reached = None
            if curve is not None and target is not None:
                reached = rounds_to(curve["round"], curve["accuracy"], target)
            if curve is None or reached is None:
                taken.append(None)
            else:
                index = list(curve["round"]).index(reached)
                taken.append(float(curve[_COLUMNS[goal]][index]))
        return taken

    def mean_to_target(self, goal: Goal, target: float | None) -> Interval | None:
        """Return the mean of `to_target`, or None if some seed did not reach the target.

        Args:
            goal: The unit.
            target: The mean accuracy to reach.
        """
        taken = [value for value in self.to_target(goal, target) if value is not None]
        if len(taken) < len(self.curves):
            return None
        return interval(taken)

    def last(self, column: str) -> list[float]:
        """Return the last measurement of each seed; 0 where it diverged.

        Args:
            column: A column of the metrics.
        """
        values = []
        for curve in self.curves:
            value = 0.0
            if curve is not None:
                value = float(curve[column][-1])
            values.append(value)
        return values


def ranked(scores: Sequence[Score], goal: Goal, target: float | None) -> list[Score]:
    """Sort scores, the best first.

    Those that diverge on fewer seeds come first, then those that reach the target on more seeds,
    then those that take less to reach it on all seeds, then those of higher accuracy.

    Args:
        scores: The scores.
        goal: The unit of what it takes.
        target: The mean accuracy to reach.
    """

    def key(score: Score) -> tuple[float, ...]:
        taken = score.to_target(goal, target)
        reached = [value for value in taken if value is not None]
        cost = 0.0
        if len(reached) == len(taken):
            cost = sum(reached)
        accuracy = float(np.mean(score.last("accuracy")))
        return score.diverged, len(taken) - len(reached), cost, -accuracy

    return sorted(scores, key=key)


def reachable(scores: Sequence[Score], targets: Sequence[float]) -> float | None:
    """Return the highest target that any of the scores reaches on all its seeds.

    Args:
        scores: The scores.
        targets: Mean accuracies.

    Returns:
        One of the targets, or None.
    """
    for target in sorted(targets, reverse=True):
        for score in scores:
            if None not in score.to_target("rounds", target):
                return target
    return None


@dataclass(frozen=True)
class Lead:
    """The lead of one candidate over another, seed by seed.

    Attributes:
        of: The score of the other candidate.
        unit: Of `ahead`: what is saved on the way to the target, or accuracy at the end.
        ahead: The mean lead with its 95 % interval.
        share: The lead as a share of what the other takes to the target.
        missed: Number of seeds on which the other does not reach the target, while the first always
            does.
    """

    of: Score
    unit: Literal["rounds", "bytes", "seconds", "accuracy"]
    ahead: Interval
    share: float
    missed: int

    @property
    def sure(self) -> bool:
        """True if the 95 % interval is above zero, or the other never reaches the target."""
        if self.missed == len(self.of.curves):
            return True
        return self.ahead.half is not None and self.ahead.mean > self.ahead.half


def lead(first: Score, other: Score, goal: Goal, target: float | None) -> Lead:
    """Compare two candidates seed by seed: both had the same links, batches and start.

    Seeds on which only the other misses the target are left out of the mean: they can only count
    against it.

    Args:
        first: The score of the candidate that leads.
        other: The score of another.
        goal: The unit of what is saved.
        target: The mean accuracy to reach.

    Returns:
        What `first` saves on the way to the target; its lead in accuracy if too few seeds reach it.
    """
    pairs = list(zip(first.to_target(goal, target), other.to_target(goal, target), strict=True))
    missed = 0
    if all(ours is not None for ours, _ in pairs):
        missed = sum(theirs is None for _, theirs in pairs)
    saved = []
    taken_by_other = []
    for ours, theirs in pairs:
        if ours is not None and theirs is not None:
            saved.append(theirs - ours)
            taken_by_other.append(theirs)
    if len(saved) + missed == len(pairs) and len(saved) > 1:
        ahead = interval(saved)
        share = ahead.mean / max(float(np.mean(taken_by_other)), _TINY)
        return Lead(other, goal, ahead, share, missed)
    ahead = interval(np.subtract(first.last("accuracy"), other.last("accuracy")).tolist())
    return Lead(other, "accuracy", ahead, 0.0, missed)
