"""Fleets made by the command `gossamer fleet init` in the current folder."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from support.command import gossamer

DEVICES = 3
SPEC = """
rounds = 8
batch = 16
network = { kind = "full", devices = 3 }
algorithm = { kind = "wpm", p = 3, eta = 0.1 }
measure = { every = 2 }
fleet = { slot = 1.5, lease = 1.0, join = "own" }
"""


def init(*words: object, ahead: float = 3600, out: str = "fleet") -> str:
    """Make a fleet from fleet.toml that begins in so many seconds; return what is printed."""
    start = (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat()
    result = gossamer("fleet", "init", "fleet.toml", "--out", out, "--start", start, *words)
    assert result.code == 0, result.err
    return result.out


def logs(folder: Path | str = "fleet") -> list[list[dict[str, Any]]]:
    """Return the lines of each device's log."""
    found = []
    for i in range(DEVICES):
        path = Path(folder) / f"n{i}" / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found.append([json.loads(line) for line in lines])
    return found
