"""Tuning of a method: a search on one seed, the best of which are compared on a second.

The studies that tuning runs have seeds and samples of their own; results are reported on others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import gossamer as gs
from gossamer.study import Study
from papers.score import score
from papers.search import Family, Point, Score, search

# The best points of a search are compared on a second tuning seed too: one seed can mislead.
_FINALISTS = 3


@dataclass(frozen=True)
class Tuned:
    """The state of tuning.

    Attributes:
        best: The settings, once all runs are known.
        missing: The studies to run next; empty if tuning has ended.
    """

    best: Point | None
    missing: tuple[Study, ...] = ()


def tune(
    method: Family,
    study: Callable[[gs.Algorithm, int], Study],
    runs: Mapping[Study, gs.Run],
    target: float,
    seeds: Sequence[int],
) -> Tuned:
    """Go on with the tuning of a method as far as the known runs allow.

    Args:
        method: The method.
        study: A function of a method and a seed that returns the study of a trial.
        runs: The runs so far.
        target: The accuracy to reach in as few rounds as possible.
        seeds: The tuning seeds. The search uses the first; the best of its points are compared on
            the first and the last.

    Returns:
        The best settings, or what is missing.
    """
    first = {seeds[0]}
    both = {seeds[0], seeds[-1]}

    def on(seeds: set[int], point: Point) -> list[Study]:
        return [study(method.at(point), seed) for seed in sorted(seeds)]

    def known(seeds: set[int], point: Point) -> Score | None:
        trials = on(seeds, point)
        found = [runs[trial] for trial in trials if trial in runs]
        if len(found) < len(trials):
            return None
        return score(found, target)

    state = search(method, lambda point: known(first, point))
    if state.missing:
        return Tuned(None, _all_of(on(first, point) for point in state.missing))
    finalists = state.ranked[:_FINALISTS]
    scores = {point: known(both, point) for point in finalists}
    missing = [point for point, value in scores.items() if value is None]
    if missing:
        return Tuned(None, _all_of(on(both - first, point) for point in missing))
    return Tuned(min(finalists, key=lambda point: scores[point] or ()))


def _all_of(lists: Iterable[list[Study]]) -> tuple[Study, ...]:
    return tuple(itertools.chain.from_iterable(lists))
