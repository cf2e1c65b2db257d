"""Which settings go on from one stage of a search to the next, and which are new there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gossamer._core.columns import Target
from gossamer.study.space import Candidate, nearby
from gossamer.study.tune.budget import new_settings
from gossamer.study.tune.scores import Goal, Score, hardest_first, ranked, reachable

# The best by the metric and the best by the cost.
_LEAST_KEPT = 2


def in_order(scores: Sequence[Score], goal: Goal, targets: Sequence[Target]) -> list[Score]:
    """Sort the scores of a stage before the last one, the best first.

    If some but not all of the targets are reached, it is not known yet which of them counts, and
    whoever misses it will be judged by the metric at the end. The best by the metric and the best
    by the cost then take turns.

    Args:
        scores: The scores.
        goal: What the search looks for.
        targets: The targets that may count.
    """
    reached = reachable(scores, targets)
    by_cost = ranked(scores, goal, reached)
    if reached is None or reached == hardest_first(targets)[0]:
        return by_cost
    by_metric = ranked(scores, replace(goal, cost=None), None)
    merged = {}
    for pair in zip(by_metric, by_cost, strict=True):
        for score in pair:
            merged[id(score)] = score
    return list(merged.values())


def promote(
    scores: Sequence[Score],
    goal: Goal,
    targets: Sequence[Target],
    tried: Sequence[Candidate],
    count: int,
    per_method: int,
) -> list[Candidate]:
    """Choose the settings of the next stage.

    Two thirds, and two at least, are the best of this stage. The others are new: beyond the best
    setting of each method if it is at the end of what was tried, or else beside it.

    Args:
        scores: The scores of this stage.
        goal: What the search looks for.
        targets: The targets that may count.
        tried: All settings that were tried so far.
        count: The number of settings of the next stage.
        per_method: The largest number of settings of one method.

    Returns:
        At most `count` settings.
    """
    order = [score.candidate for score in in_order(scores, goal, targets)]
    new = _beside_leaders(order, tried, new_settings(count), new_settings(per_method))
    new = new[: max(0, count - _LEAST_KEPT)]
    numbers = Counter(each.method.name for each in new)
    kept: list[Candidate] = []
    for each in order:
        if len(kept) + len(new) < count and numbers[each.method.name] < per_method:
            kept.append(each)
            numbers[each.method.name] += 1
    return [*kept, *new]


def _beside_leaders(
    order: Sequence[Candidate], tried: Sequence[Candidate], count: int, per_method: int
) -> list[Candidate]:
    """Return new settings beside the best of each method, the best methods first."""
    best_first = [*order, *tried]
    leaders = {}
    for each in reversed(order):
        leaders[each.method.name] = each
    proposals = []
    for each in order:
        if leaders[each.method.name] is not each:
            continue
        proposals.append(nearby(each, best_first)[:per_method])
    found = []
    for turn in itertools.zip_longest(*proposals):
        found += [each for each in turn if each is not None]
    return found[:count]


def best_of_each_method_first(order: Sequence[Candidate]) -> list[Candidate]:
    """Move the best setting of every method to the front.

    A second setting of the same method that hardly differs would tell little.

    Args:
        order: Settings, the best first.
    """
    best = {}
    for each in reversed(order):
        best[each.method.name] = each
    return sorted(order, key=lambda each: best[each.method.name] is not each)
