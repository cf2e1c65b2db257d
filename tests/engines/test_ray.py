"""The Ray engine on a real cluster: the same models as the simulator, whatever is killed. In networks of loopback alone."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.loopback import Script, python
from support.methods import EVERY
from support.processes import wait_until

import gossamer as gs
from gossamer.results.folder import RunFolder
from gossamer.study.live import NAME as LIVE

pytest.importorskip("ray", reason="the extra gossamer[ray] is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.cluster]

GROUPS = 3


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_method_equals_the_simulator(group: int, tmp_path: Path) -> None:
    """1e-12 in float64 over 50 rounds, with churn or whatever the method takes, on two shards."""
    code = """
import numpy as np
import torch
import ray
from support.methods import takes
from support.shards import METHODS, plan_of
from gossamer.engines import Ray, Simulator
from gossamer.engines.ray.cluster import connect

connection = connect(Ray(shards=2))
result = {}
for name in given["names"]:
    plan = plan_of(METHODS[name], "churn" if "churn" in takes(name) else "static")
    simulator, engine = Simulator(plan), Ray(shards=2).start(plan)
    for run in (simulator, engine):
        run.advance(50)
    models = simulator.models()
    apart = float((engine.models() - models).abs().max() / models.abs().max())
    one, other = simulator.record(), engine.record()
    fields = ("accuracy", "loss", "distance", "power_distance")
    same = all(np.allclose(getattr(one, k), getattr(other, k), 1e-9, 1e-12, equal_nan=True) for k in fields)
    counted = (one.round, one.messages, one.bytes, one.seconds) == (other.round, other.messages, other.bytes, other.seconds)
    result[name] = [apart, bool(same), counted]
    engine.close()
connection.close()
"""
    names = [*EVERY, "wpm p=15 constant", "guarded"][
        group::GROUPS
    ]  # more of them in test_parts.py, without Ray
    for name, (apart, same, counted) in python(code, tmp_path, names=names).items():
        assert apart < 1e-12, name
        assert same, name
        assert counted, name


FLEET = """
rounds = 400
name = "fleet"
batch = 8
split = "one-label"
[network]
kind = "random"
devices = 12
density = 0.3
[[network.faults]]
kind = "churn"
leave = 0.05
come_back = 0.5
[algorithm]
kind = "wpm"
p = 3
eta = 0.02
[algorithm.direction]
kind = "quasi-global"
[measure]
every = 50
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    (tmp_path / "fleet.toml").write_text(FLEET)
    return tmp_path


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "gossamer", *map(str, words)]


def run_on_ray(folder: Path, *words: object, code: int = 0) -> tuple[str, str]:
    script = Script(command(*words, "--engine", "ray"), folder)
    found, out, err = script.ended()
    assert found == code, err[-3000:]
    assert "Traceback" not in err
    script.assert_gone()
    said = [
        line for line in err.splitlines(keepends=True) if "network_util.cc" not in line
    ]  # Ray, of having loopback alone
    return out, "".join(said)


def test_the_command_gives_the_same_run_folder(fleet: Path) -> None:
    run_on_ray(fleet, "run", "fleet.toml", "-q", "--out", "ray", "--set", "engine.shards=2")
    assert Script(command("run", "fleet.toml", "-q", "--out", "here"), fleet).ended()[0] == 0
    one, other = (RunFolder(fleet / name) for name in ("here", "ray"))
    assert {file.name for file in one.path.iterdir()} == {
        file.name for file in other.path.iterdir()
    }
    assert (one.path / "spec.toml").read_text() == (other.path / "spec.toml").read_text()
    for name, x in one.metrics().items():
        np.testing.assert_allclose(
            other.metrics()[name], x, rtol=1e-3, atol=1e-3
        )  # float32 over 400 rounds
    assert one.summary()["bytes"] == other.summary()["bytes"]
    # what one engine has finished, the other reads
    assert (
        Script(command("run", "fleet.toml", "-q", "--out", "ray", "--resume"), fleet).ended()[0]
        == 0
    )


def killed_at_random(script: Script, words: str, seconds: float) -> None:
    """SIGKILL one of the command's processes once there are such, after a random time."""
    wait_until(
        lambda: script.process.poll() is not None or script.left(words), f"there is a {words}"
    )
    assert script.process.poll() is None
    time.sleep(seconds)
    found = script.left(words)
    if found:
        os.kill(random.choice(found), signal.SIGKILL)


LONG = [
    "-q",
    "--set",
    "rounds=3000",
    "--set",
    "engine.shards=2",
    "--set",
    "engine.checkpoint=1",
    "--set",
    "dtype=float64",
]


