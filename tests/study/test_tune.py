"""Tuning: budget, ranking, the search, and the output of the command."""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command import assert_refused, files, gossamer, real
from support.listing import attribute, times_of
from torch import Tensor

import gossamer as gs
from gossamer._core.columns import Target, column_of
from gossamer.algorithms import GainControl
from gossamer.algorithms.registry import ADAM_RATE, RATE, Choice, LogRange, Method
from gossamer.errors import InputError
from gossamer.study import spec
from gossamer.study.space import BASELINE, Candidate, candidate, fixed_settings, point, searched
from gossamer.study.tune import (
    FRESH_SEEDS,
    RATES,
    Goal,
    Score,
    Tuned,
    candidates,
    choose,
    held_out,
    lead,
    plan_search,
    ranked,
    reachable,
)

# The package has a function of the same name, which hides the module.
tuning = importlib.import_module("gossamer.study.tune.search")

STUDY = gs.Study(
    gs.DPSGD(), gs.Random(10, 0.2), split=gs.OneLabel(), rounds=90, measure=gs.Measure(every=10)
)
FAST = Method("fast", GainControl, "Fast", "", tune={"eta": LogRange(0.01, 1)})
WILD = Method("wild", gs.SwarmSGD, "Wild", "", tune={"eta": LogRange(0.01, 1)})
METHODS = searched()


class Refuses(gs.DPSGD):
    def check(self, network: object) -> None:
        raise InputError("network", "random", "links that never change")


# -- a search without runs: curves come from a formula -------------------------------------------


def curve(rounds: int, speed: float, every: int = 10) -> dict[str, Any]:
    """Return a curve that rises to 1 at this speed; the worst device is 0.1 lower."""
    round_ = np.array([*range(0, rounds, every), rounds])
    accuracy = 1 - np.exp(-speed * round_)
    return {
        "round": round_,
        "bytes": 1000 * round_,
        "accuracy": accuracy,
        "accuracy_worst": accuracy - 0.1,
    }


def speed_of(study: gs.Study) -> float | None:
    """Return the speed of a study's curve, or None if it diverges.

    Fast is best at η = 0.2, D-PSGD at 0.05 and slower; Wild diverges above η = 0.1.
    """
    eta = study.algorithm.eta
    if isinstance(study.algorithm, gs.SwarmSGD):
        return None if eta > 0.1 else 0.001
    best_eta = 0.05
    best_speed = 0.04
    if isinstance(study.algorithm, GainControl):
        best_eta = 0.2
        best_speed = 0.08
    noise = 0.002 * (study.seed % 3)
    return best_speed * float(np.exp(-(np.log(eta / best_eta) ** 2))) + noise


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[gs.Study]:
    """Replace `sweep` by formulas; return the list of studies that the search runs."""
    monkeypatch.chdir(tmp_path)
    asked: list[gs.Study] = []

    def sweep(
        studies: Sequence[gs.Study], folder: Path, workers: int, progress: Callable[[float], None]
    ) -> list[gs.Run]:
        asked.extend(studies)
        folder.mkdir(parents=True, exist_ok=True)
        progress(0.0)
        progress(1.0)
        speeds = [speed_of(study) for study in studies]
        found = []
        for study, speed in zip(studies, speeds, strict=True):
            if speed is None:
                found.append(gs.Run({}, {}, {"diverged": {"round": 1}}, study=study))
            else:
                found.append(gs.Run({}, curve(study.rounds, speed), {}, study=study))
        return found

    monkeypatch.setattr(tuning, "sweep", sweep)
    return asked


def search(
    budget: int = 60, methods: Sequence[Method] = (BASELINE, FAST, WILD), **options: Any
) -> Tuned:
    return tuning.tune(STUDY, budget, Path("cells"), methods=methods, **options)


def rate_of(candidate: Candidate) -> float:
    return float(vars(candidate.algorithm)["eta"])


