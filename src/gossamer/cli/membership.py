"""The commands that change who belongs to a fleet: what they do and print."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from gossamer._core.files import os_errors
from gossamer.errors import DataError, InputError
from gossamer.fleet import keys, pem
from gossamer.fleet.files import SAMPLES
from gossamer.fleet.members import MEMBERS, Members
from gossamer.fleet.membership import FleetFolder
from gossamer.fleet.provision import AUTHORITY
from gossamer.fleet.settings import STUDY

_LARGEST_PASSPHRASE = 1024  # bytes


def new_passphrase(file: Path | None, ask: bool) -> bytes | None:
    """Return the passphrase for the key of a new authority; None: it is not encrypted.

    Args:
        file: The file with the passphrase.
        ask: True to ask for it twice, without a file.
    """
    if file is not None:
        return _read_passphrase(file)
    if not ask:
        return None
    text: str = typer.prompt(
        "passphrase of the authority", hide_input=True, confirmation_prompt=True, err=True
    )
    return text.encode()


def passphrase(folder: Path, file: Path | None) -> bytes | None:
    """Return the passphrase of a fleet's authority; None: its key is not encrypted.

    Args:
        folder: The folder of the fleet.
        file: The file with the passphrase; None: ask for it, if there is a terminal.
    """
    if file is not None:
        return _read_passphrase(file)
    if pem.is_encrypted(folder / AUTHORITY / keys.AUTHORITY_KEY) and sys.stdin.isatty():
        text: str = typer.prompt("passphrase of the authority", hide_input=True, err=True)
        return text.encode()
    return None


def request(folder: Path) -> None:
    """Make a key on this device and a request for its certificate.

    Args:
        folder: The device's folder, whose name is that of the device.
    """
    file = keys.make_request(folder, folder.resolve().name)
    typer.echo(f"{file}: copy it to the machine with the authority; {folder / keys.KEY} stays here")


def add(
    folder: Path,
    request: Path | None,
    host: str | None,
    days: float,
    passphrase_file: Path | None,
) -> None:
    """Add a device to a fleet, and print what to copy where.

    Args:
        folder: The folder of the fleet.
        request: The request that the device has made; None: its key is made here.
        host: Where others reach it.
        days: Validity of its certificate.
        passphrase_file: The file with the passphrase of the authority.
    """
    fleet = FleetFolder(folder, passphrase(folder, passphrase_file))
    device = fleet.add(request, host, days)
    typer.echo(f"{device.name} belongs to the fleet; copy to it")
    typer.echo(f"    {STUDY}, {MEMBERS}, {device.name}.toml, {device.name}/")
    typer.echo(f"and its own samples to {device.name}/{SAMPLES}")
    if request is not None:
        typer.echo(f"its key stays on the device, in {device.name}/{keys.KEY}")
    _print_members(folder)


def remove(folder: Path, names: list[str], passphrase_file: Path | None, back: bool) -> None:
    """Remove devices from a fleet, or take them back.

    Args:
        folder: The folder of the fleet.
        names: Their names.
        passphrase_file: The file with the passphrase of the authority.
        back: True to take them back.
    """
    fleet = FleetFolder(folder, passphrase(folder, passphrase_file))
    if back:
        fleet.restore(names)
        typer.echo(f"belongs to the fleet again: {', '.join(names)}")
    else:
        fleet.remove(names)
        typer.echo(f"no longer belongs to the fleet: {', '.join(names)}")
    _print_members(folder)


def revoke(folder: Path, names: list[str], passphrase_file: Path | None) -> None:
    """Revoke the certificates of devices.

    Args:
        folder: The folder of the fleet.
        names: Their names.
        passphrase_file: The file with the passphrase of the authority.
    """
    members = FleetFolder(folder, passphrase(folder, passphrase_file)).revoke(names)
    typer.echo(f"revoked for ever: {', '.join(names)}; {_left(members)} devices are left")
    _print_members(folder)


def renew(
    folder: Path,
    names: list[str],
    request: Path | None,
    days: float,
    passphrase_file: Path | None,
) -> None:
    """Renew the certificates of devices.

    Args:
        folder: The folder of the fleet.
        names: Their names; empty: all that belong to the fleet, and the observer.
        request: A request for a certificate of a new key.
        days: Validity of the certificates.
        passphrase_file: The file with the passphrase of the authority.
    """
    fleet = FleetFolder(folder, passphrase(folder, passphrase_file))
    renewed = fleet.renew(names, days, request)
    ends = keys.expiry(folder / renewed[0])
    typer.echo(f"until {ends:%Y-%m-%d}: {', '.join(renewed)}")
    typer.echo(f"copy {keys.CERTIFICATE} of each to its device; a running node reads it by itself")


def _read_passphrase(file: Path) -> bytes:
    with os_errors("read", file), file.open("rb") as stream:
        text = stream.read(_LARGEST_PASSPHRASE + 1).rstrip(b"\r\n")
    if not text:
        raise DataError(f"{file} is empty: its first line must be the passphrase")
    if len(text) > _LARGEST_PASSPHRASE or b"\n" in text:
        accepted = f"a file with one line of at most {_LARGEST_PASSPHRASE} bytes"
        raise InputError("--passphrase-file", str(file), accepted)
    return text


def _left(members: Members) -> int:
    return len(members.names) - len(members.refused)


def _print_members(folder: Path) -> None:
    typer.echo(
        f"copy {folder / MEMBERS} to every device, beside its file; running nodes read it"
        " by themselves"
    )
