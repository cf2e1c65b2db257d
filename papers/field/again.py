"""Search again where a search of today would go on: new methods, new axes, settings at an end.

The rows of all other pairs of cell and method stay as they are. After a complete run of a task
there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gossamer.study import Study
from papers.field.cells import Cell
from papers.field.paper import HERE, Results, Scale
from papers.field.task_part import Pair, TaskPart, rows_by_pair
from papers.search import Family
from papers.wpm.paper import write_csv

# About how many runs the search of a method in a cell needs, with those that are reported.
_RUNS_PER_PAIR = 22


class Again:
    """A part of `gossamer reproduce field` that completes the results of a task.

    Args:
        part: The task; its cells of all networks count.
        folder: Where its results are.
    """

    def __init__(self, part: TaskPart, folder: Path = HERE / "results") -> None:
        self.__name__ = f"{part.__name__}_again"
        self.TITLE = f"{part.__name__}: searches that its results do not have yet, or not complete"
        self.SECONDS_PER_RUN = part.SECONDS_PER_RUN
        self._part = part.whole()
        self._folder = folder

    def expected_runs(self, scale: Scale) -> int:
        """Return about how many runs the part needs."""
        if scale.name == "tiny":
            return 0
        return _RUNS_PER_PAIR * len(list(self.pairs(scale)))

    def cells(self, scale: Scale) -> list[Study]:
        """Return the first runs that tuning needs."""
        return self.then(scale, Results(scale, {}))

    def then(self, scale: Scale, results: Results) -> list[Study]:
        """Return the runs that are needed next, those of one cell after those of another."""
        if scale.name == "tiny":
            return []  # the results in the folder are of another size
        by_cell: dict[Cell, list[Family]] = {}
        for cell, method in self.pairs(scale):
            by_cell.setdefault(cell, []).append(method)
        for cell, methods in by_cell.items():
            needed: list[Study] = []
            for method in methods:
                needed += self._part.needed(scale, results, cell, method)
            if any(study not in results.by_study for study in needed):
                return needed
        return []

    def pairs(self, scale: Scale) -> Iterator[tuple[Cell, Family]]:
        """Yield the pairs of cell and method whose rows a search of today may change."""
        kept = self._rows()
        if not kept:
            return
        for cell, method in self._part.pairs(scale):
            rows = kept.get(_key(cell, method), [])
            # Where a setting was at the end of an axis, the axis may be longer now.
            if not rows or method.point(str(rows[0]["setting"])) is None or rows[0]["at_edge"]:
                yield cell, method

    def make(self, scale: Scale, results: Results, out: Path) -> list[Path]:
        """Write the results of the task with the rows of the new searches."""
        if scale.name == "tiny":
            return []
        stale = {_key(cell, method) for cell, method in self.pairs(scale)}
        if not stale:
            return []
        kept = self._rows()
        rows: list[dict[str, object]] = []
        for cell, method in self._part.pairs(scale):
            known = kept.pop(_key(cell, method), [])
            if _key(cell, method) in stale:
                known = self._part.rows(scale, results, cell, method)
            rows += known
        for others in kept.values():  # such as those of a trace that is not at hand
            rows += others
        path = out / f"{self._part.__name__}.csv"
        write_csv(path, rows)
        return [path]

    def _rows(self) -> dict[Pair, list[dict[str, object]]]:
        """Return the rows that the results have."""
        return rows_by_pair(self._folder / f"{self._part.__name__}.csv")


def _key(cell: Cell, method: Family) -> Pair:
    return cell.split, cell.network, str(cell.devices), method.name
