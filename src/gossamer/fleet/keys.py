"""The certificate authority of a fleet, and a certificate for each device.

    authority/ca.pem  ca.key               stays with the owner of the fleet; no device needs ca.key
    n3/ca.pem  device.pem  device.key      goes to the device n3, and nowhere else

A device is identified by the name in its certificate, and proves with its key that the name is its
own (mutual TLS). A device can make its key itself: the authority then signs a request (device.csr),
and a certificate is renewed without the key. Keys are on the curve P-256. Needs the extra
gossamer[peer].
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
from gossamer.fleet import certificates, pem

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_CERTIFICATE = "ca.pem"
AUTHORITY_KEY = "ca.key"
CERTIFICATE = "device.pem"
KEY = "device.key"
REQUEST = "device.csr"

# No character with a meaning in an access rule or a path. Lower case only: names of hosts ignore
# case, access rules do not.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(rf"(?=.{{1,253}}$){_NAME.pattern}(\.{_NAME.pattern})*")
_ROUNDING = timedelta(days=1)  # tolerance for a certificate that outlives its authority


def make_authority(
    folder: Path,
    name: str,
    days: float,
    now: datetime | None = None,
    passphrase: bytes | None = None,
) -> None:
    """Make an authority: `ca.pem`, which every device gets, and `ca.key`, which signs.

    An existing authority is never replaced: its devices would no longer be recognised.

    Args:
        folder: The folder to write to.
        name: Name of the authority.
        days: For how long it can sign.
        now: The current time; by default that of the clock.
        passphrase: What to encrypt its key with; None: it is not encrypted.

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
    key = certificates.new_key()
    builder = (
        certificates.builder(
            certificates.named(name),
            certificates.named(name),
            key.public_key(),
            now,
            now + _days(days),
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(certificates.key_usage(authority=True), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    pem.write_key(folder / AUTHORITY_KEY, key, passphrase)
    pem.write_certificate(folder / AUTHORITY_CERTIFICATE, certificates.signed(builder, key))


def make_certificate(
    folder: Path,
    authority: Path,
    device_name: str,
    days: float,
    addresses: Sequence[str] = (),
    now: datetime | None = None,
    passphrase: bytes | None = None,
) -> None:
    """Write a new key, its certificate and the authority's certificate for a device.

    Args:
        folder: The device's folder.
        authority: The authority's folder.
        device_name: Name of the device.
        days: Validity of the certificate.
        addresses: Where others may reach the device, beside its name.
        now: The current time; by default that of the clock.
        passphrase: That of the authority's key.

    Raises:
        InputError: If the name, an address or the days are not accepted.
        DataError: If the authority cannot be used, or the folder cannot be written.
        MissingExtra: If the package cryptography is not installed.

    Example:
        make_certificate(Path("fleet/n3"), Path("fleet/authority"), "n3", days=365)
    """
    _require_cryptography()
    key = certificates.new_key()
    signing = _Signing(authority, days, now or datetime.now(UTC), passphrase)
    certificate = signing.certificate(device_name, key.public_key(), _names(addresses))
    pem.write_key(folder / KEY, key)
    signing.write(folder, certificate)


def make_request(folder: Path, device_name: str) -> Path:
    """Make a key on a device, and a request for its certificate.

    An existing key is kept and requested again.

    Args:
        folder: The device's folder, to which the key is written if it has none.
        device_name: Name of the device. The authority decides on the name in the certificate.

    Returns:
        The file of the request.

    Raises:
        InputError: If the name is not accepted.
        DataError: If a key is there that cannot be read, or the folder cannot be written.
        MissingExtra: If the package cryptography is not installed.
    """
    _require_cryptography()
    _check_name(device_name)
    path = folder / KEY
    if path.exists():
        key = pem.read_key(path)
    else:
        key = certificates.new_key()
        pem.write_key(path, key)
    pem.write_request(folder / REQUEST, key, device_name)
    return folder / REQUEST


def sign_request(
    request: Path,
    folder: Path,
    authority: Path,
    device_name: str,
    days: float,
    addresses: Sequence[str] = (),
    passphrase: bytes | None = None,
) -> None:
    """Write the certificate for a request, and the authority's certificate.

    Args:
        request: The file that `make_request` has written on the device.
        folder: The device's folder on the machine with the authority.
        authority: The authority's folder.
        device_name: Name of the device, whatever name the request has.
        days: Validity of the certificate.
        addresses: Where others may reach the device, beside its name.
        passphrase: That of the authority's key.

    Raises:
        InputError: If the name, an address or the days are not accepted.
        DataError: If the request or the authority cannot be used.
        MissingExtra: If the package cryptography is not installed.
    """
    _require_cryptography()
    key = pem.read_request(request)
    signing = _Signing(authority, days, datetime.now(UTC), passphrase)
    signing.write(folder, signing.certificate(device_name, key, _names(addresses)))


def renew_certificate(
    folder: Path,
    authority: Path,
    device_name: str,
    days: float,
    now: datetime | None = None,
    passphrase: bytes | None = None,
) -> None:
    """Write a new certificate for the key of the last one. The key itself is not needed.

    Args:
        folder: The device's folder on the machine with the authority.
        authority: The authority's folder.
        device_name: Name of the device, which the last certificate must have.
        days: Validity of the certificate, from now.
        now: The current time; by default that of the clock.
        passphrase: That of the authority's key.

    Raises:
        InputError: If the days are not accepted.
        DataError: If the last certificate or the authority cannot be used.
        MissingExtra: If the package cryptography is not installed.
    """
    _require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    path = folder / CERTIFICATE
    last = pem.read_certificate(path)
    signing = _Signing(authority, days, now or datetime.now(UTC), passphrase)
    if not certificates.is_issued_by(last, signing.issuer):
        raise DataError(f"{path} is of another authority than {authority / AUTHORITY_CERTIFICATE}")
    if certificates.common_name(last) != device_name:
        raise DataError(
            f"{path} is for {certificates.common_name(last)!r}, not for {device_name!r}"
        )
    names = last.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    key = last.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # all keys of an authority here
    signing.write(folder, signing.certificate(device_name, key, list(names)))


def expiry(folder: Path) -> datetime:
    """Return when the certificate of a device expires.

    Args:
        folder: The device's folder.

    Raises:
        DataError: If it cannot be read.
        MissingExtra: If the package cryptography is not installed.
    """
    _require_cryptography()
    return pem.read_certificate(folder / CERTIFICATE).not_valid_after_utc


class _Signing:
    """What an authority signs with, and for how long.

    Args:
        authority: The authority's folder.
        days: Validity of certificates.
        now: The current time.
        passphrase: That of the authority's key.
    """

    def __init__(
        self, authority: Path, days: float, now: datetime, passphrase: bytes | None
    ) -> None:
        self.issuer, self._key = read_authority(authority, now, passphrase)
        self._now = now
        last = self.issuer.not_valid_after_utc
        end = now + _days(days)
        if end > last + _ROUNDING:
            raise InputError(
                "days", days, f"fewer: the authority in {authority} ends on {last:%Y-%m-%d}"
            )
        self._end = min(end, last)

    def certificate(
        self,
        device_name: str,
        key: ec.EllipticCurvePublicKey,
        names: Sequence[x509.GeneralName],
    ) -> x509.Certificate:
        """Return a certificate for the key of a device."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        _check_name(device_name)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        unique = dict.fromkeys([x509.DNSName(device_name), *names])
        issuer_key = self._key.public_key()
        builder = (
            certificates.builder(
                certificates.named(device_name), self.issuer.subject, key, self._now, self._end
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(certificates.key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(unique), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
            )
        )
        return certificates.signed(builder, self._key)

    def write(self, folder: Path, certificate: x509.Certificate) -> None:
        """Write a certificate of a device, and that of the authority."""
        pem.write_certificate(folder / CERTIFICATE, certificate)
        pem.write_certificate(folder / AUTHORITY_CERTIFICATE, self.issuer)


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
    now = now or datetime.now(UTC)
    try:
        authority = pem.read_certificate(folder / AUTHORITY_CERTIFICATE)
        certificate = pem.read_certificate(folder / CERTIFICATE)
        key = pem.read_key(folder / KEY)
    except DataError as error:
        return str(error)
    if not certificates.is_authority(authority):
        return f"{folder / AUTHORITY_CERTIFICATE} is not the certificate of an authority"
    if not certificates.is_issued_by(certificate, authority):
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
    found = certificates.common_name(certificate)
    if device_name is not None and found != device_name:
        return f"{folder / CERTIFICATE} is for {found!r}, not for {device_name!r}"
    return None


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise MissingExtra("peer", "the runtime for devices") from None


def _check_name(device_name: str) -> None:
    if not _NAME.fullmatch(device_name):
        raise InputError(
            "device_name", device_name, "1 to 63 of a-z, 0-9 and '-', with no '-' at either end"
        )


def _names(addresses: Sequence[str]) -> list[x509.GeneralName]:
    return [_address(text) for text in addresses]


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


def read_authority(
    folder: Path, now: datetime, passphrase: bytes | None = None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and the key of an authority, if it can sign now.

    Args:
        folder: The authority's folder.
        now: The current time.
        passphrase: That of its key.

    Raises:
        DataError: If it cannot be read, or cannot sign.
    """
    file = folder / AUTHORITY_CERTIFICATE
    certificate = pem.read_certificate(file)
    key = pem.read_key(folder / AUTHORITY_KEY, passphrase)
    if not certificates.is_authority(certificate):
        raise DataError(f"{file} is not the certificate of an authority")
    if key.public_key() != certificate.public_key():
        raise DataError(f"{folder / AUTHORITY_KEY} is not the key of {file}")
    ends = certificate.not_valid_after_utc
    if now > ends:
        raise DataError(f"{file} expired on {ends:%Y-%m-%d}: make a new fleet")
    return certificate, key
