"""`gossamer node` and `gossamer fleet` as a user has them: real commands, real processes, a real network that is loopback."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from safetensors.torch import load_file, save_file
from support.command import REAL, assert_refused, files, gossamer, real
from support.loopback import namespace, python
from support.processes import DEADLINE, started

import gossamer as gs
from gossamer.cli import status
from gossamer.cli.status import Status, Table, Watched, read, table
from gossamer.cli.template import TEMPLATE
from gossamer.fleet import keys, namespaces, settings
from gossamer.fleet import provision as fleets
from gossamer.fleet.settings import Fleet
from gossamer.network import Sequence
from gossamer.study import Run, run, spec, study_of

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

DEVICES = 3
PORTS = [f"127.0.0.1:{port}" for port in range(7001, 7001 + DEVICES)]
SPEC = """
rounds = 8
batch = 16
network = { kind = "full", devices = 3 }
algorithm = { kind = "wpm", preset = "robust", p = 3, eta = 0.1 }
measure = { every = 2 }
fleet = { slot = 1.5, lease = 1.0, join = "own" }
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has a spec in a folder of its own; `gossamer node` takes signals, which are given back."""
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text(SPEC)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def init(*words: object, ahead: float = 3600, out: str = "fleet") -> str:
    """Make a fleet that begins so many seconds from now; what was said."""
    start = (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat()
    result = gossamer("fleet", "init", "fleet.toml", "--out", out, "--start", start, *words)
    assert result.code == 0, result.err
    return result.out


def logs(folder: Path | str = "fleet") -> list[list[dict[str, Any]]]:
    paths = [Path(folder) / f"n{i}" / "log.jsonl" for i in range(DEVICES)]
    return [
        [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        for path in paths
    ]


# -- three devices -----------------------------------------------------------------------------------------------------------

# Runs in a network of its own: devices as processes, and what a test does to them.
DEVICES_RUN = """
import subprocess, sys, time
from pathlib import Path
WORDS = [sys.executable, "-m", "gossamer"]
def node(i, *more):
    err = open(f"fleet/n{i}.err", "a")
    return subprocess.Popen([*WORDS, "node", f"fleet/n{i}.toml", *more], stdout=subprocess.PIPE, stderr=err, text=True)
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


def undisturbed(begin: Callable[[float], None], code: str, **given: Any) -> Any:
    """Run devices until a run in which all were there in time and no exchange failed: the machine may be busy with others."""
    for attempt in range(3):
        if attempt:
            shutil.rmtree("fleet")
        begin(25 + 40 * attempt)
        result = python(DEVICES_RUN + code, Path.cwd(), **given)
        lines = [line for log in logs() for line in log]
        if all(log and log[0]["round"] == 0 for log in logs()) and all(
            line["near"] == line["met"] for line in lines
        ):
            return result
    raise AssertionError("this machine is too busy for slots of 1.5 s")


@pytest.mark.slow
@pytest.mark.fleet
def test_three_devices_over_tls_come_to_the_models_of_the_simulator() -> None:
    def begin(ahead: float) -> None:
        said = init("--hosts", ",".join(PORTS), ahead=ahead)
        assert "study.toml, n0.toml, n0/" in said
        assert f"gossamer fleet status fleet --connect {','.join(PORTS)}" in said

    code = """
nodes = [node(i) for i in range(given["devices"])]
until(lambda: rounds(0) > 3)
seen = command("fleet", "status", "fleet", "--json", "--connect", given["connect"])
result = {"seen": seen, "ended": [ended(process) for process in nodes]}
"""
    result = undisturbed(begin, code, devices=DEVICES, connect=",".join(PORTS))
    for i, (code_, out) in enumerate(result["ended"]):
        assert (code_, out) == (
            0,
            f"n{i} is done: its model is {Path.cwd()}/fleet/n{i}/model.safetensors\n",
        )
        err = Path(f"fleet/n{i}.err").read_text()
        assert re.match(
            rf"n{i}  waits for round 0, at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", err
        ), err
        assert "accuracy" in err
        assert "Traceback" not in err
    code_, out, err = result["seen"]
    assert (code_, err) == (0, "")
    rows = json.loads(out)["devices"]
    assert [row["name"] for row in rows] == ["n0", "n1", "n2"]
    assert {row["doing"] for row in rows} <= {"running", "done"}
    assert all(
        row["committed"] > 0 and row["bytes_sent"] > 0 and row["refused"] == 0 for row in rows
    )
    collected = gossamer("fleet", "collect", "fleet")
    assert collected.code == 0, collected.err
    assert "fleet: 3 devices, 8 rounds of 1.5 s" in collected.out
    assert "everything is in fleet/run" in collected.out
    assert_simulated(Path("fleet/run"))
    assert_refused(gossamer("fleet", "collect", "fleet"), "fleet/run is there already")
    everything = gossamer("fleet", "status", "fleet").out
    assert [line.split()[:3] for line in everything.splitlines()[2:]] == [
        [f"n{i}", "done", "8/8"] for i in range(DEVICES)
    ]
    compared = gossamer("compare", "fleet/run/spec.toml", "--out", "compared", "-q")
    assert compared.code == 0, compared.err


