"""The picture of docs/how-to-choose.md: which method for which data and links, and how sure.

gossamer reproduce field overview

It runs nothing: it reads the results of the tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.results.palette import COLOURS
from gossamer.study import Study
from papers.drawing import saved_figure
from papers.field.cells import SPLIT_NAMES, SPLITS, Cell
from papers.field.compare import HARDEST, TASKS, Measured, load, ranked
from papers.field.paper import Results, Scale
from papers.field.tables import find, places, ties
from papers.wpm.paper import write_csv

TITLE = "which method for which data and links, and how sure: a picture of the tasks' results"

_PANELS = {
    "rounds": "Fewest rounds",
    "megabytes": "Fewest bytes",
    "seconds": "Least simulated time",
}
# Methods whose name has this part share a colour; the first that fits. All others are grey.
_FAMILIES = {
    "tracking": COLOURS[2],
    "k-gt": COLOURS[2],
    "quasi-global": COLOURS[0],
    "momentum": COLOURS[1],
    "adam": COLOURS[4],
    "gain": COLOURS[3],
    "wpm": COLOURS[3],
    "nids": COLOURS[5],
    "extra": COLOURS[5],
    "d2": COLOURS[5],
}
_OTHER = "#888888"
# Marks for a task: the method is the best alone, among the best, or significantly behind.
_ALONE, _AMONG, _BEHIND = "●", "◐", "○"
_NOT_MEASURED = "–"


@dataclass(frozen=True)
class Choice:
    """The method that is shown for one kind of data and links.

    Attributes:
        method: Its name; empty if no method reaches the targets.
        others: Methods that are among the best on as many tasks, the best of them first.
        marks: One mark per task.
    """

    method: str
    others: tuple[str, ...]
    marks: str


def choose(measured: Measured, place: tuple[str, str, int], quantity: str) -> Choice:
    """Return the method that is among the best on most tasks, of these the cheapest.

    Args:
        measured: The results.
        place: Split, network and number of devices.
        quantity: A cost.
    """
    best: dict[Cell, list[str]] = {}
    for task in measured.tasks:
        cell = find(measured, task, place)
        if cell is not None:
            best[cell] = ties(measured, cell, quantity)
    counts = Counter(method for names in best.values() for method in names)
    first = ""
    others: tuple[str, ...] = ()
    if counts:
        first, *rest = sorted(
            counts, key=lambda name: (-counts[name], _excess(measured, best, name, quantity))
        )
        others = tuple(name for name in rest if counts[name] == counts[first])
    marks = [_mark(best.get(Cell(TASKS[task], *place)), first) for task in measured.tasks]
    return Choice(first, others, " ".join(marks))


def _mark(best: list[str] | None, method: str) -> str:
    """Return the mark of a method, given the best of a cell; None if it was not measured."""
    if best is None:
        return _NOT_MEASURED
    if method not in best:
        return _BEHIND
    if len(best) == 1:
        return _ALONE
    return _AMONG


def cells(scale: Scale) -> list[Study]:
    """Return no runs."""
    return []


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Draw the picture from the results in a folder."""
    measured = load(out)
    path = out / "overview.png"
    columns = _columns(measured)
    size = {"figsize": (1.5 + 1.35 * len(columns), 2.5 * len(_PANELS)), "squeeze": False}
    with saved_figure(path, len(_PANELS), 1, **size) as (figure, axes):
        for axis, quantity in zip(axes[:, 0], _PANELS, strict=True):
            _panel(axis, measured, columns, quantity)
        figure.suptitle(_legend(measured), fontsize=9)
    write_csv(out / "overview.csv", rows(measured))
    return [path, out / "overview.csv"]


def rows(measured: Measured) -> list[dict[str, object]]:
    """Return what the picture shows, a row per tile."""
    found: list[dict[str, object]] = []
    for quantity in _PANELS:
        for place in places(measured):
            choice = choose(measured, place, quantity)
            row: dict[str, object] = {"quantity": quantity}
            row |= dict(zip(("split", "network", "devices"), map(str, place), strict=True))
            row |= {"method": choice.method, "as_good": ", ".join(choice.others)}
            found.append(row | {"marks": choice.marks})
    return found


def _legend(measured: Measured) -> str:
    """Return what the marks mean."""
    tasks = ", ".join(measured.tasks)
    marks = {
        _ALONE: "alone the best",
        _AMONG: "among the best",
        _BEHIND: "significantly behind",
        _NOT_MEASURED: "not measured",
    }
    meanings = ", ".join(f"{mark} {meaning}" for mark, meaning in marks.items())
    return f"A mark per task ({tasks}; five seeds): {meanings}"


def _columns(measured: Measured) -> list[tuple[str, int]]:
    """Return the networks and numbers of devices, from few devices to many."""
    found = {(network, devices) for _, network, devices in places(measured)}
    return sorted(found, key=lambda column: (column[0] != "random ring", *column))


def _panel(axis: Any, measured: Measured, columns: list[tuple[str, int]], quantity: str) -> None:
    """Draw the choices by one cost: a tile for each kind of data and links."""
    from matplotlib.patches import Rectangle

    known = set(places(measured))
    for i, split in enumerate(SPLITS):
        for k, (network, devices) in enumerate(columns):
            place = (split, network, devices)
            if place not in known:
                continue
            choice = choose(measured, place, quantity)
            colour = _colour(choice.method)
            axis.add_patch(Rectangle((k - 0.48, i - 0.46), 0.96, 0.92, color=colour, alpha=0.3))
            axis.text(k, i - 0.26, choice.method or "none", ha="center", va="center", fontsize=8)
            axis.text(k, i + 0.05, _or(choice.others), ha="center", va="center", fontsize=6)
            axis.text(k, i + 0.32, choice.marks, ha="center", va="center", fontsize=8)
    axis.set_xlim(-0.5, len(columns) - 0.5)
    axis.set_ylim(len(SPLITS) - 0.5, -0.5)
    axis.set_xticks(range(len(columns)), [f"{name}\n{count} devices" for name, count in columns])
    axis.set_yticks(range(len(SPLITS)), [SPLIT_NAMES[split] for split in SPLITS])
    axis.tick_params(length=0, labelsize=8)
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_title(_PANELS[quantity], fontsize=10, loc="left", fontweight="bold")


def _excess(measured: Measured, best: dict[Cell, list[str]], method: str, quantity: str) -> float:
    """Return the mean logarithm of a method's cost over that of the best, over the tasks."""
    total = 0.0
    for cell in best:
        order = ranked(measured, cell, quantity, HARDEST)
        if not order:
            continue
        costs = dict(order)
        if method not in costs:
            return math.inf
        total += math.log(costs[method] / order[0][1])
    return total


def _or(others: tuple[str, ...]) -> str:
    """Return the methods that are as good, in two lines at most."""
    if not others:
        return ""
    if len(others) > 2:
        return f"or {others[0]},\n{others[1]}, {len(others) - 2} more"
    return "or " + ",\n".join(others)


def _colour(method: str) -> str:
    for part, colour in _FAMILIES.items():
        if part in method:
            return colour
    return _OTHER
