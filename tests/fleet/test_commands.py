"""The commands `gossamer node` and `gossamer fleet` with real processes, on a loopback network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.command import assert_refused, files, gossamer, real
from support.fleet_commands import DEVICES, DEVICES_RUN, PORTS, SPEC, init, logs
from support.loopback import namespace, python

import gossamer as gs
from gossamer.cli.template import TEMPLATE
from gossamer.fleet import keys, namespaces, provision
from gossamer.fleet.service import plan_of, read_study
from gossamer.fleet.settings import Fleet, read_device, read_fleet
from gossamer.network import Sequence
from gossamer.study import Run, run, spec, study_of

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = pytest.mark.usefixtures("fleet_spec")

# -- three devices ---------------------------------------------------------------------------------


def undisturbed(begin: Callable[[float], None], code: str, **given: Any) -> Any:
    """Repeat a run until all devices start in time and no exchange fails on a busy machine."""
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
def test_three_devices_over_tls_equal_the_simulator() -> None:
    def begin(ahead: float) -> None:
        output = init("--hosts", ",".join(PORTS), ahead=ahead)
        assert "study.toml, n0.toml, n0/" in output
        assert f"gossamer fleet status fleet --connect {','.join(PORTS)}" in output

    code = """
nodes = [node(i) for i in range(given["devices"])]
until(lambda: rounds(0) > 3 or nodes[0].poll() is not None)  # it may start after the last round
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
    assert_refused(gossamer("fleet", "collect", "fleet"), "fleet/run exists and is not empty")
    everything = gossamer("fleet", "status", "fleet").out
    assert [line.split()[:3] for line in everything.splitlines()[2:]] == [
        [f"n{i}", "done", "8/8"] for i in range(DEVICES)
    ]
    compared = gossamer("compare", "fleet/run/spec.toml", "--out", "compared", "-q")
    assert compared.code == 0, compared.err


