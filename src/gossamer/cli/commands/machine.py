"""Commands about this machine and this repository: speed, and the tables of papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.commands.options import EngineName, Json, Quiet


def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="Which paper, as in wpm or field.")],
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PART]...", help="Which tables and figures; else all."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many seeds; by default the paper's part has its own."),
    ] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="The same code on digits, in a minute or two.")
    ] = False,
    studies: Annotated[
        bool,
        typer.Option("--studies", help="The longer studies instead of the tables and figures."),
    ] = False,
    list_: Annotated[
        bool,
        typer.Option("--list", help="List the parts, with their runs and the time on two cores."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the tables and figures go.")
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Runs at a time; 0: one per core.")] = 0,
    engine: EngineName = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As in engine.address=auto."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Make a paper's tables and figures beside its own numbers.

    Runs that are there already are not run again.
    """
    from gossamer.cli import reproduce as reproduction
    from gossamer.cli.specs import engine_settings
    from gossamer.study import spec
    from gossamer.study.pools import pool_on

    if list_:
        typer.echo(reproduction.list_parts(paper))
        return
    settings = engine_settings(engine, set_)
    with pool_on(spec.engine(spec.with_settings({}, settings)), workers) as pool:
        reproduction.reproduce(paper, parts or [], seeds, tiny, studies, out, pool, quiet)


def bench(
    seconds: Annotated[
        float,
        typer.Option(metavar="S", help="About how long to measure; longer: steadier numbers."),
    ] = 110.0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure this machine for two minutes: how fast, and what to set.

    Rounds per second by devices, model and p, on noise of MNIST's shape: nothing is downloaded.
    Advises on threads, dtype and how often to measure.
    """
    from gossamer.cli.bench import bench as measure

    measure(seconds, json, quiet)
