"""Keys and certificates as PEM files."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer._core.files import PRIVATE_MODE, os_errors, write_atomically
from gossamer.errors import DataError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_LARGEST = 1 << 16  # bytes of a file
_ENCRYPTED = b"ENCRYPTED PRIVATE KEY"


def read_certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a file.

    Args:
        path: The file.

    Raises:
        DataError: If it cannot be read or is no certificate.
    """
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError:
        raise DataError(f"{path} is not a certificate in PEM form") from None


def read_key(path: Path, passphrase: bytes | None = None) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file that only its owner may read.

    Args:
        path: The file.
        passphrase: What it is encrypted with; None: it is not encrypted.

    Raises:
        DataError: If it cannot be read, is no key, others may read it, or the passphrase is
            missing or wrong.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    data = _read(path, secret=True)
    encrypted = _ENCRYPTED in data
    if encrypted and passphrase is None:
        raise DataError(f"{path} is encrypted: give its passphrase by --passphrase-file")
    key = None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = serialization.load_pem_private_key(data, passphrase if encrypted else None)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key
    if encrypted:
        raise DataError(f"{path} cannot be decrypted: the passphrase is wrong, or it is damaged")
    raise DataError(f"{path} is not an elliptic-curve key in PEM form")


def is_encrypted(path: Path) -> bool:
    """Return True if a key file can be read and is encrypted.

    Args:
        path: The file.
    """
    try:
        return _ENCRYPTED in _read(path)
    except DataError:
        return False


def read_request(path: Path) -> ec.EllipticCurvePublicKey:
    """Return the public key of a certificate request whose sender has the private key.

    Args:
        path: The file.

    Raises:
        DataError: If it cannot be read, is no request, or is not signed by its own key.
    """
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        request = x509.load_pem_x509_csr(_read(path))
        key = request.public_key()
        valid = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise DataError(f"{path} is not a certificate request in PEM form") from None
    if not valid:
        raise DataError(f"{path} is not signed by the key that it names")
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise DataError(f"{path} has a key that is not on the curve P-256")
    return key


def write_request(path: Path, key: ec.EllipticCurvePrivateKey, name: str) -> None:
    """Write a certificate request.

    Args:
        path: The file.
        key: The key to be certified.
        name: A name, which the authority need not accept.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    request = builder.sign(key, hashes.SHA256())
    _make_folder(path)
    write_atomically(path, request.public_bytes(serialization.Encoding.PEM))


def write_certificate(path: Path, certificate: x509.Certificate) -> None:
    """Write a certificate.

    Args:
        path: The file.
        certificate: The certificate.
    """
    from cryptography.hazmat.primitives import serialization

    _make_folder(path)
    write_atomically(path, certificate.public_bytes(serialization.Encoding.PEM))


def write_key(path: Path, key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> None:
    """Write a private key that only its owner may read.

    Args:
        path: The file.
        key: The key.
        passphrase: What to encrypt it with; None: it is not encrypted.
    """
    from cryptography.hazmat.primitives import serialization

    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        encryption,
    )
    _make_folder(path)
    write_atomically(path, content, mode=PRIVATE_MODE)


def _make_folder(path: Path) -> None:
    with os_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)


def _read(path: Path, secret: bool = False) -> bytes:
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if secret and os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise DataError(
                    f"{path} can be read by others: chmod 600 it,"
                    " and make a new one if others had access"
                )
            data = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise DataError(f"{path} has more than {_LARGEST} bytes: it is no key and no certificate")
    return data
