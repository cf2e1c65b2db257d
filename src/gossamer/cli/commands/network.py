"""Commands about networks and data sets."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.commands.options import AllowCode, Json, Quiet, Seed, Set
from gossamer.cli.specs import read_studies


def network_show(
    spec: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A spec, a log of contacts or positions, or a .parquet of links."
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Of a log: seconds per round.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Of a log: time of round 0, in seconds or as 2030-01-31T12:00:00Z."
        ),
    ] = None,
    absent: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Of a log: whether a device that it does not see is alone (it trains) or away "
            "(it does not).",
            autocompletion=lambda: ["alone", "away"],
        ),
    ] = None,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Of a log: leave out rounds without a contact.")
    ] = False,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Of a log: what its columns are, as in time,a,b,-."),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(metavar="R", help="Of a log of positions: the distance of a link."),
    ] = None,
    set_: Set = None,
    seed: Seed = None,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", help="How many rounds to look at; else the study's.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help='Write the links to this file; a network of kind "file" reads it.'
        ),
    ] = None,
    picture: Annotated[Path, typer.Option(metavar="FILE", help="Where the picture goes.")] = Path(
        "network.png"
    ),
    animate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rounds as a moving .gif too.")
    ] = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """What a log or spec says, density, degrees, smallest B of Assumption 1, and a picture.

    `gossamer run` and `gossamer compare` take the same file.
    """
    from gossamer.cli.show import check_rounds, show_network
    from gossamer.cli.traces import is_trace, parse_time, trace_settings
    from gossamer.network import save as save_links

    options = {
        "seconds_per_round": seconds,
        "start": parse_time(start),
        "absent": absent,
        "skip_empty": skip_empty or None,
        "columns": columns and columns.split(","),
        "radius": radius,
    }
    settings = trace_settings(options) + list(set_ or [])
    studies, _ = read_studies(spec, settings, seed, allow_code=allow_code)
    study = studies[0]
    count = study.rounds if rounds is None else rounds
    most = study.network.rounds
    if spec is not None and is_trace(spec):  # the rounds of a trace repeat
        most = study.network.period
    check_rounds(count, most)
    if save is not None:
        save_links(study.network, save, count)
    if animate is not None:
        from gossamer.report.animate import animate as draw

        draw(study.network, count, animate, study.name)
    show_network(study.network, count, picture, study.name, json, animation=animate, links=save)
    if spec is not None and is_trace(spec) and not json:
        words = ["gossamer", "run", str(spec)]
        for setting in settings:
            words += ["--set", setting]
        typer.echo(f"train on it: {shlex.join(words)}")


def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mnist, fashion-mnist or cifar10.")],
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Take the files from this folder.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Bring a data set into the cache, every file checked by its hash."""
    from gossamer.cli.progress import FileBars
    from gossamer.tasks.download import get

    with FileBars(quiet) as progress:
        folder = get(name, from_, progress=progress)
    typer.echo(f"{name} is in {folder}")
