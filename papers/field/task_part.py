"""One part of the comparison: all methods on the cells of one task."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.study import Study
from papers.field.cells import Cell, Task, cells, methods
from papers.field.families import CENTRAL, family
from papers.field.paper import Results, Scale
from papers.field.score import final, rounds_to, score
from papers.search import Family, Found, Point, Score, search
from papers.wpm.paper import write_csv

_TINY_METHODS = ("d-psgd", "gain-control")


class TaskPart:
    """A part of `gossamer reproduce field`, named after its task.

    Args:
        name: The name of the part and of its results.
        task: What is learned.
    """

    def __init__(self, name: str, task: Task) -> None:
        self.__name__ = name
        self.TITLE = f"{task.name}: all methods, tuned, by split, network and number of devices"
        self._task = task

    def cells(self, scale: Scale) -> list[Study]:
        """Return the first runs that tuning needs."""
        return self.then(scale, Results(scale, {}))

    def then(self, scale: Scale, results: Results) -> list[Study]:
        """Return the runs that are needed next: for the searches, then those reported."""
        needed = []
        for cell, method in self._pairs(scale):
            found = self._search(scale, results, cell, method)
            for point in found.missing:
                needed += _tuning_studies(scale, cell, method, point)
            if not found.missing:
                needed += _reported_studies(scale, cell, method, found.best)
        return needed

    def make(self, scale: Scale, results: Results, out: Path) -> list[Path]:
        """Write one row per cell, method and seed."""
        rows = []
        for cell, method in self._pairs(scale):
            found = self._search(scale, results, cell, method)
            for study in _reported_studies(scale, cell, method, found.best):
                run = results.by_study[study]
                row = cell.columns | {"method": method.name, "central": method.name in CENTRAL}
                row |= {"seed": study.seed, "setting": _text(method, found.best)}
                row |= {"at_edge": " ".join(method.at_edge(found.best))}
                rows.append(row | _measured(run, cell.task))
        path = out / f"{self.__name__}.csv"
        write_csv(path, rows)
        return [path]

    def _pairs(self, scale: Scale) -> Iterator[tuple[Cell, Family]]:
        """Yield every cell with every method that runs on it."""
        if scale.name == "tiny":
            cell = Cell(_tiny(self._task), "one label", "random ring", 10)
            for name in _TINY_METHODS:
                yield cell, family(name)
            return
        for cell in cells(self._task):
            for name in methods(cell):
                yield cell, family(name)

    def _search(self, scale: Scale, results: Results, cell: Cell, method: Family) -> Found:
        """Return how far the search of a method's settings has come."""

        def known(point: Point) -> Score | None:
            studies = _tuning_studies(scale, cell, method, point)
            if any(study not in results.by_study for study in studies):
                return None
            runs = [results.by_study[study] for study in studies]
            return score(runs, cell.task.targets[-1])

        return search(method, known)


def _tiny(task: Task) -> Task:
    """Return a task that takes a second, to try the code."""
    return replace(task, data=gs.Digits(), model=gs.Softmax(), rounds=10, every=5, test=0, batch=8)


def _tuning_studies(scale: Scale, cell: Cell, method: Family, point: Point) -> list[Study]:
    """Return the runs that give a point its score, on held-out samples and tuning seeds."""
    algorithm = method.at(point)
    return [cell.study(algorithm, seed, held_out=True) for seed in scale.tuning_seeds[:1]]


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


def _text(method: Family, point: Point) -> str:
    """Return the settings of a point as one word per setting."""
    return " ".join(f"{name}={value}" for name, value in method.values(point).items())
