"""What an operator uses: metrics, logs, the live page over the network, pauses and budgets."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.command import assert_refused, gossamer
from support.fleet_commands import DEVICES_RUN, PORTS, init, logs
from support.loopback import python

from gossamer.errors import InputError
from gossamer.fleet.metrics import Facts, MetricsServer, page
from gossamer.fleet.rest import BATTERY, PAUSE, Rest, minutes_of
from gossamer.fleet.settings import Fleet

FACTS = Facts("n3", "ab" * 16, "0.2.0", samples=40, certificate_expiry=2e9)

# Prometheus' text format, from its documentation.
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


def parsed(text: str) -> dict[str, float]:
    """Return the samples of a page by name and labels, in an independent reading of the format."""
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    samples: dict[str, float] = {}
    family = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in kinds
            assert kind in ("gauge", "counter")
            kinds[family] = kind
        elif not line.startswith("# HELP "):
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] == family
            key = f"{found[1]}{{{found[2]}}}" if found[2] else found[1]
            assert key not in samples
            samples[key] = float(found[3])
    return samples


def test_the_page_of_metrics() -> None:
    status: dict[str, Any] = {
        "doing": "resting",
        "round": 7,
        "rounds": 9,
        "near": [1, 2],
        "loss": 0.25,
        "metrics": {"accuracy": 0.5, 'a "b"\\\n': None, "far": float("inf")},
        "pending": 1,
        "counts": {"sent": 12, "bytes sent": 3_000_000_000_000, "refused: size": 2},
        "notices": [
            {"kind": "twin", "device": 1, "count": 2},
            {"kind": "twin", "device": 2, "count": 3},
        ],
        "time": 1e9,
    }
    found = parsed(page(status, FACTS).decode())
    assert found["gossamer_round"] == 7
    assert found["gossamer_neighbours"] == 2
    assert found['gossamer_state{state="resting"}'] == 1
    assert sum(value for key, value in found.items() if "_state" in key) == 1
    assert found['gossamer_metric{name="accuracy"}'] == 0.5
    assert found['gossamer_metric{name="far"}'] == float("inf")
    assert found['gossamer_bytes_total{direction="sent"}'] == 3e12
    assert found['gossamer_events_total{event="refused: size"}'] == 2
    assert found["gossamer_certificate_expiry_time_seconds"] == 2e9
    assert found['gossamer_notices{kind="twin"}'] == 5
    assert found["process_cpu_seconds_total"] > 0
    assert "gossamer_loss" not in parsed(page({}, FACTS).decode())


def get(path: str, port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with closing(error):
            return error.code, error.read().decode()


def test_metrics_are_served_to_this_machine_only(tmp_path: Path) -> None:
    with closing(MetricsServer("127.0.0.1:0", lambda: page({}, FACTS))) as server:
        port = server.address[1]
        assert parsed(get("/metrics", port)[1])["gossamer_samples"] == 40
        assert get("/", port) == (404, "metrics are at /metrics\n")
        # Readers that say nothing do not keep others out for long, and hold no more than four.
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
        for one in silent:
            one.close()
        deadline = time.monotonic() + 60
        while True:
            try:
                assert get("/metrics", port)[0] == 200
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        with pytest.raises(InputError, match="that is free"):
            MetricsServer(f"127.0.0.1:{port}", bytes)
    path = tmp_path / "socket"
    for _ in range(2):  # the second finds what a killed process has left
        server = MetricsServer(f"unix:{path}", lambda: page({}, FACTS))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b""
            while more := client.recv(1 << 16):
                answer += more
        assert b"gossamer_samples 40" in answer
        kept = path.stat().st_ino
        server._path = None  # as if it were killed
        server.close()
        assert path.stat().st_ino == kept
    (tmp_path / "file").write_text("keep")
    with pytest.raises(InputError, match="metrics = "):
        MetricsServer(f"unix:{tmp_path / 'file'}", bytes)
    assert (tmp_path / "file").read_text() == "keep"
    for address in ("0.0.0.0:9464", "[::]:9464", "10.0.0.1:9464", "9464", "robot:1", "1.2.3:4"):
        with pytest.raises(InputError, match="a loopback address"):
            MetricsServer(address, bytes)


class _Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("quiet", ["22:00-06:30", "09:15-17:00", "00:00-00:01"])
def test_quiet_hours(tmp_path: Path, quiet: str) -> None:
    """Independently: a minute is quiet if it comes up when one counts on from the begin."""
    begin, end = minutes_of(quiet)
    expected = set()
    minute = begin
    while minute != end:
        expected.add(minute)
        minute = (minute + 1) % 1440
    clock = _Clock(0.0)
    rest = Rest(tmp_path, quiet=(quiet,), clock=clock)
    for minute in range(1440):
        clock.now = 86400 * 20_000 + 60 * minute + 59
        assert (rest.why(0) == "quiet hours") == (minute in expected), minute


def test_a_pause_and_a_battery_are_files(tmp_path: Path) -> None:
    rest = Rest(tmp_path, battery=20)
    assert rest.why(0) == ""
    for content, low in (("19.9", True), ("20", False), ("7%\n", True), ("", False), ("x", False)):
        (tmp_path / BATTERY).write_text(content)
        assert rest.why(0) == ("battery" if low else ""), content
    (tmp_path / PAUSE).touch()
    assert rest.why(0) == "paused"
    (tmp_path / PAUSE).unlink()
    (tmp_path / BATTERY).unlink()
    (tmp_path / BATTERY).mkdir()
    assert rest.why(0) == ""
    (tmp_path / BATTERY).rmdir()
    (tmp_path / BATTERY).write_text("3")
    assert Rest(tmp_path).why(0) == ""  # without a limit the file says nothing


def test_a_budget_is_kept_in_every_hour_and_over_restarts(tmp_path: Path) -> None:
    """Rounds of 300 kB and a budget of 1 MB: three per hour, and one more is never begun."""
    clock = _Clock(3600.0 * 500_000)
    rest = Rest(tmp_path, budget=1.0, clock=clock)
    total = 0
    spent: dict[int, int] = {}
    for step in range(600):  # of 20 seconds
        clock.now += 20
        if step == 50:  # killed and started again: bytes count from 0
            rest = Rest(tmp_path, budget=1.0, clock=clock)
            total = 0
        hour = int(clock.now // 3600)
        if rest.why(total) == "":
            total += 300_000
            spent[hour] = spent.get(hour, 0) + 300_000
    assert max(spent.values()) <= 1_000_000
    assert sorted(spent.values())[1:] == [900_000] * (len(spent) - 1)
    (tmp_path / "budget.json").write_text("torn{")
    assert Rest(tmp_path, budget=1.0, clock=clock).why(0) == ""


WRONG = {
    "quiet": ({"quiet": ("22-6",)}, "quiet = '22-6'"),
    "no hour": ({"quiet": ("24:00-06:00",)}, "quiet = '24:00-06:00'"),
    "empty hours": ({"quiet": ("06:00-06:00",)}, "quiet = '06:00-06:00'"),
    "battery": ({"battery": 120}, "battery = 120"),
    "budget": ({"budget": -1}, "budget = -1"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_settings_are_refused(wrong: str) -> None:
    values, part = WRONG[wrong]
    with pytest.raises(InputError, match=re.escape(part)):
        Fleet(**values)


@pytest.mark.usefixtures("fleet_spec")
def test_wrong_options_are_refused() -> None:
    init()
    refused = gossamer("node", "fleet/n0.toml", "--metrics", "0.0.0.0:1", "-q")
    assert_refused(refused, "metrics = '0.0.0.0:1'", "a loopback address")
    assert_refused(gossamer("node", "fleet/n0.toml", "--log", "xml"), "--log = 'xml'", "json")
    refused = gossamer("watch", ".", "--connect", "127.0.0.1")
    assert_refused(refused, "has no fleet to connect to")
    Path("fleet/n0/data.safetensors").unlink()
    result = gossamer("node", "fleet/n0.toml", "--log", "json")
    line = json.loads(result.err)
    assert (result.code, line["level"], line["event"]) == (2, "error", "error")
    assert "data.safetensors is missing" in line["message"]


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.usefixtures("fleet_spec")
def test_devices_are_watched_and_paused() -> None:
    pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")
    hosts = ",".join(PORTS)
    long = ("--set", "rounds=4000", "--set", "fleet.slot=1", "--set", "measure.every=1")
    init("--hosts", hosts, *long, "--set", "fleet.battery=20", ahead=10)
    code = """
