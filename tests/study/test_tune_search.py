"""The search of `tune` on planted formulas: what it finds, what it spends, what it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.listing import attribute
from support.planted import BASELINE, FAST, STUDY, WILD, Formula, curve, peak, plant, tuning

import gossamer as gs
from gossamer._core.columns import Target, column_of
from gossamer.algorithms import GainControl
from gossamer.algorithms.registry import Method
from gossamer.study.space import Candidate
from gossamer.study.tune import FRESH_SEEDS, RATES, Score, SearchStart, Tuned, held_out


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[gs.Study]:
    monkeypatch.chdir(tmp_path)
    return plant(monkeypatch)


def search(budget: int = 60, methods: Sequence[Method] = (FAST, WILD), **options: Any) -> Tuned:
    return tuning.tune(STUDY, budget, Path("cells"), methods=methods, **options)


def rate_of(candidate: Candidate) -> float:
    return float(candidate.setting("eta"))


def closest(scores: Sequence[Score], name: str, eta: float) -> float:
    """Return the rate of a method in a ranking that is closest to another."""
    rates = []
    for score in scores:
        if score.candidate.method.name == name:
            rates.append(rate_of(score.candidate))
    return min(rates, key=lambda rate: abs(np.log(rate / eta)))


def test_it_finds_the_planted_method_and_rate(planted: list[gs.Study]) -> None:
    tuned = search(100)
    assert tuned.winner.candidate.method.name == "fast"
    assert rate_of(tuned.winner.candidate) == closest(tuned.others[-1], "fast", 0.2)
    assert rate_of(tuned.baseline.candidate) == closest(tuned.baselines[-1], "d-psgd", 0.05)
    assert tuned.winner.candidate == tuned.chosen
    assert tuned.lead_over(tuned.baseline).sure
    assert tuned.target == Target.of(column_of("accuracy"), 0.9)
    assert tuned.spec == replace(
        STUDY, algorithm=tuned.winner.candidate.algorithm, name="study-tuned"
    )
    assert not tuned.edges(tuned.winner.candidate)


def test_the_same_search_twice_is_the_same(planted: list[gs.Study]) -> None:
    first = attribute(search().confirmed, "candidate")
    asked = list(planted)
    assert attribute(search().confirmed, "candidate") == first
    assert planted == asked * 2


@pytest.mark.parametrize("budget", [41, 47, 60, 150, 400])
def test_the_budget_is_never_exceeded_and_well_used(planted: list[gs.Study], budget: int) -> None:
    tuned = search(budget)
    spent = sum(study.rounds for study in set(planted)) / STUDY.rounds  # equal studies are run once
    assert spent <= tuned.plan.cost <= budget
    assert spent > 0.8 * budget


def test_the_confirmation_uses_fresh_seeds_and_samples(planted: list[gs.Study]) -> None:
    search()
    searched = set()
    for study in planted:
        if isinstance(study.data, gs.Validation):
            searched.add(study)
    confirmed = set(planted) - searched
    assert set(attribute(confirmed, "data")) == {STUDY.data}
    assert set(attribute(confirmed, "seed")) == set(range(FRESH_SEEDS))
    for name in ("seed", "network"):
        assert not set(attribute(confirmed, name)) & set(attribute(searched, name))
    for study in confirmed:
        assert study.rounds == STUDY.rounds


def test_methods_are_run_on_the_same_links_and_seeds(planted: list[gs.Study]) -> None:
    search()
    for algorithm in (gs.DPSGD, GainControl):
        last = set()
        for study in planted:
            if study.data == STUDY.data and isinstance(study.algorithm, algorithm):
                last.add((study.seed, study.network))
        for seed in range(FRESH_SEEDS):
            assert (seed, STUDY.with_seed(seed).network) in last


def test_the_baseline_is_tuned_at_full_length(planted: list[gs.Study]) -> None:
    search()
    base = []
    for study in planted:
        if isinstance(study.algorithm, gs.DPSGD):
            base.append(study)
    assert set(attribute(base, "rounds")) == {STUDY.rounds}
    assert len(set(attribute(base, "algorithm"))) >= RATES


@pytest.mark.parametrize("budget", [60, 200])
@pytest.mark.parametrize("methods", [(FAST,), (FAST, WILD)], ids=len)
def test_no_method_is_searched_more_than_the_baseline(
    planted: list[gs.Study], budget: int, methods: tuple[Method, ...]
) -> None:
    search(budget, methods)
    rounds = {gs.DPSGD: 0, GainControl: 0, gs.SwarmSGD: 0}
    for study in set(planted):
        if isinstance(study.data, gs.Validation):
            rounds[type(study.algorithm)] += study.rounds  # type: ignore[index]
    assert max(rounds.values()) == rounds[gs.DPSGD]


def test_progress_goes_from_0_to_1_and_the_start_is_announced(planted: list[gs.Study]) -> None:
    shares: list[float] = []
    starts: list[SearchStart] = []
    search(progress=lambda share, stage: shares.append(share), started=starts.append)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    (start,) = starts
    assert start.fit.methods == ["d-psgd", "fast", "wild"]
    assert start.seconds > 0
    assert start.plan.runs >= len(set(planted))


def test_a_target_out_of_reach_ranks_by_accuracy(planted: list[gs.Study]) -> None:
    tuned = search(target=1.0)
    assert tuned.winner.candidate.method.name == "fast"
    assert tuned.winner.mean_to_target("rounds", tuned.target) is None
    assert tuned.lead_over(tuned.baseline).unit == "metric"


def test_the_baseline_alone_can_be_tuned(planted: list[gs.Study]) -> None:
    tuned = search(methods=(BASELINE,))
    assert {score.candidate.method.name for score in tuned.confirmed} == {"d-psgd"}
    assert len(tuned.confirmed) == 2


def test_methods_that_refuse_the_optimiser_of_the_study_are_left_out(
    planted: list[gs.Study],
) -> None:
    study = replace(STUDY, algorithm=gs.DPSGD(optimizer=gs.SGD(0.9)))
    methods = [gs.METHODS["local-sgd"], gs.METHODS["tracking"]]
    tuned = tuning.tune(study, 60, Path("runs"), methods=methods)
    assert list(tuned.fit.left_out) == ["tracking"]
    assert "SGD without momentum" in tuned.fit.left_out["tracking"]
    for tried in planted:
        assert tried.algorithm.optimizer == gs.SGD(0.9)


# -- the baseline where the target is out of its reach -------------------------------------------


def hasty(study: gs.Study) -> dict[str, Any]:
    """Only Fast reaches 90 %. D-PSGD is the faster to 50 % the larger its rate, and ends lower."""
    eta = vars(study.algorithm)["eta"]
    if isinstance(study.algorithm, GainControl):
        return curve(study.rounds, 0.1 * peak(eta, 0.2))
    end = 0.55 + 0.2 * peak(eta, 0.01)
    return curve(study.rounds, 0.03 + 0.5 * eta, end=end)


BEST_RATE = replace(STUDY, algorithm=gs.DPSGD(eta=0.01))


@pytest.mark.parametrize("target", [None, 0.9])
def test_a_baseline_that_misses_the_target_is_chosen_by_the_metric_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: float | None
) -> None:
    """The rates that reach an easier target soonest are the worst at the end."""
    plant(monkeypatch, hasty)
    measure = gs.Measure(every=10, targets=("accuracy >= 0.5", "accuracy >= 0.9"))
    study = replace(STUDY, measure=measure)
    tuned = tuning.tune(study, 60, tmp_path, methods=(FAST,), target=target)
    assert tuned.target == Target.of(column_of("accuracy"), 0.9)
    assert abs(np.log(rate_of(tuned.baseline.candidate) / 0.01)) < 0.3
    ahead = tuned.lead_over(tuned.baseline)
    assert (ahead.unit, ahead.missed, ahead.ahead.count) == ("metric", 5, 5)
    best = tuned.winner.mean_last("accuracy")
    assert best is not None
    assert ahead.ahead.mean == pytest.approx(best.mean - hasty(BEST_RATE)["accuracy"][-1], abs=0.01)


def test_a_narrow_peak_between_the_first_rates_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrow(study: gs.Study) -> dict[str, Any]:
        end = 0.4
        if isinstance(study.algorithm, gs.DPSGD):
            end += 0.5 * peak(vars(study.algorithm)["eta"], 0.53, 0.6)
        return curve(study.rounds, 0.2, end=end)

    plant(monkeypatch, narrow)
    tuned = tuning.tune(STUDY, 40, tmp_path, methods=(FAST,), target=0.99)
    assert closest(tuned.baselines[0], "d-psgd", 0.53) in (0.34, 0.841)
    assert rate_of(tuned.winner.candidate) == pytest.approx(0.53, rel=0.05)


@pytest.mark.parametrize("methods", [(FAST,), (BASELINE,)], ids=["fast", "alone"])
def test_rates_that_all_diverge_are_followed_by_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, methods: tuple[Method, ...]
) -> None:
    def fragile(study: gs.Study) -> dict[str, Any] | None:
        eta = vars(study.algorithm)["eta"]
        if isinstance(study.algorithm, gs.DPSGD) and eta > 0.002:
            return None
        return curve(study.rounds, 10 * eta)

    asked = plant(monkeypatch, fragile)
    tuned = tuning.tune(STUDY, 45, tmp_path, methods=methods)
    assert tuned.baselines[0][0].diverged
    assert not tuned.baseline.diverged
    assert 0.0005 < rate_of(tuned.baseline.candidate) <= 0.002
    assert sum(study.rounds for study in set(asked)) / STUDY.rounds <= tuned.plan.cost <= 45


# -- the edge of a range -------------------------------------------------------------------------


def rising(study: gs.Study) -> dict[str, Any]:
    """The larger the rate, the better."""
    return curve(study.rounds, 0.02 * vars(study.algorithm)["eta"] ** 0.5)


def test_a_winner_at_the_edge_is_searched_beyond_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, rising)
    tuned = tuning.tune(STUDY, 60, tmp_path, methods=(FAST,))
    for score in (tuned.winner, tuned.baseline):
        range_ = score.candidate.method.tune["eta"]
        assert rate_of(score.candidate) > range_.at(1.0)
        assert tuned.edges(score.candidate) == ("eta",)


def test_a_winner_next_to_the_edge_is_not_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def best_at_the_end(study: gs.Study) -> dict[str, Any]:
        return curve(study.rounds, 0.04 * peak(vars(study.algorithm)["eta"], 0.95, 0.3))

    plant(monkeypatch, best_at_the_end)
    tuned = tuning.tune(STUDY, 60, tmp_path, methods=(FAST,))
    assert rate_of(tuned.baseline.candidate) == closest(tuned.baselines[0], "d-psgd", 0.95)
    assert tuned.edges(tuned.baseline.candidate) == ()


# -- the choice and its confirmation -------------------------------------------------------------


def lucky(fast: float, wild: tuple[float, float]) -> Formula:
    """Fast is best on the tuning seeds; on the fresh ones it has another speed, Wild one of two."""

    def measured(study: gs.Study) -> dict[str, Any]:
        speeds = {GainControl: fast, gs.DPSGD: 0.05, gs.SwarmSGD: wild[study.seed % 2]}
        if isinstance(study.data, gs.Validation):
            speeds = {GainControl: 0.1, gs.DPSGD: 0.06, gs.SwarmSGD: 0.05}
        return curve(study.rounds, speeds[type(study.algorithm)])  # type: ignore[index]

    return measured


@pytest.mark.parametrize(
    ("fast", "wild", "winner"),
    [
        (0.07, (0.2, 0.06), "fast"),  # Wild is ahead, but not surely
        (0.03, (0.2, 0.028), "d-psgd"),  # the fresh seeds do not confirm Fast
        (0.07, (0.2, 0.2), "wild"),  # and here they contradict with confidence
    ],
)
def test_fresh_seeds_confirm_and_hardly_choose(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fast: float,
    wild: tuple[float, float],
    winner: str,
) -> None:
    plant(monkeypatch, lucky(fast, wild))
    tuned = tuning.tune(STUDY, 150, tmp_path, methods=(FAST, WILD))
    assert tuned.chosen.method.name == "fast"
    assert tuned.confirmed[0].candidate.method.name == "wild"
    assert tuned.winner.candidate.method.name == winner


# -- runs and samples ----------------------------------------------------------------------------


def test_a_short_run_is_a_prefix_of_a_long_one() -> None:
    short = gs.run(replace(STUDY, rounds=4, measure=gs.Measure(every=2)))
    long = gs.run(replace(STUDY, rounds=8, measure=gs.Measure(every=2)))
    for name in ("accuracy", "loss", "bytes"):
        assert short.metrics[name].tolist() == long.metrics[name][:3].tolist()


def test_the_same_samples_are_held_out_for_every_seed() -> None:
    assert held_out(STUDY).with_seed(3).data == held_out(STUDY).data == gs.Validation(gs.Digits())


def test_lists_of_samples_keep_their_samples(tmp_path: Path) -> None:
    lists = replace(STUDY, split=gs.Lists(tmp_path / "mine.json"))
    synthetic = replace(STUDY, data=gs.Logistic(10), split=gs.Iid())
    assert held_out(lists) is lists
    assert held_out(synthetic) is synthetic
