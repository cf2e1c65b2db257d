"""Change the members of a fleet, on the machine with its authority: add, remove, revoke, renew."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gossamer.errors import DataError, InputError
from gossamer.fleet import keys
from gossamer.fleet.files import TABLE_FORMAT
from gossamer.fleet.members import (
    MEMBERS,
    Members,
    of_device,
    read_members,
    with_members,
    write_members,
)
from gossamer.fleet.provision import AUTHORITY, OBSERVER, endpoint_host, endpoints, listening
from gossamer.fleet.settings import Device, read_devices, write_device
from gossamer.study import spec


@dataclass(frozen=True)
class FleetFolder:
    """The folder of a fleet on the machine with its authority.

    Args:
        folder: The folder.
        passphrase: That of the authority's key; None: it is not encrypted.

    Raises:
        DataError: If the folder has no device.

    Example:
        FleetFolder(Path("fleet")).revoke(["n3"])
    """

    folder: Path
    passphrase: bytes | None = None

    @property
    def authority(self) -> Path:
        """The authority's folder."""
        return self.folder / AUTHORITY

    def devices(self) -> list[Device]:
        """Return the settings of all devices, as their files say."""
        return read_devices(self.folder)

    def members(self) -> Members:
        """Return the members of the fleet."""
        device = self.devices()[-1]
        if not (self.folder / MEMBERS).exists():
            return of_device(device)
        return read_members(device, self.authority)

    def add(
        self, request: Path | None = None, host: str | None = None, days: float = 365
    ) -> Device:
        """Write the files of a new device and list it as a member.

        Args:
            request: The certificate request that the device has made; None: its key is made here.
            host: Where others reach it, as host or host:port, if devices are given by address.
            days: Validity of its certificate.

        Returns:
            Its settings.

        Raises:
            InputError: If the host does not fit, or the devices follow a schedule.
            DataError: If the request or the authority cannot be used.
        """
        last = self.devices()[-1]
        self._check_takes_new_devices(last)
        members = self.members()
        name = f"n{len(members.names)}"
        members = replace(members, version=members.version + 1, names=(*members.names, name))
        device = self._new_device(with_members(last, members), host)
        folder = self.folder / name
        if not device.fleet.insecure:
            addresses = [endpoint_host(device.host)] if device.host else []
            if request is None:
                keys.make_certificate(
                    folder, self.authority, name, days, addresses, passphrase=self.passphrase
                )
            else:
                keys.sign_request(
                    request, folder, self.authority, name, days, addresses, self.passphrase
                )
        folder.mkdir(exist_ok=True)
        columns = last.folder / TABLE_FORMAT
        if columns.exists():
            shutil.copy(columns, folder / TABLE_FORMAT)
        write_device(self.folder / f"{name}.toml", device)
        self._write(members, device)
        return device

    def remove(self, names: Sequence[str]) -> Members:
        """List devices as no longer taking part; `restore` undoes it.

        Args:
            names: Their names.

        Returns:
            The members.
        """
        members = self._checked(names)
        removed = tuple(sorted({*members.removed, *names}))
        members = replace(members, version=members.version + 1, removed=removed)
        self._write(members, self.devices()[-1])
        return members

    def restore(self, names: Sequence[str]) -> Members:
        """Take devices back that were removed and not revoked.

        Args:
            names: Their names.

        Returns:
            The members.

        Raises:
            InputError: If one was not removed, or was revoked.
        """
        members = self.members()
        for name in names:
            if name not in members.removed or name in members.revoked:
                raise InputError("name", name, "a device that was removed, and not revoked")
        removed = tuple(name for name in members.removed if name not in names)
        members = replace(members, version=members.version + 1, removed=removed)
        self._write(members, self.devices()[-1])
        return members

    def revoke(self, names: Sequence[str]) -> Members:
        """List the certificates of devices as no longer accepted. This cannot be undone.

        Args:
            names: Their names.

        Returns:
            The members.
        """
        members = self._checked(names)
        revoked = tuple(sorted({*members.revoked, *names}))
        members = replace(members, version=members.version + 1, revoked=revoked)
        self._write(members, self.devices()[-1])
        return members

    def renew(
        self, names: Sequence[str] = (), days: float = 365, request: Path | None = None
    ) -> list[str]:
        """Write new certificates. Devices keep their keys, which are not needed here.

        Args:
            names: Names of devices, or of the observer; empty: all that are not refused.
            days: Validity of the certificates, from now.
            request: A request of the one device, for a certificate of a new key.

        Returns:
            The names whose certificates were renewed.

        Raises:
            InputError: If a name is not known, or was removed or revoked.
            DataError: If a certificate, the request or the authority cannot be used.
        """
        last = self.devices()[-1]
        if last.fleet.insecure:
            raise InputError("fleet.insecure", True, "false: this fleet has no certificates")
        members = self.members()
        known = [name for name in members.names if name not in members.refused]
        wanted = list(names) or [*known, OBSERVER]
        for name in wanted:
            if name not in known and name != OBSERVER:
                _refuse(name, members)
        if request is not None:
            if len(names) != 1:
                raise InputError("names", ", ".join(names), "one name with --request")
            (name,) = names
            keys.sign_request(
                request, self.folder / name, self.authority, name, days, (), self.passphrase
            )
            return [name]
        for name in wanted:
            keys.renew_certificate(
                self.folder / name, self.authority, name, days, passphrase=self.passphrase
            )
        return wanted

    def _checked(self, names: Sequence[str]) -> Members:
        """Return the members, if all of these names are devices."""
        members = self.members()
        for name in names:
            if name not in members.names:
                _refuse(name, members)
        return members

    def _check_takes_new_devices(self, device: Device) -> None:
        """Refuse a fleet whose schedule is for a number of devices."""
        if not device.study.exists():
            raise DataError(f"{device.study} is missing: it belongs to the folder of the fleet")
        network = spec.read(device.study).get("network", {})
        kind = network if isinstance(network, str) else network.get("kind", "full")
        if kind != "full":
            raise InputError(
                "network", kind, "a fleet without a schedule: this one is for as many devices"
            )

    def _new_device(self, last: Device, host: str | None) -> Device:
        """Return the settings of a new device, which dials all others."""
        number = len(last.names) - 1
        name = last.names[number]
        device = replace(
            last, device=number, folder=self.folder / name, connect=(), host="", clock=0.0
        )
        dialled = [one.host for one in self.devices() if one.host]
        if bool(dialled) != (host is not None):
            accepted = "host:port of the new device, since devices are given by address"
            if not dialled:
                accepted = "no host: the devices of this fleet find each other by multicast"
            raise InputError("--host", host, accepted)
        if host is None:
            return device
        (own,) = endpoints([host], "--host")
        if own in dialled:
            raise InputError("--host", host, "an address that no other device has")
        return replace(
            device, host=own, listen=(listening(own),), connect=tuple(dict.fromkeys(dialled))
        )

    def _write(self, members: Members, device: Device) -> None:
        authority = None if device.fleet.insecure else self.authority
        write_members(self.folder / MEMBERS, members, authority, self.passphrase)


def _refuse(name: str, members: Members) -> None:
    if name in members.refused:
        raise InputError("name", name, "a device that was neither removed nor revoked")
    raise InputError("name", name, f"one of {', '.join(members.names)}")
