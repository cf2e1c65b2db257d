"""`gossamer runs` lists runs without loading torch; `gossamer figure` draws them for a paper."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from gossamer._core.columns import ENDINGS, Column
from gossamer.errors import DataError, GossamerError
from gossamer.results.find import find_runs, select_runs
from gossamer.results.palette import STATUS
from gossamer.results.run import Run
from gossamer.results.runs import read_any, shown_status

_WIDE = 100  # columns of a terminal from which the curves are shown
BLOCKS = "▁▂▃▄▅▆▇█"
LETTERS = "_.:-=+*#"


def runs(folder: Path, as_json: bool) -> None:
    """Print the runs at or below a folder.

    Args:
        folder: Where to look.
        as_json: Print one JSON document instead of a table.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: give one that holds runs")
    rows = [Row.read(path) for path in find_runs(folder)]
    if as_json:
        document = {"folder": str(folder), "runs": [row.as_dict() for row in rows]}
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    elif not rows:
        typer.echo(f"no runs in {folder}")
    else:
        _print(rows, folder)


def figure(paths: Sequence[Path], out: Path, x: str, y: str, width: str) -> None:
    """Draw finished runs for a paper.

    Args:
        paths: Run folders, or folders that hold some; files among them are ignored.
        out: The file to write.
        x: What the horizontal axis shows.
        y: What the vertical axis shows.
        width: The width of the figure in print.
    """
    from gossamer.report.figures import paper
    from gossamer.report.grouping import group_by_method, read, short_name

    folders = select_runs([path for path in paths if not path.is_file()])
    methods, notes = group_by_method([read(folder) for folder in folders])
    metrics: dict[str, list[dict[str, Any]]] = {}
    for method in methods:
        for run in method.runs:
            if run.finished and not run.metrics:
                notes.append(f"{short_name(run)} is left out: its metrics.parquet is missing")
            elif run.finished:
                metrics.setdefault(method.label, []).append(run.metrics)
            else:
                notes.append(f"{short_name(run)} is left out: it {run.status_text}")
    for note in notes:
        typer.echo(note, err=True)
    if not metrics:
        raise DataError("none of these runs is finished: there is nothing to draw")
    paper(metrics, out, methods[0].runs[0].columns, x, y, width)
    seeds = max(map(len, metrics.values()))
    words = f"{len(metrics)} methods" if len(metrics) > 1 else "1 method"
    if seeds > 1:
        words += f", bands of 95 % over {seeds} seeds"
    typer.echo(f"{out}: {words}")


@dataclass(frozen=True)
class Row:
    """A run as it is listed, with the values of its newest measurement."""

    run: Run
    changed: str  # when a file of the folder was last written, in ISO 8601

    @classmethod
    def read(cls, folder: Path) -> Row:
        """Read a run with as little as a list needs; a damaged one has status "broken".

        Args:
            folder: The run folder.
        """
        run = read_any(folder, per_device=False)
        if not run.method and not run.problem:
            run = replace(run, method=_label(run))
        return cls(run, _changed(folder))

    @property
    def state(self) -> str:
        """The status; a run that has not reported for a minute was killed."""
        return shown_status(self.run)

    @property
    def column(self) -> Column:
        """The column of the curve: the first metric of the run, else its loss."""
        return self.run.column

    def values(self, column: str) -> list[float | None]:
        """Return the values of a column; None where one is not finite.

        Args:
            column: The name of the column.
        """
        found = []
        for value in self.run.metrics.get(column, ()):
            found.append(float(value) if math.isfinite(value) else None)
        return found

    def newest(self, column: str) -> float | None:
        """Return the newest value of a column; None if there is none.

        Args:
            column: The name of the column.
        """
        values = self.values(column)
        return values[-1] if values else None

    def as_dict(self) -> dict[str, Any]:
        """The row as `--json` prints it."""
        run = self.run
        return {
            "folder": str(run.folder),
            "name": str(run.spec.get("name") or Path(str(run.folder)).name),
            "method": run.method,
            "seed": run.seed,
            "state": self.state,
            "round": run.round,
            "rounds": run.rounds,
            "loss": self.newest("loss"),
            "metrics": {column.name: self._newest_values(column) for column in run.columns},
            "when": self.changed,
            "curve": self.values(self.column.name),
            "of": self.column.name,
        }

    def _newest_values(self, column: Column) -> dict[str, float | None]:
        """Return the newest mean over the devices, worst and best device, and merged model."""
        values = {}
        for ending in ENDINGS:
            if column.name + ending in self.run.metrics:
                values[ending.strip("_") or "mean"] = self.newest(column.name + ending)
        return values


