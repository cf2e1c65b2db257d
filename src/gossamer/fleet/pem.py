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


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file that only its owner may read.

    Args:
        path: The file.

    Raises:
        DataError: If it cannot be read, is no key, or others may read it.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    data = _read(path, secret=True)
    key = None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = serialization.load_pem_private_key(data, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DataError(f"{path} is not an elliptic-curve key in PEM form without a password")
    return key


def write_certificate(path: Path, certificate: x509.Certificate) -> None:
    """Write a certificate.

    Args:
        path: The file.
        certificate: The certificate.
    """
    from cryptography.hazmat.primitives import serialization

    _make_folder(path)
    write_atomically(path, certificate.public_bytes(serialization.Encoding.PEM))


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner may read.

    Args:
        path: The file.
        key: The key.
    """
    from cryptography.hazmat.primitives import serialization

    content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
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
