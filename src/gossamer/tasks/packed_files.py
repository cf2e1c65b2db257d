"""The files of a public data set in a folder: raw, as .gz, or in a .tar, verified by content.

A file is used if its unpacked content is that of the original. Who packed it, and how, does not
matter.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO

from gossamer._core.files import os_errors
from gossamer.errors import DataError
from gossamer.tasks.originals import Original, Stamp, original

_GZIP = b"\x1f\x8b"  # the first bytes of a .gz file
_LARGEST_TAR = 1 << 30  # bytes of an unpacked .tar: CIFAR-10's has 184 MB
_TAR_ENDINGS = (".tar.gz", ".tgz", ".tar")
_PICKLED = ("cifar-10-python.tar.gz", "cifar-10-batches-py")  # CIFAR-10 for Python


def verify(name: str, folder: Path) -> None:
    """Check that a folder holds every file of a data set.

    Args:
        name: Name of the data set.
        folder: The folder.

    Raises:
        DataError: If a file is missing or not the original.
    """
    for _ in contents(name, folder):
        pass


def contents(name: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a data set one by one, each verified.

    Files that are there only packed are unpacked in memory; nothing is written.

    Args:
        name: Name of the data set.
        folder: Folder with the files, or with a subfolder of one of its usual names.

    Yields:
        Name and content of each file.

    Raises:
        DataError: If a file is missing or not the original.
    """
    wanted = original(name)
    found = _find_folder(wanted, folder)
    paths = {}
    for file in wanted.files:
        path = _find_file(found, file)
        if path is not None:
            paths[file] = path
    if not paths:
        tar = _find_tar(wanted, found)
        if tar is not None:
            yield from _from_tar(name, tar)
            return
    for file, stamp in wanted.files.items():
        if file not in paths:
            raise _missing(name, folder, file)
        yield file, _read(name, file, paths[file], stamp)


def _names(file: str) -> tuple[str, ...]:
    """Return the names that a file goes by: "…-idx3-ubyte" is also called "….idx3-ubyte"."""
    names = [file, file.replace("-idx", ".idx")]
    return (*names, *(f"{name}.gz" for name in names))


def _find_file(folder: Path, file: str) -> Path | None:
    for name in _names(file):
        if (folder / name).is_file():
            return folder / name
    return None


def _find_tar(wanted: Original, folder: Path) -> Path | None:
    for packed in wanted.packed:
        stem = packed.removesuffix(".tar.gz")
        if stem == packed:
            continue
        for ending in _TAR_ENDINGS:
            if (folder / (stem + ending)).is_file():
                return folder / (stem + ending)
    return None


def _find_folder(wanted: Original, folder: Path) -> Path:
    """Return the first of `folder` and its usual subfolders that holds a file of the data set."""
    for subfolder in ("", *wanted.folders):
        candidate = folder / subfolder
        if _find_tar(wanted, candidate) is not None:
            return candidate
        for file in wanted.files:
            if _find_file(candidate, file) is not None:
                return candidate
    return folder


def _missing(name: str, folder: Path, file: str) -> DataError:
    for pickled in _PICKLED:
        if name == "cifar10" and (folder / pickled).exists():
            return DataError(
                f"cifar10: {folder / pickled} is the version for Python, which is pickled and is "
                "not read; give a folder with the binary version, cifar-10-binary.tar.gz"
            )
    return DataError(
        f"{name}: there is no {file} in {folder}; `gossamer data get {name}` downloads the data, "
        f"`gossamer data get {name} --from DIR` takes files that are already on disk"
    )


def _read(name: str, file: str, path: Path, stamp: Stamp) -> bytes:
    """Return the content of a file, raw or packed, if it is the original."""
    with os_errors("read", path), path.open("rb") as stream:
        is_packed = stream.read(len(_GZIP)) == _GZIP
    if not is_packed:
        _check_file(name, path, stamp)
        with os_errors("read", path):
            return path.read_bytes()
    content = unpack(name, path, stamp.size)
    _check_content(name, f"{file} in {path}", content, stamp)
    return content


def unpack(name: str, path: Path, limit: int) -> bytes:
    """Unpack a .gz file in memory.

    Args:
        name: Name of the data set, for messages.
        path: The file.
        limit: Most bytes that are expected.

    Returns:
        The content, or its first limit + 1 bytes: a malicious file cannot fill the memory.

    Raises:
        DataError: If the file is damaged.
    """
    try:
        with gzip.open(path) as stream:
            return stream.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{name}: {path} is damaged, or only a part of the original: {error}; "
            f"`gossamer data get {name}` downloads the original"
        ) from None


def _check_file(name: str, path: Path, stamp: Stamp) -> None:
    with os_errors("read", path):
        status = path.stat()
        if status.st_size != stamp.size:
            found = f"{status.st_size:,} bytes"
            raise _not_original(name, str(path), found, f"{stamp.size:,} bytes")
        found = _digest(path, status.st_size, status.st_mtime_ns, stamp.hash.partition(":")[0])
    if found != stamp.hash:
        raise _not_original(name, str(path), found, stamp.hash)


def _check_content(name: str, where: str, content: bytes, stamp: Stamp) -> None:
    if len(content) > stamp.size:
        found = f"more than {stamp.size:,} bytes"
        raise _not_original(name, where, found, f"{stamp.size:,} bytes")
    if len(content) < stamp.size:
        raise _not_original(name, where, f"{len(content):,} bytes", f"{stamp.size:,} bytes")
    algorithm = stamp.hash.partition(":")[0]
    found = f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"
    if found != stamp.hash:
        raise _not_original(name, where, found, stamp.hash)


def _not_original(name: str, where: str, found: str, expected: str) -> DataError:
    return DataError(
        f"{name}: {where} is truncated or not the original: "
        f"it has {found}, expected is {expected}; "
        f"`gossamer data get {name}` downloads the original"
    )


@lru_cache(maxsize=256)
def _digest(path: Path, size: int, mtime_ns: int, algorithm: str) -> str:
    """Return a file's hash. Size and time are in the cache key: a changed file is hashed again."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def _from_tar(name: str, path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files in a .tar by their bare names, from memory: no path in it is followed."""
    wanted = dict(original(name).files)
    try:
        with _open_tar(path) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                file = member.name.rpartition("/")[2]
                if member.isfile() and file in wanted and member.size == wanted[file].size:
                    inner = tar.extractfile(member)
                    content = inner.read() if inner else b""
                    _check_content(name, f"{file} in {path}", content, wanted.pop(file))
                    yield file, content
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, _TooLargeError) as error:
        raise DataError(f"{name}: {path} is damaged: {error}") from error
    if wanted:
        raise DataError(f"{name}: {path} does not hold {', '.join(wanted)}")


def _open_tar(path: Path) -> _Limited:
    """Open a .tar, packed or not; no more than `_LARGEST_TAR` bytes of it are read."""
    with path.open("rb") as stream:
        is_packed = stream.read(len(_GZIP)) == _GZIP
    if is_packed:
        return _Limited(gzip.open(path))
    return _Limited(path.open("rb"))


class _TooLargeError(Exception):
    """Raised by `_Limited`."""


class _Limited(io.BufferedIOBase):
    """A stream of which at most `_LARGEST_TAR` bytes can be read."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile) -> None:
        self._stream = stream

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = _LARGEST_TAR
        self._check(self.tell() + size)
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._check(offset)
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _check(self, position: int) -> None:
        if position > _LARGEST_TAR:
            raise _TooLargeError(f"it unpacks to more than {_LARGEST_TAR >> 20} MiB")
