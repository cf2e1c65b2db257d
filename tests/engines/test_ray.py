"""The Ray engine on a real cluster: the same models as the simulator, whatever is killed.

All clusters run in network namespaces that have the loopback interface only.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.command import assert_refused, gossamer
from support.loopback import Script, python
from support.processes import wait_until
from support.shards import ON_RAY

import gossamer as gs
from gossamer.engines import settings
from gossamer.results.folder import RunFolder
from gossamer.results.live import LIVE_FILE as LIVE

pytest.importorskip("ray", reason="the extra gossamer[ray] is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.cluster]

ROUNDS = 24


def test_methods_equal_the_simulator(tmp_path: Path) -> None:
    """The models agree to 1e-12 in float64 on two shards, with churn if possible.

    The methods exchange values of all kinds. test_shards.py has every method, without Ray: on a
    cluster each would start two processes that load torch.
    """
    code = """
from dataclasses import replace
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
    network = "churn" if "churn" in takes(name) else "static"
    plan = plan_of(METHODS[name], network)
    if name == given["names"][0]:
        plan = replace(plan, measure=replace(plan.measure, devices=5))
    simulator = Simulator(plan)
    engine = Ray(shards=2).start(plan)
    simulator.advance(given["rounds"])
    engine.advance(given["rounds"])
    models = simulator.models()
    difference = float((engine.models() - models).abs().max() / models.abs().max())
    one = simulator.record()
    other = engine.record()
    same_values = True
    for field in ("loss", "distance", "power_distance"):
        expected = getattr(one, field)
        same_values &= np.allclose(getattr(other, field), expected, 1e-9, 1e-12, equal_nan=True)
    for metric, expected in one.metrics.items():
        same_values &= np.allclose(other.metrics[metric], expected, 1e-9, 1e-12)
    for field in ("merged", "merged_power"):
        expected = getattr(one, field)
        found = getattr(other, field)
        same_values &= expected.keys() == found.keys()
        same_values &= np.allclose([found[k] for k in expected], list(expected.values()), 1e-9)
    if name == given["names"][0]:
        same_values &= len(one.loss) == 5 and np.array_equal(one.devices, other.devices)
    same_counts = all(
        getattr(one, field) == getattr(other, field)
        for field in ("round", "messages", "bytes", "seconds")
    )
    result[name] = [difference, bool(same_values), same_counts]
    engine.close()