def assert_simulated(folder: Path) -> None:
    """The run of a fleet is that of the simulator over the links that were used."""
    collected = Run.read(folder)
    simulated = run(study_of(collected), Path("simulated"))
    assert collected.models.keys() == simulated.models.keys()
    for name, models in simulated.models.items():
        # Both in float32, each row summed in the same order: rounding, amplified over the rounds by p = 3.
        torch.testing.assert_close(
            collected.models[name], models, rtol=0, atol=1e-5 * models.abs().max().item()
        )
    for name in ("round", "accuracy", "loss"):
        ours, theirs = (
            np.asarray(one.metrics[name], dtype=float) for one in (collected, simulated)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    distances = [np.asarray(one.metrics["distance"], dtype=float) for one in (collected, simulated)]
    np.testing.assert_allclose(*distances, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.fleet
def test_a_device_that_is_told_to_stop_goes_on_later_and_a_bench_needs_no_certificates() -> None:
    init(
        "--hosts", ",".join(PORTS), "--set", "fleet.insecure=true", "--set", "rounds=400", ahead=30
    )
    assert not list(Path("fleet").rglob("*.pem"))
    code = """
nodes = [node(i, "--insecure") for i in range(given["devices"])]
until(lambda: rounds(1) > 3)
taken = command("node", "fleet/n0.toml", "--insecure")
nodes[1].terminate()
stopped, had = ended(nodes[1]), rounds(1)
seen = command("fleet", "status", "fleet", "--json")
since = rounds(0)
until(lambda: rounds(0) > since + 1)
nodes[1] = node(1, "--insecure")
until(lambda: rounds(1) > had + 1)
for process in nodes:
    process.send_signal(2)
last = [ended(process) for process in nodes]
result = {"taken": taken, "stopped": stopped, "had": had, "seen": seen, "last": last}
"""
    result = python(DEVICES_RUN + code, Path.cwd(), devices=DEVICES)
    code_, out, err = result["taken"]
    assert (code_, out) == (2, "")
    assert re.search(
        r"gossamer: device 0 cannot listen on 0.0.0.0:7001: .*[Aa]ddress already in use", err
    )
    assert result["stopped"] == [0, "n1 was stopped; the same command goes on\n"]
    assert json.loads(result["seen"][1])["devices"][1]["doing"] == "stopped"
    assert [code_ for code_, _ in result["last"]] == [0] * DEVICES
    assert "--insecure: no certificates" in Path("fleet/n1.err").read_text()
    for log in logs():
        numbers = [line["round"] for line in log]
        assert numbers == sorted(set(numbers))  # no round twice
        assert all(a["bytes"] <= b["bytes"] for a, b in pairwise(log))  # counts go on
    away, there = logs()[1], logs()[0]
    assert any(
        1 not in line["near"] for line in there if line["round"] > result["had"]
    )  # it was missed
    assert any(line["met"] for line in away[result["had"] :])  # and is back
    assert_refused(gossamer("fleet", "collect", "fleet"), "no device in fleet has come to its end")


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.skipif(namespaces.refusal() is not None, reason=str(namespaces.refusal()))
def test_a_rehearsal_follows_its_links() -> None:
    before = left_by_the_dead()
    net = ("--set", "network.kind=random", "--set", "network.density=0.7")
    assert gossamer("network", "show", "fleet.toml", *net, "--save", "links.parquet").code == 0
    result = real("fleet", "up", "fleet.toml", "--devices", DEVICES, "--links", "links.parquet")
    assert result.code == 0, result.err
    first, *lines = result.err.splitlines()
    assert first == "3 devices, 8 rounds of 1.5 s: 0:00:12 once they are started"
    assert lines[-1].startswith("round 8/8  accuracy ")
    assert all(re.match(r"round \d/8 ", line) for line in lines)
    assert "everything is in runs/fleet-fleet/run" in result.out
    collected = Run.read(Path("runs/fleet-fleet/run"))
    assert collected.summary["devices"] == [0, 1, 2]
    assert collected.metrics["round"].tolist() == [0, 2, 4, 6, 8]
    met, trace = (
        Sequence(Path("runs/fleet-fleet/run/links.parquet"), beyond="empty"),
        Sequence(Path("links.parquet")),
    )
    for t in range(8):
        assert set(map(tuple, met.links(t).pairs.tolist())) <= set(
            map(tuple, trace.links(t).pairs.tolist())
        )
    assert sum(len(met.links(t).pairs) for t in range(8)) > 0
    assert left_by_the_dead() <= before
    assert_refused(real("fleet", "up", "fleet.toml"), "runs/fleet-fleet is there already")


def left_by_the_dead() -> set[str]:
    """Networks of rehearsals whose process is gone."""
    listed = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout.split()
    return {
        name
        for name in listed
        if name.startswith("gossamer-") and not Path(f"/proc/{name.split('-')[1]}").exists()
    }


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.data
def test_a_device_is_small_and_rests_between_rounds(data_dir: Path) -> None:
    """Two of six devices, softmax regression on the real MNIST, as `gossamer node` runs it."""
    ports = ",".join(f"127.0.0.1:{7001 + i}" for i in range(6))
    words = (
        "--devices",
        6,
        "--set",
        "data.kind=mnist",
        "--set",
        "fleet.slot=15",
        "--set",
        "rounds=100",
        "--hosts",
        ports,
    )
    init(*words, ahead=20)
    code = """
def process_file(name):
    return Path(f"/proc/{nodes[0].pid}/{name}").read_text()
def seconds():
    user, system = process_file("stat").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / given["tick"]
nodes = [node(i, "-q") for i in range(2)]
until(lambda: rounds(0) > 2 and rounds(1) > 2)
time.sleep(3)
before = rounds(0), seconds()
time.sleep(4)
after = rounds(0), seconds()
peak = int([line.split()[1] for line in process_file("status").splitlines() if line.startswith("VmHWM")][0])
for process in nodes:
    process.terminate()
result = {"peak": peak, "used": after[1] - before[1], "rounds": after[0] - before[0], "ended": [ended(p) for p in nodes]}
"""
    result = python(DEVICES_RUN + code, Path.cwd(), tick=os.sysconf("SC_CLK_TCK"))
    print(f"a device peaks at {result['peak'] / 1000:.0f} MB")  # for docs/field.md
    assert [code_ for code_, _ in result["ended"]] == [0, 0]
    assert any(line["met"] for line in logs()[0])
    assert result["peak"] < 400_000  # kB
    assert result["rounds"] == 0  # it was the middle of a slot
    assert result["used"] < 0.05 * 4  # seconds of a core, in four


# -- what is refused, in one sentence ------------------------------------------------------------------------------------------


def changed(path: str, old: str, new: str) -> None:
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new))


