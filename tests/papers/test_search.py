"""The search of settings for the reproductions: it ends inside of what it tried."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gs

sys.path.insert(0, str(Path(__file__).parents[2]))
from papers import families
from papers.field import cells
from papers.field.again import Again
from papers.field.cells import Cell
from papers.field.paper import Results, Scale
from papers.field.task_part import TaskPart
from papers.score import final, rounds_to, score
from papers.search import Axis, Family, Point, Score, rates, search
from papers.wpm.paper import write_csv

GAINS = Axis("gain", (1.02, 1.05, 1.1, 1.2), 1)
TWO_AXES = Family("two", lambda eta, gain: gs.GainControl(eta, gain), (rates(0.04), GAINS))


def found_in_steps(family: Family, score_of: Any) -> tuple[Point, set[Point]]:
    """Run a search that is told only the scores that it asked for."""
    known: dict[Point, Score] = {}
    for _ in range(100):
        state = search(family, known.get)
        if not state.missing:
            return state.best, set(known)
        for point in state.missing:
            assert point not in known
            known[point] = score_of(point)
    raise AssertionError("the search does not end")


@given(st.integers(0, 16), st.integers(0, 3))
def test_the_optimum_of_a_function_with_one_is_found(rate: int, gain: int) -> None:
    def distance(point: Point) -> Score:
        return (abs(point[0] - rate) + 2.0 * abs(point[1] - gain),)

    best, _ = found_in_steps(TWO_AXES, distance)
    assert best == (rate, gain)


@given(st.randoms(use_true_random=False))
def test_the_best_point_is_no_worse_than_all_its_neighbours(chance: Any) -> None:
    table: dict[Point, Score] = {}

    def draw(point: Point) -> Score:
        return table.setdefault(point, (float(chance.randrange(5)), chance.random()))

    best, tried = found_in_steps(TWO_AXES, draw)
    for point in (*TWO_AXES.neighbours(best), *tried):
        assert point in tried
        assert table[best] <= table[point] or point not in TWO_AXES.neighbours(best)


def test_an_end_of_an_axis_is_reported() -> None:
    assert TWO_AXES.at_edge((0, 1)) == ["eta"]
    assert TWO_AXES.at_edge((16, 3)) == ["eta", "gain"]
    assert TWO_AXES.at_edge((8, 2)) == []


def run_of(accuracies: list[float], diverged: bool = False) -> gs.Run:
    summary: dict[str, Any] = {"finished": not diverged}
    if diverged:
        summary["diverged"] = {"round": 99, "device": 0}
    rounds = np.arange(len(accuracies)) * 10
    return gs.Run({}, {"round": rounds, "accuracy": np.array(accuracies)}, summary)


def test_a_run_that_diverges_never_reaches_a_target() -> None:
    accuracies = [0.1, 0.9, 0.2]
    assert rounds_to(run_of(accuracies), 0.8) == 10
    assert rounds_to(run_of(accuracies, diverged=True), 0.8) == math.inf
    assert final(run_of(accuracies, diverged=True), "accuracy") == 0


def test_reaching_a_target_counts_before_rounds_and_rounds_before_accuracy() -> None:
    slow = score([run_of([0.1, 0.1, 0.9])], 0.8)
    fast = score([run_of([0.1, 0.9, 0.8])], 0.8)
    never = score([run_of([0.1, 0.7, 0.79])], 0.8)
    worse = score([run_of([0.1, 0.7, 0.75])], 0.8)
    assert fast < slow < never < worse


@pytest.mark.parametrize("name", families.all_names())
def test_every_method_can_be_made_at_every_first_point(name: str) -> None:
    family = families.family(name)
    for point in family.first_points():
        assert family.at(point).eta == family.values(point)["eta"]


def test_a_power_and_its_control_have_the_same_freedom() -> None:
    for name in ("", "-quasi-global", "-tracking"):
        power = families.family(f"wpm{name}")
        control = families.family(f"gain{name or '-control'}")
        assert len(power.axes) == len(control.axes)
        assert set(control.axes[2].values) <= set(power.axes[2].values)


@given(st.integers(0, 16), st.integers(0, 3))
def test_the_text_of_a_point_names_it(rate: int, gain: int) -> None:
    assert TWO_AXES.point(TWO_AXES.text((rate, gain))) == (rate, gain)


@pytest.mark.parametrize("text", ["eta=0.04", "eta=0.04 gain=7", "gain=1.05 eta=0.04", ""])
def test_a_text_of_other_axes_names_no_point(text: str) -> None:
    assert TWO_AXES.point(text) is None


def test_the_first_value_of_a_closed_axis_is_not_an_end() -> None:
    closed = Axis("gain", (1, 1.05, 1.1), 1, closed_below=True)
    family = Family("closed", gs.GainControl, (rates(0.04), closed))
    assert family.at_edge((3, 0)) == []
    assert family.at_edge((3, 2)) == ["gain"]


@pytest.mark.parametrize("name", families.CANDIDATES)
def test_the_ends_of_a_closed_axis_are_accepted_by_the_method(name: str) -> None:
    family = families.family(name)
    for k, axis in enumerate(family.axes):
        for i in (0, len(axis.values) - 1):
            point = list(family.first_points()[0])
            point[k] = i
            assert isinstance(family.at(tuple(point)), gs.Algorithm)


def test_pairs_without_rows_or_at_an_end_or_with_other_axes_are_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell(cells.DIGITS, "iid", "random ring", 20)
    part = TaskPart("digits", cells.DIGITS, runs=1, seconds_per_run=1.0)
    known = {
        "d-psgd": ("eta=0.32", ""),
        "momentum": ("eta=0.32 beta=0.3", "beta"),
        "wpm": ("eta=0.32 p=3", ""),
    }
    pairs = [(cell, families.family(name)) for name in (*known, "fading-gain")]
    monkeypatch.setattr(TaskPart, "pairs", lambda self, scale: iter(pairs))
    rows = []
    for method, (setting, edge) in known.items():
        row: dict[str, object] = dict(cell.columns)
        rows.append(row | {"method": method, "seed": 0, "setting": setting, "at_edge": edge})
    write_csv(tmp_path / "digits.csv", rows)
    stale = [method.name for _, method in Again(part, tmp_path).pairs(Scale())]
    assert stale == ["momentum", "wpm", "fading-gain"]
    assert not list(Again(part, tmp_path / "nowhere").pairs(Scale()))


def test_a_search_again_goes_cell_by_cell_and_keeps_all_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the rows of a cell that is not at hand, such as that of a trace."""
    first, second = (Cell(cells.DIGITS, "iid", "random ring", n) for n in (10, 20))
    part = TaskPart("digits", cells.DIGITS, runs=1, seconds_per_run=1.0)

    def pairs(part: TaskPart, scale: Scale) -> Iterator[tuple[Cell, Family]]:
        # A family of a power mean is not equal to itself when it is made again.
        for cell in (first, second):
            for name in ("d-psgd", "wpm"):
                yield cell, families.family(name)

    monkeypatch.setattr(TaskPart, "pairs", pairs)
    rows = []
    for cell, method in ((second, "d-psgd"), (Cell(cells.DIGITS, "iid", "hospital", 75), "wpm")):
        row: dict[str, object] = {**cell.columns, "method": method, "seed": 0}
        rows.append(row | {"setting": "eta=0.32", "at_edge": ""})
    write_csv(tmp_path / "digits.csv", rows)
    again = Again(part, tmp_path)
    assert {study.network.devices for study in again.cells(Scale())} == {10}

    monkeypatch.setattr(TaskPart, "rows", found_rows)
    (path,) = again.make(Scale(), Results(Scale(), {}), tmp_path / "out")
    with path.open(newline="") as file:
        made = [(row["devices"], row["method"], row["setting"]) for row in csv.DictReader(file)]
    assert made == [
        ("10", "d-psgd", "eta=0.16"),
        ("10", "wpm", "eta=0.16"),
        ("20", "d-psgd", "eta=0.32"),
        ("20", "wpm", "eta=0.16"),
        ("75", "wpm", "eta=0.32"),
    ]


