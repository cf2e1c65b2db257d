"""Which settings go on from one stage of a search to the next, and which are new there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gossamer._core.columns import Target
from gossamer.study.space import Candidate, nearby
from gossamer.study.tune.budget import new_settings
from gossamer.study.tune.scores import Goal, Score, hardest_first, ranked, reachable

# The best by the metric and the best by the cost.
_MIN_KEPT = 2


@dataclass(frozen=True)
class Slots:
    """The places that a stage has for settings.

    Attributes:
        count: The number of settings.
        per_method: The largest number of settings of one method.
        price_of_new: Runs of a new setting, if one that goes on has one.
    """

    count: int
    per_method: int
    price_of_new: int = 1


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
    slots: Slots,
) -> list[Candidate]:
    """Choose the settings of the next stage.

    Two thirds, and two at least, are the best of this stage. The others are new: beyond the best
    setting of each method if it is at the end of what was tried, or else beside it. Settings that
    diverged on every seed do not go on; new ones take their places.

    Args:
        scores: The scores of this stage.
        goal: What the search looks for.
        targets: The targets that may count.
        tried: All settings that were tried so far.
        slots: How many settings the next stage has.

    Returns:
        The settings.
    """
    ordered = in_order(scores, goal, targets)
    order = [score.candidate for score in ordered]
    alive = [score.candidate for score in ordered if score.diverged < len(score.curves)]
    places = _Places(slots)
    most_new = max(0, min(new_settings(slots.count), slots.count - _MIN_KEPT))
    new = _beside_leaders(order, tried, new_settings(slots.per_method))
    for each in itertools.islice(new, most_new):
        places.take(each, slots.price_of_new)
    for each in alive:
        places.take(each, 1)
    for each in _beside_leaders(order, tried, slots.per_method):
        places.take(each, slots.price_of_new)
    return places.taken


class _Places:
    """The settings that were given a place, in order."""

    def __init__(self, slots: Slots) -> None:
        self.taken: list[Candidate] = []
        self._slots = slots
        self._numbers: Counter[str] = Counter()  # numbers by method
        # Runs: as if a third of the settings were new.
        self._runs = slots.count + (slots.price_of_new - 1) * new_settings(slots.count)

    def take(self, each: Candidate, price: int) -> None:
        """Give a setting a place, if there is one and it is affordable."""
        is_full = len(self.taken) == self._slots.count
        name = each.method.name
        if is_full or price > self._runs or self._numbers[name] == self._slots.per_method:
            return
        if each not in self.taken:
            self.taken.append(each)
            self._numbers[name] += 1
            self._runs -= price


def _beside_leaders(
    order: Sequence[Candidate], tried: Sequence[Candidate], per_method: int
) -> Iterator[Candidate]:
    """Yield new settings beside the best of each method, the best methods first, in turns."""
    known = [*order, *tried]
    leaders: dict[str, Candidate] = {}
    for each in order:
        leaders.setdefault(each.method.name, each)
    proposals = [_beside(leader, known, per_method) for leader in leaders.values()]
    for turn in itertools.zip_longest(*proposals):
        for each in turn:
            if each is not None:
                yield each


def _beside(leader: Candidate, known: Sequence[Candidate], count: int) -> Iterator[Candidate]:
    """Yield settings beside one that did well, then beside the last of these, and so on."""
    tried = list(known)
    while count > 0:
        found = nearby(leader, tried)[:count]
        yield from found
        if not found:
            return
        count -= len(found)
        tried += found
        leader = found[-1]


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
