"""Public data sets on disk: where they are kept, which files they have, and how to download them.

Every file is known by its hash and used only if it is the original, byte for byte. Where it came
from, a mirror or another folder, does not matter then.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gossamer._core.files import os_errors, write_atomically
from gossamer.errors import DataError, InputError, nearest

Progress = Callable[[str, int, int], None]
"""Called as progress(file, bytes so far, bytes in all)."""


class Stamp(NamedTuple):
    """What a file must be: its size in bytes, and its hash as "algorithm:digits"."""

    size: int
    hash: str


@dataclass(frozen=True)
class Original:
    """A data set as its authors publish it.

    Args:
        files: The files that the loader reads.
        packed: What the mirrors serve: the same files, each as its own .gz or all in one .tar.gz.
        folders: Names that a folder of it usually has, the cache's own first.
        mirrors: Addresses that the packed files are under.
    """

    files: dict[str, Stamp]
    packed: dict[str, Stamp]
    folders: tuple[str, ...]
    mirrors: tuple[str, ...]


_FASHION = {
    "train-images-idx3-ubyte.gz": Stamp(26421880, "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    "train-labels-idx1-ubyte.gz": Stamp(29515, "md5:25c81989df183df01b3e8a0aad5dffbe"),
    "t10k-images-idx3-ubyte.gz": Stamp(4422102, "md5:bef4ecab320f06d8554ea6380940ec79"),
    "t10k-labels-idx1-ubyte.gz": Stamp(5148, "md5:bb300cfdad3c16e7a12a480ee83cd310"),
}
_CIFAR10 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_SHA256 = "sha256:"

ORIGINALS: dict[str, Original] = {
    "mnist": Original(
        files={
            "train-images-idx3-ubyte": Stamp(
                47040016,
                _SHA256 + "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            "train-labels-idx1-ubyte": Stamp(
                60008, _SHA256 + "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
            ),
            "t10k-images-idx3-ubyte": Stamp(
                7840016,
                _SHA256 + "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            "t10k-labels-idx1-ubyte": Stamp(
                10008, _SHA256 + "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
            ),
        },
        packed={
            "train-images-idx3-ubyte.gz": Stamp(9912422, "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            "train-labels-idx1-ubyte.gz": Stamp(28881, "md5:d53e105ee54ea40749a09fcbcd1e9432"),
            "t10k-images-idx3-ubyte.gz": Stamp(1648877, "md5:9fb629c4189551a2d022fa330f9573f3"),
            "t10k-labels-idx1-ubyte.gz": Stamp(4542, "md5:ec29112dd5afa0611ce80d1b7f02629c"),
        },
        folders=("mnist", "MNIST/raw", "MNIST", "raw"),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    "fashion-mnist": Original(
        # Kept packed: the hashes that its authors published are those of the .gz files.
        files=_FASHION,
        packed=_FASHION,
        folders=("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "data/fashion", "raw"),
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
    ),
    "cifar10": Original(
        files={name: Stamp(30730000, _SHA256 + digest) for name, digest in _CIFAR10.items()},
        packed={
            "cifar-10-binary.tar.gz": Stamp(
                170052171,
                _SHA256 + "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            )
        },
        folders=("cifar-10-batches-bin", "cifar10", "cifar-10"),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
    ),
}


def cache_folder() -> Path:
    """Return the folder of all data sets.

    It is $GOSSAMER_DATA, or else gossamer-data in the user's cache folder.
    """
    if chosen := os.environ.get("GOSSAMER_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer-data"


def get(
    name: str,
    source_dir: str | Path | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Copy or download a data set into the cache.

    Files that are there and whole are kept: a second call only computes their hashes.

    Args:
        name: Name of the data set: "mnist", "fashion-mnist" or "cifar10".
        source_dir: Folder that holds its files; None: download them from its public mirrors.
        cache: Folder of all data sets; None: `cache_folder()`.
        progress: Called as progress(file, bytes so far, bytes in all).

    Returns:
        The folder of the data set.

    Raises:
        InputError: If there is no data set of that name.
        DataError: If a file is missing or not the original, or no mirror can be reached.

    Example:
        >>> get("cifar10", source_dir="~/Downloads")  # doctest: +SKIP
    """
    original = _original(name)
    root = Path(cache or cache_folder()).expanduser()
    target = root / original.folders[0]
    try:
        verify(name, target)
        return target
    except DataError:
        pass
    with os_errors(f"bring {name} into", target):
        if source_dir is not None:
            source = Path(source_dir).expanduser()
            if not source.is_dir():
                raise DataError(
                    f"{name}: {source} is not a folder; "
                    "give the folder that holds the data set's files"
                )
            _write(contents(name, source), target)
        else:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as folder:
                for file in original.packed:
                    _fetch(name, file, Path(folder), progress)
                _write(contents(name, Path(folder)), target)
    return target


