"""How the candidates of a search are scored, ranked and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.planted import curve

import gossamer as gs
from gossamer._core.columns import Target, column_of
from gossamer.algorithms.registry import Method
from gossamer.study.space import Candidate
from gossamer.study.tune import Goal, Score, lead, ranked, reachable


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
