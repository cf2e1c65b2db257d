"""`gossamer export`: measurements as CSV or Parquet, the table of a comparison in LaTeX."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from gossamer._core import checks
from gossamer._core.files import write_atomically
from gossamer.errors import DataError, InputError
from gossamer.results.runs import Runs, read
from gossamer.results.tables import Comparison, Method

FORMATS = ("csv", "parquet", "latex")


def export(paths: Sequence[Path], to: str, out: Path | None, means: bool) -> None:
    """Write runs in a format of other programs.

    Args:
        paths: Run folders, or folders with runs below them.
        to: One of `FORMATS`.
        out: The file to write; None means standard output.
        means: Write the means over the devices only, not a row per device.

    Raises:
        InputError: If the format is not known, or a terminal cannot show it.
        DataError: If there are no runs, or none that the format can show.
    """
    checks.one_of("--to", to, FORMATS)
    if to == "parquet" and out is None and sys.stdout.isatty():
        raise InputError("--to", to, "-o FILE with it: a terminal cannot show Parquet")
    if to == "latex":
        content = f"{_comparison(paths).to_latex()}\n".encode()
    else:
        content = _measurements(read(*paths), to, not means)
    if out is not None:
        write_atomically(out, content)
        typer.echo(f"{out}: {len(content) / 1e6:.1f} MB", err=True)
    elif to == "parquet":
        typer.echo(content, nl=False)
    else:
        typer.echo(content.decode(), nl=False)


def _measurements(runs: Runs, to: str, devices: bool) -> bytes:
    """Return all measurements in long form, as the content of a file."""
    table = runs.to_arrow(devices)
    if not table.num_rows:
        raise DataError("there are no measurements in these folders: give folders with runs")
    file = io.BytesIO()
    if to == "csv":
        from pyarrow import csv

        csv.write_csv(table, file)
    else:
        from pyarrow import parquet

        parquet.write_table(table, file)
    return file.getvalue()


def _comparison(paths: Sequence[Path]) -> Comparison:
    """Return the finished runs, grouped by method; others are named on standard error."""
    from gossamer.report.grouping import attach_study, group_by_method, short_name

    found = read(*paths)
    methods, notes = group_by_method([attach_study(run) for run in found if not run.problem])
    for run in found:
        if run.problem:
            notes.append(f"{short_name(run)} is left out: {run.problem}")
    comparison = Comparison()
    for method in methods:
        finished = []
        for run in method.runs:
            if run.finished:
                finished.append(run)
            else:
                notes.append(f"{short_name(run)} is left out: it {run.status_text}")
        if finished:
            comparison.append(Method(method.label, tuple(finished)))
    for note in notes:
        typer.echo(note, err=True)
    if not comparison:
        raise DataError("none of these runs is finished: there is nothing to compare")
    return comparison