def verify(name: str, folder: Path) -> None:
    """Check that a folder itself holds every file of a data set, unpacked and whole.

    Args:
        name: Name of the data set.
        folder: The folder.

    Raises:
        DataError: If a file is missing or not the original.
    """
    for file, stamp in _original(name).files.items():
        if not (folder / file).is_file():
            raise _missing(name, folder, file)
        _check(name, folder / file, stamp)


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
    original = _original(name)
    found = _find_folder(original, folder)
    unpacked = any((found / file).is_file() for file in original.files)
    for packed in original.packed:
        if packed.endswith(".tar.gz") and (found / packed).is_file() and not unpacked:
            yield from _from_tar(name, found / packed)
            return
    for file, stamp in original.files.items():
        packed = file + ".gz"
        if (found / file).is_file():
            _check(name, found / file, stamp)
            yield file, (found / file).read_bytes()
        elif packed in original.packed and (found / packed).is_file():
            _check(name, found / packed, original.packed[packed])
            content = unzip((found / packed).read_bytes(), stamp.size)
            _check_content(name, f"{file} in {found / packed}", content, stamp)
            yield file, content
        else:
            raise _missing(name, folder, file)


def unzip(packed: bytes, limit: int) -> bytes:
    """Unpack a .gz in memory.

    Args:
        packed: The packed bytes.
        limit: Most bytes that are expected.

    Returns:
        The content, or its first limit + 1 bytes: a malicious file cannot fill the memory.
    """
    return zlib.decompressobj(wbits=31).decompress(packed, limit + 1)


def _original(name: str) -> Original:
    if name not in ORIGINALS:
        raise InputError("name", name, " or ".join(ORIGINALS) + nearest(name, ORIGINALS))
    return ORIGINALS[name]


def _find_folder(original: Original, folder: Path) -> Path:
    """Return the first of `folder` and its usual subfolders that holds a file of the data set."""
    for subfolder in ("", *original.folders):
        candidate = folder / subfolder
        for file in (*original.files, *original.packed):
            if (candidate / file).is_file():
                return candidate
    return folder


def _missing(name: str, folder: Path, file: str) -> DataError:
    return DataError(
        f"{name}: there is no {file} in {folder}; `gossamer data get {name}` downloads the data, "
        f"`gossamer data get {name} --from DIR` takes files that are already on disk"
    )


def _check(name: str, path: Path, stamp: Stamp) -> None:
    with os_errors("read", path):
        status = path.stat()
        if status.st_size != stamp.size:
            found = f"{status.st_size:,} bytes"
            raise _not_original(name, str(path), found, f"{stamp.size:,} bytes")
        found = _digest(path, status.st_size, status.st_mtime_ns, stamp.hash.partition(":")[0])
    if found != stamp.hash:
        raise _not_original(name, str(path), found, stamp.hash)


def _check_content(name: str, where: str, content: bytes, stamp: Stamp) -> None:
    algorithm = stamp.hash.partition(":")[0]
    found = f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"
    if len(content) != stamp.size or found != stamp.hash:
        raise _not_original(name, where, f"{len(content):,} bytes with {found}", stamp.hash)


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
    """Yield the files in a .tar.gz by their bare names, from memory: no path in it is followed."""
    original = _original(name)
    _check(name, path, original.packed[path.name])
    wanted = dict(original.files)
    try:
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                file = member.name.rpartition("/")[2]
                if member.isfile() and file in wanted and member.size == wanted[file].size:
                    stream = tar.extractfile(member)
                    content = stream.read() if stream else b""
                    _check_content(name, f"{file} in {path}", content, wanted.pop(file))
                    yield file, content
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name}: {path} is damaged: {error}") from error
    if wanted:
        raise DataError(f"{name}: {path} does not hold {', '.join(wanted)}")


def _write(files: Iterator[tuple[str, bytes]], folder: Path) -> None:
    """Write files atomically. They need no sync: they are verified by hash when they are read."""
    for file, content in files:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / file, content, sync=False)


def _fetch(name: str, file: str, folder: Path, progress: Progress | None) -> None:
    """Download one file from the first mirror that gives the original."""
    import pooch

    original = _original(name)
    stamp = original.packed[file]
    failures = []
    for mirror in original.mirrors:
        bar = _ProgressBar(file, stamp.size, progress) if progress else False
        downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=30)
        try:
            with _quiet(pooch.get_logger()):
                pooch.retrieve(
                    mirror + file, stamp.hash, fname=file, path=folder, downloader=downloader
                )
            return
        # No connection, an HTTP error, or a file with another hash.
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) is not None:  # our own disk, not the network
                raise
            failures.append(f"{mirror} ({_reason(error)})")
    raise DataError(
        f"{name}: no mirror gave {file}: {'; '.join(failures)}; with the file on disk, "
        f"`gossamer data get {name} --from DIR` takes it from there"
    )


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Show only warnings of a logger within a block."""
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def _reason(error: Exception) -> str:
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return "gave another file"
    response = getattr(error, "response", None)
    return f"HTTP {response.status_code}" if response is not None else "no connection"


class _ProgressBar:
    """The progress bar of pooch's interface."""

    total = 0  # set by pooch to what the server says, which may be nothing

    def __init__(self, file: str, size: int, progress: Progress) -> None:
        self.file = file
        self.size = size
        self.progress = progress
        self.done = 0

    def update(self, count: int) -> None:
        self.done = min(self.done + count, self.size)
        self.progress(self.file, self.done, self.size)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        self.progress(self.file, self.size, self.size)
