"""A disk that tears writes, loses what was not synced, fills up and fails.

A file has content, which the running system sees, and content that survives a power failure: that
of the last sync, and any part of the writes since. A name is the same: a file that is created,
renamed or removed is so after a power failure if its folder was synced since; else the changes up
to any of them are.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import BinaryIO, Protocol

from gossamer.fleet.simulation.scheduler import Scheduler

Written = tuple[int, bytes]  # offset and content
Names = dict[Path, "Inode"]


class DiskFaults(Protocol):
    """What can go wrong in an operation; drawn by the scenario."""

    def before(self, operation: str, path: Path) -> None:
        """Raise `OSError` or `Killed`, or do nothing.

        Args:
            operation: Name of the operation.
            path: The file or folder.
        """

    def written(self, size: int) -> int:
        """Return how many bytes of a write succeed before the disk is full.

        Args:
            size: Bytes to write.
        """

    def sync_seconds(self) -> float:
        """Return how long a sync takes, in simulated seconds."""


@dataclass(eq=False)
class Inode:
    """The content of a file.

    Args:
        content: What the running system sees.
        synced: What survives a power failure in any case.
        unsynced: Writes since, in their order.
    """

    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    unsynced: list[Written] = field(default_factory=list)

    def write(self, at: int, data: bytes) -> None:
        """Write to the content.

        Args:
            at: Offset in the file.
            data: The bytes.
        """
        _put(self.content, at, data)
        self.unsynced.append((at, data))

    def sync(self) -> None:
        """Make the content survive a power failure."""
        if self.unsynced:
            self.synced = bytes(self.content)
            self.unsynced.clear()

    def after_power_failure(self, random: Random | None) -> bytes:
        """Return a content that may be left.

        Args:
            random: Which one; None: only what is sure to be left.
        """
        if random is None or not self.unsynced:
            return self.synced
        left = bytearray(self.synced)
        whole = random.random() < 0.3
        for at, data in self.unsynced:
            # Each write may be on disk, or not, or a part of it, in any order.
            size = len(data)
            if not whole:
                size = random.choice((0, size, random.randrange(size + 1)))
            _put(left, at, data[:size])
        return bytes(left)


@dataclass
class SimulatedDisk:
    """The disk of one machine, which outlives its processes.

    Args:
        scheduler: The simulated time.
        faults: What goes wrong.
        on_replace: Called with (path, content) before a file is renamed to a name.
        on_change: Called after every operation that changes what a power failure leaves.
    """

    scheduler: Scheduler
    faults: DiskFaults
    on_replace: Callable[[Path, bytes], None] = lambda path, content: None
    on_change: Callable[[], None] = lambda: None
    names: Names = field(default_factory=dict)
    synced_names: Names = field(default_factory=dict)
    changes: list[Names] = field(default_factory=list)  # all names after each change since
    boot: int = 0  # files opened before a crash cannot be written any more
    version: int = 0  # incremented with everything that changes what a power failure leaves
    bytes_written: int = 0
    _numbers: int = 0

    # -- the interface of `Disk` -------------------------------------------------------------------

    def exists(self, path: Path) -> bool:
        return path in self.names or bool(self._below(path))

    def read(self, path: Path) -> bytes:
        self._before("read", path)
        return bytes(self._inode(path).content)

    def files(self, folder: Path) -> list[Path]:
        self._before("list", folder)
        return [path for path in self._below(folder) if path.parent == folder]

    def size(self, path: Path) -> int:
        return len(self._inode(path).content)

    def make_folder(self, path: Path) -> None:
        self._before("make", path)

    def create(self, path: Path, mode: int) -> BinaryIO:
        self._before("create", path)
        if path in self.names:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        return self._opened(path, at_end=False)

    def append(self, path: Path, mode: int) -> BinaryIO:
        self._before("open", path)
        return self._opened(path, at_end=True)

    def update(self, path: Path, mode: int) -> BinaryIO:
        self._before("open", path)
        return self._opened(path, at_end=False)

    def sync(self, file: BinaryIO) -> None:
        assert isinstance(file, _OpenFile)
        inode = file.inode
        self.scheduler.sleep(self.faults.sync_seconds())
        try:
            self._before("sync", file.path)
        except OSError:
            inode.unsynced.clear()  # as on Linux: the pages count as clean, and are not on disk
            raise
        inode.sync()
        self._changed()

    def replace(self, source: Path, target: Path) -> None:
        self._before("rename", target)
        inode = self._inode(source)
        renamed = dict(self.names)
        del renamed[source]
        renamed[target] = inode
        self.on_replace(target, bytes(inode.content))
        self._set_names(renamed)

    def remove(self, path: Path) -> None:
        self._before("remove", path)
        self._inode(path)
        left = dict(self.names)
        del left[path]
        self._set_names(left)

    def sync_folder(self, folder: Path) -> None:
        self.scheduler.sleep(self.faults.sync_seconds())
        self._before("sync", folder)
        self.synced_names = dict(self.names)
        self.changes.clear()
        self._changed()

    def unique(self) -> str:
        self._numbers += 1
        return f"{self._numbers:08x}"

    # -- faults ------------------------------------------------------------------------------------

    def after_power_failure(self, random: Random | None) -> dict[Path, bytes]:
        """Return files that a power failure may leave now.

        Args:
            random: Which ones; None: only what is sure to be left.
        """
        names = self.synced_names
        if random is not None and self.changes:
            names = random.choice([self.synced_names, *self.changes])
        return {path: inode.after_power_failure(random) for path, inode in names.items()}

    def fail_power(self, random: Random) -> None:
        """Lose what was not synced, or a part of it.

        Args:
            random: Which part.
        """
        left = self.after_power_failure(random)
        self.boot += 1
        self.names = {}
        for path, content in left.items():
            self.names[path] = Inode(bytearray(content), content)
        self.synced_names = dict(self.names)
        self.changes.clear()
        self._changed()

    def end_process(self) -> None:
        """Close all files of a process that was killed. What it has written stays."""
        self.boot += 1

    def peek(self, path: Path) -> bytes | None:
        """Return the content of a file without faults; None if there is none.

        Args:
            path: The file.
        """
        inode = self.names.get(path)
        return None if inode is None else bytes(inode.content)

    def peek_all(self) -> dict[Path, bytes]:
        """Return the content of all files, without faults."""
        return {path: bytes(inode.content) for path, inode in self.names.items()}

    # -- for open files ----------------------------------------------------------------------------

    def write(self, path: Path, inode: Inode, at: int, data: bytes) -> int:
        """Write to an inode, up to where the disk is full.

        Args:
            path: Name under which it was opened.
            inode: The inode.
            at: Offset in the file.
            data: The bytes.

        Returns:
            The number of bytes written.
        """
        self._before("write", path)
        size = self.faults.written(len(data))
        if size:
            inode.write(at, data[:size])
            self.bytes_written += size
            self._changed()
        if size < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return size

    def _before(self, operation: str, path: Path) -> None:
        self.scheduler.current()
        self.faults.before(operation, path)

    def _opened(self, path: Path, at_end: bool) -> BinaryIO:
        inode = self.names.get(path)
        if inode is None:
            inode = Inode()
            self._set_names({**self.names, path: inode})
        position = len(inode.content) if at_end else 0
        return _OpenFile(self, path, inode, position)

    def _inode(self, path: Path) -> Inode:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return self.names[path]

    def _below(self, folder: Path) -> list[Path]:
        return sorted(path for path in self.names if folder in path.parents)

    def _set_names(self, names: Names) -> None:
        self.names = names
        self.changes.append(names)
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.on_change()


class _OpenFile(io.RawIOBase, BinaryIO):
    """An open file without a buffer: every write is one that a crash can tear."""

    def __init__(self, disk: SimulatedDisk, path: Path, inode: Inode, position: int) -> None:
        super().__init__()
        self.path = path
        self.inode = inode
        self._disk = disk
        self._boot = disk.boot
        self._position = position

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self._boot != self._disk.boot:
            raise OSError(errno.EBADF, "Bad file descriptor")
        content = bytes(data)
        size = self._disk.write(self.path, self.inode, self._position, content)
        self._position += size
        return size

    def seek(self, offset: int, whence: int = 0) -> int:
        assert whence == 0
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position


class ReadOnlyDisk(SimulatedDisk):
    """Files that a power failure may leave, for a journal that reads them as after a restart.

    Args:
        left: Content by name.
    """

    def __init__(self, left: dict[Path, bytes]) -> None:
        self._left = left

    def exists(self, path: Path) -> bool:
        return path in self._left

    def read(self, path: Path) -> bytes:
        return self._left[path]

    def peek(self, path: Path) -> bytes | None:
        return self._left.get(path)

    def peek_all(self) -> dict[Path, bytes]:
        return self._left

    def make_folder(self, path: Path) -> None:
        pass


def _put(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data
