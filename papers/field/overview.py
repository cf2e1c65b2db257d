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
from papers.field.compare import HARDEST, TASKS, Measured, load, ranked, task_name
from papers.field.paper import Results, Scale
from papers.field.tables import find, places, ties
from papers.wpm.paper import write_csv

TITLE = "which method for which data and links, and how sure: a picture of the tasks' results"

_PANELS = {
    "rounds": "Fewest rounds",
    "megabytes": "Fewest bytes",
    "seconds": "Least simulated time",
}
_SUMMARY = "In all cells: the method that is among the best in most of them"
# Methods whose name has this part share a colour; the first that fits. All others are grey.
_FAMILIES = {
    "tracking": ("gradient tracking, alone or with a gain: 2 vectors per message", COLOURS[2]),
    "k-gt": ("", COLOURS[2]),
    "quasi-global": ("quasi-global momentum, alone or with a gain", COLOURS[0]),
    "momentum": ("momentum per device", COLOURS[1]),
    "adam": ("Adam", COLOURS[4]),
    "gain": ("a gain alone", COLOURS[3]),
    "wpm": ("", COLOURS[3]),
    "nids": ("other corrections", COLOURS[5]),
    "extra": ("", COLOURS[5]),
    "d2": ("", COLOURS[5]),
}
_OTHER = ("local steps and others", "#888888")
# The opacity of a tile whose method is among the best nowhere, and what is added to it up to
# that of a method which is among the best everywhere.
_PALE, _SURE = 0.08, 0.47
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


@dataclass(frozen=True)
class Summary:
    """The method that is among the best in most cells of one kind of data.

    Attributes:
        method: Its name; empty if there is none.
        next: The method that follows it.
        cells: Number of cells.
        among: Number of cells in which the method is among the best.
        next_among: The same for the one that follows.
        by_task: The same by task, as text.
    """

    method: str
    next: str
    cells: int
    among: int
    next_among: int
    by_task: str


def summarise(measured: Measured, split: str, quantity: str) -> Summary:
    """Return the method that is among the best in most cells of a split, and its rival.

    Args:
        measured: The results.
        split: A key of SPLITS.
        quantity: A cost.
    """
    best: dict[Cell, list[str]] = {}
    for cell in measured.cells:
        if cell.split == split:
            best[cell] = ties(measured, cell, quantity)
    counts = Counter(method for names in best.values() for method in names)
    order = sorted(
        counts, key=lambda name: (-counts[name], _excess(measured, best, name, quantity), name)
    )
    first, second = (*order, "", "")[:2]
    by_task = []
    for task in measured.tasks:
        here = [names for cell, names in best.items() if task_name(cell) == task]
        if here:
            by_task.append(f"{task} {sum(first in names for names in here)} of {len(here)}")
    return Summary(first, second, len(best), counts[first], counts[second], ", ".join(by_task))


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
    width = 1.5 + 1.35 * max(3, len(columns))
    size = {"figsize": (width, 2.5 * (1 + len(_PANELS))), "squeeze": False}
    with saved_figure(path, 1 + len(_PANELS), 1, **size) as (figure, axes):
        _draw_summary(axes[0, 0], measured)
        for axis, quantity in zip(axes[1:, 0], _PANELS, strict=True):
            _panel(axis, measured, columns, quantity)
        figure.suptitle(_legend(measured), fontsize=9)
        shown = {_colour(str(row["method"])) for row in rows(measured)}
        labels = [
            label for label in (*_FAMILIES.values(), _OTHER) if label[0] and label[1] in shown
        ]
        handles = [_tile(0, 0, 0, 0, colour, 1.0) for _, colour in labels]
        names = [name for name, _ in labels]
        figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8)
    write_csv(out / "overview.csv", rows(measured))
    return [path, out / "overview.csv"]


def rows(measured: Measured) -> list[dict[str, object]]:
    """Return what the picture shows, a row per tile; those of all cells first."""
    found: list[dict[str, object]] = []
    for quantity in _PANELS:
        for split in _splits(measured):
            summary = summarise(measured, split, quantity)
            row: dict[str, object] = {
                "quantity": quantity,
                "split": split,
                "network": "all",
                "devices": "all",
            }
            rival = f"{summary.next}: {summary.next_among} of {summary.cells}"
            row |= {"method": summary.method, "as_good": rival, "marks": summary.by_task}
            found.append(row)
    for quantity in _PANELS:
        for place in places(measured):
            choice = choose(measured, place, quantity)
            row = {"quantity": quantity}
            row |= dict(zip(("split", "network", "devices"), map(str, place), strict=True))
            row |= {"method": choice.method, "as_good": ", ".join(choice.others)}
            found.append(row | {"marks": choice.marks})
    return found