def test_it_finds_the_planted_method_and_rate(planted: list[gs.Study]) -> None:
    tuned = search(100)
    assert tuned.winner.candidate.method.name == "fast"
    tried = []
    for score in tuned.others[0]:
        if score.candidate.method.name == "fast":
            tried.append(rate_of(score.candidate))
    nearest = min(tried, key=lambda eta: abs(np.log(eta / 0.2)))
    assert rate_of(tuned.winner.candidate) == nearest
    rates = [rate_of(score.candidate) for score in tuned.baselines[0]]
    assert rate_of(tuned.baseline.candidate) == min(rates, key=lambda eta: abs(np.log(eta / 0.05)))
    assert tuned.led_before
    assert tuned.lead_over(tuned.baseline).sure
    assert tuned.target == TARGET_90
    assert tuned.spec == replace(
        STUDY, algorithm=tuned.winner.candidate.algorithm, name="study-tuned"
    )


def test_the_same_search_twice_is_the_same(planted: list[gs.Study]) -> None:
    first = attribute(search().confirmed, "candidate")
    asked = list(planted)
    assert attribute(search().confirmed, "candidate") == first
    assert planted == asked * 2


@pytest.mark.parametrize("budget", [38, 47, 60, 150, 400])
def test_the_budget_is_never_exceeded_and_well_used(planted: list[gs.Study], budget: int) -> None:
    tuned = search(budget)
    spent = sum(study.rounds for study in set(planted)) / STUDY.rounds  # equal studies are run once
    assert spent == pytest.approx(tuned.plan.cost)
    assert 0.85 * budget < spent <= budget


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


def test_progress_goes_from_0_to_1(planted: list[gs.Study]) -> None:
    shares: list[float] = []
    search(progress=lambda share, stage: shares.append(share))
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)


def test_a_target_out_of_reach_ranks_by_accuracy(planted: list[gs.Study]) -> None:
    tuned = search(target=1.0)
    assert tuned.winner.candidate.method.name == "fast"
    assert tuned.winner.mean_to_target("rounds", tuned.target) is None
    assert tuned.lead_over(tuned.baseline).unit == "metric"


def test_a_method_that_rejects_the_network_is_left_out(planted: list[gs.Study]) -> None:
    tuned = search(
        methods=(
            BASELINE,
            FAST,
            Method("static", Refuses, "Static", "", tune={"eta": LogRange(0.01, 1)}),
        )
    )
    assert list(tuned.left_out) == ["static"]
    assert "links that never change" in tuned.left_out["static"]


def test_the_baseline_alone_can_be_tuned(planted: list[gs.Study]) -> None:
    tuned = search(methods=(BASELINE,))
    assert set(names(tuned.confirmed)) == {"d-psgd"}
    assert len(tuned.confirmed) == 2


# -- how the budget is spent ---------------------------------------------------------------------


def test_halving_by_hand() -> None:
    """60 runs of 90 rounds for D-PSGD and two other methods.

    14 are for D-PSGD, 20 for the confirmation, the rest for the others.
    """
    plan = plan_search(STUDY, 60, (BASELINE, FAST, WILD))
    assert [(r.baseline, r.others, r.rounds, r.seeds) for r in plan.rungs] == [
        (9, 36, 10, (1000,)),
        (3, 12, 30, (1000, 1001)),
        (2, 4, 90, (1000, 1001, 1002)),
    ]
    assert (plan.final.baseline, plan.final.others, plan.final.seeds) == (1, 3, (0, 1, 2, 3, 4))
    assert plan.work == (9 + 3 + 2) * 90 + 36 * 10 + 12 * 30 * 2 + 4 * 90 * 3 + 4 * 5 * 90
    assert plan.cost == plan.work / 90 == 58


