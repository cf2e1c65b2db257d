"""The result of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gossamer._core.columns import Target
from gossamer.study.space import Candidate, edges
from gossamer.study.study import Study
from gossamer.study.tune.budget import SearchPlan
from gossamer.study.tune.fit import Fit
from gossamer.study.tune.scores import Goal, Lead, Score, lead, ranked


@dataclass(frozen=True)
class Tuned:
    """The result of a search. Rankings have the best first.

    Attributes:
        study: The study that was tuned.
        tuning: The study that the search ran, measured on validation samples.
        fit: The methods that were searched, and those that do not fit.
        plan: The stages of the search.
        goal: What was looked for.
        target: The target to reach, whose name is a column of the measurements; None if there is
            none, or the search reached none.
        baselines: The ranking of the baseline's learning rates, per rung.
        others: The ranking of the other methods' settings, per rung.
        chosen: The best on the tuning seeds.
        confirmed: The ranking of the confirmation.
    """

    study: Study
    tuning: Study
    fit: Fit
    plan: SearchPlan
    goal: Goal
    target: Target | None
    baselines: tuple[tuple[Score, ...], ...]
    others: tuple[tuple[Score, ...], ...]
    chosen: Candidate
    confirmed: tuple[Score, ...]

    @property
    def winner(self) -> Score:
        """What was chosen on the tuning seeds, unless the fresh seeds contradict.

        They do if they put another one before it with 95 % confidence, or the baseline at all. They
        have no other part in the choice, so that the winner's figures on them are not those of a
        lucky one.
        """
        winner = next(score for score in self.confirmed if score.candidate == self.chosen)
        for score in self.confirmed[: self.confirmed.index(winner)]:
            if lead(score, winner, self.goal, self.target).sure:
                winner = score
                break
        return ranked([winner, self.baseline], self.goal, self.target)[0]

    @property
    def baseline(self) -> Score:
        name = self.fit.baseline.name
        return next(score for score in self.confirmed if score.candidate.method.name == name)

    @property
    def best_other(self) -> Score:
        """The best of the confirmed beside the winner."""
        winner = self.winner
        return next(score for score in self.confirmed if score is not winner)

    @property
    def tried(self) -> list[Candidate]:
        """All settings that were tried."""
        found = []
        for rung in (*self.baselines, *self.others):
            found += [score.candidate for score in rung]
        return found

    @property
    def longest(self) -> list[tuple[Score, int]]:
        """The score of every setting at its longest runs on the tuning seeds, with their rounds.

        Those of the last rung come first, each rung ranked.
        """
        found: dict[str, tuple[Score, int]] = {}
        for k in reversed(range(len(self.plan.rungs))):
            for score in self.others[k]:
                found.setdefault(score.candidate.label, (score, self.plan.rungs[k].rounds))
            for score in self.baselines[k]:
                found.setdefault(score.candidate.label, (score, self.study.rounds))
        return list(found.values())

    def confirming_studies(self, candidate: Candidate) -> list[Study]:
        """Return the studies that confirmed a candidate, one per fresh seed.

        Args:
            candidate: One of the confirmed candidates.
        """
        return seeded(self.study, candidate, self.study.rounds, self.plan.final.seeds)

    def edges(self, candidate: Candidate) -> tuple[str, ...]:
        """Return the settings of a candidate that are at the edge of the range searched.

        Args:
            candidate: One of the confirmed candidates.
        """
        return edges(candidate, self.tried)

    @property
    def spec(self) -> Study:
        """The study to run: the winner on the study's own data and seed."""
        algorithm = self.winner.candidate.algorithm
        study = replace(self.study, algorithm=algorithm, name=f"{self.study.name}-tuned")
        if self.target is None:
            return study
        own = Target.of(self.goal.metric, self.target.value).text
        others = study.plan().measure.targets or ()
        if own in others:
            return study
        return replace(study, measure=replace(study.measure, targets=(*others, own)))

    def lead_over(self, other: Score) -> Lead:
        """Return the lead of the winner over another.

        Args:
            other: One of the confirmed scores.
        """
        return lead(self.winner, other, self.goal, self.target)


def seeded(study: Study, candidate: Candidate, rounds: int, seeds: Sequence[int]) -> list[Study]:
    """Return a candidate's study for every seed.

    Args:
        study: The study that is tuned.
        candidate: The method with its settings.
        rounds: Number of rounds.
        seeds: The seeds.
    """
    studies = []
    for seed in seeds:
        own = study.with_seed(seed)
        studies.append(replace(own, algorithm=candidate.algorithm, rounds=rounds, name="cell"))
    return studies
