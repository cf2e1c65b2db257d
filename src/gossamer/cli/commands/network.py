"""Commands about networks and data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.commands.options import AllowCode, Json, Quiet, Seed, Set
from gossamer.cli.specs import read_studies


def network_show(
    spec: Annotated[
        Path | None, typer.Argument(metavar="SPEC", help="A spec, or a .parquet file of links.")
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
    """Density, degrees, smallest B of Assumption 1, spectral gap, and a picture."""
    from gossamer.cli.show import show_network
    from gossamer.errors import InputError
    from gossamer.network import Network, Sequence
    from gossamer.network import save as save_links

    net: Network
    if spec is not None and spec.suffix == ".parquet":
        net = Sequence(spec)
        name = spec.stem
        count = net.recorded
    else:
        studies, _ = read_studies(spec, set_, seed, allow_code=allow_code)
        net = studies[0].network
        name = studies[0].name
        count = studies[0].rounds
    if rounds is not None:
        count = rounds
    if count < 1 or (net.rounds is not None and count > net.rounds):
        most = ""
        if net.rounds is not None:
            most = f" and at most {net.rounds}, which is what the network has"
        raise InputError("rounds", count, f"a whole number of at least 1{most}")
    if save is not None:
        save_links(net, save, count)
    if animate is not None:
        from gossamer.report.animate import animate as draw

        draw(net, count, animate, name)
    show_network(net, count, picture, name, json, animation=animate, links=save)


def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mnist, fashion-mnist or cifar10.")],
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Take the files from this folder.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Bring a data set into the cache, every file checked by its hash."""
    from gossamer.cli.progress import DownloadBars
    from gossamer.tasks.download import get

    with DownloadBars(quiet) as progress:
        folder = get(name, from_, progress=progress)
    typer.echo(f"{name} is in {folder}")