@settings(max_examples=60)
@given(
    st.integers(1, 1000), st.integers(1, 2000), st.integers(0, 10**6), st.integers(0, len(METHODS))
)
def test_a_search_plan_is_within_its_budget(
    rounds: int, budget: int, seed: int, methods: int
) -> None:
    study = replace(STUDY.with_seed(seed), rounds=rounds)
    try:
        plan = plan_search(study, budget, METHODS[:methods])
    except InputError as refusal:
        least = int(refusal.accepted.split("from ")[1].split(",")[0])
        assert budget < least
        plan = plan_search(study, least, METHODS[:methods])  # what it asks for is enough
        budget = least
    assert plan.cost <= budget
    first, second, third = plan.rungs
    assert first.baseline >= second.baseline >= third.baseline >= plan.final.baseline
    assert first.others >= second.others >= third.others >= plan.final.others
    assert first.rounds <= second.rounds <= third.rounds == plan.final.rounds == rounds
    assert not set(third.seeds) & set(plan.final.seeds)
    assert first.baseline >= RATES


@pytest.mark.parametrize("budget", [-1, 0, 10, 10**9])
def test_a_budget_that_is_too_small_or_too_large(budget: int) -> None:
    with pytest.raises(
        InputError, match=rf"budget = {budget} is not accepted: give a whole number from \d+, which"
    ):
        plan_search(STUDY, budget, METHODS)


def test_tuning_needs_rounds() -> None:
    with pytest.raises(InputError, match="rounds = 0"):
        plan_search(replace(STUDY, rounds=0), 100, METHODS)


def test_a_short_run_is_a_prefix_of_a_long_one() -> None:
    short = gs.run(replace(STUDY, rounds=4, measure=gs.Measure(every=2)))
    long = gs.run(replace(STUDY, rounds=8, measure=gs.Measure(every=2)))
    for name in ("accuracy", "loss", "bytes"):
        assert short.metrics[name].tolist() == long.metrics[name][:3].tolist()


# -- the space -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_setting_is_in_its_ranges_and_can_be_written_as_toml(method: Method) -> None:
    for number in range(12):
        made = candidate(method, number)
        for key, value in made.settings:
            values = method.tune[key]
            if isinstance(values, Choice):
                assert value in values.values
            else:
                assert values.low <= value <= values.high
        study = replace(STUDY, algorithm=made.algorithm)
        assert spec.studies(spec.parse(spec.dumps(study))) == [study]
        assert method.label in made.label


def test_the_local_step_of_the_study_holds_for_every_method() -> None:
    given = gs.DPSGD(eta=0.3, optimizer=gs.Adam(), weight_decay=0.1)
    fixed = fixed_settings(given)
    assert fixed == {"optimizer": gs.Adam(), "weight_decay": 0.1}
    assert fixed_settings(gs.DiLoCo()) == {}
    tried = candidate(gs.METHODS["local-sgd"], 0, fixed)
    assert tried.algorithm.optimizer == gs.Adam()
    assert tried.label.startswith("Local SGD Adam decay 0.1 η=0.0")
    assert ADAM_RATE.low <= rate_of(tried) <= ADAM_RATE.high
    assert rate_of(candidate(gs.METHODS["noloco"], 0, {"optimizer": gs.SGD()})) == RATE.at(0.5)
    decayed = candidate(gs.METHODS["d-adam"], 0, {"weight_decay": 0.1})
    assert decayed.algorithm.weight_decay == 0.1
    assert "weight_decay" not in dict(decayed.settings)


def test_methods_that_refuse_the_optimiser_of_the_study_are_left_out(
    planted: list[gs.Study],
) -> None:
    study = replace(STUDY, algorithm=gs.DPSGD(optimizer=gs.SGD(0.9)))
    methods = [BASELINE, gs.METHODS["local-sgd"], gs.METHODS["tracking"]]
    tuned = tuning.tune(study, 60, Path("runs"), methods=methods)
    assert list(tuned.left_out) == ["tracking"]
    assert "SGD without momentum" in tuned.left_out["tracking"]
    for tried in planted:
        assert tried.algorithm.optimizer == gs.SGD(0.9)


def test_methods_have_names_of_their_own() -> None:
    assert len(set(attribute(METHODS, "name"))) == len(METHODS)
    assert METHODS[0] is BASELINE


