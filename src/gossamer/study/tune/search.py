"""The search of `tune`: rung by rung, then the confirmation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from gossamer._core.columns import Target
from gossamer.algorithms import Method
from gossamer.study.pools import Pool
from gossamer.study.space import Candidate, fixed_settings
from gossamer.study.study import Study
from gossamer.study.sweep import Done, sweep
from gossamer.study.tune.budget import FRESH_SEEDS, Rung, SearchPlan, candidates, plan_search
from gossamer.study.tune.fit import Fit, fit_methods
from gossamer.study.tune.goals import parse_goal, targets_of
from gossamer.study.tune.promote import Slots, best_of_each_method_first, promote
from gossamer.study.tune.result import Tuned, seeded
from gossamer.study.tune.scores import Goal, Score, curve_of, ranked, reachable
from gossamer.study.warn import warn_of_few_links
from gossamer.tasks import Lists, Split, Validation
from gossamer.tasks.data import Source
from gossamer.tasks.splits import own_split

# Called with the share of the budget's work that is done, and with what is being done.
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class SearchStart:
    """What is known before the first run of a search.

    Attributes:
        fit: The methods to search, and those left out.
        plan: The stages.
        seconds: An estimate of the time on one core of this processor.
    """

    fit: Fit
    plan: SearchPlan
    seconds: float


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
    started: Callable[[SearchStart], None] = lambda start: None,
) -> Tuned:
    """Search for the method and settings that reach a target at the lowest cost.

    Args:
        study: What to tune; its algorithm is replaced. An optimiser, a weight decay or a clipping
            that it sets holds for every method.
        budget: The work to spend, in runs of the study's rounds.
        folder: Where the runs are kept. Runs found there are not run again.
        methods: The methods to search beside the baseline; None means all that fit the study.
        goal: What to save on the way to the target: "rounds", "bytes" or "seconds". Or a metric
            that is to be as good as possible at the end, such as "rmse", or "rmse_merged" for that
            of the merged model.
        target: The target to reach, such as "accuracy >= 0.88", "mae <= 40" or
            "accuracy_merged >= 0.9". A number is a target of the study's first metric. None: the
            hardest of the study's targets of its first metric that the search reaches.
        pool: Where the studies run. None: in processes of this machine, one per core.
        progress: Called with the share of the work that is done and with what is being done.
        started: Called once before the first run, with what will be searched.

    Returns:
        The winner, and all rankings.

    Raises:
        InputError: If an argument is not accepted, or the study cannot be run.
        Failed: If some runs failed.

    Example:
        >>> tuned = tune(Study(rounds=100), 100, Path("runs/tune"))     # doctest: +SKIP
        >>> print(spec.dumps(tuned.spec))                               # doctest: +SKIP
    """
    fit = fit_methods(study, methods)
    tuning = held_out(study)
    measure = replace(tuning, algorithm=fit.baseline.make()).plan().measure
    wanted, wanted_target = parse_goal(study, measure, goal, target)
    plan = plan_search(study, budget, fit.others)
    warn_of_few_links(study)
    started(SearchStart(fit, plan, fit.seconds(plan, measure.every)))
    targets = targets_of(measure, wanted)
    if wanted_target is not None:
        targets = [wanted_target]
    stages = _Stages(study, plan, folder, pool, progress)
    fixed = fixed_settings(study.algorithm)
    rates = candidates([fit.baseline], plan.rungs[0].baseline, fixed)
    settings = candidates(fit.others, plan.rungs[0].others, fixed)
    found = _halve(stages, plan, tuning, wanted, targets, rates, settings)
    rates, settings = found.finalists(plan.final)
    stage = f"confirming {len(rates) + len(settings)} on {FRESH_SEEDS} fresh seeds"
    rate_scores, setting_scores = stages.run(study, plan.final, rates, settings, stage)
    final_target = wanted_target or found.target
    return Tuned(
        study=study,
        tuning=tuning,
        fit=fit,
        plan=plan,
        goal=wanted,
        target=final_target,
        baselines=tuple(map(tuple, found.baselines)),
        others=tuple(map(tuple, found.others)),
        chosen=found.chosen,
        confirmed=tuple(ranked([*rate_scores, *setting_scores], wanted, final_target)),
    )


@dataclass(frozen=True)
class _Found:
    """What a search found on the tuning seeds: rankings per rung, the target, and the best."""

    baselines: list[list[Score]]
    others: list[list[Score]]
    target: Target | None
    chosen: Candidate

    def finalists(self, final: Rung) -> tuple[list[Candidate], list[Candidate]]:
        """Return the rates of the baseline and the settings of others to confirm."""
        rates = [score.candidate for score in self.baselines[-1]]
        settings = best_of_each_method_first([score.candidate for score in self.others[-1]])
        return rates[: final.baseline], settings[: final.others]


def _halve(
    stages: _Stages,
    plan: SearchPlan,
    tuning: Study,
    goal: Goal,
    targets: Sequence[Target],
    rates: Sequence[Candidate],
    settings: Sequence[Candidate],
) -> _Found:
    """Run rung by rung, the best for longer, from the first rates and settings."""
    tried = [*rates, *settings]
    baselines = []
    others = []
    for number, rung in enumerate(plan.rungs, 1):
        stage = f"rung {number} of {len(plan.rungs)}"
        if settings:
            stage += f": {len(settings)} settings for {rung.rounds} rounds"
        rate_scores, setting_scores = stages.run(tuning, rung, rates, settings, stage)
        if number < len(plan.rungs):
            # The baseline's runs are longer than the others', so each group has its own target.
            baselines.append(ranked(rate_scores, goal, reachable(rate_scores, targets)))
            others.append(ranked(setting_scores, goal, reachable(setting_scores, targets)))
            following = plan.rungs[number]
            most = following.baseline  # candidates of any method
            slots = Slots(most, most, price_of_new=len(following.seeds))
            rates = promote(rate_scores, goal, targets, tried, slots)
            slots = Slots(following.others, most)
            settings = promote(setting_scores, goal, targets, tried, slots)
            tried += [*rates, *settings]
    # All have been run to full length on the same seeds: one criterion for all of them.
    scores = [*rate_scores, *setting_scores]
    reached = reachable(scores, targets)
    baselines.append(ranked(rate_scores, goal, reached))
    others.append(ranked(setting_scores, goal, reached))
    return _Found(baselines, others, reached, ranked(scores, goal, reached)[0].candidate)


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
            studies += seeded(study, each, self._rounds, rung.seeds)
        for each in settings:
            studies += seeded(study, each, rung.rounds, rung.seeds)

        def progress(done: Done) -> None:
            self._progress((self._done + done.share * rung.work) / self._plan.work, stage)

        runs = sweep(studies, self._folder, self._pool, progress)
        self._done += rung.work
        scores = []
        count = len(rung.seeds)
        for index, each in enumerate([*rates, *settings]):
            runs_of_candidate = runs[index * count : (index + 1) * count]
            scores.append(Score(each, tuple(map(curve_of, runs_of_candidate))))
        return scores[: len(rates)], scores[len(rates) :]


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
