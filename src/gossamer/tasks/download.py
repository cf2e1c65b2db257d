"""Copy or download public data sets into the cache folder."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gossamer._core.files import os_errors, write_atomically
from gossamer.errors import DataError
from gossamer.tasks.originals import original
from gossamer.tasks.packed_files import contents, verify

Progress = Callable[[str, int, int], None]
"""Called as progress(file, bytes so far, bytes in all)."""


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
    wanted = original(name)
    root = Path(cache or cache_folder()).expanduser()
    target = root / wanted.folders[0]
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
                for file in wanted.packed:
                    _fetch(name, file, Path(folder), progress)
                _write(contents(name, Path(folder)), target)
    return target


def _write(files: Iterator[tuple[str, bytes]], folder: Path) -> None:
    """Write files atomically. They need no sync: they are verified by hash when they are read."""
    for file, content in files:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / file, content, sync=False)


def _fetch(name: str, file: str, folder: Path, progress: Progress | None) -> None:
    """Download one file from the first mirror that gives the original."""
    import pooch

    wanted = original(name)
    stamp = wanted.packed[file]
    failures = []
    for mirror in wanted.mirrors:
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
