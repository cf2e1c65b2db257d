"""Who is who in a fleet: its own certificate authority, and a certificate for each device.

    authority/ca.pem  ca.key                     stays with whoever looks after the fleet; no device needs ca.key
    n3/ca.pem  device.pem  device.key            goes to the device n3, and nowhere else

A device is known by the name in its certificate, and a name belongs to whoever holds the key: each proves it to the other
when they connect (mutual TLS). Keys are on the curve P-256. Needs the extra gossamer[peer].
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer._core import checks
from gossamer._core.files import PRIVATE_MODE, PUBLIC_MODE, os_errors, write_atomically
from gossamer.errors import DataError, InputError, MissingExtra

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_CERTIFICATE, AUTHORITY_KEY = "ca.pem", "ca.key"
CERTIFICATE, KEY = "device.pem", "device.key"

# Nothing that means more in an access rule or a path. Small letters: a host's name is the same in capitals, a rule is not.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(rf"(?=.{{1,253}}$){_NAME.pattern}(\.{_NAME.pattern})*")
_EARLIER = timedelta(days=1)  # valid from a day before, for devices whose clock is behind
_LARGEST = 1 << 16  # bytes of a file of ours


def make_authority(folder: Path, name: str, days: float, now: datetime | None = None) -> None:
    """A new authority in a folder: `ca.pem`, which all devices get, and `ca.key`, which signs for `days` days.

    An authority that is there already is never replaced: its devices would no longer be known.

        make_authority(Path("fleet/authority"), "fleet", days=3650)
    """
    _require()
    from cryptography import x509

    now = now or datetime.now(UTC)
    if not 1 <= len(name.encode()) <= 64 or not name.isprintable():
        raise InputError("name", name, "1 to 64 printable characters")
    for file in (AUTHORITY_CERTIFICATE, AUTHORITY_KEY):
        if (folder / file).exists():
            raise DataError(
                f"{folder / file} is there already: an authority is not replaced, give a folder without one"
            )
    key = _new_key()
    builder = (
        _builder(_named(name), _named(name), key.public_key(), now, now + _days(days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    _write_pair(folder, key, _signed(builder, key), AUTHORITY_KEY, AUTHORITY_CERTIFICATE)


def make_certificate(
    folder: Path,
    authority: Path,
    device_name: str,
    days: float,
    addresses: Sequence[str] = (),
    now: datetime | None = None,
) -> None:
    """A device's folder with a new key, its certificate, and the authority's certificate. Done again, it renews them.

    `authority` is the authority's folder; `addresses` are those at which others may reach the device, beside its name.

        make_certificate(Path("fleet/n3"), Path("fleet/authority"), "n3", days=365, addresses=["10.0.0.3"])
    """
    _require()
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    now = now or datetime.now(UTC)
    if not _NAME.fullmatch(device_name):
        raise InputError(
            "device_name", device_name, "1 to 63 of a-z, 0-9 and '-', with no '-' at either end"
        )
    names = dict.fromkeys(
        [x509.DNSName(device_name), *(_address(text) for text in addresses)]
    )  # each once
    signer, signer_key = _authority(authority, now)
    end, last = now + _days(days), signer.not_valid_after_utc
    if end > last + timedelta(days=1):
        raise InputError(
            "days", days, f"fewer: the authority in {authority} ends on {last:%Y-%m-%d}"
        )
    key = _new_key()
    builder = (
        _builder(_named(device_name), signer.subject, key.public_key(), now, min(end, last))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            ),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()),
            critical=False,
        )
    )
    _write_pair(folder, key, _signed(builder, signer_key), KEY, CERTIFICATE)
    _write(
        folder / AUTHORITY_CERTIFICATE, signer.public_bytes(serialization.Encoding.PEM), PUBLIC_MODE
    )


def check_folder(
    folder: Path, device_name: str | None = None, now: datetime | None = None
) -> str | None:
    """What is wrong with a device's folder, in one sentence; None if nothing is. `device_name` is whose it is to be.

    A device asks before it starts, since TLS only says that a connection failed:

        if wrong := check_folder(Path("fleet/n3"), "n3"):
            raise DataError(wrong)
    """
    _require()
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    now = now or datetime.now(UTC)
    try:
        authority = _certificate(folder / AUTHORITY_CERTIFICATE)
        certificate = _certificate(folder / CERTIFICATE)
        key = _key(folder / KEY)
    except DataError as error:
        return str(error)
    if not _is_authority(authority):
        return f"{folder / AUTHORITY_CERTIFICATE} is not the certificate of an authority"
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return (
            f"{folder / CERTIFICATE} is of another authority than {folder / AUTHORITY_CERTIFICATE}"
        )
    for file, one in ((AUTHORITY_CERTIFICATE, authority), (CERTIFICATE, certificate)):
        if now > one.not_valid_after_utc:
            return f"{folder / file} expired on {one.not_valid_after_utc:%Y-%m-%d}: make a new one"
        if now < one.not_valid_before_utc:
            return f"{folder / file} begins on {one.not_valid_before_utc:%Y-%m-%d}, and the clock here says {now:%Y-%m-%d}"
    if key.public_key() != certificate.public_key():
        return f"{folder / KEY} is not the key of {folder / CERTIFICATE}"
    if device_name is not None and _common_name(certificate) != device_name:
        return (
            f"{folder / CERTIFICATE} is for {_common_name(certificate)!r}, not for {device_name!r}"
        )
    return None


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise MissingExtra("peer", "the runtime for devices") from None


def _days(days: float) -> timedelta:
    checks.number("days", days, above=0, most=36500)
    return timedelta(days=days)


def _address(text: str) -> x509.GeneralName:
    from cryptography import x509

    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(text))
    if not _ADDRESS.fullmatch(text):
        raise InputError(
            "addresses",
            text,
            "an IP address or the name of a host, without a port, in small letters",
        )
    return x509.DNSName(text)


def _new_key() -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _named(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    """What the authority's certificate and a device's have in common."""
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _common_name(certificate: x509.Certificate) -> str:
    from cryptography.x509.oid import NameOID

    return "".join(
        str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _authority(folder: Path, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate, key = _certificate(folder / AUTHORITY_CERTIFICATE), _key(folder / AUTHORITY_KEY)
    if not _is_authority(certificate):
        raise DataError(f"{folder / AUTHORITY_CERTIFICATE} is not the certificate of an authority")
    if key.public_key() != certificate.public_key():
        raise DataError(
            f"{folder / AUTHORITY_KEY} is not the key of {folder / AUTHORITY_CERTIFICATE}"
        )
    if now > certificate.not_valid_after_utc:
        raise DataError(
            f"{folder / AUTHORITY_CERTIFICATE} expired on {certificate.not_valid_after_utc:%Y-%m-%d}: make a new fleet"
        )
    return certificate, key


def _certificate(file: Path) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(_read(file))
    except ValueError:
        raise DataError(f"{file} is not a certificate in PEM form") from None


def _key(file: Path) -> ec.EllipticCurvePrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    data = _read(file, secret=True)
    key = None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = serialization.load_pem_private_key(data, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DataError(f"{file} is not an elliptic-curve key in PEM form without a password")
    return key


def _read(file: Path, secret: bool = False) -> bytes:
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if secret and os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise DataError(
                    f"{file} can be read by others: chmod 600 it, and make a new one if others had access"
                )
            data = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        raise DataError(f"{file} is missing") from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise DataError(f"{file} has more than {_LARGEST} bytes: it is no key and no certificate")
    return data


def _write_pair(
    folder: Path,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
    key_file: str,
    file: str,
) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(folder / key_file, private, PRIVATE_MODE)
    _write(folder / file, certificate.public_bytes(pem), PUBLIC_MODE)


def _write(file: Path, content: bytes, mode: int) -> None:
    """Write a file atomically; create its folder for its owner alone."""
    with os_errors("write", file):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(file, content, mode=mode)
