"""How the candidates of a search are scored, ranked and compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from gossamer._core.columns import Column, Target
from gossamer.results.run import Run
from gossamer.results.statistics import Interval, interval, rounds_to
from gossamer.study.space import Candidate

Cost = Literal["rounds", "bytes", "seconds", "joules"]
COSTS: tuple[str, ...] = get_args(Cost)

_COLUMNS = {"rounds": "round", "bytes": "bytes", "seconds": "simulated_seconds", "joules": "joules"}
_TINY = 1e-12  # no division by zero

Curve = dict[str, Any]  # measurements by column


@dataclass(frozen=True)
class Goal:
    """What a search looks for.

    Attributes:
        cost: What is to be saved on the way to the target; None: the metric itself is to be as good
            as possible at the end.
        metric: The metric that the target is of, and that decides where no target is reached.
        ending: Which of its columns counts: "" is the mean over the devices, "_merged" the merged
            model, "_worst" the worst device.

    Example:
        >>> from gossamer._core.columns import column_of
        >>> Goal("rounds", column_of("rmse"), "_merged").column
        'rmse_merged'
    """

    cost: Cost | None
    metric: Column
    ending: str = ""

    @property
    def column(self) -> str:
        """The column of the measurements that the target is of."""
        return self.metric.name + self.ending

    @property
    def unit(self) -> Cost:
        """What a target took is given in this unit."""
        return self.cost or "rounds"

    @property
    def words(self) -> str:
        """The metric in words, such as "accuracy of the merged model"."""
        which = {"_merged": " of the merged model", "_worst": " of the worst device"}
        return self.metric.name + which.get(self.ending, "")


def curve_of(run: Run) -> Curve | None:
    """Return the measurements of a run that scores need, or None if it diverged.

    Args:
        run: A run that has ended.
    """
    if run.diverged:
        return None
    return {name: values for name, values in run.metrics.items() if values.ndim == 1}


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

    def to_target(self, cost: Cost, target: Target | None) -> list[float | None]:
        """Return what each seed took to reach a target.

        Args:
            cost: The unit.
            target: The target; its name is that of a column of the measurements.

        Returns:
            One value per seed; None where the target was not reached.
        """
        taken: list[float | None] = []
        for curve in self.curves:
            reached = math.inf
            if curve is not None and target is not None:
                values = curve[target.name]
                reached = rounds_to(curve["round"], values, target.value, target.rising)
            if curve is None or math.isinf(reached):
                taken.append(None)
            else:
                index = list(curve["round"]).index(reached)
                taken.append(float(curve[_COLUMNS[cost]][index]))
        return taken

    def mean_to_target(self, cost: Cost, target: Target | None) -> Interval | None:
        """Return the mean of `to_target`, or None if some seed did not reach the target.

        Args:
            cost: As in `to_target`.
            target: As in `to_target`.
        """
        taken = [value for value in self.to_target(cost, target) if value is not None]
        if len(taken) < len(self.curves):
            return None
        return interval(taken)

    def last(self, column: str) -> list[float | None]:
        """Return the last measurement of each seed; None where it diverged.

        Args:
            column: A column of the metrics.
        """
        values: list[float | None] = []
        for curve in self.curves:
            value = None
            if curve is not None:
                value = float(curve[column][-1])
            values.append(value)
        return values

    def mean_last(self, column: str) -> Interval | None:
        """Return the mean of `last` over the seeds on which it did not diverge, if any.

        Args:
            column: A column of the metrics.
        """
        known = [value for value in self.last(column) if value is not None]
        if not known:
            return None
        return interval(known)


def ranked(scores: Sequence[Score], goal: Goal, target: Target | None) -> list[Score]:
    """Sort scores, the best first.

    Those that diverge on fewer seeds come first, then those that reach the target on all seeds, by
    what they take to reach it. Those that do not are sorted by the metric at the end: a setting
    that touches the target on some seeds and falls back is no better for that. Without a cost to
    save, only the metric counts. Of those that diverge on all seeds the one with the smallest
    learning rate is first: it is the closest to one that does not.

    Args:
        scores: The scores.
        goal: What is to be saved, or the metric.
        target: The target to reach.
    """

    def key(score: Score) -> tuple[float, ...]:
        last = score.mean_last(goal.column)
        if last is None:
            value = dict(score.candidate.settings).get("eta", 0.0)
        else:
            value = -last.mean if goal.metric.rising else last.mean
        if goal.cost is None:
            return score.diverged, value
        taken = score.to_target(goal.cost, target)
        reached = [amount for amount in taken if amount is not None]
        if len(reached) < len(taken):
            return score.diverged, 1, 0.0, value
        return score.diverged, 0, sum(reached), value

    return sorted(scores, key=key)


def hardest_first(targets: Sequence[Target]) -> list[Target]:
    """Sort targets of one metric, the hardest to reach first.

    Args:
        targets: The targets.
    """
    return sorted(targets, key=lambda target: target.value, reverse=targets[0].rising)


def reachable(scores: Sequence[Score], targets: Sequence[Target]) -> Target | None:
    """Return the hardest target that any of the scores reaches on all its seeds.

    Args:
        scores: The scores.
        targets: Targets of one metric.

    Returns:
        One of the targets, or None.
    """
    if not targets:
        return None
    for target in hardest_first(targets):
        for score in scores:
            if None not in score.to_target("rounds", target):
                return target
    return None


@dataclass(frozen=True)
class Lead:
    """The lead of one candidate over another, seed by seed.

    Attributes:
        of: The score of the other candidate.
        unit: Of `ahead`: what is saved on the way to the target, or "metric": how much better the
            metric is at the end.
        ahead: The mean lead with its 95 % interval.
        share: The lead as a share of what the other takes to the target.
        missed: Number of seeds on which the other does not reach the target, while the first always
            does.
    """

    of: Score
    unit: Literal["rounds", "bytes", "seconds", "joules", "metric"]
    ahead: Interval
    share: float
    missed: int

    @property
    def sure(self) -> bool:
        """True if the 95 % interval is above zero, or the other never reaches the target."""
        if self.missed == len(self.of.curves):
            return True
        return self.ahead.half is not None and self.ahead.mean > self.ahead.half


def lead(first: Score, other: Score, goal: Goal, target: Target | None) -> Lead:
    """Compare two candidates seed by seed: both had the same links, batches and start.

    Seeds on which only the other misses the target are left out of the mean: they can only count
    against it.

    Args:
        first: The score of the candidate that leads.
        other: The score of another.
        goal: What is to be saved, or the metric.
        target: The target to reach.

    Returns:
        What `first` saves on the way to the target; how much better its metric is at the end if too
        few seeds reach it.
    """
    if goal.cost is None:
        return _lead_at_end(first, other, goal, 0)
    ours_to_target = first.to_target(goal.cost, target)
    pairs = list(zip(ours_to_target, other.to_target(goal.cost, target), strict=True))
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
        return Lead(other, goal.cost, ahead, share, missed)
    return _lead_at_end(first, other, goal, missed)


def _lead_at_end(first: Score, other: Score, goal: Goal, missed: int) -> Lead:
    """Return how much better the metric of the first is at the end, over seeds of both."""
    better = []
    for ours, theirs in zip(first.last(goal.column), other.last(goal.column), strict=True):
        if ours is not None and theirs is not None:
            better.append(ours - theirs if goal.metric.rising else theirs - ours)
    return Lead(other, "metric", interval(better or [0.0]), 0.0, missed)
