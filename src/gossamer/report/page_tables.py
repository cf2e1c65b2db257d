"""The tables of a page: results per method, and what each target took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.report.description import ranges
from gossamer.report.pack import drawn_number
from gossamer.results.run import Run
from gossamer.results.statistics import Interval, interval, rounds_to
from gossamer.results.tables import Method, runs_of

Cell = dict[str, Any]
Table = dict[str, Any]


@dataclass(frozen=True)
class Quantity:
    """A column of the metrics as a table shows it."""

    label: str
    column: str
    digits: int
    scale: float = 1.0
    unit: str = ""
    about: str = ""

    def heading(self) -> dict[str, Any]:
        return heading(self.label, self.unit, self.about)

    def cell(self, values: Sequence[float]) -> Cell:
        """Return the mean of the seeds with its interval; a dash if there is none."""
        if not values:
            return cell("–")
        return _interval_cell(interval(values), self.digits, self.scale)


_RESULTS = (
    Quantity("accuracy", "accuracy", 2, 100.0, "%", "mean over the devices, at the end"),
    Quantity(
        "worst device",
        "accuracy_worst",
        2,
        100.0,
        "%",
        "the lowest accuracy of a device, at the end",
    ),
    Quantity("loss", "loss", 3, about="mean test loss over the devices, at the end"),
    Quantity("worst loss", "loss_worst", 3, about="the highest loss of a device, at the end"),
    Quantity(
        "distance to mean",
        "distance",
        3,
        about="mean of ‖w − mean of all models‖ over the devices, at the end",
    ),
    Quantity("sent", "bytes", 1, 1e-6, "MB", "by all devices together; 1 MB is a million bytes"),
    Quantity(
        "time", "simulated_seconds", 2, 1.0, "simulated s", "until the last device was through"
    ),
)
_COSTS = (
    Quantity("rounds", "round", 0),
    Quantity("sent", "bytes", 1, 1e-6, "MB"),
    Quantity("time", "simulated_seconds", 2, 1.0, "simulated s"),
)


def cell(text: str, value: float | str | None = None, note: str = "") -> Cell:
    """Return a cell of a page's table.

    Args:
        text: What is shown.
        value: What the table sorts by; None comes last.
        note: Small print below the text.
    """
    made: Cell = {"text": text, "value": value}
    if note:
        made["note"] = note
    return made


def heading(label: str, unit: str = "", about: str = "", number: bool = True) -> dict[str, Any]:
    """Return the heading of a column of a page's table.

    Args:
        label: What is shown.
        unit: The unit below it.
        about: The tooltip.
        number: True if the column holds numbers.
    """
    return {"label": label, "unit": unit, "about": about, "number": number}


def results(methods: Sequence[Method]) -> Table:
    """Return a row per method: means over its seeds with 95 % intervals.

    Args:
        methods: The methods of the page.
    """
    shown = _measured_quantities(methods)
    columns = [
        heading("method", number=False),
        heading("seeds", about="runs that the numbers are means of"),
    ]
    columns += [quantity.heading() for quantity in shown]
    rows = []
    for method in methods:
        cells = [cell(method.label, method.label), _seeds_cell(method)]
        for quantity in shown:
            values = []
            for run in method.measured_runs:
                if run.has(quantity.column):
                    values.append(float(run.metrics[quantity.column][-1]))
            cells.append(quantity.cell(values))
        rows.append(cells)
    return {"columns": columns, "rows": rows}


def targets(methods: Sequence[Method]) -> Table | None:
    """Return what it took until the mean accuracy or loss reached each target.

    Args:
        methods: The methods of the page.

    Returns:
        A row per method, with rounds, bytes and simulated seconds per target; None if there are no
        targets. A target counts as reached if every seed has reached it.
    """
    wanted = _targets(methods)
    if not wanted:
        return None
    costs = list(_COSTS)
    if not _any_has(methods, "simulated_seconds"):
        costs.pop()
    columns = [heading("method", number=False)]
    for _, _, text in wanted:
        columns += [heading(f"{cost.label} to {text}", cost.unit) for cost in costs]
    rows = []
    for method in methods:
        cells = [cell(method.label, method.label)]
        for column, target, _ in wanted:
            cells += _target_cells(method, column, target, costs)
        rows.append(cells)
    return {"columns": columns, "rows": rows}


def target_values(methods: Sequence[Method], column: str) -> list[float]:
    """Return the targets of all runs for "accuracy" or "loss", ascending.

    Args:
        methods: The methods of the page.
        column: "accuracy" or "loss".
    """
    found: set[float] = set()
    for run in runs_of(methods):
        found.update(run.spec.get("measure", {}).get(f"{column}_targets", []))
    return sorted(found)


def _measured_quantities(methods: Sequence[Method]) -> list[Quantity]:
    """Return the columns that any run has; the worst loss only where there is no accuracy."""
    shown = []
    for quantity in _RESULTS:
        if quantity.column == "loss_worst" and _any_has(methods, "accuracy"):
            continue
        if _any_has(methods, quantity.column):
            shown.append(quantity)
    return shown


def _any_has(methods: Sequence[Method], column: str) -> bool:
    return any(run.has(column) for method in methods for run in method.measured_runs)


def _interval_cell(value: Interval, digits: int, scale: float) -> Cell:
    if not math.isfinite(value.mean):
        return cell("–")
    return cell(value.format(digits, scale), drawn_number(value.mean * scale))


def _seeds_cell(method: Method) -> Cell:
    """Return how many seeds the numbers are of, and the status of those that are not finished."""
    states = [f"seed {run.seed} {run.status_text}" for run in method.runs if not run.finished]
    shown = method.measured_runs
    if len(states) == len(method.runs) and shown:
        last = sorted({int(run.metrics["round"][-1]) for run in shown})
        states.append(f"numbers are of round {ranges(last)}")
    text = str(len(shown))
    if len(shown) < len(method.runs):
        text = f"{len(shown)} of {len(method.runs)}"
    return cell(text, len(shown), "; ".join(states))


def _targets(methods: Sequence[Method]) -> list[tuple[str, float, str]]:
    """Return the column, the value and the text of every target, the easiest first."""
    found = []
    if _any_has(methods, "accuracy"):
        for target in target_values(methods, "accuracy"):
            found.append(("accuracy", float(target), f"{100 * target:g} %"))
    if _any_has(methods, "loss"):
        for target in reversed(target_values(methods, "loss")):
            found.append(("loss", float(target), f"loss {target:g}"))
    return found


def _target_cells(
    method: Method, column: str, target: float, costs: Sequence[Quantity]
) -> list[Cell]:
    rows = [_row_of_target(run, column, target) for run in method.runs]
    reached = [row for row in rows if row is not None]
    if len(reached) < len(rows):
        note = "not reached"
        if reached:
            note = f"{len(reached)} of {len(rows)} seeds"
        return [cell("–", None, note) for _ in costs]
    cells = []
    for cost in costs:
        if not all(cost.column in run.metrics for run in method.runs):
            cells.append(cell("–"))
            continue
        values = []
        for run, row in zip(method.runs, reached, strict=True):
            values.append(float(run.metrics[cost.column][row]))
        cells.append(cost.cell(values))
    return cells


def _row_of_target(run: Run, column: str, target: float) -> int | None:
    """Return the row of the first measurement that has reached a target."""
    if not run.has(column):
        return None
    values = run.metrics[column]
    return rounds_to(range(len(values)), values, target, rising=column == "accuracy")
