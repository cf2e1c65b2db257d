"""The tables of a page: results per method, and what each target took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gossamer._core.columns import ENDINGS, LOSS, Column, Target
from gossamer.report.description import ranges
from gossamer.report.pack import drawn_number
from gossamer.results.run import Run
from gossamer.results.statistics import Reached, interval, paired, rounds_to
from gossamer.results.tables import Method, difference_text, runs_of, target_words

Cell = dict[str, Any]
Table = dict[str, Any]


@dataclass(frozen=True)
class Quantity:
    """A column of the metrics as a table shows it.

    Attributes:
        label: Its heading.
        column: Its name in the measurements.
        digits: Decimal places.
        scale: Factor of the values that are shown.
        unit: The unit below the heading.
        about: The tooltip.
        metric: The metric that it is of; it then formats the values.
    """

    label: str
    column: str
    digits: int = 0
    scale: float = 1.0
    unit: str = ""
    about: str = ""
    metric: Column | None = None

    @property
    def rising(self) -> bool | None:
        """True if larger is better, False if smaller is; None: that depends."""
        if self.metric is not None:
            return self.metric.rising
        return None if self.column in ("distance", "steps", "staleness") else False

    @classmethod
    def of(cls, metric: Column, ending: str, main: bool) -> Quantity:
        """Return a column of a metric.

        Args:
            metric: The metric.
            ending: Which of its columns: one of `ENDINGS`.
            main: True for the first metric, whose name the headings need not repeat.
        """
        label = _WHICH[ending]
        if not ending:
            label = metric.name
        elif not main:
            label = f"{metric.name}, {label}"
        about = f"{_ABOUT[ending].format(metric.name)}, at the end; {metric.better} is better"
        unit = metric.printed_unit
        return cls(label, metric.name + ending, 0, metric.scale, unit, about, metric)

    def heading(self) -> dict[str, Any]:
        return heading(self.label, self.unit, self.about)

    def cell(self, runs: Sequence[Run]) -> Cell:
        """Return the mean of the seeds with its interval; a dash if there is none."""
        values = list(last_values(runs, self.column).values())
        if not values:
            return cell("–")
        value = interval(values)
        note = ""
        if len(runs) == 1 and runs[0].sampling_error(self.column) is not None:
            value = replace(value, half=runs[0].sampling_error(self.column))
            note = "estimated from a sample of the devices"
        if not math.isfinite(value.mean):
            return cell("–")
        text = value.format(self.digits, self.scale)
        if self.metric is not None:
            text = self.metric.text(value.mean, value.half)
        return cell(text, drawn_number(value.mean * self.scale), note)


_WHICH = {
    "": "mean",
    "_worst": "worst device",
    "_best": "best device",
    "_merged": "merged model",
    "_merged_power": "power mean",
}
_ABOUT = {
    "": "the mean over the devices of {}",
    "_worst": "the {} of the worst device",
    "_best": "the {} of the best device",
    "_merged": "the {} of the mean of all devices’ models",
    "_merged_power": "the {} of the power mean of all devices’ models",
}
_ABOUT_DIFFERENCE = "to the first method, paired by seed, with its 95 % interval"
_OTHERS = (
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
    Quantity("energy", "joules", 1, 1.0, "J", "of all devices together"),
    Quantity("steps", "steps", 0, about="of all devices together, without common rounds"),
    Quantity(
        "staleness",
        "staleness",
        2,
        about="exchanges that changed a device’s model while it computed a gradient, on average",
    ),
)
_COSTS = (
    Quantity("rounds", "round", 0),
    Quantity("sent", "bytes", 1, 1e-6, "MB"),
    Quantity("time", "simulated_seconds", 2, 1.0, "simulated s"),
    Quantity("energy", "joules", 1, 1.0, "J"),
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
    """Return the first metric of each method: means over its seeds with 95 % intervals.

    Args:
        methods: The methods of the page.
    """
    main = metrics_of(methods)[0]
    return _results(methods, [q for q in _measured_quantities(methods) if q.metric is main])


def other_results(methods: Sequence[Method]) -> Table | None:
    """Return what else was measured, as in `results`: other metrics, traffic and time.

    Args:
        methods: The methods of the page.

    Returns:
        A row per method; None if there is nothing else.
    """
    main = metrics_of(methods)[0]
    shown = [q for q in _measured_quantities(methods) if q.metric is not main]
    return _results(methods, shown) if shown else None


def _results(methods: Sequence[Method], shown: Sequence[Quantity]) -> Table:
    main = metrics_of(methods)[0]
    columns = [
        heading("method", number=False),
        heading("seeds", about="runs that the numbers are means of"),
    ]
    for quantity in shown:
        columns.append(quantity.heading())
        if quantity.column == main.name and len(methods) > 1:
            columns.append(heading("difference", main.printed_unit, _ABOUT_DIFFERENCE))
    rising: list[bool | None] = [None, None]
    for quantity in shown:
        rising.append(quantity.rising)
        if quantity.column == main.name and len(methods) > 1:
            rising.append(None)
    rows = []
    for method in methods:
        cells = [cell(method.label, method.label), _seeds_cell(method)]
        for quantity in shown:
            cells.append(quantity.cell(method.measured_runs))
            if quantity.column == main.name and len(methods) > 1:
                cells.append(_difference_cell(method, methods[0], main))
        rows.append(cells)
    _mark_best(rows, rising)
    return {"columns": columns, "rows": rows}


def targets(methods: Sequence[Method]) -> Table | None:
    """Return what it took until the mean over the devices, or the merged model, reached a target.

    Args:
        methods: The methods of the page.

    Returns:
        A row per method, with rounds, bytes and simulated seconds per target; None if there are no
        targets. Values are means over the seeds that have reached the target.
    """
    wanted = all_targets(methods)
    if not wanted:
        return None
    costs = [cost for cost in _COSTS if _any_has(methods, cost.column)]
    metrics = metrics_of(methods)
    shown = []
    columns = [heading("method", number=False)]
    for target in wanted:
        words = target_words(target, metrics)
        for ending in ("", "_merged"):
            if ending and not _any_has(methods, target.name + ending):
                continue
            shown.append((target, ending))
            for cost in costs:
                units = [unit for unit in (cost.unit, ending.strip("_")) if unit]
                columns.append(heading(f"{cost.label} to {words}", ", ".join(units)))
    rows = []
    for method in methods:
        cells = [cell(method.label, method.label)]
        for target, ending in shown:
            cells += _target_cells(method, target, ending, costs)
        rows.append(cells)
    _mark_best(rows, [None, *[False] * (len(columns) - 1)], least=1)
    return {"columns": columns, "rows": rows}


def metrics_of(methods: Sequence[Method]) -> list[Column]:
    """Return the metrics that any run has measured; the loss is the last.

    Args:
        methods: The methods of the page.
    """
    found: dict[str, Column] = {}
    for run in runs_of(methods):
        for column in run.columns:
            found.setdefault(column.name, column)
    loss = found.pop(LOSS.name, LOSS)
    return [*found.values(), loss]


def all_targets(methods: Sequence[Method]) -> list[Target]:
    """Return the targets of all runs of metrics that are measured, the easiest first.

    Args:
        methods: The methods of the page.
    """
    found: dict[str, Target] = {}
    for run in runs_of(methods):
        for target in run.targets:
            found.setdefault(target.text, target)
    ordered = []
    for metric in metrics_of(methods):
        own = [target for target in found.values() if target.name == metric.name]
        if _any_has(methods, metric.name):
            ordered += sorted(own, key=lambda target: target.value, reverse=not metric.rising)
    return ordered


def _mark_best(rows: Sequence[list[Cell]], rising: Sequence[bool | None], least: int = 2) -> None:
    """Mark the best cell of each column, if there are several rows.

    Args:
        rows: The cells, row by row.
        rising: For each column True if larger is better, False if smaller is; None: neither.
        least: Number of rows that must have a value.
    """
    if len(rows) < 2:
        return
    for k, larger in enumerate(rising):
        values = [row[k]["value"] for row in rows]
        known = [value for value in values if isinstance(value, float)]
        if larger is None or len(known) < least:
            continue
        if len(known) == len(rows) and len(set(known)) == 1:  # all are equally good
            continue
        best = max(known) if larger else min(known)
        for row in rows:
            if row[k]["value"] == best:
                row[k]["best"] = True


def _measured_quantities(methods: Sequence[Method]) -> list[Quantity]:
    """Return the columns that any run has; of the loss only two where there are metrics."""
    shown = []
    metrics = metrics_of(methods)
    for metric in metrics:
        main = metric is metrics[0]
        endings: tuple[str, ...] = ENDINGS
        if metric.name == "loss" and not main:
            endings = ("", "_merged")
        shown += [Quantity.of(metric, ending, main) for ending in endings]
    shown += _OTHERS
    return [quantity for quantity in shown if _any_has(methods, quantity.column)]


def _any_has(methods: Sequence[Method], column: str) -> bool:
    return any(run.has(column) for method in methods for run in method.measured_runs)


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


def last_values(runs: Sequence[Run], column: str) -> dict[int, float]:
    """Return the last value of a column by seed.

    Args:
        runs: The runs of a method.
        column: The column; runs without it are left out.
    """
    found = {}
    for run in runs:
        if run.has(column):
            found[run.seed] = float(run.metrics[column][-1])
    return found


def _difference_cell(method: Method, first: Method, metric: Column) -> Cell:
    """Return the difference of a metric to the first method, paired by seed."""
    if method is first:
        return cell("")
    own = last_values(method.measured_runs, metric.name)
    value = paired(own, last_values(first.measured_runs, metric.name))
    if value is None:
        return cell("–")
    return cell(difference_text(value, metric), drawn_number(value.mean * metric.scale))


def _target_cells(
    method: Method, target: Target, ending: str, costs: Sequence[Quantity]
) -> list[Cell]:
    rows = [_row_of_target(run, target, ending) for run in method.runs]
    cells = []
    for cost in costs:
        if not all(run.has(cost.column) for run in method.measured_runs):
            cells.append(cell("–"))
            continue
        taken: list[float | None] = []
        for run, row in zip(method.runs, rows, strict=True):
            value = None
            if row is not None:
                value = float(run.metrics[cost.column][row])
            taken.append(value)
        cells.append(_cost_cell(Reached.over(taken), cost))
    return cells


def _cost_cell(taken: Reached, cost: Quantity) -> Cell:
    """Return what a target took; only what all seeds have reached is sorted by its value."""
    if not taken.count:
        return cell("–", None, "not reached")
    value = None
    if taken.by_all:
        value = drawn_number(taken.mean * cost.scale)
    return cell(taken.format(cost.digits, cost.scale), value)


def _row_of_target(run: Run, target: Target, ending: str) -> int | None:
    """Return the row of the first measurement that has reached a target."""
    if not run.has(target.name + ending):
        return None
    values = run.metrics[target.name + ending]
    row = rounds_to(range(len(values)), values, target.value, target.rising)
    if math.isinf(row):
        return None
    return int(row)
