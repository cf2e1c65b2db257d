"""The status of a fleet: what is read from devices, and the table that is printed."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import re
import select
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support.command import REAL, gossamer
from support.fleet_commands import DEVICES, init
from support.processes import DEADLINE, started

from gossamer.cli import status as status_command
from gossamer.cli.status import LiveStatus, table
from gossamer.fleet.status import FleetStatus, Status, parse_status

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = pytest.mark.usefixtures("fleet_spec")


def status_of(device: int, **changes: Any) -> dict[str, Any]:
    """Return a status as `Node` writes it."""
    others = [j for j in range(DEVICES) if j != device]
    counts = {
        "committed": 12,
        "failed": 0,
        "in doubt": 0,
        "missed": 0,
        "sent": 24,
        "bytes sent": 63_900,
    }
    status = {
        "device": device,
        "doing": "running",
        "round": 4,
        "rounds": 8,
        "near": others,
        "met": others,
        "loss": 0.6,
        "metrics": {"accuracy": 0.8125},
        "pending": 0,
        "counts": counts,
        "time": time.time(),
    }
    return status | changes


def write_status(device: int, **changes: Any) -> None:
    Path(f"fleet/n{device}/status.json").write_text(json.dumps(status_of(device, **changes)))


def printed(fleet: FleetStatus, width: int) -> list[str]:
    """Return the table as lines of text, in a terminal of so many columns."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    console.print(table(fleet, console))
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


@pytest.fixture
def fleet(fleet_spec: None) -> FleetStatus:
    init("--set", "fleet.insecure=true", "--set", "fleet.multicast=false")
    return FleetStatus(Path("fleet"))


@pytest.mark.usefixtures("fleet")
def test_status_of_a_fleet_on_this_machine() -> None:
    assert gossamer("fleet", "status", "fleet").out.splitlines()[0] == "no device has been heard of"
    write_status(0)
    counts = {"committed": 3, "failed": 2, "refused: nan": 4, "refused: run": 1}
    write_status(1, metrics={"accuracy": float("nan")}, counts=counts)
    out = gossamer("fleet", "status", "fleet", "--once").out
    summary, heading, *rows = [" ".join(line.split()) for line in out.splitlines()]
    accuracy = "accuracy 81.2 % (81.2–81.2)"
    assert summary == f"round 4/8 {accuracy} links 3/3 1 of 3 silent or not seen"
    assert heading == "device doing round sees met accuracy exchanges failed refused sent"
    assert rows == [
        "n0 running 4/8 n1 n2 n1 n2 81.2 % 12 0 0 63.9 kB",
        "n1 running 4/8 n0 n2 n0 n2 – 3 2 5 0 B",
        "n2 not seen",
    ]
    found = json.loads(gossamer("fleet", "status", "fleet", "--json").out)
    assert found["summary"].startswith("round 4/8")
    assert found["devices"][1]["metrics"] == {"accuracy": None}
    assert found["devices"][0]["sees"] == ["n1", "n2"]
    assert found["devices"][2] == {"name": "n2", "doing": "not seen"}


def test_an_overdue_device_is_silent_and_one_that_has_ended_is_not(fleet: FleetStatus) -> None:
    ago = time.time() - 100
    for device, doing in enumerate(("running", "done", "waiting")):  # round 0 is an hour away
        write_status(device, doing=doing, time=ago)
    rows = fleet.rows()
    assert [row["silent"] is None for row in rows] == [False, True, True]
    assert rows[0]["silent"] == pytest.approx(100, abs=20)
    assert any(re.search(r"^n0 +silent \d+ s", line) for line in printed(fleet, 120))


def test_the_newer_status_of_disk_and_network_counts(fleet: FleetStatus) -> None:
    write_status(0, round=3, time=time.time() - 10)
    own_clock = 12.0
    fleet.on_status(0, json.dumps(status_of(0, round=5, time=own_clock)).encode())
    assert fleet.latest()[0].round == 5
    write_status(0, round=6, time=time.time() + 0.01)
    time.sleep(0.02)
    assert fleet.latest()[0].round == 6
    Path("fleet/n0/status.json").write_bytes(b"{")
    assert fleet.latest()[0].round == 5


ESCAPES = "\x1b[31m[bold]\r\x07evil"
KEYS = list(status_of(0))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.just(ESCAPES),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*KEYS, "committed", ESCAPES]), inner, max_size=9)
    ),
    max_leaves=12,
)
statuses = st.fixed_dictionaries(
    {"doing": st.sampled_from(["running", "done", ESCAPES]), "time": st.floats() | st.integers()},
    optional={name: values for name in KEYS if name not in ("doing", "time")},
)


