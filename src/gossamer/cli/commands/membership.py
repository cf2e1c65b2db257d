"""Commands that change who belongs to a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="The fleet's folder, with the authority."),
]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of devices, as n3.")]
Days = Annotated[
    float, typer.Option(metavar="N", help="For how long certificates are valid, from now.")
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A file with the passphrase of the authority; else it is asked for."
    ),
]


def fleet_request(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The device's folder on the device, as n3."),
    ],
) -> None:
    """On a device: make its key, which stays there, and a request for its certificate."""
    from gossamer.cli.membership import request

    request(folder)


def fleet_add(
    folder: Folder,
    request: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The request that `fleet request` made on the device; else a key is made here.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]", help="Where others reach it, if the fleet was made with --hosts."
        ),
    ] = None,
    days: Days = 365,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Add a device to a fleet, also to one that runs."""
    from gossamer.cli.membership import add

    add(folder, request, host, days, passphrase_file)


def fleet_remove(
    folder: Folder,
    names: Names,
    back: Annotated[
        bool, typer.Option("--back", help="Take devices back that were removed.")
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Take devices out of a fleet: the others no longer link to them."""
    from gossamer.cli.membership import remove

    remove(folder, names, passphrase_file, back)


def fleet_revoke(folder: Folder, names: Names, passphrase_file: PassphraseFile = None) -> None:
    """Refuse devices for ever, such as one that was stolen."""
    from gossamer.cli.membership import revoke

    revoke(folder, names, passphrase_file)


def fleet_renew(
    folder: Folder,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Names of devices, or observer; else all."),
    ] = None,
    request: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A request of the one device, for a new key."),
    ] = None,
    days: Days = 365,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Renew certificates. Devices keep their keys."""
    from gossamer.cli.membership import renew

    renew(folder, names or [], request, days, passphrase_file)
