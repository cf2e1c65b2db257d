"""Commands for real devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.commands.options import AllowCode, Quiet, Seed, Set
from gossamer.cli.specs import read_fleet_study

FleetSpec = Annotated[
    Path,
    typer.Argument(metavar="SPEC", help="A spec with one [algorithm], and perhaps a [fleet]."),
]
Devices = Annotated[
    int | None,
    typer.Option(metavar="N", help="How many devices; else as many as the network has."),
]


def node(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The device's file, as `fleet init` makes it.")
    ],
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="No certificates and no encryption: for a bench, where all devices say so.",
        ),
    ] = False,
    allow_code: AllowCode = False,
    quiet: Quiet = False,
) -> None:
    """Be one device: find neighbours, train on its own data, until the rounds are done or it is
    told to stop.

    Killed or stopped, the same command goes on where it was.
    """
    from gossamer.cli.fleet import node as run_node

    run_node(file, insecure, quiet, allow_code)


def fleet_init(
    spec: FleetSpec,
    devices: Devices = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The fleet's folder.")] = Path("fleet"),
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When round 0 begins, as 2030-01-31T12:00:00Z; else in 10 minutes."
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="host[:port] of each device, by commas, where multicast does not reach.",
        ),
    ] = None,
    days: Annotated[
        float, typer.Option(metavar="N", help="For how long certificates are valid.")
    ] = 365,
    samples: Annotated[
        bool,
        typer.Option("--samples/--no-samples", help="Whether to split the spec's data among them."),
    ] = True,
    set_: Set = None,
    seed: Seed = None,
    allow_code: AllowCode = False,
) -> None:
    """Prepare a fleet: a certificate and a small file for each device, and what to copy where."""
    from gossamer.cli.fleet import init

    study = read_fleet_study(spec, devices, set_, seed, allow_code)
    init(study, out, start, hosts, days, samples)


def fleet_up(
    spec: FleetSpec,
    devices: Devices = None,
    links: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Links as `network show --save` writes them; else the spec's network.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The fleet's folder; else runs/NAME-fleet.")
    ] = None,
    set_: Set = None,
    seed: Seed = None,
    allow_code: AllowCode = False,
    quiet: Quiet = False,
) -> None:
    """Rehearse: a whole fleet on this machine, each device in its own network, links cut and healed
    by a trace. Needs root.
    """
    from gossamer.cli.fleet import up

    if links is None:
        study = read_fleet_study(spec, devices, set_, seed, allow_code)
    else:  # the file says how many devices there are
        settings = [*(set_ or []), "network.kind=file", f"network.path={links}"]
        study = read_fleet_study(spec, None, settings, seed, allow_code)
    up(study, devices, out, quiet)


def fleet_status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The fleet's folder.")] = Path(
        "fleet"
    ),
    connect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT", help="A device to watch, where multicast does not reach; repeat."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the table once, not live.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON, once.")] = False,
) -> None:
    """Watch: who sees whom, round, accuracy, late or lost, bytes."""
    from gossamer.cli.status import status

    status(folder, connect or [], once, json)


def fleet_collect(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The fleet's folder, with those of the devices back in it."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; else DIR/run.")
    ] = None,
    allow_code: AllowCode = False,
) -> None:
    """Gather models and metrics of the devices into an ordinary run folder."""
    from gossamer.cli.fleet import collect

    collect(folder, out or folder / "run", allow_code)
