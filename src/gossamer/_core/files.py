"""Write files atomically, and turn errors of the operating system into one sentence."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gossamer._core.disk import SYSTEM_DISK, Disk
from gossamer.errors import DataError, Unavailable

PUBLIC_MODE = 0o644
"""Mode of a file that others may read. The umask of the process still applies."""

PRIVATE_MODE = 0o600
"""Mode of a file that holds a secret."""

PRIVATE_FOLDER_MODE = 0o700
"""Mode of a folder that holds secrets."""

PARTIAL_SUFFIX = ".part"
"""Suffix of a file that is being written. A killed process can leave such files behind."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

Content = bytes | Callable[[BinaryIO], None]


@contextmanager
def os_errors(action: str, path: Path | str) -> Iterator[None]:
    """Turn an `OSError` (disk full, read-only, missing) into a `DataError` of one sentence.

    Args:
        action: What is done, as in "cannot ACTION PATH".
        path: The file or folder that it is done to.

    Raises:
        Unavailable: If the disk is full.
        DataError: If the block raises another `OSError`.

    Example:
        >>> with os_errors("read", "missing.toml"):
        ...     Path("missing.toml").read_bytes()
        Traceback (most recent call last):
        gossamer.errors.DataError: cannot read missing.toml: No such file or directory
    """
    try:
        yield
    except OSError as error:
        kind = Unavailable if error.errno in _DISK_FULL else DataError
        raise kind(f"cannot {action} {path}: {error.strerror or error}") from None


def write_atomically(
    path: Path,
    content: Content,
    *,
    mode: int = PUBLIC_MODE,
    sync: bool = True,
    sync_folder: bool = False,
    disk: Disk = SYSTEM_DISK,
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
        disk: Where to write.

    Raises:
        DataError: If the operating system refuses. The file is then as it was before.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder, "a.txt"), b"content", sync=False)
        ...     Path(folder, "a.txt").read_bytes()
        b'content'
    """
    temporary = path.with_name(f".{path.name}.{disk.unique()}{PARTIAL_SUFFIX}")
    with os_errors("write", path):
        file = disk.create(temporary, mode)
        try:
            with file:
                if callable(content):
                    content(file)
                else:
                    file.write(content)
                file.flush()
                if sync:
                    disk.sync(file)
            disk.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                disk.remove(temporary)
            raise
        if sync_folder:
            disk.sync_folder(path.parent)


def remove_partial_files(folder: Path, disk: Disk = SYSTEM_DISK) -> None:
    """Remove what `write_atomically` left in a folder when its process was killed.

    Args:
        folder: The folder. No other process may be writing to it.
        disk: Where the folder is.

    Raises:
        DataError: If the operating system refuses.
    """
    with os_errors("clear", folder):
        for path in disk.files(folder):
            if path.name.startswith(".") and path.name.endswith(PARTIAL_SUFFIX):
                disk.remove(path)
