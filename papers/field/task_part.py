"""One part of the comparison: all methods on the cells of one task."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import gossamer as gs
from gossamer.study import Study
from papers.families import CENTRAL, family
from papers.field.cells import Cell, Task, cells, methods
from papers.field.paper import Results, Scale
from papers.score import final, rounds_to
from papers.search import Family, Point
from papers.tuning import Tuned, tune
from papers.wpm.paper import write_csv

# Split, network, number of devices and method.
Pair = tuple[str, str, str, str]
_TINY_METHODS = ("d-psgd", "gain-control")
_TINY_RUNS = 40


class TaskPart:
    """A part of `gossamer reproduce field`, named after its task.

    Args:
        name: The name of the part and of its results.
        task: What is learned.
        runs: About how many runs all searches need, with those that are reported.
        seconds_per_run: Seconds of one core.
        network: The only network whose cells are run; None for all. The part keeps the rows of
            other cells that its results have.
    """

    def __init__(
        self, name: str, task: Task, runs: int, seconds_per_run: float, network: str | None = None
    ) -> None:
        self.__name__ = name
        self.TITLE = f"{task.name}: all methods, tuned, by split, network and number of devices"
        self.SECONDS_PER_RUN = seconds_per_run
        self._task = task
        self._runs = runs
        self._network = network

    def expected_runs(self, scale: Scale) -> int:
        """Return about how many runs the part needs."""
        if scale.name == "tiny":
            return _TINY_RUNS
        return self._runs

    def cells(self, scale: Scale) -> list[Study]:
        """Return the first runs that tuning needs."""
        return self.then(scale, Results(scale, {}))

    def then(self, scale: Scale, results: Results) -> list[Study]:
        """Return the runs that are needed next: for the searches, then those reported."""
        needed: list[Study] = []
        for cell, method in self.pairs(scale):
            needed += self.needed(scale, results, cell, method)
        return needed

    def needed(self, scale: Scale, results: Results, cell: Cell, method: Family) -> list[Study]:
        """Return the runs of one method on one cell that are needed next."""
        tuned = _tuned(scale, results, cell, method)
        if tuned.best is None:
            return list(tuned.missing)
        return _reported_studies(scale, cell, method, tuned.best)

    def make(self, scale: Scale, results: Results, out: Path) -> list[Path]:
        """Write one row per cell, method and seed."""
        path = out / f"{self.__name__}.csv"
        rows: list[dict[str, object]] = []
        for cell, method in self.pairs(scale):
            rows += self.rows(scale, results, cell, method)
        if self._network is not None:
            for (_, network, *_), others in rows_by_pair(path).items():
                if network != self._network:
                    rows += others
        write_csv(path, rows)
        return [path]

    def rows(
        self, scale: Scale, results: Results, cell: Cell, method: Family
    ) -> list[dict[str, object]]:
        """Return the rows of one method on one cell, one per seed."""
        rows = []
        best = _tuned(scale, results, cell, method).best
        assert best is not None  # `needed` has asked for all runs that tuning needs
        for study in _reported_studies(scale, cell, method, best):
            run = results.by_study[study]
            row = cell.columns | {"method": method.name, "central": method.name in CENTRAL}
            row |= {"seed": study.seed, "setting": method.text(best)}
            row |= {"at_edge": " ".join(method.at_edge(best))}
            rows.append(row | _measured(run, cell.task))
        return rows

    def pairs(self, scale: Scale) -> Iterator[tuple[Cell, Family]]:
        """Yield every cell with every method that runs on it."""
        if scale.name == "tiny":
            cell = Cell(_tiny(self._task), "one label", "random ring", 10)
            for name in _TINY_METHODS:
                yield cell, family(name)
            return
        for cell in cells(self._task):
            if self._network not in (None, cell.network):
                continue
            for name in methods(cell):
                yield cell, family(name)

    def whole(self) -> TaskPart:
        """Return the part with the cells of all networks."""
        return TaskPart(self.__name__, self._task, self._runs, self.SECONDS_PER_RUN)


def rows_by_pair(path: Path) -> dict[Pair, list[dict[str, object]]]:
    """Return the rows of a task's results by pair of cell and method.

    Args:
        path: The file; without it, there are no rows.
    """
    found: dict[Pair, list[dict[str, object]]] = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                pair = (row["split"], row["network"], row["devices"], row["method"])
                found.setdefault(pair, []).append({**row, "central": row["method"] in CENTRAL})
    return found


def _tuned(scale: Scale, results: Results, cell: Cell, method: Family) -> Tuned:
    """Return the settings of a method on a cell, or the runs that tuning needs next."""
    trial = partial(cell.study, held_out=True)
    return tune(method, trial, results.by_study, cell.task.targets[-1], scale.tuning_seeds)


def _tiny(task: Task) -> Task:
    """Return a task that takes a second, to try the code."""
    return replace(task, data=gs.Digits(), model=gs.Softmax(), rounds=10, every=5, test=0, batch=8)


def _reported_studies(scale: Scale, cell: Cell, method: Family, point: Point) -> list[Study]:
    """Return the runs that are reported, on test samples."""
    algorithm = method.at(point)
    seeds = range(scale.first_seed, scale.first_seed + scale.seeds)
    return [cell.study(algorithm, seed) for seed in seeds]


def _measured(run: gs.Run, task: Task) -> dict[str, object]:
    """Return rounds, megabytes and simulated seconds to each target, and final accuracies."""
    row: dict[str, object] = {"diverged": run.diverged}
    for target in task.targets:
        t = rounds_to(run, target)
        costs = {"rounds": "", "megabytes": "", "seconds": ""}
        if math.isfinite(t):
            at = list(run.metrics["round"]).index(t)
            costs["rounds"] = f"{t:g}"
            costs["megabytes"] = f"{run.metrics['bytes'][at] / 1e6:.4g}"
            costs["seconds"] = f"{run.metrics['simulated_seconds'][at]:.4g}"
        for name, value in costs.items():
            row[f"{name}_to_{target:g}"] = value
    for name in ("accuracy", "accuracy_worst", "accuracy_merged"):
        row[name] = f"{final(run, name):.4f}"
    return row
