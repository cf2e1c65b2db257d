"""Commands about runs that exist: list, draw, report, export, watch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.commands.options import AllowCode, Json

_X_AXES = ["rounds", "bytes", "seconds", "joules", "steps"]
_Y_AXES = ["accuracy", "rmse", "worst", "best", "merged", "loss", "distance"]


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of runs.")] = Path("runs"),
    json: Json = False,
) -> None:
    """List the runs in a folder, with a spark line of each."""
    from gossamer.cli.runs import runs as list_runs

    list_runs(folder, json)


def figure(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Run folders, or folders that hold some.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="A .pdf, .svg or .png.")
    ] = Path("figure.pdf"),
    x: Annotated[
        str,
        typer.Option(
            "--x",
            metavar="WHAT",
            help="rounds, bytes, seconds, joules or steps.",
            autocompletion=lambda: _X_AXES,
        ),
    ] = "rounds",
    y: Annotated[
        str,
        typer.Option(
            "--y",
            metavar="WHAT",
            help="A metric of the runs, as in accuracy or rmse_merged; worst, best or merged of "
            "the first; loss or distance. Else the first metric.",
            autocompletion=lambda: _Y_AXES,
        ),
    ] = "",
    width: Annotated[
        str, typer.Option(metavar="WIDTH", help="column, page, or as in 84mm or 3.3in.")
    ] = "column",
) -> None:
    """Draw a figure for a paper: vector graphics at column width.

    Its colours suit the colour-blind, and it can be read in grey.
    """
    from gossamer.cli.runs import figure as draw

    draw(folders, out, x, y, width)


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders of runs.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    allow_code: AllowCode = False,
) -> None:
    """Write a report of runs: one HTML page that needs no network.

    It has the answer, the table, curves, the network over time, every device and the exact data.
    """
    from gossamer.cli.pages import report as write_report

    write_report(runs, out, allow_code)


def export(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Run folders, or folders with runs below.")
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="csv or parquet: all measurements, one row per run, round and device; latex: "
            "the table of the comparison.",
            autocompletion=lambda: ["csv", "parquet", "latex"],
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The file; else standard output."),
    ] = None,
    means: Annotated[
        bool, typer.Option("--means", help="One row per run and round: means over the devices.")
    ] = False,
) -> None:
    """Write measurements as CSV or Parquet, or the table in LaTeX."""
    from gossamer.cli.export import export as write_export

    write_export(folders, to, out, means)


def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run's folder, a comparison's, or a fleet's.")
    ],
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where to listen; others than this machine see it only if told so.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", help="The port; 0: one that is free.")] = 0,
    connect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Follow a fleet over the network, from the statuses of these devices; repeat.",
        ),
    ] = None,
) -> None:
    """Serve a local page that follows a running study, or a fleet."""
    from gossamer.cli.pages import watch as serve

    serve(folder, host, port, connect or [])