def test_killed_shards_and_a_killed_driver(fleet: Path) -> None:
    """Whatever is killed, the run comes to the same models, bit for bit, and says what happened."""
    run_on_ray(fleet, "run", "fleet.toml", "--out", "whole", *LONG)
    whole = RunFolder(fleet / "whole").models()

    words = command("run", "fleet.toml", "--out", "shard", "--engine", "ray", *LONG)
    with Script(words, fleet) as script:
        killed_at_random(script, "ray::ShardActor", 2 + 2 * random.random())
        code, _, err = script.ended()
        assert code == 0, err
        script.assert_gone()
    summary = RunFolder(fleet / "shard").summary()
    assert len(summary["events"]) == 1
    assert "was lost; all shards restarted from round" in summary["events"][0]
    assert summary["events"][0] in err

    words = command("run", "fleet.toml", "--out", "driver", "--engine", "ray", *LONG)
    with Script(words, fleet) as script:
        killed_at_random(script, "ray::ShardActor", 2 * random.random())
        killed_at_random(script, "-m gossamer", 3 * random.random())
        script.ended()
        script.assert_gone(but="Agent")  # two helpers of Ray's own notice it only after minutes
    run_on_ray(fleet, "run", "fleet.toml", "--out", "driver", "--resume", *LONG)

    for name in ("shard", "driver"):
        models = RunFolder(fleet / name).models()
        assert all((models[k] == x).all() for k, x in whole.items()), name


def test_ctrl_c_stops_and_keeps(fleet: Path) -> None:
    words = [
        "run",
        "fleet.toml",
        "--out",
        "out",
        "--set",
        "rounds=100000",
        "--set",
        "engine.shards=2",
    ]
    live = fleet / "out" / LIVE
    with Script(command(*words, "--engine", "ray"), fleet) as script:
        wait_until(
            lambda: live.exists() and live.read_bytes().count(b'"record"') >= 2,
            "the run has measured after its first round",
        )
        for pid in script.left():  # as a terminal does: to all of its processes
            os.kill(pid, signal.SIGINT)
        code, _, err = script.ended()
        assert code == 130
        assert "is kept and --resume goes on" in err
        assert "Traceback" not in err
        script.assert_gone()
    assert RunFolder(fleet / "out").snapshot().round > 0


def test_a_node_that_is_lost(tmp_path: Path) -> None:
    """Two machines, one of them killed with the shard on it; a third takes its place. No other room: it says so, in time."""
    code = """
import threading, time
import torch
import gossamer as gs
import ray
from gossamer.engines import Ray
from gossamer.engines.ray.actors import ShardActors
from gossamer.errors import InputError, Lost
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "node_ip_address": "127.0.0.1"})
second = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
study = gs.Study(gs.WPM.robust(3, 0.02), gs.Ring(12), rounds=2000, dtype="float64")
plan = study.plan()
settings = Ray(shards=2, address=cluster.address, wait=90, checkpoint=1)
result = {"trouble": ""}

def go():
    try:
        engine.advance(2000)
    except BaseException as error:
        result["trouble"] = repr(error)

engine = settings.start(plan)
result["hosts"] = len({host.address for host in engine._call("host")})
engine.advance(2000)
whole = engine.models()
engine.close()

engine = settings.start(plan)
thread = threading.Thread(target=go)
thread.start()
while engine.round < 300:
    time.sleep(0.05)
cluster.remove_node(second, allow_graceful=False)
third = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
thread.join()
result["same"] = bool(torch.equal(engine.models(), whole))
result["events"] = engine.events
engine.close()

began = time.monotonic()
try:
    Ray(shards=3, address=cluster.address, wait=3).start(plan)
except InputError as error:
    result["no room"] = [str(error), time.monotonic() - began < 60]

call = ShardActors.call
killed = []

def call_then_kill(self, method, *args, **kwargs):
    results = call(self, method, *args, **kwargs)
    if method == "host" and not killed:
        killed.append(ray.kill(self._handles[0]))
    return results

ShardActors.call = call_then_kill
engine = Ray(shards=2, address=cluster.address, wait=5, checkpoint=1).start(plan)
result["killed at the start"] = list(engine.events)
engine.advance(100)
cluster.remove_node(third, allow_graceful=False)
try:
    engine.advance(2000)
except Lost as error:
    result["no room any more"] = str(error)
engine.close()
cluster.shutdown()
"""
    found = python(code, tmp_path)
    assert not found["trouble"]
    assert found["same"], found["events"]
    assert len(found["events"]) >= 1
    assert "all shards restarted from round" in found["events"][0]
    assert found["killed at the start"] == [
        "after round 0: shard 0 of 2 was lost; all shards restarted from round 0"
    ]
    sentence, in_time = found["no room"]
    assert in_time
    # The lost node may still be counted, but is not free.
    assert sentence.startswith(
        "engine.shards = 3 is not accepted: give at most 2 now: the cluster has"
    )
    assert (
        "was lost, and the cluster has no room for a replacement: at most 1 now"
        in found["no room any more"]
    )


