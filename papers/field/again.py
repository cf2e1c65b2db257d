"""Search again where a search of today would go on: new methods, new axes, settings at an end.

The rows of all other pairs of cell and method stay as they are. After a complete run of a task
there is nothing to do.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from gossamer.study import Study
from papers.families import CENTRAL
from papers.field.cells import Cell
from papers.field.paper import HERE, Results, Scale
from papers.field.task_part import TaskPart
from papers.search import Family
from papers.wpm.paper import write_csv


class Again:
    """A part of `gossamer reproduce field` that completes the results of the tasks.

    Args:
        parts: The tasks.
        folder: Where their results are.
    """

    TITLE = "Searches of methods and settings that the results of the tasks do not have yet"
    SECONDS_PER_RUN = 1.4

    def __init__(self, parts: tuple[TaskPart, ...], folder: Path = HERE / "results") -> None:
        self.__name__ = "again"
        self._parts = parts
        self._folder = folder

    def cells(self, scale: Scale) -> list[Study]:
        """Return the first runs that tuning needs."""
        return self.then(scale, Results(scale, {}))

    def then(self, scale: Scale, results: Results) -> list[Study]:
        """Return the runs that are needed next: for the searches, then those reported."""
        needed: list[Study] = []
        if scale.name == "tiny":
            return needed  # the results in the folder are of another size
        for part in self._parts:
            for cell, method in self._stale(part, scale):
                needed += part.needed(scale, results, cell, method)
        return needed

    def pairs(self, scale: Scale) -> Iterator[tuple[Cell, Family]]:
        """Yield the pairs of all tasks that are searched again."""
        for part in self._parts:
            yield from self._stale(part, scale)

    def make(self, scale: Scale, results: Results, out: Path) -> list[Path]:
        """Write the results of the tasks with the rows of the new searches."""
        paths: list[Path] = []
        if scale.name == "tiny":
            return paths
        for part in self._parts:
            stale = set(self._stale(part, scale))
            if not stale:
                continue
            kept = self._rows(part)
            rows: list[dict[str, object]] = []
            for cell, method in part.pairs(scale):
                if (cell, method) in stale:
                    rows += part.rows(scale, results, cell, method)
                else:
                    rows += kept[_key(cell, method)]
            path = out / f"{part.__name__}.csv"
            write_csv(path, rows)
            paths.append(path)
        return paths

    def _stale(self, part: TaskPart, scale: Scale) -> Iterator[tuple[Cell, Family]]:
        """Yield the pairs of a task whose rows a search of today may change."""
        kept = self._rows(part)
        if not kept:
            return
        for cell, method in part.pairs(scale):
            rows = kept.get(_key(cell, method), [])
            # Where a setting was at the end of an axis, the axis may be longer now.
            if not rows or method.point(str(rows[0]["setting"])) is None or rows[0]["at_edge"]:
                yield cell, method

    def _rows(self, part: TaskPart) -> dict[tuple[str, ...], list[dict[str, object]]]:
        """Return the rows of a task's results by cell and method; none without results."""
        path = self._folder / f"{part.__name__}.csv"
        found: dict[tuple[str, ...], list[dict[str, object]]] = {}
        if path.exists():
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    key = (row["split"], row["network"], row["devices"], row["method"])
                    found.setdefault(key, []).append({**row, "central": row["method"] in CENTRAL})
        return found


def _key(cell: Cell, method: Family) -> tuple[str, ...]:
    return cell.split, cell.network, str(cell.devices), method.name
