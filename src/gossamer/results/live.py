"""Follow a run through the file live.jsonl, which it writes while it goes (see `study.live`)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.results.folder import check_metrics
from gossamer.results.run import Progress, Run

LIVE_FILE = "live.jsonl"
_READ_BYTES = 64_000_000  # read at once; a longer file is read in several calls
_INTEGER_COLUMNS = ("round", "messages", "bytes")


class LineReader:
    """Read the JSON objects of a file that grows, one object per line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode = -1

    def new(self) -> tuple[bool, list[dict[str, Any]]]:
        """Return the objects that were added since the last call.

        Returns:
            True if the file was replaced or cut and is read from its beginning, and the objects.
            A last line without its end is left for the next call.

        Raises:
            FileNotFoundError: The file does not exist (yet, or any more).
        """
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            restarted = status.st_ino != self._inode or status.st_size < self._offset
            if restarted:
                self._offset = 0
            self._inode = status.st_ino
            file.seek(self._offset)
            content = file.read(_READ_BYTES)
        complete = content.rfind(b"\n") + 1
        self._offset += complete
        found = []
        for line in content[:complete].splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return restarted, [line for line in found if isinstance(line, dict)]


class RunFollower:
    """Read one run again and again while it goes; only what is new is read from disk.

    Example:
        >>> follower = RunFollower(Path("runs/a"))                    # doctest: +SKIP
        >>> follower.run().status                                     # doctest: +SKIP
        'running'
    """

    def __init__(self, folder: Path, per_device: bool = True) -> None:
        """Read the run.

        Args:
            folder: The run folder.
            per_device: Load columns that have a value for each device, too.

        Raises:
            DataError: The folder holds no run, or one of its files is damaged.
        """
        self._folder = folder
        self._per_device = per_device
        self._lines = LineReader(folder / LIVE_FILE)
        self._base = Run.read(folder, per_device=per_device)
        self._signature = self._read_signature()
        self._records: list[dict[str, Any]] = []
        self._newest: dict[str, Any] = {}

    def run(self) -> Run:
        """Return the run as it stands now; it has `progress` while live.jsonl exists."""
        try:
            restarted, lines = self._lines.new()
            silent = time.time() - (self._folder / LIVE_FILE).stat().st_mtime
        except FileNotFoundError:  # the run has ended, or has not begun
            return self._from_files()
        if restarted:
            self._records = []
        for line in lines:
            self._newest = line
            if isinstance(line.get("record"), dict):
                self._records.append(line["record"])
        progress = Progress(int(self._newest.get("round", 0)), self._newest.get("left"), silent)
        metrics = columns_of(self._records)
        check_metrics(metrics, self._folder / LIVE_FILE)
        return replace(self._base, metrics=metrics, summary={}, progress=progress)

    def _from_files(self) -> Run:
        self._records = []
        self._newest = {}
        signature = self._read_signature()
        if signature != self._signature:
            self._signature = signature
            self._base = Run.read(self._folder, per_device=self._per_device)
        return self._base

    def _read_signature(self) -> list[tuple[int, int]]:
        """Return times and sizes of the files that change when a run ends."""
        found = []
        for name in ("summary.json", "metrics.parquet"):
            with suppress(FileNotFoundError):
                status = (self._folder / name).stat()
                found.append((status.st_mtime_ns, status.st_size))
        return found


def columns_of(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return records of live.jsonl as columns; a value that a record lacks is NaN.

    Args:
        records: One dictionary per measurement.

    Example:
        >>> columns_of([{"round": 5, "loss": 0.5}, {"round": 10, "loss": None}])
        {'round': array([ 5, 10]), 'loss': array([0.5, nan])}
    """
    names = dict.fromkeys(name for record in records for name in record)
    columns: dict[str, Any] = {}
    for name in names:
        values: list[Any] = [record.get(name) for record in records]
        if name.startswith("device_"):
            values = _filled(values)
        dtype = np.int64 if name in _INTEGER_COLUMNS else np.float64
        columns[name] = np.array(values, dtype=dtype)
    return columns


def _filled(rows: Sequence[Any]) -> list[list[Any]]:
    """Return the values of all devices per record, with None for those that a record lacks."""
    devices = max(len(row) for row in rows if row is not None)
    filled: list[list[Any]] = []
    for row in rows:
        filled.append([None] * devices if row is None else row)
    return filled
