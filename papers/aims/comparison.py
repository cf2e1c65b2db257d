"""Mirror functions beside D-PSGD and gains: all tuned, on one task, by split and network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gossamer as gs
from gossamer.results.palette import COLOURS
from gossamer.study import interval
from papers.aims.families import all_families
from papers.drawing import saved_figure
from papers.families import AGGREGATE
from papers.field.cells import Cell, Task
from papers.field.paper import Results, Scale
from papers.field.task_part import TaskPart
from papers.search import Axis, Family
from papers.values import selected
from papers.wpm.paper import number, write_csv

DEVICES = 32
# Split and network of the cells: the paper's data are not IID, and its links few.
CELLS = (("one label", "density 0.05"),)


class Comparison(TaskPart):
    """A part of `gossamer reproduce aims`, named after its task.

    Args:
        name: The name of the part and of its results.
        task: What is learned.
        runs: About how many runs all searches need, with those that are reported.
        seconds_per_run: Seconds of one core.
    """

    def __init__(self, name: str, task: Task, runs: int, seconds_per_run: float) -> None:
        super().__init__(name, task, runs, seconds_per_run)
        self.TITLE = f"{task.name}: mirror functions, a p that adapts, and their controls"
        self._learned = task

    def pairs(self, scale: Scale) -> Iterator[tuple[Cell, Family]]:
        """Yield every cell with every method."""
        task = self._learned
        places: Sequence[tuple[str, str]] = CELLS
        devices = DEVICES
        if scale.name == "tiny":
            task = replace(
                task, data=gs.Digits(), model=gs.Softmax(), rounds=10, every=5, test=0, batch=8
            )
            places = CELLS[:1]
            devices = 10
        for split, network in places:
            for family in all_families():
                if scale.name == "tiny":
                    family = replace(family, axes=tuple(map(_shortest, family.axes)))
                yield Cell(task, split, network, devices), family

    def make(self, scale: Scale, results: Results, out: Path) -> list[Path]:
        """Write one row per cell, method and seed, one per cell and method, and the figure."""
        (path,) = super().make(scale, results, out)
        summary = out / f"{self.__name__}_summary.csv"
        write_csv(summary, list(_summary(path, self._learned)))
        figure = out / f"{self.__name__}.png"
        _draw(summary, self._learned, figure)
        return [path, summary, figure]


def _shortest(axis: Axis) -> Axis:
    """Return an axis with its first value only."""
    return Axis(axis.name, (axis.values[axis.start],), 0)


def _summary(path: Path, task: Task) -> Iterator[dict[str, object]]:
    """Yield the means over the seeds: one row per cell, method and target."""
    rows = selected(path, "")
    for cell in dict.fromkeys((row["split"], row["network"]) for row in rows):
        here = [row for row in rows if (row["split"], row["network"]) == cell]
        for target in task.targets:
            counts = {}
            for name in dict.fromkeys(row["method"] for row in here):
                counts[name] = _rounds([row for row in here if row["method"] == name], target)
            base = _better(counts["d-psgd"], counts[AGGREGATE])
            for name, rounds in counts.items():
                of_method = [row for row in here if row["method"] == name]
                yield _row(of_method, target, rounds, base)


def _row(
    of_method: list[dict[str, str]],
    target: float,
    rounds: list[float] | None,
    base: list[float] | None,
) -> dict[str, object]:
    """Return the means of one method on one cell for one target."""
    first = of_method[0]
    row: dict[str, object] = {}
    for column in ("task", "split", "network", "devices", "method", "setting", "at_edge"):
        row[column] = first[column]
    row["target"] = target
    row |= number(interval(rounds) if rounds else None)
    row |= {"saved_%": "", "saved_95": ""}
    if rounds and base:
        shares = [1 - own / other for own, other in zip(rounds, base, strict=True)]
        saved = number(interval(shares), 0, 100)
        row |= {"saved_%": saved["ours"], "saved_95": saved["ours_95"]}
    accuracy = number(interval([float(each["accuracy"]) for each in of_method]), 1, 100)
    return row | {"accuracy_%": accuracy["ours"], "accuracy_95": accuracy["ours_95"]}


def _rounds(rows: list[dict[str, str]], target: float) -> list[float] | None:
    """Return the rounds to a target by seed; None if a run does not reach it."""
    found = [row[f"rounds_to_{target:g}"] for row in rows]
    if "" in found:
        return None
    return [float(value) for value in found]


def _better(one: list[float] | None, other: list[float] | None) -> list[float] | None:
    """Return the form of D-PSGD that needs fewer rounds."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=sum)


def _draw(summary: Path, task: Task, path: Path) -> None:
    """Draw the rounds to the target that all methods were tuned for."""
    target = task.targets[-1]
    rows = selected(summary, f"target={target:g}")
    places = list(dict.fromkeys((row["split"], row["network"]) for row in rows))
    names = list(dict.fromkeys(row["method"] for row in rows))
    with saved_figure(path, 1, len(places), figsize=(12, 3.4), sharey=True, squeeze=False) as (
        figure,
        axes,
    ):
        for axis, place in zip(axes[0], places, strict=True):
            here = [row for row in rows if (row["split"], row["network"]) == place]
            _draw_bars(axis, here, task.rounds)
            axis.set_title(f"{place[0]}, {place[1]}, to {target:.0%}", fontsize=9)
            axis.set(xlabel="rounds", xlim=(0, task.rounds * 1.18))
        axes[0][0].set_yticks(range(len(names)), names)
        axes[0][0].invert_yaxis()
        figure.suptitle(f"{task.name}, {DEVICES} devices, all methods tuned", fontsize=10)


def _draw_bars(axis: Any, rows: list[dict[str, str]], rounds: int) -> None:
    """Draw one bar per method; an empty one for a method that does not reach the target."""
    for k, row in enumerate(rows):
        colour = COLOURS[0]
        if "gain" in row["method"]:
            colour = COLOURS[1]
        elif "d-psgd" in row["method"]:
            colour = "0.6"
        if row["ours"]:
            mean = float(row["ours"])
            axis.barh(k, mean, xerr=float(row["ours_95"] or 0), color=colour, height=0.7)
            text = f" {mean:.0f}"
        else:
            axis.barh(k, rounds, color="none", edgecolor=colour, linestyle=":", height=0.7)
            text = f" not by all seeds; {row['accuracy_%']} % after {rounds} rounds"
            mean = 0.0
        axis.text(mean + float(row["ours_95"] or 0), k, text, va="center", fontsize=8)
