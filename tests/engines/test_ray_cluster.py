"""A cluster of three machines, as docs/scaling-out.md says: the same models, whatever is lost.

Each machine has its own network, processes, shared memory and home folder. It needs root.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.machines import Machine, machines
from support.processes import DEADLINE, end, wait_until

import gossamer as gs
from gossamer.engines import Simulator
from gossamer.results.folder import RunFolder
from gossamer.results.live import LIVE_FILE

pytest.importorskip("ray", reason="the extra gossamer[ray] is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.cluster]

PAGE = (Path(__file__).parents[2] / "docs" / "scaling-out.md").read_text()
SPEC = """
rounds = 60
batch = 8
dtype = "float64"
[network]
kind = "contacts"
path = "log.csv"
[algorithm]
kind = "python"
object = "own_method:make"
[measure]
every = 0
"""
METHOD = """
import gossamer as gs

def make():
    return gs.WPM(3, 0.02)
"""
LONG = ["--set", "network.kind=ring", "--set", "network.devices=12", "--set", "measure.every=100"]
LONG += ["--set", "algorithm.kind=d-psgd", "--set", "engine.checkpoint=1"]
LITTLE = " --num-cpus=1 --object-store-memory=200000000"


def lines_of(place: str) -> list[str]:
    """Return the commands that the page prints for a place."""
    block = re.search(rf"<!-- {place} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert block
    return [line.strip() for line in block[1].splitlines() if line.strip()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Machine]]:
    """Start three machines of one CPU by the commands of the page."""
    with machines(3, tmp_path_factory.mktemp("cluster")) as found:
        first = found[0]
        generate, head = lines_of("on the first machine")
        first.shell(generate)
        # One CPU each, and little memory: three machines share the one that runs the test.
        first.start_ray(head + LITTLE)
        (join,) = lines_of("on the other machines")
        for other in found[1:]:
            (other.folder / ".ray").mkdir()
            token = (first.folder / ".ray" / "auth_token").read_bytes()
            (other.folder / ".ray" / "auth_token").write_bytes(token)
            other.start_ray(join.replace("FIRST", first.address) + LITTLE)
        (first.folder / "fleet.toml").write_text(SPEC)
        (first.folder / "own_method.py").write_text(METHOD)
        rows = [f"{t},{a},{(a + 1 + t % 2) % 8}" for t in range(60) for a in range(8)]
        (first.folder / "log.csv").write_text("\n".join(["time,a,b", *rows]) + "\n")
        yield found
        for machine in found:
            machine.run(["ray", "stop", "--force"])


def models(first: Machine, name: str) -> dict[str, Any]:
    return dict(RunFolder(first.folder / name).models())


def test_the_commands_of_the_page(cluster: list[Machine]) -> None:
    """One shard per machine; the log, the method and the token are on the first machine only."""
    first = cluster[0]
    (run,) = lines_of("the run")
    text = first.shell(f"{run} --allow-code -q --out ray")
    assert "Unauthenticated" not in text  # the question whether the cluster asks for a token
    first.shell("gossamer run fleet.toml --allow-code -q --out here")
    here = models(first, "here")
    for name, x in models(first, "ray").items():
        assert abs(x - here[name]).max() < 1e-11
    compare = "gossamer compare fleet.toml --allow-code -q --seeds 3 --out"
    first.shell(f"{compare} runs --engine ray --set engine.address=auto")
    summaries = list((first.folder / "runs").glob("*/summary.json"))
    assert len(summaries) == 3
    assert all(json.loads(path.read_text())["finished"] for path in summaries)


def test_without_the_token(cluster: list[Machine]) -> None:
    """The message says at once what is missing, and on which side."""
    first = cluster[0]
    run = ["gossamer", "run", "fleet.toml", "--allow-code", "-q", "--engine", "ray"]
    run += ["--out", "no", "--set", f"engine.address={first.address}:6379"]
    nowhere = first.folder / "nowhere"
    nowhere.mkdir()
    code, text = first.run(run, HOME=str(nowhere))
    assert code == 2
    assert f"the cluster at {first.address}:6379 asks for a token, and there is none" in text
    code, text = first.run(run, RAY_AUTH_TOKEN="0" * 64)
    assert code == 2
    assert "refuses the token of this machine" in text
    assert not (first.folder / "no").exists()


def test_too_many_shards(cluster: list[Machine]) -> None:
    settings = "--set engine.address=auto --set engine.shards=4 --set engine.wait=5"
    code, text = cluster[0].run(
        ["sh", "-c", f"gossamer run fleet.toml --allow-code -q --engine ray --out no {settings}"]
    )
    assert code == 2
    assert "engine.shards = 4 is not accepted: give at most 3 now: the cluster has 3 CPUs" in text


def long_run(name: str, rounds: int) -> str:
    """Return the command of a run on all machines. Its messages are in NAME.err."""
    command = f"gossamer run fleet.toml -q --engine ray --out {name}"
    settings = f"--set rounds={rounds} --set engine.address=auto --set engine.wait=20"
    return f"exec {command} {settings} {' '.join(LONG)} 2>{name}.err"


def rounds_of(first: Machine, name: str) -> int:
    """Return how many rounds a run has done, as its live file says."""
    live = first.folder / name / LIVE_FILE
    if not live.exists():
        return -1
    found = re.findall(rb'"round":(\d+)', live.read_bytes())
    return max(map(int, found), default=-1)


def wait_for_progress(first: Machine, name: str) -> None:
    """Wait until a run has done some rounds from now on."""
    goal = rounds_of(first, name) + 100
    wait_until(lambda: rounds_of(first, name) > goal, f"{name} has done {goal} rounds", 480)


def wait_for_message(first: Machine, name: str, text: str) -> None:
    messages = first.folder / f"{name}.err"
    wait_until(lambda: text in messages.read_text(), f"{name} says: {text}", 480)


def test_machines_are_cut_off_leave_and_come_back(cluster: list[Machine]) -> None:
    """A cut of 30 s, a killed machine, a new one, and Ctrl-C: equal bits, no process left."""
    first, _, third = cluster
    join = lines_of("on the other machines")[0].replace("FIRST", first.address)
    process = first.start(["sh", "-c", long_run("left", 10**7)])
    try:
        wait_for_progress(first, "left")
        third.connect(False)
        time.sleep(30)
        third.connect(True)
        wait_for_progress(first, "left")
        for pid in third.processes("raylet/raylet"):
            os.kill(pid, signal.SIGKILL)
        wait_for_message(first, "left", "share the place of one")
        wait_for_progress(first, "left")
        third.run(["ray", "stop", "--force"])
        third.start_ray(join + LITTLE)
        wait_for_message(first, "left", "the cluster has room again")
        wait_for_progress(first, "left")
        (command,) = first.processes("--out left")
        os.kill(command, signal.SIGINT)
        process.communicate(timeout=2 * DEADLINE)
    finally:
        end(process)
    messages = (first.folder / "left.err").read_text()
    assert process.returncode == 130, messages[-3000:]
    assert "--resume continues it" in messages
    wait_until(
        lambda: not any(machine.processes("ray::ShardActor") for machine in cluster),
        "all shards have ended",
    )
    (study,) = gs.load_spec(first.folder / "left" / "spec.toml")
    snapshot = RunFolder(first.folder / "left").snapshot()
    assert snapshot is not None
    kept = Simulator(study.plan(), snapshot).state_dict()

    first.shell(long_run("whole", snapshot.round))
    for name, x in models(first, "whole").items():
        assert np.array_equal(x, kept[name].numpy()), messages


def test_two_drivers_at_once(cluster: list[Machine]) -> None:
    """Each run has its own shards: both end as if they were alone."""
    first, second, _ = cluster
    one_shard = "--engine ray --set engine.address=auto --set engine.shards=1"
    for machine in (first, second):
        for file in ("fleet.toml", "own_method.py", "log.csv"):
            (machine.folder / file).write_bytes((first.folder / file).read_bytes())
    line = f"exec gossamer run fleet.toml --allow-code -q {one_shard} --out together"
    running = [machine.start(["sh", "-c", line]) for machine in (first, second)]
    try:
        for process in running:
            _, err = process.communicate(timeout=2 * DEADLINE)
            assert process.returncode == 0, err[-3000:]
    finally:
        for process in running:
            end(process)
    one, other = (models(machine, "together") for machine in (first, second))
    assert all(np.array_equal(x, other[name]) for name, x in one.items())
