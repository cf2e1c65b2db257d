"""The pages about real devices: their commands run as printed, and the files of deploy/ are valid.

A test stands in for what a reader does by hand: it copies files between folders, and it does not
wait for ten minutes until round 0 begins.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.command import Result, gossamer, real
from support.loopback import python

from gossamer.fleet.metrics import Facts, page
from gossamer.fleet.namespaces import unavailable_reason

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "gossamer-node@.service"
DASHBOARD = ROOT / "deploy" / "grafana-fleet.json"

# A node runs until its log has some rounds, or it ends.
NODE = """
import shlex, subprocess, sys, time
from pathlib import Path
words = [sys.executable, "-m", *shlex.split(given["command"])]
log = Path(given["where"], given["log"])
def lines():
    return len(log.read_text().splitlines()) if log.exists() else 0
before = lines()
process = subprocess.Popen(words, cwd=given["where"], stderr=subprocess.PIPE, text=True)
limit = time.monotonic() + 200
while process.poll() is None and time.monotonic() < limit:
    if lines() > before + 3:
        break
    time.sleep(0.2)
process.terminate()
result = [process.wait(), process.stderr.read()]
"""

STATUS = """
import shlex, subprocess, sys
words = [sys.executable, "-m", *shlex.split(given["command"])]
done = subprocess.run(words, capture_output=True, text=True)
result = [done.returncode, done.stdout, done.stderr]
"""


def printed(name: str) -> list[str]:
    """Return the commands in the indented blocks of a page, in their order."""
    text = (ROOT / "docs" / f"{name}.md").read_text()
    for title, content in re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', text, re.S):
        Path(title).write_text(content)
    return re.findall(r"^    (gossamer .*)$", text, re.M)


def run(command: str) -> Result:
    """Run a command in this process, as printed."""
    result = gossamer(*shlex.split(command)[1:])
    assert result.code == 0, f"{command}: {result.err}"
    return result


def run_apart(command: str) -> str:
    """Run a command in a network of its own, which has no device; return what it prints."""
    code, out, err = python(STATUS, Path.cwd(), command=command)
    assert code == 0, f"{command}: {err}"
    assert isinstance(out, str)
    return out


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.usefixtures("_folder")
def test_a_month_with_twenty_robots() -> None:
    commands = printed("twenty-robots")
    Path("secret").write_text("correct horse battery staple\n")
    begin, request, sign, node, *later = commands
    run(begin)
    assert request == "gossamer fleet request n3"
    for i in range(20):  # on every robot
        robot = Path(f"robot{i}")
        robot.mkdir()
        shutil.copy("fleet/study.toml", robot)
        shutil.copy(f"fleet/n{i}.toml", robot)
        shutil.copytree(f"fleet/n{i}", robot / f"n{i}")
        assert gossamer("fleet", "request", robot / f"n{i}").code == 0
        shutil.copy(robot / f"n{i}" / "device.csr", f"n{i}.csr")
        run(sign.replace("n3", f"n{i}"))
        for file in ("device.pem", "ca.pem"):
            shutil.copy(f"fleet/n{i}/{file}", robot / f"n{i}")
    done: Any = python(NODE, Path.cwd(), command=node, where="robot3", log="n3/log.jsonl")
    assert done[0] == 0, done
    status, revoke, request, add, renew, collect, upgrade = later
    assert "not seen" in run_apart(status)
    run(revoke)
    assert request == "gossamer fleet request n20"
    run(request)
    shutil.move("n20/device.csr", "n20.csr")
    run(add)
    assert not Path("fleet/n20/device.key").exists()
    renewed = run(renew).out
    assert "n7," not in renewed
    assert "n20" in renewed
    shutil.copytree("robot3/n3", "fleet/n3", dirs_exist_ok=True)
    collected = run(collect)
    assert "not at the last round, with their newest models: n3" in collected.err
    assert Path("month/summary.json").exists()
    run(upgrade)
    for file in ("study.toml", "n3.toml"):
        shutil.copy(f"fleet/{file}", "robot3")
    done = python(NODE, Path.cwd(), command=node, where="robot3", log="n3/log.jsonl")
    assert done[0] == 0, done
    assert "begins with the model of the earlier one" in done[1]


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.timeout(1500)
@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
@pytest.mark.usefixtures("_folder")
def test_from_simulation_to_field() -> None:
    """Sections 1 to 7; later sections show variants of these commands."""
    commands = [line for line in printed("field") if not line.startswith("gossamer watch")]
    ends = next(i for i, line in enumerate(commands) if line == "gossamer fleet collect fleet")
    for command in commands[: ends + 1]:
        words = shlex.split(command)
        if words[1] == "node":
            begin_now()
            given = {"command": command, "where": "fleet", "log": "n3/log.jsonl"}
            done: Any = python(NODE, Path.cwd(), **given)
            assert done[0] == 0, done
        elif words[1:3] == ["fleet", "up"]:
            result = real(*words[1:])
            assert result.code == 0, result.err
        elif words[1:3] == ["fleet", "status"]:
            run_apart(command)
        elif words[1] == "tune":  # a reader has more time
            run(command.replace("--budget 100", "--budget 36 --methods d-psgd --workers 1"))
        else:
            run(command)
    assert Path("fleet/run/summary.json").exists()


def begin_now() -> None:
    """Let round 0 of a fleet begin in a moment."""
    soon = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
    for path in Path("fleet").glob("n?.toml"):
        text = re.sub(r'start = ".*"', f'start = "{soon}"', path.read_text())
        path.write_text(text.replace("slot = 10", "slot = 1"))


def test_the_dashboard_shows_what_devices_serve() -> None:
    status = {
        "doing": "running",
        "loss": 0.5,
        "metrics": {"accuracy": 0.5},
        "counts": {"failed": 1, "bytes sent": 1},
        "notices": [{"kind": "twin", "device": 1, "count": 1}],
    }
    served = page(status, Facts("n3", "00" * 16, "0.2.0", 1, 1.0)).decode()
    names = set(re.findall(r"^# TYPE (\S+)", served, re.M))
    board = json.loads(DASHBOARD.read_text())
    asked = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            asked |= set(re.findall(r"\b(?:gossamer|process)_\w+", target["expr"]))
    assert asked <= names
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 10


def test_the_unit_is_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    text = UNIT.read_text()
    assert "/opt/gossamer/bin/gossamer node /var/lib/gossamer/%i.toml" in text
    copy = tmp_path / "gossamer-node@n3.service"
    copy.write_text(text.replace("/opt/gossamer/bin/gossamer", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_image_is_built_by_the_lines_of_its_file() -> None:
    """Only instructions that `build-rootfs` knows, or that say how the image is run."""
    script = ROOT / "deploy" / "build-rootfs"
    done = subprocess.run(["sh", "-n", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = (ROOT / "deploy" / "Containerfile").read_text().splitlines()
    words = [line.split()[0] for line in lines if line and not line.startswith("#")]
    built = re.findall(r"^    (FROM|RUN|COPY)\)", script.read_text(), re.M)
    assert set(words) - {"USER", "WORKDIR", "ENTRYPOINT", "CMD"} == set(built)
