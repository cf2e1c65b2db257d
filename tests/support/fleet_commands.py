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
PORTS = [f"127.0.0.1:{port}" for port in range(7001, 7001 + DEVICES)]

# The beginning of scripts that run devices as processes, in a network namespace.
DEVICES_RUN = """
import subprocess, sys, time
from pathlib import Path
WORDS = [sys.executable, "-m", "gossamer"]
def node(i, *more):
    err = open(f"fleet/n{i}.err", "a")
    command = [*WORDS, "node", f"fleet/n{i}.toml", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
def command(*words):
    done = subprocess.run([*WORDS, *words], capture_output=True, text=True, timeout=120)
    return [done.returncode, done.stdout, done.stderr]
def until(true):
    limit = time.monotonic() + 150
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.1)
def rounds(i):
    path = Path(f"fleet/n{i}/log.jsonl")
    return len(path.read_text().splitlines()) if path.exists() else 0
def ended(process):
    out = process.communicate(timeout=150)[0]
    return [process.returncode, out]
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