@pytest.mark.parametrize("count", [5, 9, 30, 200])
def test_settings_cover_a_range_evenly(count: int) -> None:
    """By the three-distance theorem no gap is larger than φ² times an even one."""
    places = sorted(point(number, 1)[0] for number in range(count))
    gaps = np.diff([*places, places[0] + 1])
    assert gaps.max() * count < 2.7
    for dimensions in (2, 3):  # every half of every axis has its share
        points = np.array([point(number, dimensions) for number in range(count)])
        assert ((points >= 0) & (points < 1)).all()
        assert (abs((points < 0.5).mean(0) - 0.5) < 0.25).all()


def test_a_larger_search_extends_a_smaller_one() -> None:
    few = candidates(METHODS, 20)
    many = candidates(METHODS, 60)
    assert many[: len(few)] == few
    assert {each.method.name for each in few} == set(attribute(METHODS, "name"))


def test_a_setting_at_the_edge_of_its_range_is_marked() -> None:
    tried = [candidate(BASELINE, number) for number in range(40)]
    edges = [each for each in tried if each.edges]
    assert edges
    for each in edges:  # near one end of the range, not the other
        distances = np.abs(np.log(rate_of(each) / np.array([0.002, 1.0])))
        assert (distances < 0.06 * np.log(500)).sum() == 1


# -- ranking -------------------------------------------------------------------------------------


def score(name: str, *speeds: float | None, rounds: int = 90) -> Score:
    curves = tuple(None if speed is None else curve(rounds, speed) for speed in speeds)
    return Score(named(name), curves)


def named(name: str) -> Candidate:
    """Return a candidate whose method has this name."""
    return Candidate(Method(name, gs.DPSGD, name, ""), (), gs.DPSGD())


def names(scores: Sequence[Score]) -> list[str]:
    return [one.candidate.method.name for one in scores]


ACCURACY = column_of("accuracy")
ROUNDS = Goal("rounds", ACCURACY)
BYTES = Goal("bytes", ACCURACY)
TARGET = Target.of(ACCURACY, 0.8)
TARGET_90 = Target.of(ACCURACY, 0.9)


def targets(*values: float) -> list[Target]:
    return [Target.of(ACCURACY, value) for value in values]


def test_ranking() -> None:
    scores = [
        score("diverges twice", None, None),
        score("diverges", 0.5, None),
        score("never, lower", 0.001, 0.001),
        score("never", 0.002, 0.002),
        score("once", 0.001, 0.9),
        score("slow", 0.03, 0.03),
        score("quick", 0.1, 0.2),
    ]
    expected = ["quick", "slow", "once", "never", "never, lower", "diverges", "diverges twice"]
    assert names(ranked(scores, ROUNDS, TARGET)) == expected
    assert names(ranked(scores[::-1], BYTES, TARGET)) == expected
    # without a target, by accuracy
    assert names(ranked(scores, ROUNDS, None))[:3] == ["quick", "slow", "once"]


def test_equal_rounds_are_ranked_by_accuracy() -> None:
    assert names(ranked([score("a", 0.17), score("b", 0.18)], ROUNDS, TARGET)) == ["b", "a"]


def test_bytes_and_rounds_need_not_agree() -> None:
    frugal = Score(
        named("frugal"),
        ({**curve(90, 0.05), "bytes": 10 * curve(90, 0.05)["round"]},),
    )
    scores = [score("quick", 0.1), frugal]
    assert names(ranked(scores, ROUNDS, TARGET)) == ["quick", "frugal"]
    assert names(ranked(scores, BYTES, TARGET)) == ["frugal", "quick"]


def test_the_highest_reachable_target() -> None:
    scores = [score("a", 0.03, 0.03), score("b", 0.001, 0.9)]
    # 0.999 is reached by b, but on one seed alone
    assert reachable(scores, targets(0.5, 0.9, 0.999)) == TARGET_90
    assert reachable(scores, targets(0.9, 0.5)) == TARGET_90
    assert reachable(scores, targets(0.999)) is None
    assert reachable([score("c", None)], targets(0.1)) is None