def with_samples(change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = Path("fleet/n1/data.safetensors")
    tensors = load_file(path)
    change(tensors)
    save_file({name: x.contiguous() for name, x in tensors.items()}, path)


def expired() -> None:
    past = datetime.now(UTC) - timedelta(days=100)
    keys.make_authority(Path("old"), "old", days=200, now=past)
    keys.make_certificate(Path("fleet/n1"), Path("old"), "n1", days=50, now=past)


def narrow(tensors: dict[str, torch.Tensor]) -> None:
    tensors.update(x=tensors["x"][..., :5], x_test=tensors["x_test"][..., :5])


WRONG_DEVICES: dict[str, tuple[Callable[[], object], tuple[str, ...], tuple[str, ...]]] = {
    "no certificate": (
        lambda: Path("fleet/n1/device.pem").unlink(),
        (),
        ("fleet/n1/device.pem is missing",),
    ),
    "another's": (
        lambda: [
            Path(f"fleet/n2/device.{end}").replace(f"fleet/n1/device.{end}")
            for end in ("pem", "key")
        ],
        (),
        ("fleet/n1/device.pem is for 'n2', not for 'n1'",),
    ),
    "expired": (expired, (), ("fleet/n1/device.pem expired on 20",)),
    "a key for all": (
        lambda: Path("fleet/n1/device.key").chmod(0o644),
        (),
        ("can be read by others",),
    ),
    "no samples": (
        lambda: Path("fleet/n1/data.safetensors").unlink(),
        (),
        ("data.safetensors is missing", "x_test"),
    ),
    "damaged": (
        lambda: Path("fleet/n1/data.safetensors").write_bytes(b"x"),
        (),
        ("data.safetensors is damaged",),
    ),
    "classes": (lambda: with_samples(lambda t: t["y"].add_(5)), (), ("labels up to 14", "0 to 9")),
    "targets": (
        lambda: with_samples(lambda t: t.update(y=t["y"].float(), y_test=t["y_test"].float())),
        (),
        ("has labels",),
    ),
    "shape": (lambda: with_samples(narrow), (), ("samples of shape (1, 8, 5)", "(1, 8, 8)")),
    "insecure here": (
        lambda: None,
        ("--insecure",),
        ("fleet/n1.toml has fleet.insecure = false", "leave out --insecure"),
    ),
    "insecure there": (
        lambda: changed("fleet/n1.toml", "insecure = false", "insecure = true"),
        (),
        ("fleet.insecure = true", "give --insecure too"),
    ),
    "a key": (
        lambda: changed("fleet/n1.toml", "classes", "clases"),
        (),
        ("clases is not a known key", "did you mean 'classes'?"),
    ),
    "a key below": (
        lambda: changed("fleet/n1.toml", "slot", "slots"),
        (),
        ("fleet.slots is not a known key", "'slot'"),
    ),
    "its number": (
        lambda: changed("fleet/n1.toml", "device = 1", "device = 3"),
        (),
        ("device.device = 3", "from 0 to 2"),
    ),
    "its start": (
        lambda: changed("fleet/n1.toml", 'start = "2', 'start = "x2'),
        (),
        ("device.start", "with its zone"),
    ),
    "not its file": (
        lambda: Path("fleet/n1.toml").write_text(SPEC),
        (),
        ("fleet/n1.toml is not the file of a device",),
    ),
    "no file": (
        lambda: Path("fleet/n1.toml").unlink(),
        (),
        ("there is no device's file fleet/n1.toml",),
    ),
    "no study": (lambda: Path("fleet/study.toml").unlink(), (), ("fleet/study.toml is missing",)),
}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be refused does not get as far."""
    import zenoh

    def opened(*_: object) -> None:
        raise AssertionError("the network was opened")

    monkeypatch.setattr(zenoh, "open", opened)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("wrong", WRONG_DEVICES)
def test_a_device_that_cannot_be_is_refused(wrong: str) -> None:
    init("--hosts", ",".join(PORTS))
    make, words, parts = WRONG_DEVICES[wrong]
    make()
    before = files()
    assert_refused(gossamer("node", "fleet/n1.toml", *words), *parts)
    assert files() == before


@pytest.mark.usefixtures("no_network")
def test_a_device_that_comes_after_the_end_is_refused() -> None:
    init("--hosts", ",".join(PORTS))
    start = re.search(r'start = "(.*)"', Path("fleet/n1.toml").read_text())
    assert start
    changed("fleet/n1.toml", start[1], "2020-01-31T12:00:00Z")
    assert_refused(
        gossamer("node", "fleet/n1.toml"),
        "ended at 2020-01-31 12:00:12 UTC",
        "n1 was in none of them",
    )


WRONG_FLEETS: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "allreduce": (
        ("--set", "algorithm.kind=allreduce"),
        ("'AllReduce'", "an average over all devices"),
    ),
    "one pair": (("--set", "algorithm.kind=swarm"), ("'SwarmSGD'", 'pairs = "matching"')),
    "adom": (("--set", "algorithm.kind=adom"), ("'ADOM'", "all devices connected")),
    "no time": (("--start", "tomorrow"), ("--start = 'tomorrow'", "a time with its zone")),
    "no zone": (("--start", "2050-01-01T12:00:00"), ("--start", "a time with its zone")),
    "past": (("--start", "2020-01-01T12:00:00Z"), ("--start", "a time to come")),
    "hosts": (
        ("--hosts", "10.0.0.1,10.0.0.2"),
        ("hosts = '10.0.0.1,10.0.0.2'", "3 different", "one for each device"),
    ),
    "one host": (("--hosts", "10.0.0.1,10.0.0.1,10.0.0.1"), ("hosts", "3 different")),
    "no host": (
        ("--hosts", "10.0.0.1,10.0.0.2:x,10.0.0.3"),
        ("hosts = '10.0.0.2:x'", "host or host:port"),
    ),
    "one device": (("--devices", 1), ("devices = 1", "at least 2")),
    "slot": (("--set", "fleet.slot=0"), ("fleet.slot = 0", "seconds from 0.1")),
    "key": (("--set", "fleet.slots=1"), ("fleet.slots is not a known key", "did you mean 'slot'?")),
    "days": (("--days", 0), ("days = 0", "above 0")),
    "short": (
        ("--days", 3, "--start", "2090-01-01T12:00:00Z"),
        ("--days = 3", "valid until the last round"),
    ),
}


@pytest.mark.parametrize("wrong", WRONG_FLEETS)
def test_a_fleet_that_cannot_be_is_refused_and_leaves_nothing(wrong: str) -> None:
    words, parts = WRONG_FLEETS[wrong]
    before = files()
    assert_refused(gossamer("fleet", "init", "fleet.toml", *words), *parts)
    assert files() == before


@pytest.mark.usefixtures("no_network")
def test_one_method_to_a_fleet_and_no_folder_twice() -> None:
    Path("two.toml").write_text(
        SPEC.replace("algorithm = {", "algorithm = [{ kind = 'dpsgd' }, {").replace(
            "0.1 }", "0.1 }]", 1
        )
    )
    for command in ("init", "up"):
        assert_refused(
            gossamer("fleet", command, "two.toml"), "'D-PSGD, WPM p=3'", "one [algorithm]"
        )
    for command in ("init", "up"):
        assert_refused(gossamer("fleet", command, "none.toml"), "there is no spec none.toml")
    init()
    before = files()
    for command in ("init", "up"):
        words = ("fleet", command, "fleet.toml", "--out", "fleet")
        assert_refused(gossamer(*words), "fleet is there already and not empty", "--out")
    assert files() == before
    for command in ("status", "collect"):
        assert_refused(gossamer("fleet", command, "nowhere"), "nowhere has no fleet")
    assert_refused(
        gossamer("fleet", "status", "fleet", "--connect", "a/b"), "connect = 'a/b'", "host:port"
    )


def test_a_rehearsal_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gossamer("network", "show", "fleet.toml", "--save", "links.parquet").code == 0
    up = ("fleet", "up", "fleet.toml", "-q", "--links")
    before = files()
    assert_refused(gossamer(*up, "none.parquet"), "none.parquet does not exist")
    assert_refused(gossamer(*up, "links.parquet", "--devices", 5), "--devices = 5", "give 3")
    assert_refused(gossamer(*up, "links.parquet", "--set", "rounds=9"), "rounds = 9", "at most 8")
    monkeypatch.setattr(namespaces.shutil, "which", lambda command: f"/bin/{command}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert_refused(gossamer(*up, "links.parquet"), "needs root")
    monkeypatch.setattr(namespaces.shutil, "which", lambda command: None)
    assert_refused(
        gossamer(*up, "links.parquet"),
        "needs Linux with iproute2 and nftables: ip, tc, nft not found",
    )
    assert files() == before


@pytest.mark.usefixtures("no_network")
def test_what_needs_the_extra_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    init("--set", "fleet.insecure=true")
    init(out="other")
    monkeypatch.setitem(sys.modules, "zenoh", None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert_refused(
        gossamer("fleet", "init", "fleet.toml", "--out", "third"), "pip install 'gossamer[peer]'"
    )
    assert not Path("third").exists()
    assert_refused(
        gossamer("fleet", "status", "fleet", "--connect", "127.0.0.1"),
        "pip install 'gossamer[peer]'",
    )
    result = gossamer("node", "fleet/n1.toml", "--insecure")
    loud, refusal = result.err.splitlines()
    assert loud.startswith("--insecure: no certificates, no encryption")
    assert (result.code, refusal) == (
        2,
        "gossamer: the runtime for devices is not installed: pip install 'gossamer[peer]' brings it",
    )


def test_keys_are_secret_and_samples_stay_where_they_are() -> None:
    said = init("--no-samples", "--days", 30)
    assert "its own samples to n0/data.safetensors" in said
    assert not list(Path("fleet").rglob("data.*"))
    assert "classes = 10" in Path("fleet/n1.toml").read_text()
    secret = list(Path("fleet").rglob("*.key"))
    assert len(secret) == DEVICES + 2
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    assert "fleet/authority/ca.key makes certificates for this fleet" in said


def test_addresses_of_many_kinds() -> None:
    init("--hosts", "10.0.0.1,robot-2.local:7001,[fe80::2]:7002")
    last = settings.read_device(spec.read(Path("fleet/n2.toml")))
    assert last.connect == ("10.0.0.1:7447", "robot-2.local:7001")
    assert last.listen == ("[::]:7002",)
    assert not last.fleet.multicast
    assert all(keys.check_folder(Path(f"fleet/n{i}"), f"n{i}") is None for i in range(DEVICES))


def test_the_template_shows_a_fleet() -> None:
    block = re.search(r"(?ms)^# \[fleet\]\n(# .*?\n)+", TEMPLATE)
    assert block
    made = settings.read_fleet(spec.parse(re.sub(r"(?m)^# ", "", block[0])))
    assert made == Fleet()
    assert set(re.findall(r"(?m)^# (\w+) =", block[0])) < set(Fleet.__dataclass_fields__)


# -- status --------------------------------------------------------------------------------------------------------------------


def says(device: int, **more: Any) -> dict[str, Any]:
    """As `Node` writes it."""
    counts = {
        "committed": 12,
        "failed": 0,
        "in doubt": 0,
        "missed": 0,
        "sent": 24,
        "bytes sent": 63_900,
    }
    said = {
        "device": device,
        "doing": "running",
        "round": 4,
        "rounds": 8,
        "near": [0, 1, 2],
        "met": [0, 1, 2],
    }
    said |= {"accuracy": 0.8125, "loss": 0.6, "pending": 0, "counts": counts, "time": time.time()}
    said["near"], said["met"] = ([j for j in range(DEVICES) if j != device] for _ in range(2))
    return said | more


def write(device: int, **more: Any) -> None:
    Path(f"fleet/n{device}/status.json").write_text(json.dumps(says(device, **more)))


def shown(watched: Watched, width: int) -> list[str]:
    """The table as lines of text, in a terminal of so many columns."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    console.print(table(watched, console))
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


@pytest.fixture
def watched() -> Watched:
    init("--set", "fleet.insecure=true", "--set", "fleet.multicast=false")
    return Watched(Path("fleet"))


def test_status_of_a_fleet_on_this_machine(watched: Watched) -> None:
    assert gossamer("fleet", "status", "fleet").out.splitlines()[0] == "no device has been heard of"
    write(0)
    write(
        1,
        accuracy=float("nan"),
        counts={"committed": 3, "failed": 2, "refused: nan": 4, "refused: run": 1},
    )
    lines = [
        line.split() for line in gossamer("fleet", "status", "fleet", "--once").out.splitlines()
    ]
    assert (
        " ".join(lines[0])
        == "round 4/8 accuracy 81.2 % links 3/3 1 of 3 devices silent or not seen"
    )
    assert lines[1] == [
        "device",
        "doing",
        "round",
        "sees",
        "met",
        "accuracy",
        "exchanges",
        "failed",
        "refused",
        "sent",
    ]
    assert lines[2] == [
        "n0",
        "running",
        "4/8",
        "n1",
        "n2",
        "n1",
        "n2",
        "81.2",
        "%",
        "12",
        "0",
        "0",
        "63.9",
        "kB",
    ]
    assert lines[3] == [
        "n1",
        "running",
        "4/8",
        "n0",
        "n2",
        "n0",
        "n2",
        "–",
        "3",
        "2",
        "5",
        "0",
        "B",
    ]
    assert lines[4] == ["n2", "not", "seen"]
    found = json.loads(gossamer("fleet", "status", "fleet", "--json").out)
    assert found["summary"].startswith("round 4/8")
    assert found["devices"][1]["accuracy"] is None
    assert found["devices"][0]["sees"] == ["n1", "n2"]
    assert found["devices"][2] == {"name": "n2", "doing": "not seen"}


def test_who_should_have_spoken_is_silent_and_who_has_ended_is_not(watched: Watched) -> None:
    ago = time.time() - 100
    for device, doing in enumerate(("running", "done", "waiting")):  # round 0 is an hour away
        write(device, doing=doing, time=ago)
    rows = watched.rows()
    assert [row["silent"] is None for row in rows] == [False, True, True]
    assert rows[0]["silent"] == pytest.approx(100, abs=20)
    assert any(re.search(r"^n0 +silent \d+ s", line) for line in shown(watched, 120))


def test_the_newer_of_disk_and_network_counts(watched: Watched) -> None:
    write(0, round=3, time=time.time() - 10)
    watched.hear(0, json.dumps(says(0, round=5, time=12.0)).encode())  # by a clock of its own
    assert watched.look()[0].round == 5
    write(0, round=6, time=time.time() + 0.01)
    time.sleep(0.02)
    assert watched.look()[0].round == 6
    Path("fleet/n0/status.json").write_bytes(b"{")
    assert watched.look()[0].round == 5


EVIL = "\x1b[31m[bold]\r\x07evil"
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just(EVIL),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*says(0), "committed", EVIL]), inner, max_size=9)
    ),
    max_leaves=12,
)