def _splits(measured: Measured) -> list[str]:
    """Return the splits that were measured, in their order."""
    found = {cell.split for cell in measured.cells}
    return [split for split in SPLITS if split in found]


def _legend(measured: Measured) -> str:
    """Return what the marks and the opacity mean."""
    tasks = ", ".join(measured.tasks)
    marks = {
        _ALONE: "alone the best",
        _AMONG: "among the best",
        _BEHIND: "significantly behind",
        _NOT_MEASURED: "not measured",
    }
    meanings = ", ".join(f"{mark} {meaning}" for mark, meaning in marks.items())
    sure = "The stronger the colour, the more often the method is among the best."
    return f"{sure} A mark per task ({tasks}; five seeds):\n{meanings}"


def _columns(measured: Measured) -> list[tuple[str, int]]:
    """Return the networks and numbers of devices, from few devices to many."""
    found = {(network, devices) for _, network, devices in places(measured)}
    return sorted(found, key=lambda column: (column[0] != "random ring", *column))


def _tile(x: float, y: float, width: float, height: float, colour: str, share: float) -> Any:
    """Return a rectangle around a point, as opaque as a share says."""
    from matplotlib.patches import Rectangle

    corner = (x - width / 2, y - height / 2)
    return Rectangle(corner, width, height, color=colour, alpha=_PALE + _SURE * share)


def _draw_summary(axis: Any, measured: Measured) -> None:
    """Draw a tile for each kind of data and each cost, over all cells."""
    splits = _splits(measured)
    for k, quantity in enumerate(_PANELS):
        for i, split in enumerate(splits):
            found = summarise(measured, split, quantity)
            share = found.among / max(1, found.cells)
            axis.add_patch(_tile(k, i, 0.98, 0.92, _colour(found.method), share))
            title = f"{found.method or 'none'}: {found.among} of {found.cells} cells"
            rival = f"next: {found.next or 'none'}, {found.next_among} of {found.cells}"
            centred = {"ha": "center", "va": "center"}
            axis.text(k, i - 0.24, title, fontsize=11, fontweight="bold", **centred)
            axis.text(k, i + 0.06, found.by_task, fontsize=8, **centred)
            axis.text(k, i + 0.3, rival, fontsize=8, **centred)
    axis.set_xticks(range(len(_PANELS)), list(_PANELS.values()))
    _finish(axis, _SUMMARY, len(_PANELS), splits)


def _panel(axis: Any, measured: Measured, columns: list[tuple[str, int]], quantity: str) -> None:
    """Draw the choices by one cost: a tile for each kind of data and links."""
    known = set(places(measured))
    for i, split in enumerate(SPLITS):
        for k, (network, devices) in enumerate(columns):
            place = (split, network, devices)
            if place not in known:
                continue
            choice = choose(measured, place, quantity)
            among = choice.marks.count(_ALONE) + choice.marks.count(_AMONG)
            share = among / max(1, among + choice.marks.count(_BEHIND))
            axis.add_patch(_tile(k, i, 0.96, 0.92, _colour(choice.method), share))
            axis.text(k, i - 0.26, choice.method or "none", ha="center", va="center", fontsize=8)
            axis.text(k, i + 0.05, _or(choice.others), ha="center", va="center", fontsize=6)
            axis.text(k, i + 0.32, choice.marks, ha="center", va="center", fontsize=8)
    axis.set_xticks(range(len(columns)), [f"{name}\n{count} devices" for name, count in columns])
    _finish(axis, _PANELS[quantity], len(columns), list(SPLITS))


def _finish(axis: Any, title: str, columns: int, splits: list[str]) -> None:
    """Name the rows of a panel, and remove what a table has no use for."""
    axis.set_xlim(-0.5, columns - 0.5)
    axis.set_ylim(len(splits) - 0.5, -0.5)
    axis.set_yticks(range(len(splits)), [SPLIT_NAMES[split] for split in splits])
    axis.tick_params(length=0, labelsize=8)
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_title(title, fontsize=10, loc="left", fontweight="bold")


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
    for part, (_, colour) in _FAMILIES.items():
        if part in method:
            return colour
    return _OTHER[1]
