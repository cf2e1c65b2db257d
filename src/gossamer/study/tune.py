"""Choose a method and its settings for a task, a split and a network, by successive halving over rounds and seeds.

Every rung keeps the best third of the settings and runs them three times as long and on one more seed. What is left is
confirmed on seeds and samples that played no part in the search. D-PSGD, the yardstick, is tuned beside the others and more
carefully: all its rates are run to full length, since the best rate of a short run is often too large for a long one.

The settings are fixed points that cover the ranges evenly, and every run is kept by `sweep`: the same call gives the same
answer, and a search that was stopped goes on where it was. A sampler that learns from the scores, such as Optuna's, was
weighed and left: it learns from one run after another, while here nearly all settings are run at once, for a ninth of the
rounds, and each method has but one to three of them to choose.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from gossamer._core import checks
from gossamer.algorithms import Method
from gossamer.engines import Simulator
from gossamer.errors import InputError, nearest
from gossamer.results.run import Run
from gossamer.results.statistics import Interval, interval, rounds_to
from gossamer.study.pools import Pool
from gossamer.study.space import BASELINE, Candidate, candidate, searched
from gossamer.study.study import Study, load
from gossamer.study.sweep import sweep
from gossamer.tasks import Lists, Split, Validation
from gossamer.tasks.data import Source

Goal = Literal["rounds", "bytes", "seconds"]
GOALS: tuple[str, ...] = get_args(Goal)
_COLUMNS = {"rounds": "round", "bytes": "bytes", "seconds": "simulated_seconds"}
_MEASURED = (*_COLUMNS.values(), "accuracy", "accuracy_worst")

KEEP = 3  # one in so many goes on to the next rung, for so many times the rounds
RUNGS = 3
RATES = 9  # the fewest settings that the baseline is tried with
FRESH_SEEDS = 5
_TUNING_SEEDS = 1000  # how far from the study's own seeds those of the tuning begin
_MOST = 100_000

Progress = Callable[
    [float, str], None
]  # the share of the budget's work that is done, and what is being done


# -- how the budget is spent -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rung:
    """So many rates of the baseline, run to full length, and settings of the others, run for `rounds`, on these seeds."""

    baseline: int
    others: int
    rounds: int
    seeds: tuple[int, ...]
    work: int
    """The rounds to run; the baseline's runs of the rung before are not run again."""


@dataclass(frozen=True)
class Course:
    """The rungs of the tuning and, last, the confirmation."""

    rungs: tuple[Rung, ...]
    final: Rung

    @property
    def work(self) -> int:
        return sum(rung.work for rung in (*self.rungs, self.final))

    @property
    def cost(self) -> float:
        """In runs of full length."""
        return self.work / self.final.rounds


def course(study: Study, budget: int, methods: Sequence[Method]) -> Course:
    """The largest search that the budget, in runs of full length, pays for.

    >>> [(rung.others, rung.rounds, len(rung.seeds)) for rung in course(Study(rounds=90), 70, searched()[:6]).rungs]
    [(54, 10, 1), (18, 30, 2), (6, 90, 3)]
    """
    checks.whole("rounds", study.rounds, 1)
    others = [method for method in methods if method is not BASELINE]
    low = max(RATES, len(others))
    least = math.ceil(_course(study, budget, others, low).cost)
    if not least <= budget <= _MOST:
        what = f"{len(others) + 1} methods" if others else f"{RATES} rates"
        raise InputError(
            "budget", budget, f"a whole number from {least}, which {what} need, to {_MOST}"
        )
    high = low + 1  # the largest number that fits, by doubling and halving
    while _course(study, budget, others, high).cost <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high)
            if _course(study, budget, others, middle).cost <= budget
            else (low, middle)
        )
    return _course(study, budget, others, low)


