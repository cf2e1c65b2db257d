"""All methods on one split: tuned for seconds to a target, with the joules and bytes that it costs.

Every method is searched by the same procedure (`papers.tuning`) on tuning seeds and held-out
samples, and reported on other seeds and the test samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gossamer as gs
from gossamer.results.palette import COLOURS
from gossamer.study import Study, interval
from papers.asynchronous.families import all_families
from papers.asynchronous.paper import Results, Scale
from papers.asynchronous.setting import (
    ALONE,
    IN_BACKGROUND,
    IN_PAIRS,
    IN_ROUNDS,
    TINY,
    Cell,
    Setting,
)
from papers.drawing import saved_figure
from papers.score import final, rounds_to
from papers.search import Axis, Family, Point
from papers.tuning import Tuned, tune
from papers.values import selected
from papers.wpm.paper import number, write_csv

# The quantities of the tables: the column of the metrics, and its unit.
_COSTS = {"hours": ("round", 3600.0), "kilojoules": ("joules", 1e3), "megabytes": ("bytes", 1e6)}
# What all methods are compared with, seed by seed: the form and the method.
_REFERENCES = ((IN_ROUNDS, "d-psgd"), (IN_ROUNDS, "quasi-global"))
_FORM_COLOURS = {
    ALONE: "0.8",
    IN_ROUNDS: "0.6",
    IN_PAIRS: COLOURS[0],
    IN_BACKGROUND: COLOURS[1],
}


class Comparison:
    """A part of `gossamer reproduce asynchronous`.

    Args:
        name: The name of the part and of its results.
        setting: Contacts and durations.
        split: How the data are split.
        runs: About how many runs all searches need, with those that are reported.
        seconds_per_run: Seconds of one core.
    """

    def __init__(
        self, name: str, setting: Setting, split: str, runs: int, seconds_per_run: float
    ) -> None:
        self.__name__ = name
        self.TITLE = f"digits, {split}, hospital: with common rounds, in pairs, in the background"
        self.SECONDS_PER_RUN = seconds_per_run
        self._setting = setting
        self._split = split
        self._runs = runs

    def expected_runs(self, scale: Scale) -> int:
        """Return about how many runs the part needs."""
        if scale.name == "tiny":
            return 3 * len(list(all_families()))
        return self._runs

    def cells(self, scale: Scale) -> list[Study]:
        """Return the first runs that tuning needs."""
        return self.then(scale, Results(scale, {}))

    def then(self, scale: Scale, results: Results) -> list[Study]:
        """Return the runs that are needed next: for the searches, then those reported."""
        needed: list[Study] = []
        for cell, method in self._pairs(scale):
            tuned = _tuned(scale, results, cell, method)
            if tuned.best is None:
                needed += tuned.missing
            else:
                needed += _reported(scale, cell, method, tuned.best)
        return needed

    def make(self, scale: Scale, results: Results, out: Path) -> list[Path]:
        """Write one row per method and seed, the means over the seeds, and the figure."""
        rows = []
        for cell, method in self._pairs(scale):
            best = _tuned(scale, results, cell, method).best
            assert best is not None  # `then` has asked for all runs that tuning needs
            for study in _reported(scale, cell, method, best):
                row: dict[str, object] = {"split": cell.split, "form": cell.form}
                row |= {"method": method.name}
                row |= {"seed": study.seed, "setting": method.text(best)}
                row |= {"at_edge": " ".join(method.at_edge(best))}
                rows.append(row | _measured(results.by_study[study], cell))
        path = out / f"{self.__name__}.csv"
        write_csv(path, rows)
        targets = self._cell(scale, ALONE).targets
        summary = out / f"{self.__name__}_summary.csv"
        write_csv(summary, list(_summary(path, targets)))
        savings = out / f"{self.__name__}_savings.csv"
        write_csv(savings, list(_savings(path, targets)))
        figure = out / f"{self.__name__}.png"
        _draw(summary, targets[-1], figure)
        return [path, summary, savings, figure]

    def _cell(self, scale: Scale, form: str) -> Cell:
        setting = TINY if scale.name == "tiny" else self._setting
        return Cell(setting, self._split, form)

    def _pairs(self, scale: Scale) -> Iterator[tuple[Cell, Family]]:
        """Yield every method with the form in which it runs."""
        for form, method in all_families():
            if scale.name == "tiny":
                method = replace(method, axes=tuple(map(_shortest, method.axes)))
            yield self._cell(scale, form), method


def _shortest(axis: Axis) -> Axis:
    """Return an axis with its first value only."""
    return Axis(axis.name, (axis.values[axis.start],), 0)


def _tuned(scale: Scale, results: Results, cell: Cell, method: Family) -> Tuned:
    """Return the settings of a method, or the runs that tuning needs next."""
    trial = partial(cell.study, held_out=True)
    return tune(method, trial, results.by_study, cell.targets[-1], scale.tuning_seeds)


def _reported(scale: Scale, cell: Cell, method: Family, point: Point) -> list[Study]:
    """Return the runs that are reported, on test samples."""
    algorithm = method.at(point)
    seeds = range(scale.first_seed, scale.first_seed + scale.seeds)
    return [cell.study(algorithm, seed) for seed in seeds]


def _measured(run: gs.Run, cell: Cell) -> dict[str, object]:
    """Return what a run took to reach each target, and what it had at its end."""
    row: dict[str, object] = {"diverged": run.diverged}
    # A round of the network is time; the simulator's own clock does not know the trace's.
    for target in cell.targets:
        t = rounds_to(run, target)
        for name, (column, unit) in _COSTS.items():
            row[f"{name}_to_{target:g}"] = ""
            if math.isfinite(t):
                at = list(run.metrics["round"]).index(t)
                scale = cell.seconds_per_round if column == "round" else 1.0
                row[f"{name}_to_{target:g}"] = f"{run.metrics[column][at] * scale / unit:.4g}"
    for name in ("accuracy", "accuracy_worst", "accuracy_merged"):
        row[name] = f"{final(run, name):.4f}"
    for name in ("joules", "bytes", "steps", "staleness"):
        row[name] = ""
        if name in run.metrics:
            row[name] = f"{run.metrics[name][-1]:.6g}"
    row["clock_seconds_per_round"] = ""
    if cell.form == IN_ROUNDS:
        seconds = run.metrics["simulated_seconds"][-1] / run.metrics["round"][-1]
        row["clock_seconds_per_round"] = f"{seconds:.4g}"
    return row


def _summary(path: Path, targets: tuple[float, ...]) -> Iterator[dict[str, object]]:
    """Yield the means over the seeds: one row per method, form and target."""
    rows = selected(path, "")
    for form, method in dict.fromkeys((row["form"], row["method"]) for row in rows):
        here = [row for row in rows if (row["form"], row["method"]) == (form, method)]
        for target in targets:
            row: dict[str, object] = {"form": form, "method": method, "target": target}
            row |= {"setting": here[0]["setting"], "at_edge": here[0]["at_edge"]}
            for name in _COSTS:
                row |= _mean(here, f"{name}_to_{target:g}", name)
            row |= _mean(here, "accuracy", "accuracy_%", 100)
            row |= _mean(here, "staleness", "staleness")
            yield row


def _savings(path: Path, targets: tuple[float, ...]) -> Iterator[dict[str, object]]:
    """Yield what every method saves of the costs of a reference, in per cent, paired by seed."""
    by_method: dict[tuple[str, str], list[dict[str, str]]] = {}
    for run in selected(path, ""):
        by_method.setdefault((run["form"], run["method"]), []).append(run)
    for than in _REFERENCES:
        for (form, method), rows in by_method.items():
            for target in targets:
                row: dict[str, object] = {"than_form": than[0], "than": than[1]}
                row |= {"form": form, "method": method, "target": target}
                for name in _COSTS:
                    pairs = zip(rows, by_method[than], strict=True)
                    shares = [_saved(*pair, f"{name}_to_{target:g}") for pair in pairs]
                    row |= _mean([{name: share} for share in shares], name, f"{name}_saved_%")
                yield row


def _saved(ours: dict[str, str], other: dict[str, str], column: str) -> str:
    """Return the share of a cost that is saved, in per cent; empty if a run misses the target.

    It is empty too if the initial model has reached the target, at no cost.
    """
    assert ours["seed"] == other["seed"]
    if "" in (ours[column], other[column]) or float(other[column]) == 0:
        return ""
    return str(100 * (1 - float(ours[column]) / float(other[column])))


def _mean(
    rows: list[dict[str, str]], column: str, name: str, scale: float = 1.0
) -> dict[str, object]:
    """Return mean and half-width over the seeds; empty if a seed has no value."""
    values = [row[column] for row in rows]
    found = None
    if "" not in values:
        found = interval([float(value) for value in values])
    mean = number(found, 2, scale)
    return {name: mean["ours"], f"{name}_95": mean["ours_95"]}


def _draw(summary: Path, target: float, path: Path) -> None:
    """Draw what every method needs to reach the target that all were tuned for."""
    rows = selected(summary, f"target={target:g}")
    size = (12, 0.8 + 0.24 * len(rows))
    with saved_figure(path, 1, len(_COSTS), figsize=size, sharey=True) as (_, axes):
        for axis, name in zip(axes, _COSTS, strict=True):
            _draw_bars(axis, rows, name)
            axis.set(xlabel=f"{name} to {target:.0%}")
        axes[0].set_yticks(range(len(rows)), [f"{row['method']}, {row['form']}" for row in rows])
        axes[0].invert_yaxis()


def _draw_bars(axis: Any, rows: list[dict[str, str]], name: str) -> None:
    """Draw one bar per method; a cross for one that does not reach the target on all seeds."""
    for k, row in enumerate(rows):
        if row[name] == "":
            axis.plot(0, k, "x", color="0.4")
            continue
        half = float(row[f"{name}_95"] or 0)
        axis.barh(k, float(row[name]), xerr=half, color=_FORM_COLOURS[row["form"]], height=0.7)
