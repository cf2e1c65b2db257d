"""A rehearsal that is ended by a signal leaves nothing behind, or the next one removes it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.command import REAL

from gossamer.fleet.namespaces import unavailable_reason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.fleet,
    pytest.mark.usefixtures("fleet_spec"),
    pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason())),
]

DEADLINE = 200.0  # seconds
DEVICES = 3


def up(out: str) -> subprocess.Popen[str]:
    """Start a rehearsal of an hour in a process group of its own; it ignores no signal."""
    words = ("fleet", "up", "fleet.toml", "--set", "rounds=2400", "--out", out)
    return subprocess.Popen(
        ["env", "--default-signal", *REAL, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def namespaces(process: subprocess.Popen[str]) -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    prefix = f"gossamer-{process.pid}-"
    return [word for word in listed.stdout.split() if word.startswith(prefix)]


def pids(names: list[str]) -> list[int]:
    found: list[int] = []
    for name in names:
        done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
        found += map(int, done.stdout.split())
    return found


def wait_until_devices_run(process: subprocess.Popen[str], out: str) -> list[int]:
    deadline = time.monotonic() + DEADLINE
    while not all(Path(out, f"n{i}", "log.jsonl").exists() for i in range(DEVICES)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(namespaces(process)) == DEVICES
    found = pids(namespaces(process))
    assert len(found) >= DEVICES
    return found


def assert_ended(found: list[int]) -> None:
    """Assert that processes end soon; a zombie has."""
    deadline = time.monotonic() + DEADLINE
    for pid in found:
        path = Path(f"/proc/{pid}/stat")
        while path.exists() and not path.read_text().rpartition(") ")[2].startswith("Z"):
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing_behind(number: int) -> None:
    """It comes twice: `timeout` sends it to the process, and again to its group."""
    with up("up") as process:
        found = wait_until_devices_run(process, "up")
        process.send_signal(number)
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not namespaces(process)
    assert_ended(found)


def test_the_next_rehearsal_removes_what_a_killed_one_left() -> None:
    with up("killed") as killed:
        found = wait_until_devices_run(killed, "killed")
        killed.kill()
        killed.communicate(timeout=DEADLINE)
    assert len(namespaces(killed)) == DEVICES, "nobody could remove them"
    with up("next") as process:
        wait_until_devices_run(process, "next")
        assert not namespaces(killed)
        assert_ended(found)
        process.terminate()
        process.communicate(timeout=DEADLINE)
    assert not namespaces(process)