def test_an_error_is_ranked_the_other_way_round() -> None:
    def error(name: str, speed: float) -> Score:
        falling = curve(90, speed)
        falling["rmse_merged"] = 1 - falling["accuracy"]
        return Score(named(name), (falling,))

    scores = [error("slow", 0.03), error("quick", 0.1)]
    goal = Goal("rounds", column_of("rmse"), "_merged")
    easy = Target("rmse_merged", False, 0.5)
    hard = Target("rmse_merged", False, 0.01)
    assert reachable(scores, [hard, easy]) == hard
    assert names(ranked(scores, goal, easy)) == ["quick", "slow"]
    assert names(ranked(scores, Goal(None, column_of("rmse"), "_merged"), None)) == [
        "quick",
        "slow",
    ]
    assert lead(scores[1], scores[0], replace(goal, cost=None), None).ahead.mean > 0


def test_leads() -> None:
    quick = score("q", 0.1, 0.11, 0.1)
    slow = score("s", 0.04, 0.03, 0.04)
    never = score("n", 0.001, 0.001, 0.001)
    ahead = lead(quick, slow, ROUNDS, TARGET)
    own = quick.to_target("rounds", TARGET)
    theirs = slow.to_target("rounds", TARGET)
    assert ahead.unit == "rounds"
    assert ahead.ahead.mean == pytest.approx(np.mean(np.subtract(theirs, own)))
    assert ahead.share == pytest.approx(1 - np.sum(own) / np.sum(theirs))
    assert ahead.sure
    assert not lead(slow, quick, ROUNDS, TARGET).sure
    assert not lead(quick, quick, ROUNDS, TARGET).sure
    assert not lead(score("a", 0.03, 0.1, 0.05), score("b", 0.1, 0.04, 0.04), ROUNDS, TARGET).sure
    far = lead(quick, never, ROUNDS, TARGET)
    assert (far.unit, far.missed, far.sure) == ("metric", 3, True)
    partly = lead(quick, score("p", 0.04, 0.04, 0.001), ROUNDS, TARGET)
    assert (partly.unit, partly.missed, partly.ahead.count) == ("rounds", 1, 2)
    both_miss = lead(score("p", 0.04, 0.04, 0.001), never, ROUNDS, TARGET)
    assert (both_miss.unit, both_miss.missed) == ("metric", 0)
    assert lead(quick, score("d", None, None, None), ROUNDS, TARGET).sure


# -- the validation samples ----------------------------------------------------------------------


def labelled(x: Tensor, y: Tensor) -> dict[bytes, int]:
    """Return the labels by the bytes of their samples."""
    return {x_i.numpy().tobytes(): int(y_i) for x_i, y_i in zip(x, y, strict=True)}


@pytest.mark.parametrize("share", [0.1, 0.25, 0.999])
def test_validation_samples_are_training_samples_that_are_not_trained_on(share: float) -> None:
    whole = gs.Digits().load()
    part = gs.Validation(gs.Digits(), share).load()
    labels = labelled(whole.x, whole.y)
    train = labelled(part.x, part.y)
    validation = labelled(part.x_test, part.y_test)
    test = labelled(whole.x_test, whole.y_test)
    assert len(labels) == whole.samples  # no image is there twice: its bytes stand for a sample
    assert train | validation == labels
    assert len(train) + len(validation) == whole.samples
    assert len(validation) == int(np.ceil(share * whole.samples))
    assert not validation.keys() & test.keys()
    again = gs.Validation(gs.Digits(), share).load()
    other = gs.Validation(gs.Digits(), share, seed=1).load()
    assert repr(again) == repr(part) != repr(other)
    assert part.classes == whole.classes


def test_the_same_samples_are_held_out_for_every_seed() -> None:
    assert held_out(STUDY).with_seed(3).data == held_out(STUDY).data == gs.Validation(gs.Digits())