def test_sweeps_as_tasks(fleet: Path) -> None:
    """A comparison on Ray is the comparison; a sweep with a run that cannot be done finishes the others."""
    words = ["compare", "fleet.toml", "-q", "--seeds", "2", "--set", "rounds=40"]
    run_on_ray(fleet, *words, "--out", "ray")
    assert Script(command(*words, "--out", "here"), fleet).ended()[0] == 0
    runs = sorted(path.name for path in (fleet / "here").iterdir() if path.is_dir())
    assert len(runs) == 2
    for name in runs:
        one, other = RunFolder(fleet / "here" / name), RunFolder(fleet / "ray" / name)
        assert {k: v.tolist() for k, v in one.metrics().items()} == {
            k: v.tolist() for k, v in other.metrics().items()
        }
        assert other.has("models.safetensors")
    code = """
from dataclasses import replace
from pathlib import Path
import gossamer as gs
from gossamer.study.pools import RayTasks
from gossamer.study.sweep import Failed, sweep

good, bad = gs.Study(gs.DPSGD(0.1), gs.Ring(4), rounds=5), gs.Study(gs.DPSGD(0.1), gs.Ring(4), rounds=5, device="nowhere")
result = {}
try:
    sweep([good, bad, replace(good, seed=1)], Path("cells"), RayTasks())
except Failed as error:
    result["said"] = str(error)
result["kept"] = len(list(Path("cells").iterdir()))
cells = sweep([good, replace(good, seed=1), gs.Study(gs.DPSGD(1e30), gs.Ring(4), rounds=50)], Path("cells"), RayTasks())
result["diverged"] = [cell.diverged for cell in cells]
"""
    found = python(code, fleet)
    assert "1 of 3 runs failed: D-PSGD, seed 0" in found["said"]
    assert "device = 'nowhere' is not accepted" in found["said"]
    assert found["kept"] == 2
    assert found["diverged"] == [False, False, True]


def test_what_diverges_is_told_as_the_simulator_tells_it(fleet: Path) -> None:
    words = [
        "run",
        "fleet.toml",
        "-q",
        "--out",
        "out",
        "--set",
        "algorithm.eta=1e20",
        "--set",
        "algorithm.step=plain",
    ]
    _, said = run_on_ray(fleet, *words, "--set", "engine.shards=3", code=3)
    code, _, here = Script(command(*words[:4], "here", *words[5:]), fleet).ended()
    assert code == 3
    assert said == here
    assert (
        json.loads((fleet / "out" / "summary.json").read_text())["diverged"]
        == json.loads((fleet / "here" / "summary.json").read_text())["diverged"]
    )


def test_without_the_extra(fleet: Path) -> None:
    blocked = "import importlib.util as u, sys; f = u.find_spec; u.find_spec = lambda n, *a: None if n == 'ray' else f(n, *a); "
    words = ["run", "fleet.toml", "--engine", "ray"]
    code = f"{blocked}sys.argv = ['gossamer', *{words!r}]; from gossamer.cli import main; main()"
    found, _, err = Script([sys.executable, "-c", code], fleet).ended()
    assert found == 2
    assert (
        err == "gossamer: the Ray engine is not installed: pip install 'gossamer[ray]' brings it\n"
    )
    assert not (fleet / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (["engine.shards=-1"], ["engine.shards = -1", "one per CPU"]),
        (["engine.wait=0"], ["engine.wait = 0"]),
        (["engine.nodes=3"], ["engine.nodes"]),
        (["engine.address=127.0.0.1:1"], ["engine.address = '127.0.0.1:1'", "running Ray cluster"]),
    ],
)
def test_refusals(settings: list[str], parts: list[str], fleet: Path) -> None:
    _, err = run_on_ray(
        fleet, "run", "fleet.toml", *(word for s in settings for word in ("--set", s)), code=2
    )
    assert err.count("\n") == 1
    assert all(part in err for part in parts)
    assert not (fleet / "runs").exists()


def test_a_study_made_in_python_runs_too(tmp_path: Path) -> None:
    """Own networks and methods go to the shards as they are."""
    code = """
import gossamer as gs
from gossamer.engines import Simulator

network = gs.Callback(8, lambda t: [(i, (i + 1 + t % 3) % 8) for i in range(8)])
study = gs.Study(gs.DPSGD(0.1), network, rounds=30, dtype="float64", measure=gs.Measure(every=0))
done = gs.run(study, engine=gs.Ray(shards=2))
alone = gs.run(study)
result = max(float((done.models[k] - x).abs().max()) for k, x in alone.models.items())
"""
    assert python(code, tmp_path) < 1e-12


def test_settings_are_data() -> None:
    assert gs.Ray(shards=4) == gs.Ray(4)