def assert_simulated(folder: Path) -> None:
    """Assert that the run of a fleet equals the simulator's over the same links."""
    collected = Run.read(folder)
    simulated = run(study_of(collected), Path("simulated"))
    assert collected.models.keys() == simulated.models.keys()
    for name, models in simulated.models.items():
        # Both are float32 and add in the same order; p = 3 amplifies rounding over the rounds.
        torch.testing.assert_close(
            collected.models[name], models, rtol=0, atol=1e-5 * models.abs().max().item()
        )
    for name in ("round", "accuracy", "loss", "accuracy_merged", "loss_merged"):
        ours, theirs = (
            np.asarray(one.metrics[name], dtype=float) for one in (collected, simulated)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    ours, theirs = (np.asarray(one.metrics["distance"], float) for one in (collected, simulated))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.fleet
def test_a_stopped_device_resumes_and_a_bench_needs_no_certificates() -> None:
    init(
        "--hosts", ",".join(PORTS), "--set", "fleet.insecure=true", "--set", "rounds=400", ahead=10
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
    assert (code_, out) == (75, "")  # it may mend itself: the unit tries again
    assert re.search(
        r"gossamer: device 0 cannot listen on 0.0.0.0:7001: .*[Aa]ddress already in use", err
    )
    assert result["stopped"] == [0, "n1 was stopped; the same command resumes it\n"]
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
    collected = gossamer("fleet", "collect", "fleet")
    assert collected.code == 0, collected.err
    assert re.search(r"not at the last round, with their newest models: n0 \(\d+\)", collected.err)


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.skipif(
    namespaces.unavailable_reason() is not None, reason=str(namespaces.unavailable_reason())
)
def test_a_rehearsal_follows_its_links() -> None:
    before = leftover_namespaces()
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
    assert leftover_namespaces() <= before
    assert_refused(real("fleet", "up", "fleet.toml"), "runs/fleet-fleet exists and is not empty")


def leftover_namespaces() -> set[str]:
    """Return the namespaces of rehearsals whose process has ended."""
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
def test_a_device_needs_little_memory_and_idles_between_rounds(data_dir: Path) -> None:
    """Two of six devices run softmax regression on MNIST."""
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
status = process_file("status").splitlines()
peak = int([line.split()[1] for line in status if line.startswith("VmHWM")][0])
for process in nodes:
    process.terminate()
result = {
    "peak": peak,
    "used": after[1] - before[1],
    "rounds": after[0] - before[0],
    "ended": [ended(process) for process in nodes],
}
"""
    result = python(DEVICES_RUN + code, Path.cwd(), tick=os.sysconf("SC_CLK_TCK"))
    print(f"a device peaks at {result['peak'] / 1000:.0f} MB")  # for docs/field.md
    assert [code_ for code_, _ in result["ended"]] == [0, 0]
    assert any(line["met"] for line in logs()[0])
    assert result["peak"] < 400_000  # kB
    assert result["rounds"] == 0  # it was the middle of a slot
    assert result["used"] < 0.05 * 4  # seconds of a core, in four


# -- refusals --------------------------------------------------------------------------------------


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
        ("there is no device file fleet/n1.toml",),
    ),
    "no study": (lambda: Path("fleet/study.toml").unlink(), (), ("fleet/study.toml is missing",)),
}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a refused command opens the network."""
    import zenoh

    def opened(*_: object) -> None:
        raise AssertionError("the network was opened")

    monkeypatch.setattr(zenoh, "open", opened)


@pytest.mark.slow
@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("wrong", WRONG_DEVICES)
def test_an_invalid_device_is_refused(wrong: str) -> None:
    init("--hosts", ",".join(PORTS))
    make, words, parts = WRONG_DEVICES[wrong]
    make()
    before = files()
    assert_refused(gossamer("node", "fleet/n1.toml", *words), *parts)
    assert files() == before


@pytest.mark.usefixtures("no_network")
def test_a_device_that_comes_after_the_end_is_refused() -> None:
    """Soon after the end it may be its clock that is wrong: a service manager tries again."""
    init("--hosts", ",".join(PORTS))
    start = re.search(r'start = "(.*)"', Path("fleet/n1.toml").read_text())
    assert start
    changed("fleet/n1.toml", start[1], "2020-01-31T12:00:00Z")
    assert_refused(
        gossamer("node", "fleet/n1.toml"),
        "ended at 2020-01-31 12:00:12 UTC",
        "n1 was in none",
    )
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    changed("fleet/n1.toml", "2020-01-31T12:00:00Z", f"{an_hour_ago:%Y-%m-%dT%H:%M:%SZ}")
    result = gossamer("node", "fleet/n1.toml")
    assert result.code == 75
    assert "n1 was in none: if the clock of this device is wrong, correct it" in result.err


WRONG_FLEETS: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "all-reduce": (
        ("--set", "algorithm.kind=all-reduce"),
        ("'All-Reduce'", "an average over all devices"),
    ),
    "one pair": (
        ("--set", "algorithm.kind=swarm-sgd"),
        ("'SwarmSGD'", 'pairs = "matching"'),
    ),
    "contacts": (
        (
            "--set",
            "fleet.pace=contacts",
            "--set",
            "algorithm.p={kind='switch',first=5,rounds=4,then=1}",
        ),
        ("algorithm = ", "the same in all rounds"),
    ),
    "pace": (("--set", "fleet.pace=fast"), ("fleet.pace = 'fast'", "'slots'", "'contacts'")),
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
def test_an_invalid_fleet_is_refused_and_leaves_nothing(wrong: str) -> None:
    words, parts = WRONG_FLEETS[wrong]
    before = files()
    assert_refused(gossamer("fleet", "init", "fleet.toml", *words), *parts)
    assert files() == before


@pytest.mark.usefixtures("no_network")
def test_a_fleet_has_one_method_and_an_empty_folder() -> None:
    Path("two.toml").write_text(
        SPEC.replace("algorithm = {", "algorithm = [{ kind = 'd-psgd' }, {").replace(
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
        assert_refused(gossamer(*words), "fleet exists and is not empty", "--out")
    assert files() == before
    for command in ("status", "collect"):
        assert_refused(gossamer("fleet", command, "nowhere"), "nowhere has no fleet")
    assert_refused(
        gossamer("fleet", "status", "fleet", "--connect", "a/b"), "connect = 'a/b'", "host:port"
    )


def test_a_rehearsal_names_missing_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gossamer("network", "show", "fleet.toml", "--save", "links.parquet").code == 0
    up = ("fleet", "up", "fleet.toml", "-q", "--links")
    before = files()
    assert_refused(gossamer(*up, "none.parquet"), "none.parquet does not exist")
    assert_refused(gossamer(*up, "links.parquet", "--devices", 5), "--devices = 5", "give 3")
    assert_refused(gossamer(*up, "links.parquet", "--set", "rounds=9"), "rounds = 9", "at most 8")
    monkeypatch.setattr(shutil, "which", lambda command: f"/bin/{command}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert_refused(gossamer(*up, "links.parquet"), "needs root")
    monkeypatch.setattr(shutil, "which", lambda command: None)
    assert_refused(
        gossamer(*up, "links.parquet"),
        "needs Linux with iproute2 and nftables: ip, tc, nft not found",
    )
    assert files() == before


@pytest.mark.usefixtures("no_network")
def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
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
        "gossamer: the runtime for devices is not installed:"
        " pip install 'gossamer[peer]' brings it",
    )


def test_keys_are_private_and_samples_stay_on_devices() -> None:
    output = init("--no-samples", "--days", 30)
    assert "its own samples to n0/data.safetensors" in output
    assert not list(Path("fleet").rglob("data.*"))
    assert "classes = 10" in Path("fleet/n1.toml").read_text()
    secret = list(Path("fleet").rglob("*.key"))
    assert len(secret) == DEVICES + 2
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    assert "fleet/authority/ca.key makes certificates for this fleet" in output


def test_hosts_by_name_and_address() -> None:
    init("--hosts", "10.0.0.1,robot-2.local:7001,[fe80::2]:7002")
    last = read_device(Path("fleet/n2.toml"))
    assert last.connect == ("10.0.0.1:7447", "robot-2.local:7001")
    assert last.listen == ("[::]:7002",)
    assert not last.fleet.multicast
    assert all(keys.check_folder(Path(f"fleet/n{i}"), f"n{i}") is None for i in range(DEVICES))


def test_the_template_shows_a_fleet() -> None:
    block = re.search(r"(?ms)^# \[fleet\]\n(# .*?\n)+", TEMPLATE)
    assert block
    made = read_fleet(spec.parse(re.sub(r"(?m)^# ", "", block[0])))
    assert made == Fleet()
    assert set(re.findall(r"(?m)^# (\w+) =", block[0])) < set(Fleet.__dataclass_fields__)


@pytest.mark.parametrize(
    ("network", "known"),
    [(gs.Ring(3), gs.Full(3)), (gs.BaseGraph(3) & gs.LinkFailure(0.5), gs.BaseGraph(3))],
    ids=["links as they come", "schedule"],
)
def test_devices_know_the_schedule_of_the_study(network: gs.Network, known: gs.Network) -> None:
    study = gs.Study(gs.DPSGD(), network=network)
    path, *_ = provision.init(study, Fleet(insecure=True), Path("fleet"), datetime.now(UTC))
    device = read_device(path)
    assert read_study(device).network == known
    assert plan_of(device).network == known


def test_devices_of_these_tests_have_loopback_only() -> None:
    """No test must reach the network of this machine."""
    done = subprocess.run(
        [*namespace(), "ip", "-o", "link"], capture_output=True, text=True, check=True
    )
    assert {line.split(":")[1].strip().split("@")[0] for line in done.stdout.splitlines()} <= {
        "lo",
        "tunl0",
        "ip6tnl0",
        "sit0",
    }


def test_a_model_made_in_python_runs_on_devices() -> None:
    model = gs.Module(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    study = gs.Study(gs.DPSGD(0.1), gs.Full(DEVICES), gs.Digits(), gs.Iid(), model, rounds=3)
    paths = provision.init(study, Fleet(insecure=True), Path("fleet"), datetime.now(UTC))
    device = read_device(paths[1])
    assert plan_of(device, study).task.learner.parameters == 650
    with pytest.raises(spec.SpecError, match="model was made in Python"):
        plan_of(device)