@given(st.binary(max_size=200) | (values | statuses).map(lambda value: json.dumps(value).encode()))
def test_every_status_is_parsed_into_numbers_and_known_words(data: bytes) -> None:
    status = parse_status(data, DEVICES, now=1000.0)
    assert isinstance(status, Status)
    assert status.doing in ("running", "done", "unreadable")
    assert set(status.near) | set(status.met) <= set(range(DEVICES))
    assert 0 <= status.round <= status.rounds < 1 << 53
    assert 0 <= status.time <= 1000
    for value in (status.loss, *status.metrics.values()):
        assert value is None or math.isfinite(value)
    assert status.refused >= 0


def test_no_text_of_a_device_reaches_the_terminal(fleet: FleetStatus) -> None:
    large = 2**52
    hostile: list[Any] = [
        status_of(0, doing=ESCAPES),
        status_of(0, counts={ESCAPES: 1, "committed": 3}),
        status_of(0, near=[0, 1, 10**9, large], met=[large]),
        status_of(0, round=large, rounds=large, pending=large, counts={"bytes sent": large}),
        status_of(0, **{ESCAPES: ESCAPES, "name": ESCAPES}),
    ]
    messages = [ESCAPES.encode(), b"[" * 4000, b"\xff" * 4096]
    messages += [json.dumps(status).encode() for status in hostile]
    for data in messages:
        fleet.on_status(1, data)
        for width in (80, 120):
            lines = printed(fleet, width)
            assert all(len(line) <= width and (line.isprintable() or not line) for line in lines)
            assert not any("evil" in line or "bold" in line for line in lines)
        assert "evil" not in json.dumps(fleet.rows())


@pytest.mark.parametrize("width", [80, 120])
def test_every_column_fits(fleet: FleetStatus, width: int) -> None:
    counts = {
        "committed": 81_234,
        "failed": 1234,
        "in doubt": 17,
        "late": 103,
        "missed": 12,
        "refused: shape": 3,
        "bytes sent": 512_345_678,
    }
    ago = time.time() - 75
    for device in range(DEVICES):
        write_status(device, round=412, rounds=500, pending=5, counts=counts, time=ago)
    heading, *rows = printed(fleet, width)[1:]
    words = ["exchanges", "failed", "refused"]
    if width == 80:
        words = ["exch", "fail", "doubt", "late", "miss", "pend", "ref"]
    assert set(words) <= set(heading.split())
    for row in rows:
        assert {"81234", "1234", "17", "103", "12", "5", "3"} <= set(row.split())
        assert "…" not in row
        assert "512.3 MB" in row


@pytest.mark.usefixtures("fleet")
def test_a_rehearsal_prints_a_line_every_few_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_status(0)
    with LiveStatus(Path("fleet"), quiet=True) as quiet:
        quiet.update()
    assert capsys.readouterr().err == ""
    with LiveStatus(Path("fleet"), quiet=False) as plain:
        plain.update()
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(status_command, "_LINE_SECONDS", 0.0)
        plain.update()
        accuracy = "accuracy 81.2 % (81.2–81.2)"
        line = f"round 4/8  {accuracy}  links 2/2  2 of 3 silent or not seen\n"
        assert capsys.readouterr().err == line
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("colour", [True, False])
def test_ctrl_c_ends_the_live_table_and_restores_the_terminal(colour: bool) -> None:
    write_status(0, doing="done")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    environment.pop("NO_COLOR", None)
    if not colour:
        environment["NO_COLOR"] = "1"
    output = b""
    interrupted = False
    limit = time.monotonic() + DEADLINE
    words = [*REAL, "fleet", "status", "fleet"]
    with started(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        while time.monotonic() < limit:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    output += os.read(ours, 1 << 16)
                except OSError:  # the other end is closed
                    break
            if output.count(b"n2") >= 2 and not interrupted:
                process.send_signal(signal.SIGINT)
                interrupted = True
        assert process.wait(DEADLINE) == 0
    os.close(ours)
    text = output.decode()
    assert "not seen" in text
    assert "Traceback" not in text
    assert ("\x1b[1;32mdone" in text) == colour
    assert text.rpartition("\x1b[?25")[2].startswith("h")  # the cursor is shown again
