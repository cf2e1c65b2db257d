"""Methods and comparisons."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from rich.console import Console

from gossamer.cli.tables import terminal_table
from gossamer.results.run import Progress, Run
from gossamer.results.tables import Comparison, Method, runs_of


def run(seed: int, accuracy: float | None, reached: int | None, **more: Any) -> Run:
    summary = {
        "finished": True,
        "accuracy": accuracy,
        "accuracy_worst": accuracy and 0.7,
        "accuracy_best": accuracy and 0.9,
        "accuracy_merged": accuracy and 0.95,
        "loss": 1.0,
        "distance": 0.5,
        "bytes": 2_000_000,
        "rounds_to": {"accuracy >= 0.8": reached},
    }
    return Run({"seed": seed}, {}, summary | more)


def test_a_target_is_the_mean_of_the_seeds_that_reached_it() -> None:
    both = Method("A", (run(0, 0.8, 10), run(1, 0.9, 20)))
    assert both.value("accuracy").mean == 0.8500000000000001
    found = both.rounds_to("accuracy >= 0.8")
    assert found is not None
    assert (found.mean, found.count) == (15.0, 2)
    some = Method("A", (run(0, 0.8, 10), run(1, 0.7, None))).rounds_to("accuracy >= 0.8")
    assert (some.mean, some.count, some.of) == (10, 1, 2)
    none = Method("A", (run(0, 0.8, None),)).rounds_to("accuracy >= 0.8")
    assert (none.mean, none.count) == (math.inf, 0)


def test_a_table_has_a_row_per_method() -> None:
    methods = Comparison([Method("A", (run(0, 0.8, 10),)), Method("B", (run(0, 0.7, None),))])
    headings, rows = methods.table()
    assert headings[0].strip() == "method"
    assert "rounds\nto 80 %" in headings
    assert rows[0] == ["A", "80.00", "", "70.00", "90.00", "95.00", "1.000", "10", "0.500", "2.0"]
    assert rows[1][2] == "-10.00"
    assert rows[1][7] == "–"
    for row in rows:
        assert len(row) == len(headings)
    console = Console(width=100, record=True, file=None, quiet=True)
    table = terminal_table(methods, "demo")
    assert table.row_count == 2
    assert table.title == "demo"
    assert console.measure(table).maximum <= 100


def test_the_loss_stands_alone_where_there_is_no_accuracy() -> None:
    plain = run(0, None, None, rounds_to={"loss <= 0.5": 7})
    headings, rows = Comparison([Method("A", (plain,))]).table()
    for heading in headings:
        assert "accuracy" not in heading
    assert rows == [["A", "1.000", "7", "0.500", "2.0"]]


def test_simulated_seconds_to_a_target() -> None:
    timed = run(0, 0.8, 10, seconds_to={"accuracy >= 0.8": 12.345})
    headings, rows = Comparison([Method("A", (timed,))]).table()
    assert "seconds\nto 80 %" in headings
    assert "12.35" in rows[0] or "12.34" in rows[0]


def test_tables_are_about_finished_runs_if_there_are_any() -> None:
    finished = replace(run(0, 0.8, 10), metrics={"round": [0]})
    running = Run({}, {"round": [0]}, {}, progress=Progress(5, None, 0.0))
    waiting = Run({}, {}, {}, progress=Progress(0, None, 0.0))
    assert Method("A", (finished, running)).measured_runs == (finished,)
    assert Method("A", (running, waiting)).measured_runs == (running,)
    assert runs_of([Method("A", (finished,)), Method("B", (running,))]) == [finished, running]


def test_differences_to_the_first_method_are_paired_by_seed() -> None:
    first = Method("A", (run(0, 0.5, 10), run(1, 0.7, 20), run(2, 0.6, None)))
    second = Method("B", (run(1, 0.72, 15), run(0, 0.53, 9), run(5, 0.9, 1)))
    found = second.difference(first, "accuracy")
    assert found.count == 2
    assert math.isclose(found.mean, 0.025)
    assert math.isclose(found.half, 12.706204736 * 0.005, rel_tol=1e-6)
    rounds = second.difference_to(first, "rounds", "accuracy >= 0.8")
    assert (rounds.mean, rounds.count) == (-3, 2)
    headings, rows = Comparison([first, second]).table()
    assert headings[2] == "difference\nto first %"
    assert (rows[0][2], rows[1][2]) == ("", "+2.50 ± 6.35")
    assert "2 of 3: 15 ± 64" in rows[0]
    alone = Method("C", (run(7, 0.9, 1),))
    assert Comparison([first, alone]).table()[1][1][2] == "–"


def test_a_comparison_prints_its_table() -> None:
    methods = Comparison([Method("A", (run(0, 0.8, 10),)), Method("B", (run(0, 0.7, None),))])
    for made in methods:
        made.runs[0].spec.update(name="demo", rounds=9, network={"devices": 3})
    lines = str(methods).splitlines()
    assert lines[0] == "demo: 3 devices, 9 rounds"
    assert lines[3].split()[0] == "method"
    assert [line.split()[0] for line in lines[5:]] == ["A", "B"]
    assert repr(methods) == str(methods)
    assert str(Comparison()) == "no methods"
