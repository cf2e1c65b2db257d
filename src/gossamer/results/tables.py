"""Results of several runs: the seeds of a method together, and methods side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossamer._core.columns import Column, Target
from gossamer.results.statistics import Interval, interval
from gossamer.results.text import ALWAYS, TableColumn, fitting, joined_headings, text_table

if TYPE_CHECKING:
    from rich.table import Table

    from gossamer.results.run import Run

# How soon a column is left out where a terminal is too narrow: the largest first.
_LEFT_OUT = {
    "_merged": 1,
    "_worst": 2,
    "loss": 3,
    "other target": 4,
    "other metric": 5,
    "_best": 6,
    "_merged_power": 7,
    "distance": 8,
    "merged target": 9,
    "other metric's devices": 10,
}


@dataclass(frozen=True)
class Method:
    """One method's runs, one per seed.

    Attributes:
        label: The method's name in tables.
        runs: The runs, in the order of their seeds.
    """

    label: str
    runs: tuple[Run, ...]

    @property
    def measured_runs(self) -> tuple[Run, ...]:
        """The runs that tables and curves are about.

        These are the finished ones; if none is finished, those with measurements.
        """
        finished = tuple(run for run in self.runs if run.finished)
        return finished or tuple(run for run in self.runs if run.metrics)

    def value(self, name: str) -> Interval:
        """Return the mean of a value over the seeds, with its interval.

        Args:
            name: A number in the summary of a run, such as "accuracy" or "rmse_merged".
        """
        return interval([run.summary[name] for run in self.runs])

    def has(self, name: str) -> bool:
        """True if the summaries of all seeds have a value.

        Args:
            name: As for `value`.
        """
        return all(run.summary.get(name) is not None for run in self.runs)

    def rounds_to(self, target: str, merged: bool = False) -> Interval | None:
        """Return the rounds to a target.

        Args:
            target: As for `to`.
            merged: As for `to`.
        """
        return self.to("rounds", target, merged)

    def seconds_to(self, target: str, merged: bool = False) -> Interval | None:
        """Return the simulated seconds to a target, for studies with a timing.

        Args:
            target: As for `to`.
            merged: As for `to`.
        """
        return self.to("seconds", target, merged)

    def to(self, unit: str, target: str, merged: bool = False) -> Interval | None:
        """Return what it took to reach a target.

        Args:
            unit: "rounds", "bytes" or "seconds".
            target: A target of the study, such as "accuracy >= 0.88".
            merged: The target is to be reached by the merged model, not by the devices' mean.

        Returns:
            The mean over the seeds; None unless every seed reached the target.
        """
        key = f"{unit}_to"
        if merged:
            key += "_merged"
        text = Target.parse(target, "target").text
        reached = [run.summary[key][text] for run in self.runs]
        if None in reached:
            return None
        return interval(reached)

    def _repr_html_(self) -> str:
        return Comparison([self])._repr_html_()


class Comparison(list[Method]):
    """The methods of a comparison, in the order of its studies.

    Printed it is its table; in a notebook it shows its table and its curves.
    """

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and one row per method.

        The columns are the metrics (the mean over the devices, the worst and the best device, and
        the merged model), the loss, what each target took, consensus distance and bytes sent.
        """
        columns = self.columns()
        rows = []
        for k in range(len(self)):
            rows.append([column.cells[k] for column in columns])
        return joined_headings(columns), rows

    def columns(self) -> list[TableColumn]:
        """Return the columns of the table."""
        found = [TableColumn(("method",), tuple(method.label for method in self))]
        metrics = self[0].runs[0].columns
        for column in metrics:
            found += self._metric_columns(column, main=column is metrics[0])
        for target in self[0].runs[0].targets:
            found += self._target_columns(target, metrics)
        if all(method.has("distance") for method in self):
            cells = [method.value("distance").format(3) for method in self]
            found.append(TableColumn(("distance", "to mean"), tuple(cells), _LEFT_OUT["distance"]))
        sent = [f"{method.value('bytes').mean * 1e-6:.1f}" for method in self]
        found.append(TableColumn(("MB", "sent"), tuple(sent)))
        return found

    def _metric_columns(self, column: Column, main: bool) -> list[TableColumn]:
        """Return the columns of one metric: mean, worst, best and merged side by side."""
        unit = f" {column.printed_unit}" if column.printed_unit else ""
        name = "" if main else column.name
        own_lines = (column.name, column.printed_unit) if column.printed_unit else (column.name,)
        lines = {
            "": own_lines,
            "_worst": ("worst", f"{name or 'device'}{unit}"),
            "_best": ("best", f"{name or 'device'}{unit}"),
            "_merged": ("merged", f"{name or 'model'}{unit}"),
            "_merged_power": ("power mean", f"{name or 'model'}{unit}"),
        }
        found = []
        for ending, own in lines.items():
            key = column.name + ending
            if not any(method.has(key) for method in self):
                continue
            if column.name == "loss" and not main and ending:
                continue
            rank = _rank(column, ending, main)
            cells = [_value_text(method, key, column) for method in self]
            found.append(TableColumn(own, tuple(cells), rank))
        return found

    def _target_columns(self, target: Target, metrics: Sequence[Column]) -> list[TableColumn]:
        """Return what a target took: rounds, and simulated seconds if the study has a timing."""
        words = target_words(target, metrics)
        first = self[0].runs[0].summary
        found = []
        for merged in (False, True):
            for unit in ("rounds", "seconds"):
                key = f"{unit}_to" + ("_merged" if merged else "")
                if key not in first:
                    continue
                cells = [_cost_text(method.to(unit, target.text, merged), unit) for method in self]
                lines = (unit, f"to {words}")
                rank = ALWAYS
                if target.name != metrics[0].name:
                    rank = _LEFT_OUT["other target"]
                if merged:
                    lines = (f"merged {unit}", f"to {words}")
                    rank = _LEFT_OUT["merged target"]
                found.append(TableColumn(lines, tuple(cells), rank))
        return found

    def __str__(self) -> str:
        if not self:
            return "no methods"
        title = self[0].runs[0].title(len(self[0].runs))
        return text_table(self.columns(), title)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from gossamer.results.notebook import show_methods

        headings, rows = self.table() if self else ([], [])
        return show_methods(self, headings, rows)


