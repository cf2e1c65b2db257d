"""The search of the product of readings: its space, its runs, its distance, its resumption."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import gossamer as gs

sys.path.insert(0, str(Path(__file__).parents[2]))
from papers.wpm import reading_search, search_readings
from papers.wpm.paper import TINY, Scale, wpm
from papers.wpm.reading_runs import COLUMNS, CRITERIA, Cell, Curves, Meter, Runs, table2
from papers.wpm.reading_space import (
    AXES,
    PIXELS,
    RULES,
    Magnitude,
    Reading,
    drawn,
    neighbours,
    rescaled,
    size,
    sorted_parts,
    start_rows,
)

DIGITS = reading_search.TINY.setting
NUMBERS = st.integers(0, 10**6)
HARD = Cell("noniid", 15, 131.0)


def test_the_defaults_are_the_choices_of_the_reproduction() -> None:
    ours = {axis.name: axis.values[axis.start] for axis in AXES}
    assert Reading(**ours) == Reading() == Reading().canonical()
    for p in (3, 5, 9, 15):
        paper = wpm(Scale(), p)
        found = Reading().algorithm(p)
        assert found.eta == pytest.approx(paper.eta)
        assert replace(found, eta=paper.eta) == paper
    assert Reading().algorithm(1).eta == 0.01


def test_the_size_of_the_space() -> None:
    steps = 0
    for rule in RULES.values():
        steps += (7 if rule.has_magnitude else 1) * (2 if rule.has_factor else 1)
    starts = 1 + 4 * 2  # zero, and four others that devices share or not
    assert size() == steps * starts * 4 * 2 * 4 * 3 * 7 * 2


@settings(max_examples=20)
@given(NUMBERS)
def test_every_neighbour_differs_on_one_axis_that_has_an_effect(number: int) -> None:
    reading = drawn(0, number)
    around = list(neighbours(reading))
    assert reading not in around
    for other in around:
        assert other == other.canonical()
        if (other.rule, other.start) == (reading.rule, reading.start):
            assert reading in neighbours(other)


@settings(max_examples=20)
@given(NUMBERS)
def test_rules_agree_at_p_1(number: int) -> None:
    """Only the two printed forms of the ratio and of the power differ from η there."""
    reading = replace(drawn(0, number), rule="η·max(|w|, s)^(p-1)")
    for rule in RULES:
        found = replace(reading, rule=rule).algorithm(1)
        if rule == "η^(1+p/2)":
            assert found.eta == pytest.approx(reading.eta**1.5)
        elif found.step.linear_at_identity:
            assert found.eta == pytest.approx(reading.eta)
            assert found.step == gs.Constant()


@pytest.mark.parametrize("of", ["mean", "largest", "norms"])
def test_the_magnitude_rule_is_a_mirror_step_with_one_rate_per_device(of: str) -> None:
    torch.manual_seed(0)
    w = torch.randn(3, 7)
    d = torch.randn(3, 7)
    found = Magnitude(of)(w.clone(), d, 0.02, gs.PowerMap(3), lambda: torch.zeros(3))
    for i in range(3):
        size_of_w = w[i].double().abs()
        rate = {
            "mean": size_of_w.mean() ** 2,
            "largest": size_of_w.max() ** 2,
            "norms": (size_of_w**3).norm() / size_of_w.norm(),
        }[of]
        z = w[i].double() ** 3 - 0.02 * rate * d[i].double()
        assert_allclose(found[i], torch.sign(z) * z.abs() ** (1 / 3), rtol=1e-5)


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=12, max_size=12),
)
def test_rounds_to_a_criterion_against_a_loop(values: list[list[float]]) -> None:
    curves = Curves(np.array([20.0, 40.0, 60.0]), np.array(values))
    found = curves.reached(1000.0)
    for k, criterion in enumerate(CRITERIA):
        row = values[COLUMNS.index(criterion.column)]
        target = criterion.target
        if criterion.metric == "loss":
            target = -target
        wanted = 1000.0
        before = None
        for t, value in zip((20.0, 40.0, 60.0), row, strict=True):
            if value >= target:
                wanted = t
                if before is not None:
                    wanted = t - 20 + 20 * (target - before) / (value - before)
                break
            before = value
        assert found[k] == pytest.approx(wanted)


@pytest.mark.parametrize("p", [1, 15])
def test_a_run_measures_what_the_simulator_records(p: int, tmp_path: Path) -> None:
    """Device and merged accuracy and loss, after the step and after the mix."""
    runs = Runs(replace(DIGITS, test_every=1), tmp_path / "runs.jsonl")
    cell = Cell("noniid", p, 100.0)
    reading = Reading(eta=0.1, own_start=True)
    simulator = runs.simulator(reading, cell, 3, 40)
    simulator.advance(20)
    values = dict(zip(COLUMNS, Meter(simulator, reading, cell, 1).measure(), strict=True))
    for place, at in (("after step", "after_step"), ("after mix", "after_mix")):
        plan = replace(simulator.plan, measure=gs.Measure(at=at))
        record = gs.Simulator(plan, simulator.snapshot()).record()
        assert values[f"{place}/device/accuracy"] == pytest.approx(
            record.metrics["accuracy"].mean(), abs=1e-5
        )
        assert values[f"{place}/merged/accuracy"] == pytest.approx(
            record.merged["accuracy"], abs=1e-5
        )
        assert -values[f"{place}/device/loss"] == pytest.approx(record.loss.mean(), rel=1e-3)
        if p > 1:
            assert values[f"{place}/merged by power mean/accuracy"] == pytest.approx(
                record.merged_power["accuracy"], abs=1e-5
            )


def test_devices_are_tested_on_their_own_label(tmp_path: Path) -> None:
    runs = Runs(DIGITS, tmp_path / "runs.jsonl")
    curves = runs.curves(Reading(eta=0.1), Cell("noniid", 1, 345.0), 0, 20)
    own = curves.at("after step/device, own label/accuracy", 20)
    assert own > 0.9 > curves.at("after step/device/accuracy", 20)


def test_starts() -> None:
    same = start_rows(Reading(), 0, 4, 1000)
    assert torch.equal(same[0], same[3])
    assert float(same.abs().max()) <= 1 / 28
    own = start_rows(Reading(start="normal 1", own_start=True), 0, 4, 1000)
    assert not torch.equal(own[0], own[3])
    assert float(own.std()) == pytest.approx(1, rel=0.1)
    assert not start_rows(Reading(start="zero"), 0, 4, 10).any()


def test_pixels_are_scaled_from_the_same_bytes() -> None:
    data = DIGITS.data.load()
    unit = rescaled(data, "0 to 1", DIGITS.mean, DIGITS.std)
    assert float(unit.x.min()) == 0
    assert float(unit.x.max()) == 1
    for pixels in PIXELS:
        scaled = rescaled(data, pixels, DIGITS.mean, DIGITS.std)
        line = np.polyfit(unit.x.flatten().numpy(), scaled.x.flatten().numpy(), 1)
        assert line[0] > 0


def test_sorted_parts_hold_each_sample_once_and_few_labels() -> None:
    y = torch.arange(100) % 10
    split = sorted_parts(y, 10)
    assert sorted(split.index.tolist()) == list(range(100))
    for device in range(10):
        assert y[split.of(device)].unique().tolist() == [device]


def test_a_run_is_read_instead_of_repeated(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    runs = Runs(DIGITS, path)
    wanted = runs.curves(Reading(), HARD, 0, 20)
    assert runs.made == 1
    path.write_text(path.read_text() + '\n{"key": "half a')  # the process ended while it wrote
    again = Runs(DIGITS, path)
    found = again.curves(Reading(), HARD, 0, 20)
    assert again.made == 0
    assert np.array_equal(found.values, wanted.values)
    assert not math.isnan(found.values.sum())
    again.curves(Reading(), HARD, 1, 20)
    last = Runs(DIGITS, path)
    last.curves(Reading(), HARD, 1, 20)
    assert last.made == 0


def test_a_search_that_is_resumed_makes_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first = search_readings.make(TINY, None, tmp_path / "first")
    capsys.readouterr()
    second = search_readings.make(TINY, None, tmp_path / "second")
    assert "0 new runs" in capsys.readouterr().err
    for one, other in zip(first, second, strict=True):
        assert one.read_text() == other.read_text()
    table = first[0].read_text().splitlines()
    assert table[1].startswith("paper,")
    assert str(round(table2()[-1].paper)) in table[1]
