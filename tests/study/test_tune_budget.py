"""How a search spends its budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.listing import attribute
from support.planted import FAST, STUDY, WILD

from gossamer.errors import InputError
from gossamer.study.space import searched
from gossamer.study.tune import RATES, candidates, plan_search
from gossamer.study.tune.budget import MIN_SETTINGS

METHODS = searched()


def test_halving_by_hand() -> None:
    """60 runs of 90 rounds for D-PSGD and two other methods.

    20 are for the confirmation, at most 22 for D-PSGD, the rest for the others.
    """
    plan = plan_search(STUDY, 60, (FAST, WILD))
    assert [(r.baseline, r.others, r.rounds, r.seeds) for r in plan.rungs] == [
        (12, 24, 10, (1000,)),
        (4, 8, 30, (1000, 1001)),
        (3, 3, 90, (1000, 1001, 1002)),
    ]
    assert (plan.final.baseline, plan.final.others, plan.final.seeds) == (1, 3, (0, 1, 2, 3, 4))
    baseline = 12 + (4 + 1) + (3 + 2)
    assert plan.work == baseline * 90 + 24 * 10 + 8 * 30 * 2 + 3 * 90 * 3 + 4 * 5 * 90
    assert plan.cost == plan.work / 90
    assert plan.runs == 36 + 12 * 2 + 6 * 3 + 4 * 5


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
    assert first.others >= MIN_SETTINGS * methods


@pytest.mark.parametrize("budget", [-1, 0, 10, 10**9])
def test_a_budget_that_is_too_small_or_too_large(budget: int) -> None:
    with pytest.raises(
        InputError, match=rf"budget = {budget} is not accepted: give a whole number from \d+, which"
    ):
        plan_search(STUDY, budget, METHODS)


def test_tuning_needs_rounds() -> None:
    with pytest.raises(InputError, match="rounds = 0"):
        plan_search(replace(STUDY, rounds=0), 100, METHODS)


def test_a_larger_search_extends_a_smaller_one() -> None:
    few = candidates(METHODS, MIN_SETTINGS * len(METHODS))
    many = candidates(METHODS, 10 * len(METHODS))
    assert many[: len(few)] == few
    for name in attribute(METHODS, "name"):
        assert [each.method.name for each in few].count(name) == MIN_SETTINGS
