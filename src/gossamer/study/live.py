"""What a run that is going has measured so far, for `gossamer watch`: the file live.jsonl in its folder.

One JSON object a line, the newest last:

    {"round": 120, "rounds": 500, "seconds": 3.21, "left": 10.2, "record": {"round": 120, "accuracy": 0.81, …}}
    {"round": 131, "rounds": 500, "seconds": 4.25, "left": 12.0}

`round` of `rounds` were done after `seconds` of this session, and it will take about `left` seconds more (null: not known
yet). A line with a `record` is a measurement, with the names of metrics.parquet's columns; `device_accuracy` and
`device_distance` are one number a device, up to 1000 devices, and only the newest record of a second has them. What cannot
be measured is null. Records come in ascending rounds. A run that goes on begins with those of before.

Lines are written at most once a second, whole and all at once. When the file would grow beyond LIMIT bytes it is replaced by
one with fewer records: a reader that finds another inode, or fewer bytes than it has read, starts again from the
beginning. The last line may be half written while it is read: it ends without a newline then.

The file is there while a run goes and when it was killed (then it no longer changes). It is removed when the run ends,
after summary.json and metrics.parquet have been written.
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
from gossamer.results.live import LIVE_FILE as NAME
from gossamer.study.track import Callback, Row

if TYPE_CHECKING:
    from gossamer.study.study import Study

LIMIT = 4_000_000
_SECONDS = 1.0


class Live(Callback):
    """Writes the file. What a run measures is put down at most once a second, so that it costs next to nothing."""

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        assert folder is not None
        self._path, self._rounds, self._first = folder / NAME, study.rounds, -1
        self._path.write_bytes(b"")
        self._began = time.monotonic()
        self._waiting: list[tuple[float, Row]] = [(0.0, row) for row in rows]
        self._due = 0.0  # at once, so that there is something to see

    def advanced(self, round: int) -> None:
        seconds = time.monotonic() - self._began
        if self._first < 0:
            self._first = round
        if seconds >= self._due:
            self._write(round, seconds)
            self._due = seconds + _SECONDS

    def measured(self, row: Row) -> None:
        self._waiting.append((time.monotonic() - self._began, row))

    def ended(self, summary: Mapping[str, Any]) -> None:
        self._path.unlink(missing_ok=True)

    def _write(self, round: int, seconds: float) -> None:
        lines = [
            self._line(row["round"], at, row, row is self._waiting[-1][1])
            for at, row in self._waiting
        ]
        if not self._waiting or self._waiting[-1][1]["round"] < round:
            lines.append(self._line(round, seconds))
        self._waiting.clear()
        with self._path.open("ab") as file:
            file.write("".join(lines).encode())
            size = file.tell()
        if size > LIMIT:
            self._thin_out()

    def _line(
        self, round: int, seconds: float, row: Row | None = None, newest: bool = False
    ) -> str:
        done = round - self._first
        left = seconds / done * (self._rounds - round) if done > 0 else None
        line: dict[str, Any] = {
            "round": round,
            "rounds": self._rounds,
            "seconds": _short(seconds),
            "left": _short(left),
        }
        if row is not None:
            wanted = ("device_accuracy", "device_distance") if newest else ()
            line["record"] = {
                name: _short(x)
                for name, x in row.items()
                if name in wanted or not name.startswith("device_")
            }
        return json.dumps(line, separators=(",", ":")) + "\n"

    def _thin_out(self) -> None:
        """Keep as many records as fit in half of the limit, evenly spaced over the rounds, the newest among them."""
        records = [
            line
            for line in self._path.read_bytes().splitlines(keepends=True)
            if b'"record"' in line
        ]
        rounds = np.array([json.loads(line)["round"] for line in records])
        kept, wanted = np.arange(len(records)), len(records)
        while len(kept) > 1 and sum(len(records[k]) for k in kept) > LIMIT // 2:
            wanted //= 2
            kept = np.unique(np.searchsorted(rounds, np.linspace(rounds[-1], rounds[0], wanted)))
        write_atomically(self._path, b"".join(records[k] for k in kept), sync=False)


def _short(value: Any) -> Any:
    """A number with the digits that a picture can show; null where there is none."""
    if isinstance(value, list):
        return [_short(x) for x in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value
