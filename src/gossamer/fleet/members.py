"""Who belongs to a fleet: a list that its authority signs, beside the file of every device.

members.json    the names of all devices by number, those who were removed and those whose
                certificates were revoked, and a version that grows with every change

A name is never given to another device: links are refused by name. Without the file the members are
those of the device's own file. A running node reads the file again when it changes.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pydantic

from gossamer._core.files import os_errors, write_atomically
from gossamer.errors import DataError
from gossamer.fleet import keys, pem
from gossamer.fleet.settings import Device

if TYPE_CHECKING:
    from cryptography import x509

MEMBERS = "members.json"
_LARGEST = 1 << 20  # bytes of the file

_Name = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
_Names = Annotated[tuple[_Name, ...], pydantic.Field(max_length=1 << 14)]


@dataclass(frozen=True)
class Members:
    """The members of a fleet.

    Args:
        run: The run, 32 hexadecimal digits.
        version: Number of changes.
        names: Names of all devices that ever belonged to the fleet, by number.
        removed: Those that no longer take part.
        revoked: Those of them whose certificates are not to be accepted again.
    """

    run: str
    version: Annotated[int, pydantic.Field(ge=0, lt=1 << 53)]
    names: _Names
    removed: _Names = ()
    revoked: _Names = ()

    @property
    def refused(self) -> frozenset[str]:
        """The devices that nobody links to."""
        return frozenset(self.removed) | frozenset(self.revoked)


class _File(pydantic.BaseModel):
    members: Members
    signature: Annotated[str, pydantic.Field(max_length=1000)] = ""


def of_device(device: Device) -> Members:
    """Return the members that the file of a device names.

    Args:
        device: Settings of the device.
    """
    return Members(device.run, 0, device.names)


def members_file(device: Device) -> Path:
    """Return where the list of members is: beside the study.

    Args:
        device: Settings of a device.
    """
    return device.study.parent / MEMBERS


def read_members(device: Device, certificates: Path | None = None) -> Members:
    """Return the members of the fleet of a device.

    Args:
        device: Settings of the device.
        certificates: The folder with the authority's certificate; None: the device's own.

    Raises:
        DataError: If the list cannot be read, is of another fleet, or is not signed by the fleet's
            authority.
    """
    path = members_file(device)
    if not path.exists():
        return of_device(device)
    with os_errors("read", path), path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    try:
        found = _File.model_validate_json(data[:_LARGEST])
    except ValueError:
        raise DataError(f"{path} is not a list of members: copy it again") from None
    members = found.members
    if members.run != device.run:
        raise DataError(f"{path} is of another fleet: copy that of this one")
    if not device.fleet.insecure:
        authority = (certificates or device.folder) / keys.AUTHORITY_CERTIFICATE
        if not _is_signed(members, found.signature, pem.read_certificate(authority)):
            raise DataError(f"{path} is not signed by the authority in {authority}")
    if members.names[: len(device.names)] != device.names:
        raise DataError(f"{path} has other names than the file of {device.name}")
    return members


def write_members(
    path: Path, members: Members, authority: Path | None, passphrase: bytes | None = None
) -> None:
    """Sign a list of members and write it.

    Args:
        path: The file.
        members: The members.
        authority: The authority's folder; None in a fleet without certificates.
        passphrase: That of the authority's key.

    Raises:
        DataError: If the authority cannot be used, or the file cannot be written.
    """
    signature = ""
    if authority is not None:
        signature = _sign(members, authority, passphrase)
    content = {"members": dataclasses.asdict(members), "signature": signature}
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def with_members(device: Device, members: Members) -> Device:
    """Return the settings of a device with the names of all members.

    Args:
        device: Settings of the device.
        members: The members of its fleet.
    """
    return replace(device, names=members.names)


def _signed_bytes(members: Members) -> bytes:
    """Return what is signed: the list, in one form for equal lists."""
    content: dict[str, Any] = {"gossamer": "members", **dataclasses.asdict(members)}
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _sign(members: Members, authority: Path, passphrase: bytes | None) -> str:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    _, key = keys.read_authority(authority, datetime.now(UTC), passphrase)
    signature = key.sign(_signed_bytes(members), ec.ECDSA(hashes.SHA256()))
    return base64.b64encode(signature).decode()


def _is_signed(members: Members, signature: str, authority: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = authority.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        decoded = base64.b64decode(signature, validate=True)
        key.verify(decoded, _signed_bytes(members), ec.ECDSA(hashes.SHA256()))
    except (ValueError, InvalidSignature):
        return False
    return True
