"""How a search spends its budget: rungs of settings, rounds and seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer._core import checks
from gossamer.algorithms import Method
from gossamer.errors import InputError
from gossamer.study.space import Candidate, candidate
from gossamer.study.study import Study

# One in so many settings goes on to the next rung, which has so many times the rounds. With a small
# budget and many methods fewer go on, so that every method can be tried.
KEEP = 3
_FEWEST = 9
RUNGS = 3
# The least number of learning rates that the baseline is tried with, and of settings of any other
# method.
RATES = 9
MIN_SETTINGS = 3
# Of these go on at least: the best by the metric, the best by the cost, and a new one.
_MIN_RATES = 3
# Seeds of the confirmation.
FRESH_SEEDS = 5
# The search uses seeds that far from the study's own.
_SEED_OFFSET = 1000
_MAX_BUDGET = 100_000
_MAX_FINALISTS = 5


@dataclass(frozen=True)
class Rung:
    """One stage of a search.

    Attributes:
        baseline: Number of the baseline's learning rates, which are run to full length. No other
            method has more settings than this from the second stage on.
        others: Number of settings of the other methods.
        rounds: Rounds that the others run for.
        seeds: The seeds that all of them run on.
        work: Number of rounds to run at most; the baseline's runs of earlier rungs are not run
            again.
    """

    baseline: int
    others: int
    rounds: int
    seeds: tuple[int, ...]
    work: int


@dataclass(frozen=True)
class SearchPlan:
    """The stages of a search.

    Attributes:
        rungs: The stages on validation samples, in order.
        final: The confirmation on fresh seeds.
    """

    rungs: tuple[Rung, ...]
    final: Rung

    @property
    def work(self) -> int:
        """Number of rounds to run."""
        return self.final.work + sum(rung.work for rung in self.rungs)

    @property
    def runs(self) -> int:
        """Number of runs at most, short ones too."""
        count = 0
        for rung in (*self.rungs, self.final):
            count += (rung.baseline + rung.others) * len(rung.seeds)
        return count

    @property
    def cost(self) -> float:
        """The work in runs of full length."""
        return self.work / self.final.rounds


def plan_search(study: Study, budget: int, others: Sequence[Method]) -> SearchPlan:
    """Plan the largest search that a budget pays for.

    Args:
        study: The study to tune.
        budget: The work, in runs of full length.
        others: The methods to search beside the baseline.

    Returns:
        The stages of the search.

    Raises:
        InputError: If the budget is too small or too large.

    Example:
        >>> from gossamer.study.space import searched
        >>> plan = plan_search(Study(rounds=90), 70, searched()[:5])
        >>> [(rung.others, rung.rounds, len(rung.seeds)) for rung in plan.rungs]
        [(45, 10, 1), (15, 30, 2), (5, 90, 3)]
    """
    checks.whole("rounds", study.rounds, 1)
    low = MIN_SETTINGS * len(others) or RATES
    least = math.ceil(_plan(study, 0, others, low, _FEWEST).cost)
    if not least <= budget <= _MAX_BUDGET:
        raise InputError("budget", budget, _accepted(least, len(others)))
    share, keep = _widest(study, budget, others, low)
    # The largest number of settings that fits, by doubling and bisection.
    high = low + 1
    while _plan(study, share, others, high, keep).cost <= budget:
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if _plan(study, share, others, middle, keep).cost <= budget:
            low = middle
        else:
            high = middle
    return _plan(study, share, others, low, keep)


def _widest(study: Study, budget: int, others: Sequence[Method], low: int) -> tuple[int, int]:
    """Return the share for the baseline and how few settings go on, so that `low` settings fit."""
    for share in (budget, 0):  # 0: the least of everything
        for keep in range(KEEP, _FEWEST + 1):
            if _plan(study, share, others, low, keep).cost <= budget:
                return share, keep
    raise AssertionError("the least fits")


def _accepted(least: int, others: int) -> str:
    """Return what a budget must be, in words."""
    if not others:
        return f"a whole number from {least}, which {RATES} rates need, to {_MAX_BUDGET}"
    return (
        f"a whole number from {least}, which {others + 1} methods need, to {_MAX_BUDGET}; "
        "--methods names fewer"
    )


def _plan(study: Study, budget: int, others: Sequence[Method], count: int, keep: int) -> SearchPlan:
    """Return the search with `count` settings of other methods, of which one in `keep` goes on.

    If there are no others, `count` is the number of learning rates of the baseline. The larger the
    budget, the more rates it has and the more are confirmed.
    """
    full = study.rounds
    rates = count
    if others:
        # No fewer than the others have on average.
        rates = max(RATES, budget // 10, math.ceil(count / len(others)))
    rungs = []
    for depth in range(RUNGS):
        baseline = max(_MIN_RATES, _survivors(rates, depth, KEEP))
        settings = 0
        if others:
            settings = _survivors(count, depth, keep)
        if depth:
            settings = min(settings, baseline * len(others))  # no method has more than the baseline
        rounds = math.ceil(full / KEEP ** (RUNGS - 1 - depth))
        seeds = tuple(study.seed + _SEED_OFFSET + k for k in range(depth + 1))
        # Rates of the rung before run on one more seed, new ones on all.
        runs = baseline
        if depth:
            runs += depth * new_settings(baseline)
        work = runs * full + settings * rounds * len(seeds)
        rungs.append(Rung(baseline, settings, rounds, seeds, work))
    # About a third of the budget is for the confirmation: for the winner, the second and the
    # baseline, and at the very least for the winner and the baseline.
    affordable = 1
    if budget:
        affordable = max(2, budget // (3 * FRESH_SEEDS) - 1)
    finalists = min(affordable, _MAX_FINALISTS, rungs[-1].others)
    baseline = 2
    if others:
        baseline = 1
    fresh = tuple(study.seed + k for k in range(FRESH_SEEDS))
    work = (baseline + finalists) * full * len(fresh)
    return SearchPlan(tuple(rungs), Rung(baseline, finalists, full, fresh, work))


def new_settings(count: int) -> int:
    """Return how many of the settings of a rung, after the first one, are new.

    Args:
        count: The number of settings.
    """
    return count // KEEP


def _survivors(count: int, depth: int, keep: int) -> int:
    """Return how many of `count` settings are left at a rung."""
    return max(2, math.ceil(count / float(keep**depth)))


def candidates(
    methods: Sequence[Method], count: int, fixed: Mapping[str, Any] | None = None
) -> list[Candidate]:
    """Choose settings of several methods.

    Args:
        methods: The methods. They take turns; a method has as many turns as ranges.
        count: Number of settings. Three times the number of methods give every method three.
        fixed: Settings that are the same for all methods.

    Returns:
        The settings. One that occurs twice, where a method has only choices, counts once.
    """
    turns: list[Method] = []
    for turn in range(max((len(method.tune) for method in methods), default=0)):
        turns += MIN_SETTINGS * [method for method in methods if turn < len(method.tune)]
    numbers = {method.name: itertools.count() for method in methods}
    found = {}
    for method in itertools.islice(itertools.cycle(turns), count):
        setting = candidate(method, next(numbers[method.name]), fixed)
        found[method.name, setting.settings] = setting
    return list(found.values())