def target_words(target: Target, metrics: Sequence[Column]) -> str:
    """Return a target in the words of a heading.

    Args:
        target: The target.
        metrics: The metrics of the runs, the most important first.

    Returns:
        Such as "90 %" for the first metric, or "mae 40" for another.

    Example:
        >>> from gossamer._core.columns import column_of
        >>> metrics = [column_of("accuracy"), column_of("mae")]
        >>> target_words(Target.parse("accuracy >= 0.9"), metrics)
        '90 %'
        >>> target_words(Target.parse("mae <= 40"), metrics)
        'mae 40'
    """
    for column in metrics:
        if column.name == target.name:
            text = f"{target.value * column.scale:g} {column.printed_unit}".strip()
            if column is metrics[0] and column.share:
                return text
            return f"{column.name} {text}"
    return f"{target.name} {target.value:g}"


def runs_of(methods: Sequence[Method]) -> list[Run]:
    """Return the runs of some methods, method by method.

    Args:
        methods: The methods.
    """
    return [run for method in methods for run in method.runs]


def titled_table(title: str) -> Table:
    """Return an empty table for a terminal, in the style of all tables of the commands.

    Args:
        title: The line above the table.
    """
    from rich import box
    from rich.table import Table

    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
    )


def terminal_table(methods: Sequence[Method], title: str, width: int = 0) -> Table:
    """Return the table of a comparison for a terminal.

    Args:
        methods: The methods, one per row.
        title: The line above the table.
        width: The columns of the terminal; what has no room is left out, such as the best device.
            0: everything is shown.

    Returns:
        A table that `rich.console.Console` prints.
    """
    columns = Comparison(methods).columns()
    if width:
        columns = fitting(columns, width)
    table = titled_table(title)
    for k, heading in enumerate(joined_headings(columns)):
        if k == 0:
            table.add_column(heading, no_wrap=True)
        else:
            table.add_column(heading, justify="right")
    for k in range(len(methods)):
        table.add_row(*[column.cells[k] for column in columns])
    return table


def _rank(column: Column, ending: str, main: bool) -> int:
    """Return how soon a column of a metric is left out."""
    if main:
        return _LEFT_OUT.get(ending, ALWAYS)
    if ending:
        return _LEFT_OUT["other metric's devices"]
    if column.name == "loss":
        return _LEFT_OUT["loss"]
    return _LEFT_OUT["other metric"]


def _value_text(method: Method, key: str, column: Column) -> str:
    if not method.has(key):
        return "–"
    value = method.value(key)
    return column.text(value.mean, value.half)


def _cost_text(value: Interval | None, unit: str) -> str:
    if value is None:
        return "–"
    digits = 2 if unit == "seconds" and value.mean < 100 else 0
    return value.format(digits)
