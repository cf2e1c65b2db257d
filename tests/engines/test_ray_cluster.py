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

import pytest
from support.machines import Machine, machines
from support.processes import end, wait_until

from gossamer.results.folder import RunFolder

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
LONG = ["--set", "rounds=6000", "--set", "network.kind=ring", "--set", "network.devices=12"]
LONG += ["--set", "algorithm.kind=d-psgd", "--set", "engine.checkpoint=1"]


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
        little = " --num-cpus=1 --object-store-memory=200000000"
        first.start_ray(head + little)
        (join,) = lines_of("on the other machines")
        for other in found[1:]:
            (other.folder / ".ray").mkdir()
            token = (first.folder / ".ray" / "auth_token").read_bytes()
            (other.folder / ".ray" / "auth_token").write_bytes(token)
            other.start_ray(join.replace("FIRST", first.address) + little)
        (first.folder / "fleet.toml").write_text(SPEC)
        (first.folder / "own_method.py").write_text(METHOD)
        rows = [f"{t},{a},{(a + 1 + t % 2) % 8}" for t in range(60) for a in range(8)]
        (first.folder / "log.csv").write_text("\n".join(["time,a,b", *rows]) + "\n")
        yield found
        for machine in found:
            machine.run(["ray", "stop", "--force"])


def models(first: Machine, name: str) -> dict[str, object]:
    return dict(RunFolder(first.folder / name).models())


def same(one: dict[str, object], other: dict[str, object]) -> bool:
    return all((other[key] == x).all() for key, x in one.items())  # type: ignore[attr-defined]


def test_the_commands_of_the_page(cluster: list[Machine]) -> None:
    """One shard per machine; the log, the method and the token are on the first machine only."""
    first = cluster[0]
    (run,) = lines_of("the run")
    first.shell(f"{run} --allow-code -q --out ray")
    first.shell("gossamer run fleet.toml --allow-code -q --out here")
    here = models(first, "here")
    for name, x in models(first, "ray").items():
        assert abs(x - here[name]).max() < 1e-11  # type: ignore[operator]
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


def start_long(first: Machine, name: str, *more: str) -> list[str]:
    run = ["gossamer", "run", "fleet.toml", "-q", "--engine", "ray", "--out", name]
    return [*run, *LONG, "--set", "engine.address=auto", *more]


def wait_for_rounds(first: Machine, name: str) -> None:
    """Wait until a run is under way."""
    live = first.folder / name / "live.jsonl"
    wait_until(lambda: live.exists() and b"record" in live.read_bytes(), f"{name} has measured")
    time.sleep(5)


def test_a_machine_leaves_and_another_joins(cluster: list[Machine]) -> None:
    """Its shard moves to the others, and back when there is room again: equal bits."""
    first, _, third = cluster
    code, text = first.run(start_long(first, "whole"))
    assert code == 0, text
    process = first.start(
        start_long(first, "left", "--set", "engine.wait=20", "--set", "rounds=60000")
    )
    try:
        wait_for_rounds(first, "left")
        for pid in third.processes("raylet/raylet"):
            os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=900)
    finally:
        end(process)
    assert process.returncode == 0, err[-3000:]
    events = RunFolder(first.folder / "left").summary()["events"]  # type: ignore[index]
    assert any("left the cluster" in event or "was lost" in event for event in events), events
    assert any("share the place of one" in event for event in events), events