def found_rows(
    part: TaskPart, scale: Scale, results: Results, cell: Cell, method: Family
) -> list[dict[str, object]]:
    """Return the rows of a search that finds η = 0.16."""
    return [cell.columns | {"method": method.name, "setting": "eta=0.16", "at_edge": ""}]


def test_a_part_of_one_network_keeps_the_rows_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its searches are the pairs of that network; `whole` has all of them."""
    part = TaskPart("cifar", cells.CIFAR, 1, 1.0, network="random ring")
    pairs = list(part.pairs(Scale()))
    assert {cell.network for cell, _ in pairs} == {"random ring"}
    assert {cell.network for cell, _ in part.whole().pairs(Scale())} > {"random ring"}

    monkeypatch.setattr(TaskPart, "rows", found_rows)
    rows: list[dict[str, object]] = []
    for network in ("random ring", "density 0.1"):
        row = Cell(cells.CIFAR, "one label", network, 10).columns
        rows.append(row | {"method": "tracking", "setting": "eta=0.04", "at_edge": ""})
    write_csv(tmp_path / "cifar.csv", rows)
    (path,) = part.make(Scale(), Results(Scale(), {}), tmp_path)
    with path.open(newline="") as file:
        made = [(row["network"], row["setting"]) for row in csv.DictReader(file)]
    assert made == [("random ring", "eta=0.16")] * len(pairs) + [("density 0.1", "eta=0.04")]
