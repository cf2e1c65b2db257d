"""Commands for real devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.commands.membership import PassphraseFile
from gossamer.cli.commands.options import AllowCode, Quiet, Seed, Set
from gossamer.cli.specs import read_fleet_study

FleetSpec = Annotated[
    Path,
    typer.Argument(metavar="SPEC", help="A spec with one [algorithm], and perhaps a [fleet]."),
]
StudyCode = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:NAME", help="Take the study from a Python file here, and run that file."
    ),
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
    study: StudyCode = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve metrics for Prometheus here, as 127.0.0.1:9464 or unix:PATH.",
        ),
    ] = None,
    log: Annotated[
        str, typer.Option(metavar="FORM", help="text, or json: a JSON object per line.")
    ] = "text",
    quiet: Quiet = False,
) -> None:
    """Run one device: find neighbours, train on its own data.

    It ends when the rounds are done or it is told to stop. Killed or stopped, the same command goes
    on where it was.
    """
    from gossamer.cli.fleet import node as run_node

    run_node(file, insecure, quiet, allow_code, study, metrics, log)


def fleet_init(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="A spec with one [algorithm], and perhaps a [fleet]; or FILE.py:NAME, a study in "
            "Python, with --allow-code.",
        ),
    ],
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
    device_keys: Annotated[
        bool,
        typer.Option(
            "--keys/--no-keys", help="Whether to make the devices' keys here; else on each device."
        ),
    ] = True,
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Encrypt the authority's key; asks for it.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    set_: Set = None,
    seed: Seed = None,
    allow_code: AllowCode = False,
) -> None:
    """Prepare a fleet: a certificate and a small file for each device, and what to copy where."""
    from gossamer.cli.fleet import init
    from gossamer.cli.membership import new_passphrase

    study = read_fleet_study(spec, devices, set_, seed, allow_code)
    secret = new_passphrase(passphrase_file, passphrase)
    init(study, out, start, hosts, days, samples, device_keys, secret)


def fleet_upgrade(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The fleet's folder.")],
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC", help="The new study; keys of [fleet] that it lacks keep their values."
        ),
    ],
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When round 0 begins, as 2030-01-31T12:00:00Z; else in 10 minutes."
        ),
    ] = None,
    set_: Set = None,
    seed: Seed = None,
    allow_code: AllowCode = False,
) -> None:
    """Move a fleet to another study: devices keep their models, and drop the rest."""
    from gossamer.cli.fleet import upgrade

    upgrade(folder, spec, start, set_, seed, allow_code)


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


def fleet_simtest(
    seeds: Annotated[int, typer.Option(metavar="N", help="How many seeds.")] = 200,
    first: Annotated[int, typer.Option(metavar="N", help="The first seed.")] = 0,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Replay this seed, and print what happens.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="How many processes.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Test the runtime itself: simulated fleets whose networks, disks, clocks and processes fail.

    Every seed is another fleet with other faults. Rules are checked after every event.
    """
    from gossamer.cli import simtest

    if seed is not None:
        simtest.replay(seed)
    else:
        simtest.simtest(seeds, first, jobs, quiet)
