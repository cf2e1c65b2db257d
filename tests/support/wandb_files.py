"""Read the files that wandb writes offline: records of its protocol in LevelDB's log format."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FILE_HEADER = 7  # bytes
_BLOCK = 32768  # bytes
_CHUNK_HEADER = struct.Struct("<IHB")  # checksum, length, type
_FULL = 1
_LAST = 4


@dataclass
class OfflineRun:
    """What a file of wandb says about a run."""

    id: str = ""
    name: str = ""
    project: str = ""
    group: str = ""
    tags: tuple[str, ...] = ()
    exit_code: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)


def offline_runs(folder: Path) -> list[OfflineRun]:
    """Read all runs of a folder, in the order of their names."""
    runs = []
    for path in folder.glob("offline-run-*/run-*.wandb"):
        runs.append(_read(path))
    return sorted(runs, key=lambda run: run.name)


def _read(path: Path) -> OfflineRun:
    run = OfflineRun()
    for record in _records(path.read_bytes()):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.id = record.run.run_id
            run.name = record.run.display_name
            run.project = record.run.project
            run.group = record.run.run_group
            run.tags = tuple(record.run.tags)
            run.config.update(_values(record.run.config.update))
        elif kind == "history":
            run.history[record.history.step.num] = _values(record.history.item)
        elif kind == "summary":
            run.summary.update(_values(record.summary.update))
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def _values(items: Any) -> dict[str, Any]:
    """Return the values of a record by name, without those of wandb itself."""
    found = {}
    for item in items:
        name = item.key or ".".join(item.nested_key)
        if not name.startswith("_"):
            found[name] = json.loads(item.value_json)
    return found


def _records(data: bytes) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    assert data[:4] == b":W&B"
    begin = _FILE_HEADER
    message = b""
    while begin + _CHUNK_HEADER.size <= len(data):
        left = _BLOCK - begin % _BLOCK
        if left < _CHUNK_HEADER.size:  # the rest of a block is empty
            begin += left
            continue
        _, length, kind = _CHUNK_HEADER.unpack_from(data, begin)
        begin += _CHUNK_HEADER.size
        message += data[begin : begin + length]
        begin += length
        if kind in (_FULL, _LAST):
            yield Record.FromString(message)
            message = b""