connection.close()
"""
    found = python(code, tmp_path, names=ON_RAY, rounds=ROUNDS)
    assert tuple(found) == ON_RAY
    for name, (difference, same_values, same_counts) in found.items():
        assert difference < 1e-12, name
        assert same_values, name
        assert same_counts, name


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
kind = "composition"
eta = 0.02
[algorithm.mirror]
kind = "power"
p = 3
[algorithm.direction]
kind = "quasi-global-momentum"
[measure]
every = 50
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    (tmp_path / "fleet.toml").write_text(FLEET)
    return tmp_path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "gossamer", *map(str, arguments)]


def run_simulator(folder: Path, *arguments: object, code: int = 0) -> str:
    """Run a command of gossamer on the simulator, in this process. Return its stderr."""
    with contextlib.chdir(folder):
        done = gossamer(*arguments)
    assert done.code == code, done.err[-3000:]
    return done.err


def run_on_ray(folder: Path, *arguments: object, code: int = 0) -> tuple[str, str]:
    """Run a command of gossamer on Ray. Return its stdout and stderr."""
    script = Script(command(*arguments, "--engine", "ray"), folder)
    exit_code, out, err = script.wait()
    assert exit_code == code, err[-3000:]
    assert "Traceback" not in err
    script.assert_no_processes()
    # Ray's C++ code warns that there is no network interface but loopback.
    lines = [line for line in err.splitlines(keepends=True) if "network_util.cc" not in line]
    return out, "".join(lines)


def test_the_command_writes_the_same_run_folder(fleet: Path) -> None:
    run_on_ray(fleet, "run", "fleet.toml", "-q", "--out", "ray", "--set", "engine.shards=2")
    run_simulator(fleet, "run", "fleet.toml", "-q", "--out", "here")
    one = RunFolder(fleet / "here")
    other = RunFolder(fleet / "ray")
    assert sorted(p.name for p in one.path.iterdir()) == sorted(
        p.name for p in other.path.iterdir()
    )
    assert (one.path / "spec.toml").read_text() == (other.path / "spec.toml").read_text()
    for name, x in one.metrics().items():  # float32 over 400 rounds
        np.testing.assert_allclose(other.metrics()[name], x, rtol=1e-3, atol=1e-3)
    assert one.summary()["bytes"] == other.summary()["bytes"]
    # The simulator reads the run that Ray has finished.
    run_simulator(fleet, "run", "fleet.toml", "-q", "--out", "ray", "--resume")


def kill_one(script: Script, containing: str, seconds: float) -> None:
    """Wait for a process of the command, sleep, and kill one such process."""
    wait_until(
        lambda: script.process.poll() is not None or script.processes(containing),
        f"there is a {containing}",
    )
    assert script.process.poll() is None
    time.sleep(seconds)
    found = script.processes(containing)
    if found:
        os.kill(random.choice(found), signal.SIGKILL)


SETTINGS = ("rounds=3000", "engine.shards=2", "engine.checkpoint=1", "dtype=float64")
LONG = ["-q", *(word for setting in SETTINGS for word in ("--set", setting))]


def test_killed_shards_and_a_killed_driver(fleet: Path) -> None:
    """Whatever is killed, the final models are the same, bit for bit, and the loss is reported."""
    run_on_ray(fleet, "run", "fleet.toml", "--out", "whole", *LONG)
    whole = RunFolder(fleet / "whole").models()

    arguments = command("run", "fleet.toml", "--out", "shard", "--engine", "ray", *LONG)
    with Script(arguments, fleet) as script:
        kill_one(script, "ray::ShardActor", 2 + 2 * random.random())
        exit_code, _, err = script.wait()
        assert exit_code == 0, err
        script.assert_no_processes()
    summary = RunFolder(fleet / "shard").summary()
    assert len(summary["events"]) == 1
    assert "all shards restarted from round" in summary["events"][0]
    assert summary["events"][0] in err

    arguments = command("run", "fleet.toml", "--out", "driver", "--engine", "ray", *LONG)
    with Script(arguments, fleet) as script:
        kill_one(script, "ray::ShardActor", 2 * random.random())
        kill_one(script, "-m gossamer", 3 * random.random())
        script.wait()
        # Two agents of Ray notice the death of the driver after minutes only.
        script.assert_no_processes(except_for="Agent")
    run_on_ray(fleet, "run", "fleet.toml", "--out", "driver", "--resume", *LONG)

    for name in ("shard", "driver"):
        models = RunFolder(fleet / name).models()
        assert all((models[k] == x).all() for k, x in whole.items()), name


def test_a_killed_control_process(fleet: Path) -> None:
    """Ray would end the driver after a minute, whatever it does; the command says why before."""
    arguments = command("run", "fleet.toml", "--out", "run", "--engine", "ray", *LONG)
    with Script([*arguments, "--set", "rounds=10000000"], fleet) as script:
        wait_until(lambda: (fleet / "run" / "live.jsonl").exists(), "the run has begun")
        kill_one(script, "gcs/gcs_server", 1)
        exit_code, _, err = script.wait()
        assert exit_code == 4, err
        assert "Ray's control process (the GCS) at 127.0.0.1:" in err
        assert "the cluster is gone; --resume continues the run" in err
        script.assert_no_processes(except_for="Agent")


def test_ctrl_c_saves_and_stops(fleet: Path) -> None:
    arguments = ["run", "fleet.toml", "--out", "out", "--engine", "ray"]
    arguments += ["--set", "rounds=100000", "--set", "engine.shards=2"]
    live = fleet / "out" / LIVE
    with Script(command(*arguments), fleet) as script:
        wait_until(
            lambda: live.exists() and live.read_bytes().count(b'"record"') >= 2,
            "the run has measured after its first round",
        )
        for pid in script.processes():  # a terminal signals all processes of a command
            os.kill(pid, signal.SIGINT)
        exit_code, _, err = script.wait()
        assert exit_code == 130
        assert "is kept and --resume continues it" in err
        assert "Traceback" not in err
        script.assert_no_processes()
    assert RunFolder(fleet / "out").snapshot().round > 0


def test_a_node_that_is_lost(tmp_path: Path) -> None:
    """A node is killed with the shard on it, and a new node takes its place.

    Without a new node both shards share the other one. More shards than there is room for are
    refused in time.
    """
    code = """
