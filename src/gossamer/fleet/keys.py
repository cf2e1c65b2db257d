"""The certificate authority of a fleet, and a certificate for each device.

    authority/ca.pem  ca.key               stays with the owner of the fleet; no device needs ca.key
    n3/ca.pem  device.pem  device.key      goes to the device n3, and nowhere else

A device is identified by the name in its certificate, and proves with its key that the name is its
own (mutual TLS). Keys are on the curve P-256. Needs the extra gossamer[peer].
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer._core import checks
from gossamer.errors import DataError, InputError, MissingExtra
from gossamer.fleet import pem

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_CERTIFICATE = "ca.pem"
AUTHORITY_KEY = "ca.key"
CERTIFICATE = "device.pem"
KEY = "device.key"

# No character with a meaning in an access rule or a path. Lower case only: names of hosts ignore
# case, access rules do not.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(rf"(?=.{{1,253}}$){_NAME.pattern}(\.{_NAME.pattern})*")
_BACKDATED = timedelta(days=1)  # for devices whose clock is behind
_ROUNDING = timedelta(days=1)  # by which a certificate may be asked to outlive its authority


def make_authority(folder: Path, name: str, days: float, now: datetime | None = None) -> None:
    """Make an authority: `ca.pem`, which every device gets, and `ca.key`, which signs.

    An existing authority is never replaced: its devices would no longer be recognised.

    Args:
        folder: The folder to write to.
        name: Name of the authority.
        days: For how long it can sign.
        now: The current time; by default that of the clock.

    Raises:
        InputError: If the name or the days are not accepted.
        DataError: If there is an authority already, or the folder cannot be written.
        MissingExtra: If the package cryptography is not installed.

    Example:
        make_authority(Path("fleet/authority"), "fleet", days=3650)
    """
    _require_cryptography()
    from cryptography import x509

    now = now or datetime.now(UTC)
    if not 1 <= len(name.encode()) <= 64 or not name.isprintable():
        raise InputError("name", name, "1 to 64 printable characters")
    for file in (AUTHORITY_CERTIFICATE, AUTHORITY_KEY):
        if (folder / file).exists():
            raise DataError(
                f"{folder / file} exists: an authority is not replaced, give a folder without one"
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
    pem.write_key(folder / AUTHORITY_KEY, key)
    pem.write_certificate(folder / AUTHORITY_CERTIFICATE, _signed(builder, key))


def make_certificate(
    folder: Path,
    authority: Path,
    device_name: str,
    days: float,
    addresses: Sequence[str] = (),
    now: datetime | None = None,
) -> None:
    """Write a new key, its certificate and the authority's certificate for a device.

    Calling it again renews them.

    Args:
        folder: The device's folder.
        authority: The authority's folder.
        device_name: Name of the device.
        days: Validity of the certificate.
        addresses: Where others may reach the device, beside its name.
        now: The current time; by default that of the clock.

    Raises:
        InputError: If the name, an address or the days are not accepted.
        DataError: If the authority cannot be used, or the folder cannot be written.
        MissingExtra: If the package cryptography is not installed.

    Example:
        make_certificate(Path("fleet/n3"), Path("fleet/authority"), "n3", days=365)
    """
    _require_cryptography()
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    now = now or datetime.now(UTC)
    if not _NAME.fullmatch(device_name):
        raise InputError(
            "device_name", device_name, "1 to 63 of a-z, 0-9 and '-', with no '-' at either end"
        )
    names = [x509.DNSName(device_name), *(_address(text) for text in addresses)]
    unique = dict.fromkeys(names)
    issuer, issuer_key = _read_authority(authority, now)
    last = issuer.not_valid_after_utc
    end = now + _days(days)
    if end > last + _ROUNDING:
        raise InputError(
            "days", days, f"fewer: the authority in {authority} ends on {last:%Y-%m-%d}"
        )
    key = _new_key()
    builder = (
        _builder(_named(device_name), issuer.subject, key.public_key(), now, min(end, last))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            ),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName(unique), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    pem.write_key(folder / KEY, key)
    pem.write_certificate(folder / CERTIFICATE, _signed(builder, issuer_key))
    pem.write_certificate(folder / AUTHORITY_CERTIFICATE, issuer)


def check_folder(
    folder: Path, device_name: str | None = None, now: datetime | None = None
) -> str | None:
    """Return what is wrong with the keys in a device's folder, in one sentence; None if nothing is.

    A device checks before it starts, since TLS only reports that a connection failed.

    Args:
        folder: The device's folder.
        device_name: Name that the certificate must have; None: any.
        now: The current time; by default that of the clock.

    Raises:
        MissingExtra: If the package cryptography is not installed.

    Example:
        if problem := check_folder(Path("fleet/n3"), "n3"):
            raise DataError(problem)
    """
    _require_cryptography()
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    now = now or datetime.now(UTC)
    try:
        authority = pem.read_certificate(folder / AUTHORITY_CERTIFICATE)
        certificate = pem.read_certificate(folder / CERTIFICATE)
        key = pem.read_key(folder / KEY)
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
        begins = one.not_valid_before_utc
        ends = one.not_valid_after_utc
        if now > ends:
            return f"{folder / file} expired on {ends:%Y-%m-%d}: make a new one"
        if now < begins:
            return (
                f"{folder / file} begins on {begins:%Y-%m-%d},"
                f" and the clock of this machine says {now:%Y-%m-%d}"
            )
    if key.public_key() != certificate.public_key():
        return f"{folder / KEY} is not the key of {folder / CERTIFICATE}"
    found = _common_name(certificate)
    if device_name is not None and found != device_name:
        return f"{folder / CERTIFICATE} is for {found!r}, not for {device_name!r}"
    return None


def _require_cryptography() -> None:
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
    """Return what the certificates of an authority and of a device have in common."""
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
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

    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return "".join(str(name.value) for name in names)


def _is_authority(certificate: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _read_authority(
    folder: Path, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and the key of an authority, if it can sign now."""
    file = folder / AUTHORITY_CERTIFICATE
    certificate = pem.read_certificate(file)
    key = pem.read_key(folder / AUTHORITY_KEY)
    if not _is_authority(certificate):
        raise DataError(f"{file} is not the certificate of an authority")
    if key.public_key() != certificate.public_key():
        raise DataError(f"{folder / AUTHORITY_KEY} is not the key of {file}")
    ends = certificate.not_valid_after_utc
    if now > ends:
        raise DataError(f"{file} expired on {ends:%Y-%m-%d}: make a new fleet")
    return certificate, key
