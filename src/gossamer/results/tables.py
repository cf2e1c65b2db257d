"""Results of several runs: the seeds of a method together, and methods side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossamer.results.statistics import Interval, interval

if TYPE_CHECKING:
    from rich.table import Table

    from gossamer.results.run import Run


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
            name: A number in the summary of a run, such as "accuracy".
        """
        return interval([run.summary[name] for run in self.runs])

    def rounds_to(self, kind: str, target: str) -> Interval | None:
        """Return the rounds to a target.

        Args:
            kind: As for `to`.
            target: As for `to`.
        """
        return self.to("rounds", kind, target)

    def seconds_to(self, kind: str, target: str) -> Interval | None:
        """Return the simulated seconds to a target, for studies with a timing.

        Args:
            kind: As for `to`.
            target: As for `to`.
        """
        return self.to("seconds", kind, target)

    def to(self, unit: str, kind: str, target: str) -> Interval | None:
        """Return what it took to reach a target.

        Args:
            unit: "rounds", "bytes" or "seconds".
            kind: "accuracy" or "loss".
            target: The target as the summary writes it, such as "0.88".

        Returns:
            The mean over the seeds; None unless every seed reached the target.
        """
        reached = [run.summary[f"{unit}_to_{kind}"][target] for run in self.runs]
        if None in reached:
            return None
        return interval(reached)

    def _repr_html_(self) -> str:
        return Comparison([self])._repr_html_()


class Comparison(list[Method]):
    """The methods of a comparison, in the order of its studies.

    In a notebook it shows its table and its curves.
    """

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and one row per method.

        The columns are accuracy, loss, what each target took, consensus distance and bytes sent.
        """
        first = self[0].runs[0].summary
        classifies = first["accuracy"] is not None
        headings = ["\nmethod"]
        if classifies:
            headings += ["accuracy\n%", "worst\ndevice %"]
        headings.append("loss")
        targets = self._targets()
        for unit, kind, target in targets:
            if kind == "accuracy":
                headings.append(f"{unit}\nto {float(target) * 100:g} %")
            else:
                headings.append(f"{unit} to\nloss {target}")
        headings += ["distance\nto mean", "MB\nsent"]
        rows = []
        for method in self:
            cells = [method.label]
            if classifies:
                cells.append(method.value("accuracy").format(2, 100))
                cells.append(method.value("accuracy_worst").format(2, 100))
            cells.append(method.value("loss").format(3))
            cells += [_cost_text(method.to(*target), target[0]) for target in targets]
            cells.append(method.value("distance").format(3))
            cells.append(f"{method.value('bytes').mean * 1e-6:.1f}")
            rows.append(cells)
        return headings, rows

    def _targets(self) -> list[tuple[str, str, str]]:
        """Return the unit, the kind and the target of every column that says what a target took."""
        first = self[0].runs[0].summary
        units = ["rounds"]
        if "seconds_to_accuracy" in first:
            units.append("seconds")
        kinds = ["loss"]
        if first["accuracy"] is not None:
            kinds = ["accuracy", "loss"]
        found = []
        for kind in kinds:
            for target in first[f"rounds_to_{kind}"]:
                found += [(unit, kind, target) for unit in units]
        return found

    def _repr_html_(self) -> str:
        from gossamer.results.notebook import show_methods

        headings, rows = self.table() if self else ([], [])
        return show_methods(self, headings, rows)


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


def terminal_table(methods: Sequence[Method], title: str) -> Table:
    """Return the table of a comparison for a terminal.

    Args:
        methods: The methods, one per row.
        title: The line above the table.

    Returns:
        A table that `rich.console.Console` prints.
    """
    headings, rows = Comparison(methods).table()
    table = titled_table(title)
    table.add_column(headings[0], no_wrap=True)
    for heading in headings[1:]:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _cost_text(value: Interval | None, unit: str) -> str:
    if value is None:
        return "–"
    digits = 2 if unit == "seconds" and value.mean < 100 else 0
    return value.format(digits)