def test_lists_of_samples_keep_their_samples(tmp_path: Path) -> None:
    lists = replace(STUDY, split=gs.Lists(tmp_path / "mine.json"))
    synthetic = replace(STUDY, data=gs.Logistic(10), split=gs.Iid())
    assert held_out(lists) is lists
    assert held_out(synthetic) is synthetic


@pytest.mark.parametrize(
    ("share", "data"), [(0, "digits"), (1, "digits"), (-0.1, "digits"), (0.1, "logistic")]
)
def test_validation_refuses(share: float, data: str) -> None:
    with pytest.raises(InputError, match="share" if data == "digits" else "data"):
        gs.Validation(gs.Digits() if data == "digits" else gs.Logistic(3), share)


# -- the command ---------------------------------------------------------------------------------

SPEC = """
rounds = 30
batch = 16
data = "digits"
split = "one-label"
network = { kind = "random", devices = 10, density = 0.2 }
measure = { every = 5, targets = ["accuracy >= 0.3", "accuracy >= 0.5", "accuracy >= 0.999"] }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text(SPEC)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--budget", "5"], ("budget = 5 is not accepted: give a whole number from",)),
        (
            ["--methods", "wpn"],
            ("methods = 'wpn' is not accepted", "did you mean 'wpm'?"),
        ),
        (["--target", "88"], ("target = 'accuracy >= 88' is not accepted: give a share from 0",)),
        (["--target", "-0.1"], ("target = 'accuracy >= -0.1' is not accepted",)),
        (["--target", "nan"], ("target = 'nan' is not accepted",)),
        (["--target", "mae <= 4"], ("one of the metrics that are measured: accuracy,",)),
        (["--target", "accuracy > 4"], ('a metric, ">=" or "<=", and a number',)),
        (["--for", "accuracy_best"], ("for = 'accuracy_best' is not accepted",)),
        (["--for", "round"], ("for = 'round' is not accepted", "did you mean 'rounds'?")),
        (["--for", "seconds"], ("for = 'seconds' is not accepted", "timing")),
        (["--workers", "-1"], ("workers = -1 is not accepted",)),
        (["--set", "rounds=0"], ("rounds = 0 is not accepted",)),
        (["--set", "network.devices=0"], ("network.devices",)),
        (
            ["--set", "data.kind=least-squares", "--set", "model.kind=least-squares"],
            ("split is not accepted",),
        ),
    ],
)
def test_invalid_arguments(here: Path, words: list[str], parts: tuple[str, ...]) -> None:
    before = files()
    assert_refused(gossamer("tune", "fleet.toml", "-q", *words), *parts)
    assert files() == before


@pytest.mark.parametrize(
    ("words", "metric", "target"),
    [
        (["--target", "rmse <= 1.9"], "rmse", "rmse <= 1.9"),
        (["--target", "1.9"], "rmse", "rmse <= 1.9"),
        (["--target", "rmse_merged <= 1.9"], "rmse_merged", "rmse_merged <= 1.9"),
        (["--for", "rmse_merged"], "rmse_merged", None),
    ],
)
def test_a_regression_is_tuned_by_its_error(
    here: Path, words: list[str], metric: str, target: str | None
) -> None:
    Path("fit.toml").write_text('rounds = 20\ndata = "least-squares"\nmeasure = { every = 5 }\n')
    fixed = ["--budget", 30, "--methods", "d-psgd", "--out", "o", "-q"]
    done = gossamer("tune", "fit.toml", *fixed, *words)
    assert (done.code, done.err) == (0, "")
    assert "%" not in done.out.split("mean ±")[0]
    assert "rmse" in done.out.split("mean ±")[0]
    result = json.loads(Path("o/result.json").read_text())
    assert (result["metric"], result["target"]) == (metric, target)
    errors = [float(np.mean(one[metric])) for one in result["confirmed"]]
    if target is None:
        assert errors == sorted(errors)


def test_methods_are_chosen_by_name() -> None:
    assert attribute(choose(["wpm", " swarm-sgd"]), "name") == [
        "d-psgd",
        "swarm-sgd",
        "wpm",
    ]
    assert choose(["d-psgd"]) == [BASELINE]


def test_what_the_command_prints(here: Path, planted: list[gs.Study]) -> None:
    done = gossamer(
        "tune",
        "fleet.toml",
        "--budget",
        60,
        "--methods",
        "gain-control,swarm-sgd",
        "--set",
        "rounds=90",
    )
    assert done.code == 0, done.err
    assert "confirming" in done.err
    text = " ".join(done.out.split())
    for part in (
        "1 Gain control",
        "rounds",
        "worst",
        "fresh seeds 0 to 4",
        "held out",
        "seed by seed",
        "sure at 95 %",
    ):
        assert part in text, part
    winner = Path("runs/tune-fleet/winner.toml")
    assert str(winner) in text
    (study,) = spec.studies(spec.read(winner))
    assert isinstance(study.algorithm, GainControl)
    assert study.algorithm.gain == 1.05
    assert (study.name, study.rounds, study.data, study.seed) == ("fleet-tuned", 90, gs.Digits(), 0)
    assert winner.read_text().startswith("# Found by: gossamer tune fleet.toml --budget 60")


def test_json_and_quiet(here: Path, planted: list[gs.Study]) -> None:
    words = (
        "tune",
        "fleet.toml",
        "--budget",
        60,
        "--methods",
        "gain-control",
        "--json",
        "-q",
        "--for",
        "bytes",
        "--seed",
        4,
    )
    done = gossamer(*words, "--out", "here", "--target", 0.7, "--set", "rounds=90")
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    assert result == json.loads(Path("here/result.json").read_text())
    assert (result["for"], result["target"], result["seeds"]) == (
        "bytes",
        "accuracy >= 0.7",
        [4, 5, 6, 7, 8],
    )
    assert result["cost"] <= 60
    assert result["confirmed"][0]["label"] == result["winner"]["label"]
    assert result["leads"]["baseline"]["unit"] == "bytes"
    (study,) = spec.studies(spec.read(Path("here/winner.toml")))
    assert "accuracy >= 0.7" in (study.measure.targets or ())
    assert study == spec.studies(result["spec"])[0]


def test_an_uncertain_lead_is_reported_as_such(
    here: Path, planted: list[gs.Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        importlib.import_module(__name__), "speed_of", lambda study: 0.02
    )  # all are alike
    done = gossamer(
        "tune", "fleet.toml", "--budget", 60, "--methods", "gain-control", "--set", "rounds=90"
    )
    assert "not sure: the two may well be equal" in " ".join(done.out.split())


@pytest.mark.slow
def test_the_command_from_end_to_end(here: Path) -> None:
    """Real runs: the winner can be run; a second search runs nothing and prints the same."""
    words = (
        "tune",
        "fleet.toml",
        "--budget",
        "40",
        "--methods",
        "wpm,gain-control",
        "--workers",
        "1",  # each step of the search starts its processes anew, and they load torch
    )
    first = real(*words, env={"OMP_NUM_THREADS": "1"})
    assert first.code == 0, first.err
    runs = times_of(files("runs/tune-fleet/cells"))
    assert runs
    again = gossamer(*words)
    assert again.out == first.out
    assert times_of(files("runs/tune-fleet/cells")) == runs
    result = json.loads(Path("runs/tune-fleet/result.json").read_text())
    assert result["cost"] <= 40
    assert result["target"] in ("accuracy >= 0.3", "accuracy >= 0.5")
    done = gossamer("run", "runs/tune-fleet/winner.toml", "--out", "won", "-q")
    assert done.code == 0, done.err
    # its own seed is the first of the fresh ones: the run repeats what was confirmed
    summary = json.loads(Path("won/summary.json").read_text())
    assert summary["accuracy"] == pytest.approx(result["confirmed"][0]["accuracy"][0], abs=1e-6)
    assert tomllib.loads(Path("won/spec.toml").read_text())["data"]["kind"] == "digits"
