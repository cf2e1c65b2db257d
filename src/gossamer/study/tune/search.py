"""The search of `tune`: rung by rung, then the confirmation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from gossamer._core.columns import Column, Target
from gossamer.algorithms import Method
from gossamer.engines import Measure, Simulator
from gossamer.errors import InputError, nearest
from gossamer.study.pools import Pool
from gossamer.study.space import BASELINE, Candidate, candidate, fixed_settings, searched
from gossamer.study.study import Study, load
from gossamer.study.sweep import sweep
from gossamer.study.tune.budget import FRESH_SEEDS, Rung, SearchPlan, candidates, plan_search
from gossamer.study.tune.scores import (
    COSTS,
    Cost,
    Goal,
    Lead,
    Score,
    curve_of,
    lead,
    ranked,
    reachable,
)
from gossamer.study.warn import warn_of_few_links
from gossamer.tasks import Lists, Split, Validation
from gossamer.tasks.data import Source
from gossamer.tasks.splits import own_split

# Called with the share of the budget's work that is done, and with what is being done.
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Tuned:
    """The result of a search. Rankings have the best first.

    Attributes:
        study: The study that was tuned.
        tuning: The study that the search ran, measured on validation samples.
        plan: The stages of the search.
        goal: What was looked for.
        target: The target to reach, whose name is a column of the measurements; None if there is
            none, or none was reached.
        baselines: The ranking of the baseline's learning rates, per rung.
        others: The ranking of the other methods' settings, per rung.
        confirmed: The ranking of the confirmation.
        left_out: Methods that do not suit the study, and why.
    """

    study: Study
    tuning: Study
    plan: SearchPlan
    goal: Goal
    target: Target | None
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
        """True if the winner was already the best of the finalists on the tuning seeds."""
        finalists = [score.candidate for score in self.confirmed]
        last_rung = [*self.baselines[-1], *self.others[-1]]
        scores = [score for score in last_rung if score.candidate in finalists]
        return ranked(scores, self.goal, self.target)[0].candidate == self.winner.candidate

    @property
    def spec(self) -> Study:
        """The study to run: the winner on the study's own data and seed."""
        measure = self.study.measure
        if self.target is not None:
            own = Target.of(self.goal.metric, self.target.value).text
            others = self.study.plan().measure.targets or ()
            if own not in others:
                measure = replace(measure, targets=(*others, own))
        return replace(
            self.study,
            algorithm=self.winner.candidate.algorithm,
            measure=measure,
            name=f"{self.study.name}-tuned",
        )

    def lead_over(self, other: Score) -> Lead:
        """Return the lead of the winner over another.

        Args:
            other: One of the confirmed scores.
        """
        return lead(self.winner, other, self.goal, self.target)


def tune(
    study: Study,
    budget: int,
    folder: Path,
    *,
    methods: Sequence[Method] | None = None,
    goal: str = "rounds",
    target: str | float | None = None,
    pool: Pool | None = None,
    progress: Progress = lambda share, stage: None,
) -> Tuned:
    """Search for the method and settings that reach a target at the lowest cost.

    Args:
        study: What to tune; its algorithm is replaced. An optimiser, a weight decay or a clipping
            that it sets holds for every method.
        budget: The work to spend, in runs of the study's rounds.
        folder: Where the runs are kept. Runs found there are not run again.
        methods: The methods to search; None means all that have settings to search.
        goal: What to save on the way to the target: "rounds", "bytes" or "seconds". Or a metric
            that is to be as good as possible at the end, such as "rmse", or "rmse_merged" for that
            of the merged model.
        target: The target to reach, such as "accuracy >= 0.88", "mae <= 40" or
            "accuracy_merged >= 0.9". A number is a target of the study's first metric. None: the
            hardest of the study's targets of its first metric that any candidate reaches.
        pool: Where the studies run. None: in processes of this machine, one per core.
        progress: Called with the share of the work that is done and with what is being done.

    Returns:
        The winner, and all rankings.

    Raises:
        InputError: If an argument is not accepted, or the study cannot be run.
        Failed: If some runs failed.

    Example:
        >>> tuned = tune(Study(rounds=100), 40, Path("runs/tune"))      # doctest: +SKIP
        >>> print(spec.dumps(tuned.spec))                               # doctest: +SKIP
    """
    suitable, left_out = _suitable(study, methods or searched())
    measure = held_out(study).plan().measure
    wanted, wanted_target = _parse_goal(study, measure, goal, target)
    plan = plan_search(study, budget, suitable)
    warn_of_few_links(study)
    tuning = held_out(study)
    targets = _targets_of(measure, wanted)
    if wanted_target is not None:
        targets = [wanted_target]
    stages = _Stages(study, plan, folder, pool, progress)
    fixed = fixed_settings(study.algorithm)
    rates = candidates([BASELINE], plan.rungs[0].baseline, fixed)
    other_methods = [method for method in suitable if method is not BASELINE]
    settings = candidates(other_methods, plan.rungs[0].others, fixed)
    baselines = []
    others = []
    for number, rung in enumerate(plan.rungs, 1):
        stage = f"rung {number} of {len(plan.rungs)}"
        if settings:
            stage += f": {len(settings)} settings for {rung.rounds} rounds"
        rate_scores, setting_scores = stages.run(tuning, rung, rates, settings, stage)
        overall_target = reachable([*rate_scores, *setting_scores], targets)
        rate_target = setting_target = overall_target
        if rung.rounds < study.rounds:
            # The baseline's runs are longer than the others', so each group has its own target.
            rate_target = reachable(rate_scores, targets)
            setting_target = reachable(setting_scores, targets)
        baselines.append(tuple(ranked(rate_scores, wanted, rate_target)))
        others.append(tuple(ranked(setting_scores, wanted, setting_target)))
        following = plan.final
        if number < len(plan.rungs):
            following = plan.rungs[number]
        rates = [score.candidate for score in baselines[-1]][: following.baseline]
        settings = [score.candidate for score in others[-1]]
        if following is plan.final:
            settings = _best_of_each_method_first(settings)
        settings = settings[: following.others]
    stage = f"confirming {len(rates) + len(settings)} on {FRESH_SEEDS} fresh seeds"
    rate_scores, setting_scores = stages.run(study, plan.final, rates, settings, stage)
    confirmed = [*rate_scores, *setting_scores]
    if wanted_target is None:
        wanted_target = reachable(confirmed, _not_harder(targets, overall_target))
    return Tuned(
        study=study,
        tuning=tuning,
        plan=plan,
        goal=wanted,
        target=wanted_target,
        baselines=tuple(baselines),
        others=tuple(others),
        confirmed=tuple(ranked(confirmed, wanted, wanted_target)),
        left_out=left_out,
    )


