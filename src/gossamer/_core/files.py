"""Write files atomically, and turn errors of the operating system into one sentence."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gossamer.errors import DataError

PUBLIC_MODE = 0o644
"""Mode of a file that others may read. The umask of the process still applies."""

PRIVATE_MODE = 0o600
"""Mode of a file that holds a secret."""

PARTIAL_SUFFIX = ".part"
"""Suffix of a file that is being written. A killed process can leave such files behind."""

Content = bytes | Callable[[BinaryIO], None]


@contextmanager
def os_errors(action: str, path: Path | str) -> Iterator[None]:
    """Turn an `OSError` (disk full, read-only, missing) into a `DataError` of one sentence.

    Args:
        action: What is done, as in "cannot ACTION PATH".
        path: The file or folder that it is done to.

    Raises:
        DataError: If the block raises an `OSError`.

    Example:
        >>> with os_errors("read", "missing.toml"):
        ...     Path("missing.toml").read_bytes()
        Traceback (most recent call last):
        gossamer.errors.DataError: cannot read missing.toml: No such file or directory
    """
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot {action} {path}: {error.strerror or error}") from None


def write_atomically(
    path: Path,
    content: Content,
    *,
    mode: int = PUBLIC_MODE,
    sync: bool = True,
    sync_folder: bool = False,
) -> None:
    """Write a whole file or nothing: to a temporary file in the same folder, then rename it.

    The file has its mode from the moment it exists, and whoever has an older file of that name
    open keeps reading the older content.

    Args:
        path: The file to create or replace.
        content: The bytes, or a function that writes them to the open file.
        mode: File mode, `PUBLIC_MODE` or `PRIVATE_MODE`.
        sync: Wait until the content is on disk before renaming. Without it the file survives a
            killed process, but not a power failure.
        sync_folder: Also wait until the rename is on disk (POSIX only). Needed where another
            machine relies on the new content.

    Raises:
        DataError: If the operating system refuses. The file is then as it was before.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder, "a.txt"), b"content", sync=False)
        ...     Path(folder, "a.txt").read_bytes()
        b'content'
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
    with os_errors("write", path):
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                if callable(content):
                    content(file)
                else:
                    file.write(content)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        if sync_folder and os.name == "posix":
            _sync_folder(path.parent)


def remove_partial_files(folder: Path) -> None:
    """Remove what `write_atomically` left in a folder when its process was killed.

    Args:
        folder: The folder. No other process may be writing to it.

    Raises:
        DataError: If the operating system refuses.
    """
    with os_errors("clear", folder):
        for file in folder.glob(f".*{PARTIAL_SUFFIX}"):
            file.unlink()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
