"""The measurements of a run in progress, for `gossamer watch`: the file live.jsonl in its folder.

One JSON object per line, the newest last:

    {"round": 120, "rounds": 500, "seconds": 3.21, "left": 10.2, "record": {"round": 120, …}}
    {"round": 131, "rounds": 500, "seconds": 4.25, "left": 12.0}

`round` of `rounds` were done after `seconds` of this session, and about `left` seconds remain
(null: not known yet). A line with a `record` is a measurement, with the column names of
metrics.parquet. `device_distance`, the `device_` column of the first metric (else of the loss) and,
on the events engine, the seconds that devices have been computing, exchanging, waiting and away
hold one value per device, for up to 1000 devices; only the newest record of a second has them. What
cannot be measured is null. Records come in ascending rounds. A resumed run begins with the records
of earlier sessions.

Lines are written at most once per second, all at once. When the file would exceed LIMIT bytes it is
replaced by one with fewer records: a reader that finds another inode, or fewer bytes than it has
read, starts again from the beginning. While a line is being written it has no newline.

The file exists while a run is in progress, and after it was killed (then it no longer changes). It
is removed when the run ends, after summary.json and metrics.parquet have been written.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer._core.files import write_atomically
from gossamer.engines.observer import Observer, Row
from gossamer.results.live import LIVE_FILE as NAME

if TYPE_CHECKING:
    from gossamer.study.study import Study

# Bytes that the file may have.
LIMIT = 4_000_000
# What devices have done so far, in seconds, on the events engine.
_ACTIVITY = ("device_computing", "device_exchanging", "device_waiting", "device_away")
# Seconds between two writes.
_SECONDS = 1.0


class Live(Observer):
    """Write live.jsonl, at most once per second, so that it costs next to nothing."""

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        assert folder is not None
        self._path = folder / NAME
        self._path.write_bytes(b"")
        self._rounds = study.rounds
        self._measure = study.measure
        self._first_round = -1
        self._start = time.monotonic()
        # Measurements that are not written yet, each with the seconds since the start.
        self._pending: list[tuple[float, Row]] = [(0.0, row) for row in rows]
        self._due = 0.0  # seconds since the start; 0: write at once

    def advanced(self, round: int) -> None:
        seconds = time.monotonic() - self._start
        if self._first_round < 0:
            self._first_round = round
        if seconds >= self._due:
            self._write(round, seconds)
            self._due = seconds + _SECONDS

    def measured(self, row: Row) -> None:
        self._pending.append((time.monotonic() - self._start, row))

    def ended(self, summary: Mapping[str, Any]) -> None:
        self._path.unlink(missing_ok=True)

    def _write(self, round: int, seconds: float) -> None:
        lines = []
        for index, (measured_after, row) in enumerate(self._pending):
            newest = index == len(self._pending) - 1
            lines.append(self._line(row["round"], measured_after, row, newest))
        if not self._pending or self._pending[-1][1]["round"] < round:
            lines.append(self._line(round, seconds))
        self._pending.clear()
        with self._path.open("ab") as file:
            file.write("".join(lines).encode())
            size = file.tell()
        if size > LIMIT:
            self._thin_out()

    def _line(
        self, round: int, seconds: float, row: Row | None = None, newest: bool = False
    ) -> str:
        done = round - self._first_round
        left = None
        if done > 0:
            left = seconds / done * (self._rounds - round)
        line: dict[str, Any] = {
            "round": round,
            "rounds": self._rounds,
            "seconds": _rounded(seconds),
            "left": _rounded(left),
        }
        if row is not None:
            line["record"] = record = {}
            metric = self._measure.columns_in(row)[0].name
            per_device = ("device_distance", f"device_{metric}", *_ACTIVITY)
            for name, value in row.items():
                if not name.startswith("device_") or (newest and name in per_device):
                    record[name] = _rounded(value)
        return json.dumps(line, separators=(",", ":")) + "\n"

    def _thin_out(self) -> None:
        """Keep records evenly spaced over the rounds, in half of the limit, with the newest."""
        records = []
        rounds = []
        for line in self._path.read_bytes().splitlines(keepends=True):
            if b'"record"' in line:
                records.append(line)
                rounds.append(json.loads(line)["round"])
        kept = np.arange(len(records))
        wanted = len(records)
        while len(kept) > 1 and sum(len(records[k]) for k in kept) > LIMIT // 2:
            wanted //= 2
            kept = np.unique(np.searchsorted(rounds, np.linspace(rounds[-1], rounds[0], wanted)))
        write_atomically(self._path, b"".join(records[k] for k in kept), sync=False)


def _rounded(value: Any) -> Any:
    """Return a value with the digits that a figure can show; None if it is not finite."""
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return float(f"{value:.5g}")
