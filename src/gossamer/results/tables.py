"""Results of several runs: the seeds of a method together, and methods side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from gossamer._core import checks
from gossamer._core.columns import SAMPLING_ERROR, Column, Target
from gossamer.errors import InputError
from gossamer.results.statistics import Interval, Reached, interval, paired
from gossamer.results.text import ALWAYS, TableColumn, joined_headings, rows_of, text_table

if TYPE_CHECKING:
    from gossamer.results.run import Run

# How soon a column is left out where a terminal is too narrow: the largest first.
_LEFT_OUT = {
    "difference": 1,
    "_merged": 2,
    "_worst": 3,
    "loss": 4,
    "other target": 5,
    "other metric": 6,
    "_best": 7,
    "_merged_power": 8,
    "distance": 9,
    "merged target": 10,
    "other metric's devices": 11,
}
# Numbers of a summary that describe the run.
_NOT_MEASURED = ("finished", "seed", "rounds", "round")
_IN_A_PAPER = _LEFT_OUT["other metric"]  # the largest rank that a table in LaTeX shows


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

        These are the finished ones whose measurements are there; if there is none, all with
        measurements.
        """
        finished = tuple(run for run in self.runs if run.finished and run.metrics)
        return finished or tuple(run for run in self.runs if run.metrics)

    @property
    def diverged(self) -> tuple[Run, ...]:
        """The runs that diverged. A method that has any has no results over all seeds."""
        return tuple(run for run in self.runs if run.diverged)

    @property
    def diverged_text(self) -> str:
        """What a table says of the runs that diverged; empty if none did."""
        diverged = self.diverged
        if not diverged:
            return ""
        if len(self.runs) == 1:
            return diverged[0].status_text
        return f"{len(diverged)} of {len(self.runs)} seeds diverged"

    def value(self, name: str) -> Interval:
        """Return the mean of a value over the seeds, with its interval.

        A single seed has the interval of its sample of devices, if only a sample is measured.

        Args:
            name: A number in the summary of a run, such as "accuracy" or "rmse_merged".

        Raises:
            InputError: If the summary of a run has no such number.
        """
        for run in self.runs:
            _check_number(run.summary, name)
        found = interval([run.summary[name] for run in self.runs])
        if found.count > 1:
            return found
        return replace(found, half=self.runs[0].summary.get(name + SAMPLING_ERROR))

    def has(self, name: str) -> bool:
        """True if the summaries of all seeds have a value, and no seed diverged.

        Args:
            name: As for `value`.
        """
        return not self.diverged and all(run.summary.get(name) is not None for run in self.runs)

    def difference(self, first: Method, name: str) -> Interval | None:
        """Return the mean difference to another method, paired by seed, with its 95 % interval.

        Args:
            first: The method to compare with.
            name: As for `value`.

        Returns:
            This method's value minus the other's, over the seeds that both have; None if there are
            none. A single seed has no interval.

        Example:
            >>> from gossamer.results.run import Run
            >>> first = Method("A", (Run({"seed": 0}, {}, {"loss": 2.0}),))
            >>> Method("B", (Run({"seed": 0}, {}, {"loss": 1.5}),)).difference(first, "loss").mean
            -0.5
        """
        return paired(self._by_seed(name), first._by_seed(name))

    def _by_seed(self, name: str) -> dict[int, float]:
        """Return a value of every run that has it, by seed."""
        found = {}
        for run in self.runs:
            value = run.summary.get(name)
            if value is not None and not run.diverged:
                found[run.seed] = value
        return found

    def rounds_to(self, target: str, merged: bool = False) -> Reached:
        """Return the rounds to a target.

        Args:
            target: As for `to`.
            merged: As for `to`.
        """
        return self.to("rounds", target, merged)

    def seconds_to(self, target: str, merged: bool = False) -> Reached:
        """Return the simulated seconds to a target, for studies with a timing.

        Args:
            target: As for `to`.
            merged: As for `to`.
        """
        return self.to("seconds", target, merged)

    def to(self, unit: str, target: str, merged: bool = False) -> Reached:
        """Return what it took to reach a target.

        Args:
            unit: "rounds", "bytes", "seconds" or "joules".
            target: A target of the study, such as "accuracy >= 0.88".
            merged: The target is to be reached by the merged model, not by the devices' mean.

        Returns:
            The mean over the seeds that reached the target, and how many did. The mean is
            `math.inf` if no seed reached it.
        """
        return Reached.over(list(self._taken(unit, target, merged).values()))

    def difference_to(
        self, first: Method, unit: str, target: str, merged: bool = False
    ) -> Interval | None:
        """Return the mean difference of what a target took, paired by seed.

        Args:
            first: The method to compare with.
            unit: As for `to`.
            target: As for `to`.
            merged: As for `to`.

        Returns:
            This method's cost minus the other's, over the seeds on which both reached the target;
            None if there are none.
        """
        own = _known(self._taken(unit, target, merged))
        return paired(own, _known(first._taken(unit, target, merged)))

    def _taken(self, unit: str, target: str, merged: bool) -> dict[int, float | None]:
        """Return what a target took by seed; None if it was not reached."""
        key = f"{unit}_to"
        if merged:
            key += "_merged"
        text = Target.parse(target, "target").text
        taken: dict[int, float | None] = {}
        for run in self.runs:
            taken[run.seed] = None
            if not run.diverged:
                known = run.summary.get(key, {})
                checks.one_of("target", text, tuple(known))
                taken[run.seed] = known[text]
        return taken

    def _repr_html_(self) -> str:
        return Comparison([self])._repr_html_()