def spark(
    values: Sequence[float | None], share: bool = True, width: int = 16, ascii_only: bool = False
) -> str:
    """Return a curve as a line of block characters.

    Args:
        values: The values; None is left out.
        share: Shares are drawn from 0 to 1, so that lines can be compared; others from 0 to their
            largest value.
        width: The number of characters at most.
        ascii_only: Draw with ASCII characters.

    Example:
        >>> spark([0.1, 0.5, 0.9, 1.0]), spark([0.1, 0.5, 0.9, 1.0], ascii_only=True)
        ('▁▅██', '_=##')
    """
    shades = LETTERS if ascii_only else BLOCKS
    known = [value for value in values if value is not None]
    if len(known) > width:  # evenly spaced, the first and the last among them
        known = [known[round(k * (len(known) - 1) / (width - 1))] for k in range(width)]
    top = 1.0 if share else max([*known, 1e-12])
    line = ""
    for value in known:
        shade = int(len(shades) * value / top)
        line += shades[min(len(shades) - 1, max(0, shade))]
    return line


def _print(rows: Sequence[Row], folder: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("run", overflow="fold")
    table.add_column("method", overflow="fold")
    for heading in ("seed", "rounds", "result", "merged"):
        table.add_column(heading, justify="right", overflow="fold", no_wrap=True)
    wide = console.width >= _WIDE
    if wide:
        table.add_column("", overflow="fold", no_wrap=True)
    for heading in ("state", "when"):
        table.add_column(heading, overflow="fold", no_wrap=True)
    above = ""
    for row in rows:
        parent, name = os.path.split(os.path.relpath(str(row.run.folder), folder))
        if parent and parent != above:  # the folder of a comparison, once above its runs
            table.add_row(Text(f"{parent}/", "bold"))
        above = parent
        if name == ".":
            name = str(row.run.folder)
        elif parent:
            name = f" {name}"
        cells = [name, row.run.method, str(row.run.seed), _rounds(row), _score(row), _merged(row)]
        if wide:
            values = row.values(row.column.name)
            cells.append(spark(values, row.column.share, ascii_only=console.options.ascii_only))
        state = Text(row.state, STATUS[row.state])
        table.add_row(*map(Text, cells), state, _moment(row.changed))
    console.print(table)


def _rounds(row: Row) -> str:
    if row.state == "finished":
        return str(row.run.rounds)
    return f"{row.run.round}/{row.run.rounds}"


def _score(row: Row) -> str:
    """Return the newest value of the run's first metric, with its name where it is no accuracy."""
    value = row.newest(row.column.name)
    if value is None:
        return ""
    return row.column.short_text(value, row.run.sampling_error(row.column.name))


def _merged(row: Row) -> str:
    """Return the newest value of the merged model, without the name of the metric."""
    value = row.newest(f"{row.column.name}_merged")
    if value is None:
        return ""
    return row.column.value_text(value).replace(" %", "%")


def _moment(changed: str) -> str:
    """Return a time of today by the clock, any other by its date."""
    local = datetime.fromisoformat(changed).astimezone()
    now = datetime.now().astimezone()
    if local.date() == now.date():
        return local.strftime("%H:%M")
    if local.year == now.year:
        return local.strftime("%d %b")
    return local.strftime("%Y-%m-%d")


def _label(run: Run) -> str:
    """Return the label of a method whose run has no summary yet; this loads torch."""
    from gossamer.study.restore import study_of

    try:
        return study_of(run).algorithm.label
    except GossamerError:
        return run.label


def _changed(folder: Path) -> str:
    """Return when a file in a folder was last written."""
    times = [file.stat().st_mtime for file in folder.iterdir() if file.is_file()]
    newest = max(times, default=folder.stat().st_mtime)
    return datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")