import json, shutil, urllib.request
def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
        return answer.read().decode()
def last(i):
    return json.loads(Path(f"fleet/n{i}/log.jsonl").read_text().splitlines()[-1])
nodes = [node(0, "--metrics", "127.0.0.1:9464", "--log", "json"), node(1)]
until(lambda: rounds(0) > 2 and last(0)["met"] == [1])
metrics = get(9464, "/metrics")

# Another machine has the certificate of the observer, the study and one device's file only.
Path("far").mkdir()
for name in ("study.toml", "n0.toml"):
    shutil.copy(f"fleet/{name}", "far")
shutil.copytree("fleet/observer", "far/observer")
seen = command("fleet", "status", "far", "--json", "--connect", given["hosts"])
watching = [*WORDS, "watch", "far", "--port", "8801", "--connect", given["hosts"]]
page = subprocess.Popen(watching, stdout=subprocess.PIPE, text=True)
page.stdout.readline()
def content():
    return json.loads(get(8801, "/content.json"))
until(lambda: len((content()["fleet"] or {"rows": []})["rows"]) == 2)
watched = content()["fleet"]
page.send_signal(2)
page.wait()

before = rounds(1)
Path("fleet/n1/battery").write_text("12")
until(lambda: json.loads(Path("fleet/n1/status.json").read_text())["doing"] == "resting")
until(lambda: last(0)["near"] == [])
at = last(0)["round"]
until(lambda: last(0)["round"] > at + 2)
alone = last(0)
rested = json.loads(Path("fleet/n1/status.json").read_text())
table = command("fleet", "status", "fleet", "--once")
Path("fleet/n1/battery").write_text("80")
until(lambda: last(0)["met"] == [1])
for process in nodes:
    process.terminate()
