"""The disk as an interface, so that a simulation can stand in for it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import BinaryIO, Protocol


class Disk(Protocol):
    """The operations on files that must survive a crash. Each may raise `OSError`."""

    def exists(self, path: Path) -> bool:
        """Return True if there is a file or folder of this name."""

    def read(self, path: Path) -> bytes:
        """Return the content of a file."""

    def files(self, folder: Path) -> list[Path]:
        """Return the files in a folder, by name; none if there is no such folder."""

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes."""

    def make_folder(self, path: Path) -> None:
        """Create a folder that only its owner may read, and those above it, unless it exists."""

    def create(self, path: Path, mode: int) -> BinaryIO:
        """Open a new file for writing.

        Args:
            path: The file; it must not exist.
            mode: Its mode.
        """

    def append(self, path: Path, mode: int) -> BinaryIO:
        """Open a file for writing at its end.

        Args:
            path: The file; created if missing.
            mode: Mode of a file that is created.
        """

    def update(self, path: Path, mode: int) -> BinaryIO:
        """Open a file for writing from its start, with its content kept.

        Args:
            path: The file; created if missing.
            mode: Mode of a file that is created.
        """

    def sync(self, file: BinaryIO) -> None:
        """Wait until what was written to an open file is on disk."""

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file, over an existing one."""

    def remove(self, path: Path) -> None:
        """Remove a file."""

    def sync_folder(self, folder: Path) -> None:
        """Wait until files created, renamed and removed in a folder are so on disk."""

    def unique(self) -> str:
        """Return characters for the name of a temporary file."""


class SystemDisk:
    """The disk of this machine."""

    def exists(self, path: Path) -> bool:
        return path.exists()

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def files(self, folder: Path) -> list[Path]:
        if not folder.is_dir():
            return []
        return sorted(path for path in folder.iterdir() if path.is_file())

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def create(self, path: Path, mode: int) -> BinaryIO:
        return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))

    def append(self, path: Path, mode: int) -> BinaryIO:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode), "ab")

    def update(self, path: Path, mode: int) -> BinaryIO:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, mode), "r+b")

    def sync(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_folder(self, folder: Path) -> None:
        if os.name != "posix":
            return
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def unique(self) -> str:
        return secrets.token_hex(4)


SYSTEM_DISK = SystemDisk()
