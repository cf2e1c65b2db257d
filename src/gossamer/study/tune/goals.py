"""What a search looks for: the words of the user, and the targets of the study."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

from gossamer._core.columns import Column, Target
from gossamer.engines import Measure
from gossamer.errors import InputError, nearest
from gossamer.study.study import Study
from gossamer.study.tune.scores import COSTS, Cost, Goal


def parse_goal(
    study: Study, measure: Measure, goal: str, target: str | float | None
) -> tuple[Goal, Target | None]:
    """Return the goal, and the target as one of a column of the measurements.

    Args:
        study: The study to tune.
        measure: What its plan measures.
        goal: What to save, or the metric to optimise.
        target: The target to reach; a number is one of the first metric.

    Raises:
        InputError: If the study does not measure the goal, or the target is not accepted.
    """
    metrics = {}  # by column: the metric, and the name of the column
    for column in measure.columns:
        for ending in ("", "_worst", *(["_merged"] if measure.merged else [])):
            metrics[column.name + ending] = (column, ending)
    if goal in metrics:
        if target is not None:
            accepted = f"no target, since {goal} is to be as good as possible at the end"
            raise InputError("target", target, accepted)
        return Goal(None, *metrics[goal]), None
    known = (*COSTS, *metrics)
    if goal not in COSTS:
        raise InputError("for", goal, f"one of {', '.join(known)}{nearest(goal, known)}")
    if goal == "seconds" and study.timing is None:
        raise InputError("for", goal, "rounds or bytes, or a spec with a timing")
    if goal == "joules" and study.energy is None:
        raise InputError("for", goal, "rounds or bytes, or a spec with an energy")
    cost = cast(Cost, goal)
    first = measure.columns[0]
    if target is None:
        return Goal(cost, first), None
    parsed = _parse_target(target, first)
    named = [replace(metric, name=column) for column, (metric, _) in metrics.items()]
    parsed.check(named, "target")
    return Goal(cost, *metrics[parsed.name]), parsed


def _parse_target(target: str | float, first: Column) -> Target:
    """Return a target; a number alone is one of the first metric."""
    try:
        value = float(target)
    except ValueError:
        return Target.parse(target, "target")
    if not math.isfinite(value):
        raise InputError("target", target, f"a finite number for {first.name}")
    return Target.of(first, value)


def targets_of(measure: Measure, goal: Goal) -> list[Target]:
    """Return the study's targets of the metric that counts.

    Args:
        measure: What the study's plan measures.
        goal: What the search looks for.
    """
    if goal.cost is None:
        return []
    targets = [Target.parse(text) for text in measure.targets or ()]
    return [target for target in targets if target.name == goal.column]
