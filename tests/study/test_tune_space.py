"""The settings that `tune` tries."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planted import BASELINE, STUDY

import gossamer as gs
from gossamer.algorithms.registry import ADAM_RATE, RATE, Choice, LogRange, Method
from gossamer.study import spec
from gossamer.study.space import (
    Candidate,
    candidate,
    edges,
    fixed_settings,
    nearby,
    point,
    searched,
)

METHODS = searched()


def rate_of(candidate: Candidate) -> float:
    return float(candidate.setting("eta"))


def labels(found: list[Candidate]) -> list[str]:
    return [each.label for each in found]


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


# -- beside and beyond what was tried ------------------------------------------------------------


def rates(*values: float) -> list[Candidate]:
    found = []
    for value in values:
        changed = candidate(BASELINE, 0).replaced("eta", value)
        assert changed is not None
        found.append(changed)
    return found


def test_a_rate_between_others_is_refined_towards_the_better_neighbour_first() -> None:
    best, second, third = rates(0.1, 0.4, 0.025)
    assert labels(nearby(best, [best, second, third])) == ["D-PSGD η=0.2", "D-PSGD η=0.05"]
    assert labels(nearby(best, [best, third, second])) == ["D-PSGD η=0.05", "D-PSGD η=0.2"]
    assert edges(best, [best, second, third]) == ()
    close = rates(0.1, 0.12, 0.09)
    assert nearby(close[0], close) == []


@given(st.lists(st.floats(1e-4, 1e2), min_size=2, max_size=20, unique=True))
def test_a_rate_at_an_end_is_searched_beyond_it(values: list[float]) -> None:
    tried = rates(*values)
    for each in tried:
        outside = []
        for found in nearby(each, tried):
            if not min(values) <= rate_of(found) <= max(values):
                outside.append(rate_of(found) / rate_of(each))
        at_end = rate_of(each) in (min(values), max(values))
        assert edges(each, tried) == (("eta",) if at_end else ())
        assert len(outside) == at_end
        for ratio in outside:
            assert 1.9 < max(ratio, 1 / ratio) < 4.1


def test_a_scale_of_whole_numbers_goes_on_to_what_the_method_accepts() -> None:
    method = gs.METHODS["local-sgd"]
    middle = candidate(method, 0)
    steps = [middle.replaced("local_steps", steps) for steps in (8, 2, 1, 4)]
    tried = [each for each in steps if each is not None]
    assert 16 in [each.setting("local_steps") for each in nearby(tried[0], tried)]
    assert "local_steps" in edges(tried[0], tried)
    # 1 is the least that is accepted, so that nothing can lie beyond it
    assert "local_steps" not in edges(tried[2], tried)
    # the next of its own values comes before one beyond them
    assert Choice((2, 4, 8)).beyond([4]) == (2, 8)
    assert Choice((2, 4, 8)).beyond([2, 4, 8]) == (1, 16)


def test_a_choice_without_a_scale_has_no_edge() -> None:
    assert Choice((0.9, 0.8)).beyond([0.9]) is None
    assert Choice(("matching", "one", "all")).beyond(["one"]) is None
    assert Choice((0.1, 0.3, 1.0)).beyond([0.1, 0.3, 1.0]) == (0.0333, 3.33)
    choco = gs.METHODS["choco-sgd"]
    strong = candidate(choco, 0).replaced("pull", 1.0)
    assert strong is not None  # the consensus rate is at most 1
    assert edges(strong, [strong, candidate(choco, 0)]) == ("eta",)


@given(st.floats(1e-3, 1), st.floats(1.5, 100))
def test_the_middle_of_two_rates_is_between_them(low: float, factor: float) -> None:
    middle = LogRange(0.001, 1).between(low, low * factor)
    assert middle is not None
    assert middle == pytest.approx(math.sqrt(low * low * factor), rel=0.006)