def _check_number(summary: Mapping[str, Any], name: str) -> None:
    """Raise `InputError` if a summary has no number of a name."""
    numbers = [key for key, value in summary.items() if isinstance(value, Real)]
    if name not in numbers:
        measured = [key for key in numbers if key not in _NOT_MEASURED]
        checks.one_of("name", name, measured)
        raise InputError("name", name, "the name of a measured value")


class Comparison(list[Method]):
    """The methods of a comparison, in the order of its studies.

    Printed it is its table; in a notebook it shows its table and its curves.
    """

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and one row per method.

        The columns are the metrics (the mean over the devices, the worst and the best device, and
        the merged model), the difference of the first metric to the first method, paired by seed,
        the loss, what each target took, consensus distance and bytes sent.
        """
        columns = self.columns()
        return joined_headings(columns), rows_of(columns)

    def columns(self) -> list[TableColumn]:
        """Return the columns of the table."""
        found = [TableColumn(("method",), tuple(method.label for method in self))]
        metrics = self._typical.columns
        for column in metrics:
            found += self._metric_columns(column, main=column is metrics[0])
        for target in self._typical.targets:
            found += self._target_columns(target, metrics)
        if any(method.has("distance") for method in self):
            cells = _cells(self, "distance", lambda value: value.format(3))
            found.append(TableColumn(("distance", "to mean"), cells, _LEFT_OUT["distance"]))
        sent = _cells(self, "bytes", lambda value: f"{value.mean * 1e-6:.1f}")
        found.append(TableColumn(("MB", "sent"), sent))
        return found

    @property
    def _typical(self) -> Run:
        """A run that says what was measured: the first that did not diverge, if there is one."""
        runs = runs_of(self)
        for run in runs:
            if not run.diverged:
                return run
        return runs[0]

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
            is_first = main and not ending  # the column in which a diverged method is marked
            if not is_first and not any(method.has(key) for method in self):
                continue
            if column.name == "loss" and not main and ending:
                continue
            rank = _rank(column, ending, main)
            cells = [_value_text(method, key, column) for method in self]
            if is_first:
                cells = [method.diverged_text or cells[k] for k, method in enumerate(self)]
            found.append(TableColumn(own, tuple(cells), rank))
            if is_first and len(self) > 1:
                found.append(self._differences(column))
        return found

    def _differences(self, column: Column) -> TableColumn:
        """Return the difference of a metric to the first method, paired by seed."""
        cells = [""]
        for method in self[1:]:
            cells.append(difference_text(method.difference(self[0], column.name), column))
        lines = ("difference", f"to first {column.printed_unit}".strip())
        return TableColumn(lines, tuple(cells), _LEFT_OUT["difference"])

    def _target_columns(self, target: Target, metrics: Sequence[Column]) -> list[TableColumn]:
        """Return what a target took: rounds, and seconds and joules if the study has them."""
        words = target_words(target, metrics)
        first = self._typical.summary
        found = []
        for merged in (False, True):
            for unit in ("rounds", "seconds", "joules"):
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

    def to_latex(self) -> str:
        """Return the table for a paper, with the rules of the LaTeX package booktabs.

        Columns that matter least are left out, such as the best device and the distance to the
        mean; `columns` has them all.
        """
        from gossamer.results.latex import latex_table

        return latex_table([column for column in self.columns() if column.rank <= _IN_A_PAPER])

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


def _rank(column: Column, ending: str, main: bool) -> int:
    """Return how soon a column of a metric is left out."""
    if main:
        return _LEFT_OUT.get(ending, ALWAYS)
    if ending:
        return _LEFT_OUT["other metric's devices"]
    if column.name == "loss":
        return _LEFT_OUT["loss"]
    return _LEFT_OUT["other metric"]


def _cells(
    methods: Sequence[Method], name: str, text: Callable[[Interval], str]
) -> tuple[str, ...]:
    """Return the cells of a column, with a dash where a method has no value."""
    cells = []
    for method in methods:
        if method.has(name):
            cells.append(text(method.value(name)))
        else:
            cells.append("–")
    return tuple(cells)


def _value_text(method: Method, key: str, column: Column) -> str:
    if not method.has(key):
        return "–"
    value = method.value(key)
    return column.text(value.mean, value.half)


def difference_text(value: Interval | None, column: Column) -> str:
    """Return a difference of a metric with its sign and its interval.

    Args:
        value: The difference; None if it is not known.
        column: The metric.

    Example:
        >>> from gossamer._core.columns import column_of
        >>> difference_text(Interval(0.012, 0.005, 5), column_of("accuracy"))
        '+1.20 ± 0.50'
    """
    if value is None or not math.isfinite(value.mean):
        return "–"
    text = column.text(value.mean, value.half)
    if value.mean > 0:
        return f"+{text}"
    return text


def _known(taken: dict[int, float | None]) -> dict[int, float]:
    return {seed: value for seed, value in taken.items() if value is not None}


def _cost_text(value: Reached, unit: str) -> str:
    digits = 2 if unit == "seconds" and value.mean < 100 else 0
    return value.format(digits)