import threading
import time
import ray
import torch
import gossamer as gs
from gossamer.engines import Ray
from gossamer.engines.ray.actors import ShardActors
from gossamer.errors import InputError
from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
cluster = Cluster(initialize_head=True, head_node_args=NODE)
second = cluster.add_node(**NODE)
study = gs.Study(gs.WPM(3, 0.02), gs.Ring(12), rounds=2000, dtype="float64")
plan = study.plan()
settings = Ray(shards=2, address=cluster.address, wait=90, checkpoint=1)
result = {"error": ""}

class Messages(gs.engines.Observer):
    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)

def advance():
    try:
        engine.advance(2000)
    except BaseException as error:
        result["error"] = repr(error)

engine = settings.start(plan)
result["hosts"] = len({host.address for host in engine._call("host")})
engine.advance(2000)
whole = engine.models()
engine.close()

messages = Messages()
engine = settings.start(plan, observer=messages)
thread = threading.Thread(target=advance)
thread.start()
while engine.round < 300:
    time.sleep(0.05)
cluster.remove_node(second, allow_graceful=False)
third = cluster.add_node(**NODE)
thread.join()
result["same"] = bool(torch.equal(engine.models(), whole))
result["messages"] = messages.texts
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
messages = Messages()
engine = Ray(shards=2, address=cluster.address, wait=5, checkpoint=1).start(plan, observer=messages)
result["killed at the start"] = list(messages.texts)
engine.advance(100)
cluster.remove_node(third, allow_graceful=False)
engine.advance(2000)
result["shared"] = messages.texts
result["same when shared"] = bool(torch.equal(engine.models(), whole))
engine.close()
cluster.shutdown()
"""
    found = python(code, tmp_path)
    assert not found["error"]
    assert found["same"], found["messages"]
    assert len(found["messages"]) >= 1
    assert "all shards restarted from round" in found["messages"][0]
    (message,) = found["killed at the start"]
    assert message.startswith("after round 0: shard 0 of 2 was lost: its process")
    assert message.endswith("all shards restarted from round 0")
    message, in_time = found["no room"]
    assert in_time
    # The lost node may still be counted, but is not free.
    assert message.startswith("engine.shards = 3 is not accepted: give at most 2 now: the cluster")
    assert found["same when shared"], found["shared"]
    assert any("up to 2 share the place of one until there is" in x for x in found["shared"])


def test_sweeps_as_tasks(fleet: Path) -> None:
    """A comparison on Ray gives the same files; a sweep finishes the other runs if one fails."""
    arguments = ["compare", "fleet.toml", "-q", "--seeds", "2", "--set", "rounds=40"]
    run_on_ray(fleet, *arguments, "--out", "ray")
    run_simulator(fleet, *arguments, "--out", "here")
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
from gossamer.study.ray_tasks import RayTasks
from gossamer.study.sweep import Failed, sweep

good = gs.Study(gs.DPSGD(0.1), gs.Ring(4), rounds=5)
bad = replace(good, device="nowhere")
diverging = gs.Study(gs.DPSGD(1e30), gs.Ring(4), rounds=50)
result = {}
try:
    sweep([good, bad, replace(good, seed=1)], Path("cells"), RayTasks())
except Failed as error:
    result["message"] = str(error)
result["folders"] = len(list(Path("cells").iterdir()))
cells = sweep([good, replace(good, seed=1), diverging], Path("cells"), RayTasks())
result["diverged"] = [cell.diverged for cell in cells]
"""
    found = python(code, fleet)
    assert "1 of 3 runs failed: D-PSGD, seed 0" in found["message"]
    assert "device = 'nowhere' is not accepted" in found["message"]
    assert found["folders"] == 2
    assert found["diverged"] == [False, False, True]


def test_divergence_is_reported_as_by_the_simulator(fleet: Path) -> None:
    diverging = ["--set", "algorithm.eta=1e20", "--set", "algorithm.step=plain"]
    arguments = ["run", "fleet.toml", "-q", *diverging, "--out"]
    _, on_ray = run_on_ray(fleet, *arguments, "ray", "--set", "engine.shards=3", code=3)
    assert on_ray == run_simulator(fleet, *arguments, "here", code=3)
    summaries = [json.loads((fleet / x / "summary.json").read_text()) for x in ("ray", "here")]
    assert summaries[0]["diverged"] == summaries[1]["diverged"]