@given(
    st.binary(max_size=200)
    | anything.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries(
        {"doing": st.sampled_from(["running", "done", EVIL]), "time": st.floats() | st.integers()},
        optional={name: anything for name in says(0) if name not in ("doing", "time")},
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_a_device_says_is_numbers_and_known_words(data: bytes) -> None:
    said = read(data, DEVICES, now=1000.0)
    assert isinstance(said, Status)
    assert said.doing in ("running", "done", "unreadable")
    assert set(said.near) | set(said.met) <= set(range(DEVICES))
    assert 0 <= said.round <= said.rounds < 1 << 53
    assert 0 <= said.time <= 1000
    assert said.accuracy is None or 0 <= said.accuracy <= 1
    assert said.refused >= 0


def test_nothing_that_a_device_says_gets_to_the_terminal(watched: Watched) -> None:
    hostile: list[Any] = [
        EVIL.encode(),
        json.dumps(says(0, doing=EVIL)).encode(),
        json.dumps(says(0, counts={EVIL: 1, "committed": 3})).encode(),
        json.dumps(says(0, near=[0, 1, 10**9, 2**52], met=[2**52])).encode(),
        json.dumps(
            says(0, round=2**52, rounds=2**52, pending=2**52, counts={"bytes sent": 2**52})
        ).encode(),
        b"[" * 4000,
        b"\xff" * 4096,
        json.dumps(says(0, **{EVIL: EVIL, "name": EVIL})).encode(),
    ]
    for data in hostile:
        watched.hear(1, data)
        for width in (80, 120):
            lines = shown(watched, width)
            assert all(len(line) <= width and (line.isprintable() or not line) for line in lines)
            assert not any("evil" in line or "bold" in line for line in lines)
        assert "evil" not in json.dumps(watched.rows())


@pytest.mark.parametrize("width", [80, 120])
def test_everything_that_can_go_wrong_fits(watched: Watched, width: int) -> None:
    counts = {
        "committed": 81_234,
        "failed": 1234,
        "in doubt": 17,
        "late": 103,
        "missed": 12,
        "refused: shape": 3,
    }
    for device in range(DEVICES):
        write(
            device,
            round=412,
            rounds=500,
            pending=5,
            counts=counts | {"bytes sent": 512_345_678},
            time=time.time() - 75,
        )
    heading, *rows = shown(watched, width)[1:]
    words = (
        ["exch", "fail", "doubt", "late", "miss", "pend", "ref"]
        if width == 80
        else ["exchanges", "failed", "refused"]
    )
    assert all(word in heading.split() for word in words)
    for row in rows:
        assert all(str(number) in row.split() for number in (81234, 1234, 17, 103, 12, 5, 3))
        assert "…" not in row
        assert "512.3 MB" in row


def test_a_rehearsal_says_a_line_now_and_then(
    watched: Watched, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(0)
    with Table(Path("fleet"), quiet=True) as quiet:
        quiet.show()
    assert capsys.readouterr().err == ""
    with Table(Path("fleet"), quiet=False) as plain:
        plain.show()
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(status, "_LINE", 0.0)
        plain.show()
        assert (
            capsys.readouterr().err
            == "round 4/8  accuracy 81.2 %  links 2/2  2 of 3 devices silent or not seen\n"
        )
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.parametrize("colour", [True, False])
def test_the_live_table_ends_with_ctrl_c_and_all_is_well(watched: Watched, colour: bool) -> None:
    write(0, doing="done")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    environment.pop("NO_COLOR", None)
    if not colour:
        environment["NO_COLOR"] = "1"
    written = b""
    interrupted = False
    limit = time.monotonic() + DEADLINE
    words = [*REAL, "fleet", "status", "fleet"]
    with started(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        while time.monotonic() < limit:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    written += os.read(ours, 1 << 16)
                except OSError:  # the other end is gone
                    break
            if written.count(b"n2") >= 2 and not interrupted:
                process.send_signal(signal.SIGINT)
                interrupted = True
        assert process.wait(DEADLINE) == 0
    os.close(ours)
    text = written.decode()
    assert "not seen" in text
    assert "Traceback" not in text
    assert ("\x1b[1;32mdone" in text) == colour
    assert text.rpartition("\x1b[?25")[2].startswith("h")  # the cursor is back


def test_loopback_is_all_that_these_devices_have() -> None:
    """Or a test would speak to the network that this machine is in."""
    done = subprocess.run(
        [*namespace(), "ip", "-o", "link"], capture_output=True, text=True, check=True
    )
    assert {line.split(":")[1].strip().split("@")[0] for line in done.stdout.splitlines()} <= {
        "lo",
        "tunl0",
        "ip6tnl0",
        "sit0",
    }


def test_a_model_made_in_python_goes_to_devices_by_python() -> None:
    model = gs.Module(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    study = gs.Study(gs.DPSGD(0.1), gs.Full(DEVICES), gs.Digits(), gs.Iid(), model, rounds=3)
    paths = fleets.init(study, Fleet(insecure=True), Path("fleet"), datetime.now(UTC))
    device = fleets.read_device(paths[1])
    assert fleets.plan_of(device, study).task.learner.parameters == 650
    with pytest.raises(spec.SpecError, match="model was made in Python"):
        fleets.plan_of(device)
