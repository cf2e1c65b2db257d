"""One part of the comparison: all methods on the cells of one task."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.study import Study
from papers.field.cells import Cell, Task, cells, methods
from papers.field.families import CENTRAL, family
from papers.field.paper import Results, Scale
from papers.field.score import final, rounds_to, score
from papers.search import Family, Point, Score, search
from papers.wpm.paper import write_csv

_TINY_METHODS = ("d-psgd", "gain-control")
# The best points of a search are compared on a second tuning seed too: one seed can mislead.
_FINALISTS = 3


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
            missing, best = _tune(scale, results, cell, method)
            if best is None:
                needed += missing
            else:
                needed += _reported_studies(scale, cell, method, best)
        return needed

    def make(self, scale: Scale, results: Results, out: Path) -> list[Path]:
        """Write one row per cell, method and seed."""
        rows = []
        for cell, method in self._pairs(scale):
            _, best = _tune(scale, results, cell, method)
            assert best is not None  # `then` has asked for all runs that tuning needs
            for study in _reported_studies(scale, cell, method, best):
                run = results.by_study[study]
                row = cell.columns | {"method": method.name, "central": method.name in CENTRAL}
                row |= {"seed": study.seed, "setting": _text(method, best)}
                row |= {"at_edge": " ".join(method.at_edge(best))}
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


def _tune(
    scale: Scale, results: Results, cell: Cell, method: Family
) -> tuple[list[Study], Point | None]:
    """Return the runs that tuning needs next, and the best settings once there are none.

    The search uses one tuning seed. The best of its points are then compared on two.
    """
    first, second = scale.tuning_seeds[0], scale.tuning_seeds[-1]

    def on(seeds: set[int], point: Point) -> list[Study]:
        return [cell.study(method.at(point), seed, held_out=True) for seed in sorted(seeds)]

    def known(seeds: set[int], point: Point) -> Score | None:
        runs = [results.by_study.get(study) for study in on(seeds, point)]
        found = [run for run in runs if run is not None]
        if len(found) < len(runs):
            return None
        return score(found, cell.task.targets[-1])

    state = search(method, lambda point: known({first}, point))
    if state.missing:
        return _all_of(on({first}, point) for point in state.missing), None
    finalists = state.ranked[:_FINALISTS]
    scores = {point: known({first, second}, point) for point in finalists}
    missing = [point for point, value in scores.items() if value is None]
    if missing:
        return _all_of(on({second}, point) for point in missing), None
    return [], min(finalists, key=lambda point: scores[point] or ())


def _all_of(lists: Iterable[list[Study]]) -> list[Study]:
    return list(itertools.chain.from_iterable(lists))


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


def _text(method: Family, point: Point) -> str:
    """Return the settings of a point as one word per setting."""
    return " ".join(f"{name}={value}" for name, value in method.values(point).items())