def test_without_the_extra(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    monkeypatch.chdir(fleet)
    done = gossamer("run", "fleet.toml", "--engine", "ray")
    assert done.code == 2
    assert done.err == (
        "gossamer: the Ray engine is not installed: pip install 'gossamer[ray]' brings it\n"
    )
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("engine.shards=-1", ["engine.shards = -1", "one per machine"]),
        ("engine.wait=0", ["engine.wait = 0"]),
        ("engine.nodes=3", ["engine.nodes"]),
    ],
)
def test_refused_settings(
    setting: str, parts: list[str], fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused before Ray is loaded."""
    monkeypatch.chdir(fleet)
    assert_refused(gossamer("run", "fleet.toml", "--engine", "ray", "--set", setting), *parts)
    assert not Path("runs").exists()


def test_an_address_without_a_cluster(fleet: Path) -> None:
    _, err = run_on_ray(fleet, "run", "fleet.toml", "--set", "engine.address=127.0.0.1:1", code=2)
    assert err.count("\n") == 1
    assert "engine.address = '127.0.0.1:1'" in err
    assert "running Ray cluster" in err
    assert not (fleet / "runs").exists()


def test_studies_made_in_python(tmp_path: Path) -> None:
    """Networks, methods and modules that are defined in Python are sent to the shards.

    Tokens and every draw of a module are the same in the shards.
    """
    code = """
import gossamer as gs
import torch
from gossamer.engines import Ray
from gossamer.engines.ray.cluster import connect
from torch import nn

def links(t):
    return [(i, (i + 1 + t % 3) % 8) for i in range(8)]

def make():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    return nn.Sequential(nn.Embedding(5, 8), layer, nn.Linear(8, 5))

x = torch.arange(60).view(12, 5) % 5
data = gs.from_arrays(x, x.flip(1), x, x.flip(1))
rest = {"dtype": "float64", "measure": gs.Measure(every=0)}
studies = {
    "network": gs.Study(gs.DPSGD(0.1), gs.Callback(8, links), rounds=30, **rest),
    "module": gs.Study(
        gs.DPSGD(0.1), gs.Ring(6), data, model=gs.Module(make), batch=3, rounds=6, **rest
    ),
}
result = {}
connection = connect(Ray(shards=2))
for name, study in studies.items():
    on_ray = gs.run(study, engine=gs.Ray(shards=2)).models
    here = gs.run(study).models
    result[name] = max(float((on_ray[key] - x).abs().max()) for key, x in here.items())
connection.close()
"""
    found = python(code, tmp_path)
    assert found["network"] < 1e-12
    assert found["module"] < 1e-11


def test_transformers_and_adapters(tmp_path: Path) -> None:
    """A model of transformers, and adapters of one on disk with dropout, on two shards."""
    pytest.importorskip("peft", reason="the extra gossamer[hf] is not installed")
    code = """
from pathlib import Path

import gossamer as gs
from support.hugging_face import adapter_study

result = []
for adapters in (False, True):
    study = adapter_study(Path("base").absolute(), adapters)
    on_ray = gs.run(study, engine=gs.Ray(shards=2))
    here = gs.run(study)
    assert on_ray.summary["accuracy_merged"] == here.summary["accuracy_merged"]
    for name, x in here.models.items():
        result.append(float((on_ray.models[name] - x).abs().max()))
"""
    assert max(python(code, tmp_path)) < 1e-11


def test_the_host_process_is_left_as_it_was(tmp_path: Path) -> None:
    """Two runs, one after the other: each starts a cluster and stops it."""
    code = """
import logging
import os
import signal
import sys
import ray
import torch
import gossamer as gs

def host():
    return {
        "environment": dict(os.environ),
        "excepthook": repr(sys.excepthook),
        "SIGINT": repr(signal.getsignal(signal.SIGINT)),
        "SIGTERM": repr(signal.getsignal(signal.SIGTERM)),
        "level of Ray's logger": logging.getLogger("ray").level,
        "function of Ray": repr(ray._private.worker.print_to_stdstream),
        "threads": torch.get_num_threads(),
        "connected": ray.is_initialized(),
    }

before = host()
result = []
for number in range(2):
    gs.run(gs.Study(gs.DPSGD(0.1), gs.Ring(8), rounds=5), engine=gs.Ray(shards=2))
    after = host()
    result.append([name for name in before if after[name] != before[name]])
"""
    assert python(code, tmp_path) == [[], []]


def test_settings_are_data() -> None:
    assert gs.Ray(shards=4) == gs.Ray(4)