class _Stages:
    """Run the candidates of one stage after the other, and report the progress of the whole."""

    def __init__(
        self,
        study: Study,
        plan: SearchPlan,
        folder: Path,
        pool: Pool | None,
        progress: Progress,
    ) -> None:
        self._rounds = study.rounds
        self._plan = plan
        self._folder = folder
        self._pool = pool
        self._progress = progress
        self._done = 0  # rounds

    def run(
        self,
        study: Study,
        rung: Rung,
        rates: Sequence[Candidate],
        settings: Sequence[Candidate],
        stage: str,
    ) -> tuple[list[Score], list[Score]]:
        """Return the scores of the baseline's rates, and those of the other methods' settings."""
        studies = []
        for each in rates:
            studies += _seeded(study, each, self._rounds, rung.seeds)
        for each in settings:
            studies += _seeded(study, each, rung.rounds, rung.seeds)

        def progress(share: float) -> None:
            self._progress((self._done + share * rung.work) / self._plan.work, stage)

        runs = sweep(studies, self._folder, self._pool, progress)
        self._done += rung.work
        scores = []
        count = len(rung.seeds)
        for index, each in enumerate([*rates, *settings]):
            runs_of_candidate = runs[index * count : (index + 1) * count]
            scores.append(Score(each, tuple(map(curve_of, runs_of_candidate))))
        return scores[: len(rates)], scores[len(rates) :]


def _seeded(study: Study, each: Candidate, rounds: int, seeds: Sequence[int]) -> list[Study]:
    """Return a candidate's study for every seed."""
    studies = []
    for seed in seeds:
        seeded = study.with_seed(seed)
        studies.append(replace(seeded, algorithm=each.algorithm, rounds=rounds, name="cell"))
    return studies


def choose(names: Sequence[str]) -> list[Method]:
    """Return the methods of these names, and the baseline.

    Args:
        names: Names of registered methods with settings to search.

    Raises:
        InputError: If a name is not known.

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
    """Return the study to search on: its test samples are taken from the training samples.

    This is not possible for a synthetic problem, which is tested on its training samples, nor for
    lists of samples, which name them by number: then the study itself is returned.

    Args:
        study: The study to tune.
    """
    fixed_samples = own_split(study.data) is not None or isinstance(study.split, Lists | Split)
    if fixed_samples:
        return study
    return replace(study, data=Validation(cast(Source, study.data)))


def _parse_goal(
    study: Study, measure: Measure, goal: str, target: str | float | None
) -> tuple[Goal, Target | None]:
    """Return the goal, and the target as one of a column of the measurements."""
    metrics = {}  # by column: the metric, and which of its columns it is
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


def _targets_of(measure: Measure, goal: Goal) -> list[Target]:
    """Return the study's targets of the metric that counts."""
    if goal.cost is None:
        return []
    targets = [Target.parse(text) for text in measure.targets or ()]
    return [target for target in targets if target.name == goal.column]


def _not_harder(targets: Sequence[Target], limit: Target | None) -> list[Target]:
    """Return the targets that are not harder to reach than a limit."""
    if limit is None:
        return list(targets)
    return [target for target in targets if target.reached(limit.value)]


def _suitable(study: Study, methods: Sequence[Method]) -> tuple[list[Method], dict[str, str]]:
    """Return the methods that suit the study, and why the others are left out."""
    data = load(study.data)
    # A study that cannot be run at all is an error here.
    fixed = fixed_settings(study.algorithm)
    held_out(replace(study, algorithm=candidate(BASELINE, 0, fixed).algorithm)).plan()
    suitable = [BASELINE]
    left_out = {}
    for method in methods:
        if method is BASELINE:
            continue
        try:  # one round: some methods reject the network, others the model in the first round
            tried = replace(study, algorithm=candidate(method, 0, fixed).algorithm)
            Simulator(tried.plan(data)).advance(1)
        except InputError as error:
            left_out[method.name] = str(error)
        else:
            suitable.append(method)
    return suitable, left_out


def _best_of_each_method_first(order: Sequence[Candidate]) -> list[Candidate]:
    """Move the best setting of every method to the front.

    A second setting of the same method that hardly differs would tell little.
    """
    best = {}
    for each in reversed(order):
        best[each.method.name] = each
    return sorted(order, key=lambda each: best[each.method.name] is not each)