def _course(study: Study, budget: int, others: Sequence[Method], count: int) -> Course:
    """The search with so many settings of other methods (or of the baseline, where there are no others)."""
    rates, full, rungs = max(RATES, budget // 10) if others else count, study.rounds, []
    for depth in range(RUNGS):
        baseline, settings = (max(2, math.ceil(n / KEEP**depth)) for n in (rates, count))
        settings *= bool(others)
        rounds = math.ceil(full / KEEP ** (RUNGS - 1 - depth))
        seeds = tuple(study.seed + _TUNING_SEEDS + k for k in range(depth + 1))
        rungs.append(
            Rung(
                baseline, settings, rounds, seeds, baseline * full + settings * rounds * len(seeds)
            )
        )
    # About a third of the budget is for the confirmation; a winner, a second and the baseline are the least.
    finalists = min(max(2, budget // (3 * FRESH_SEEDS) - 1), 5, rungs[-1].others)
    baseline, fresh = 1 if others else 2, tuple(study.seed + k for k in range(FRESH_SEEDS))
    return Course(
        tuple(rungs),
        Rung(baseline, finalists, full, fresh, (baseline + finalists) * full * len(fresh)),
    )


def candidates(methods: Sequence[Method], count: int) -> list[Candidate]:
    """Return `count` settings, dealt out to the methods in turn, as many turns as each has ranges.

    A setting that occurs twice, where a method has only choices, counts once.
    """
    turns = []
    for turn in range(max((len(method.tune) for method in methods), default=0)):
        turns += [method for method in methods if turn < len(method.tune)]
    numbers = {method.name: itertools.count() for method in methods}
    found = {}
    for method in itertools.islice(itertools.cycle(turns), count):
        made = candidate(method, next(numbers[method.name]))
        found[made.method.name, made.settings] = made
    return list(found.values())


# -- scores ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """What a candidate did: its measurements on each seed, or None where it diverged."""

    candidate: Candidate
    curves: tuple[dict[str, Any] | None, ...]

    @property
    def diverged(self) -> int:
        """On how many seeds."""
        return self.curves.count(None)

    def to_target(self, goal: Goal, target: float | None) -> list[float | None]:
        """What each seed took to the target; None where it was not reached."""
        taken: list[float | None] = []
        for curve in self.curves:
            reached = (
                None
                if curve is None or target is None
                else rounds_to(curve["round"], curve["accuracy"], target)
            )
            place = (
                None if curve is None or reached is None else list(curve["round"]).index(reached)
            )
            taken.append(
                None if curve is None or place is None else float(curve[_COLUMNS[goal]][place])
            )
        return taken

    def mean_to_target(self, goal: Goal, target: float | None) -> Interval | None:
        """The mean over the seeds, if all of them got there."""
        taken = [value for value in self.to_target(goal, target) if value is not None]
        return interval(taken) if len(taken) == len(self.curves) else None

    def last(self, column: str) -> list[float]:
        """The last measurement of each seed; 0 where it diverged."""
        return [0.0 if curve is None else float(curve[column][-1]) for curve in self.curves]


def ranked(scores: Sequence[Score], goal: Goal, target: float | None) -> list[Score]:
    """The best first: those who reach the target on the most seeds, then by what it takes them, else by accuracy.

    Who diverges comes last.
    """

    def key(score: Score) -> tuple[float, ...]:
        taken, accuracy = score.to_target(goal, target), float(np.mean(score.last("accuracy")))
        cost = sum(value for value in taken if value is not None) if None not in taken else 0.0
        return score.diverged, taken.count(None), cost, -accuracy

    return sorted(scores, key=key)


def reachable(scores: Sequence[Score], targets: Sequence[float]) -> float | None:
    """The highest target that any of them reaches on all its seeds."""
    return max(
        (t for t in targets if any(None not in score.to_target("rounds", t) for score in scores)),
        default=None,
    )


@dataclass(frozen=True)
class Lead:
    """How far one candidate is ahead of another, seed by seed: what it saves to the target, else its accuracy at the end.

    `missed`: on how many seeds the other does not reach the target, while the first always does.
    """

    of: Score
    unit: Literal["rounds", "bytes", "seconds", "accuracy"]
    ahead: Interval
    share: float
    missed: int

    @property
    def sure(self) -> bool:
        """Whether the 95 % interval is above zero (or the other never reaches the target)."""
        return self.missed == len(self.of.curves) or (
            self.ahead.half is not None and self.ahead.mean > self.ahead.half
        )


def lead(first: Score, other: Score, goal: Goal, target: float | None) -> Lead:
    """Pair by pair, since both met the same links, batches and start. Seeds that the other misses can only speak against it."""
    pairs = list(zip(first.to_target(goal, target), other.to_target(goal, target), strict=True))
    missed = (
        0 if any(ours is None for ours, _ in pairs) else sum(theirs is None for _, theirs in pairs)
    )
    both = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    if len(both) + missed == len(pairs) and len(both) > 1:
        ahead = interval([theirs - ours for ours, theirs in both])
        return Lead(
            other,
            goal,
            ahead,
            ahead.mean / max(float(np.mean([theirs for _, theirs in both])), 1e-12),
            missed,
        )
    ahead = interval(np.subtract(first.last("accuracy"), other.last("accuracy")).tolist())
    return Lead(other, "accuracy", ahead, 0.0, missed)


# -- the search --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned:
    """The outcome: each rung's ranking of the baseline and of the others, and of the confirmed, always the best first.

    `tuning` is the study that was searched on; `left_out` says which methods do not suit it, and why.
    """

    study: Study
    tuning: Study
    course: Course
    goal: Goal
    target: float | None
    baselines: tuple[tuple[Score, ...], ...]
    others: tuple[tuple[Score, ...], ...]
    confirmed: tuple[Score, ...]
    left_out: dict[str, str]

    @property
    def winner(self) -> Score:
        return self.confirmed[0]

    @property
    def baseline(self) -> Score:
        return next(score for score in self.confirmed if score.candidate.method is BASELINE)

    @property
    def led_before(self) -> bool:
        """Whether the winner was already the first of the finalists on the tuning seeds: then no seed was used twice."""
        last = [*self.baselines[-1], *self.others[-1]]
        finalists = [score.candidate for score in self.confirmed]
        before = ranked(
            [score for score in last if score.candidate in finalists], self.goal, self.target
        )
        return before[0].candidate == self.winner.candidate

    @property
    def spec(self) -> Study:
        """The study to run: the winner on the spec's own data and seed."""
        targets = {
            *self.study.measure.accuracy_targets,
            *([] if self.target is None else [self.target]),
        }
        measure = replace(self.study.measure, accuracy_targets=tuple(sorted(targets)))
        name = f"{self.study.name}-tuned"
        return replace(
            self.study, algorithm=self.winner.candidate.algorithm, measure=measure, name=name
        )

    def lead_over(self, other: Score) -> Lead:
        return lead(self.winner, other, self.goal, self.target)


def tune(
    study: Study,
    budget: int,
    folder: Path,
    *,
    methods: Sequence[Method] | None = None,
    goal: Goal = "rounds",
    target: float | None = None,
    pool: Pool | None = None,
    progress: Progress = lambda share, stage: None,
) -> Tuned:
    """Search the methods for what reaches the target accuracy with the fewest rounds, bytes or seconds.

    `study` says all but the algorithm. `target` None: the highest of its accuracy targets that any candidate reaches.
    Every run is kept in `folder`; those that are there already are not run again.

        tuned = tune(Study(split=OneLabel(), rounds=100), budget=40, folder=Path("runs/tune"))
        print(spec.dumps(tuned.spec))
    """
    _check(study, goal, target)
    methods, left_out = _fitting(study, methods or searched())
    whole, tuning = course(study, budget, methods), held_out(study)
    targets = study.measure.accuracy_targets if target is None else (target,)
    done = 0

    def scores(
        part: Study, rung: Rung, base: list[Candidate], others: list[Candidate], stage: str
    ) -> list[list[Score]]:
        """What these candidates do, the baseline's rates and the others."""
        nonlocal done
        chosen = [(each, study.rounds) for each in base] + [(each, rung.rounds) for each in others]
        cells = sweep(
            [_cell(part, each, rounds, seed) for each, rounds in chosen for seed in rung.seeds],
            folder,
            pool,
            lambda share: progress((done + share * rung.work) / whole.work, stage),
        )
        done += rung.work
        found, each = [], len(rung.seeds)
        for k, (tried, _) in enumerate(chosen):
            found.append(
                Score(tried, tuple(_curve(cell) for cell in cells[k * each : (k + 1) * each]))
            )
        return [found[: len(base)], found[len(base) :]]

    base = candidates([BASELINE], whole.rungs[0].baseline)
    others = candidates(
        [method for method in methods if method is not BASELINE], whole.rungs[0].others
    )
    history = []
    for number, rung in enumerate(whole.rungs, 1):
        stage = (
            f"rung {number} of {len(whole.rungs)}: {len(others)} settings for {rung.rounds} rounds"
        )
        groups = scores(
            tuning, rung, base, others, stage if others else f"rung {number} of {len(whole.rungs)}"
        )
        # The baseline's runs are longer than the others', so that each has its own target in reach, until all are whole.
        together = reachable([score for group in groups for score in group], targets)
        aims = [
            together if rung.rounds == study.rounds else reachable(group, targets)
            for group in groups
        ]
        history.append([ranked(group, goal, aim) for group, aim in zip(groups, aims, strict=True)])
        following = whole.rungs[number] if number < len(whole.rungs) else whole.final
        base, others = ([score.candidate for score in group] for group in history[-1])
        base = base[: following.baseline]
        others = (others if following is not whole.final else _varied(others))[: following.others]
    groups = scores(
        study,
        whole.final,
        base,
        others,
        f"confirming {len(base) + len(others)} on {FRESH_SEEDS} fresh seeds",
    )
    found = [score for group in groups for score in group]
    aim = (
        target
        if target is not None
        else reachable(found, [t for t in targets if together is None or t <= together])
    )
    baselines, others_ = (tuple(tuple(groups[k]) for groups in history) for k in (0, 1))
    return Tuned(
        study,
        tuning,
        whole,
        goal,
        aim,
        baselines,
        others_,
        tuple(ranked(found, goal, aim)),
        left_out,
    )


def choose(names: Sequence[str]) -> list[Method]:
    """Return the methods of these names, and the baseline.

    Args:
        names: Names of registered methods with settings to search.

    Raises:
        InputError: A name is not known.

    Example:
        >>> [method.name for method in choose(["wpm"])]
        ['d-psgd', 'wpm']
    """
    known = {method.name: method for method in searched()}
    wanted = [name.strip() for name in names]
    for name in wanted:
        if name not in known:
            raise InputError("methods", name, f"some of {', '.join(known)}{nearest(name, known)}")
    return [method for method in known.values() if method is BASELINE or method.name in wanted]


def held_out(study: Study) -> Study:
    """The study to tune on: its test samples are taken from the training samples, where there is a way to.

    A synthetic problem has no test samples but those that it is trained on, and a user's own lists name samples by number.
    """
    whole = hasattr(study.data, "split") or isinstance(study.split, Lists | Split)
    return study if whole else replace(study, data=Validation(cast(Source, study.data)))


def _check(study: Study, goal: Goal, target: float | None) -> None:
    if goal not in GOALS:
        raise InputError("for", goal, f"one of {', '.join(GOALS)}{nearest(goal, GOALS)}")
    if goal == "seconds" and study.timing is None:
        raise InputError("for", goal, "rounds or bytes, or a spec with a timing")
    if target is not None and not 0 < target <= 1:
        raise InputError("target", target, "an accuracy above 0 and at most 1, such as 0.88")


def _fitting(study: Study, methods: Sequence[Method]) -> tuple[list[Method], dict[str, str]]:
    """The methods that suit the study, and why the others are left out."""
    data = load(study.data)
    if data.classes is None:
        raise InputError("data", data.name, "data with labels: methods are compared by accuracy")
    held_out(
        replace(study, algorithm=candidate(BASELINE, 0).algorithm)
    ).plan()  # a study that cannot be run is refused here
    fit, left_out = [BASELINE], {}
    for method in methods:
        if method is not BASELINE:
            try:  # one round: some refuse the network, others the model once they see it
                Simulator(
                    replace(study, algorithm=candidate(method, 0).algorithm).plan(data)
                ).advance(1)
                fit.append(method)
            except InputError as error:
                left_out[method.name] = str(error)
    return fit, left_out


def _cell(study: Study, candidate: Candidate, rounds: int, seed: int) -> Study:
    return replace(study.with_seed(seed), algorithm=candidate.algorithm, rounds=rounds, name="cell")


def _curve(cell: Run) -> dict[str, Any] | None:
    return (
        None
        if cell.diverged
        else {name: cell.metrics[name] for name in _MEASURED if name in cell.metrics}
    )


def _varied(order: Sequence[Candidate]) -> list[Candidate]:
    """The best of every method first: a second that differs from the first by a hair would tell little."""
    best = {each.method.name: each for each in reversed(order)}
    return sorted(order, key=lambda each: best[each.method.name] is not each)