result = {
    "metrics": metrics, "seen": seen, "watched": watched, "alone": alone, "rested": rested,
    "table": table, "ended": [ended(process) for process in nodes],
}
"""
    result: Any = python(DEVICES_RUN + code, Path.cwd(), hosts=hosts)
    found = parsed(result["metrics"])
    assert found["gossamer_round"] > 0
    assert found['gossamer_metric{name="accuracy"}'] > 0
    assert found['gossamer_bytes_total{direction="received"}'] > 0
    assert found["gossamer_certificate_expiry_time_seconds"] > time.time()
    code_, out, err = result["seen"]
    assert (code_, err) == (0, "")
    doing = {row["name"]: row["doing"] for row in json.loads(out)["devices"]}
    assert doing == {"n0": "running", "n1": "running", "n2": "not seen"}
    assert len(result["watched"]["rows"]) == 2
    assert result["alone"]["near"] == []
    assert (result["rested"]["doing"], result["rested"]["why"]) == ("resting", "battery")
    assert "resting (battery)" in result["table"][1]
    assert [code_ for code_, _ in result["ended"]] == [0, 0]
    lines = [json.loads(line) for line in Path("fleet/n0.err").read_text().splitlines()]
    assert {line["device"] for line in lines} == {"n0"}
    assert {"waiting", "running", "stopped"} <= {line.get("doing") for line in lines}
    rounds = [line["round"] for line in logs()[1]]
    assert max(b - a for a, b in pairwise(rounds)) > 2  # it was away
    assert "rests: battery" in Path("fleet/n1.err").read_text()
