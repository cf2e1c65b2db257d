"""Bad input for the events engine: one sentence, and no file is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import assert_refused, files, gossamer, real

SPEC = """
rounds = 4
split = "one-label"
network = { kind = "random-ring", devices = 10 }
engine = { kind = "events" }
[timing]
compute = 0.5
rate = 1e5
[algorithm]
kind = "ad-psgd"
"""
METHOD = 'kind = "ad-psgd"'
NETWORK = 'kind = "random-ring", devices = 10'
COMPUTE = "compute = 0.5"
TIMING = f"[timing]\n{COMPUTE}\nrate = 1e5\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test in a folder with logs and traces."""
    monkeypatch.chdir(tmp_path)
    Path("backwards.csv").write_text("a,b,begin,end\n0,1,2,4\n0,1,5,3\n")
    Path("one.csv").write_text("device,compute\n0,0.1\n")
    Path("negative.csv").write_text("device,compute\n0,-0.1\n")
    Path("links.csv").write_text("a,b,rate\n0,1,1e5\n")


REFUSED = {
    "contacts that end before they begin": (
        NETWORK,
        'kind = "contacts", path = "backwards.csv"',
        ("backwards.csv, line 3", "the contact ends before it begins"),
    ),
    "no timing": (TIMING, "", ("timing = None", "compute = 0.1, rate = 1e6")),
    "a device without compute time": (
        COMPUTE,
        'compute = { kind = "trace", path = "one.csv" }',
        ("one.csv has no compute for device 1", "add a line, or give a default"),
    ),
    "a compute time of 0": (COMPUTE, "compute = 0.0", ("timing.compute = 0.0", "s per step")),
    "a negative compute time in a trace": (
        COMPUTE,
        'compute = { kind = "trace", path = "negative.csv" }',
        ("negative.csv, line 2", "not a number from 0"),
    ),
    "a trace of links for devices": (
        COMPUTE,
        'compute = { kind = "trace", path = "links.csv" }',
        ("timing.compute", 'a column "compute"'),
    ),
    "a method that needs all devices": (
        METHOD,
        'kind = "fedavg"',
        ("FedAvg", "needs all devices in every round"),
    ),
    "a method that needs static links": (METHOD, 'kind = "extra"', ("links that never change",)),
    "a method that compresses": (METHOD, 'kind = "choco-sgd"', ("sends whole vectors",)),
    "a wrong choice": (
        METHOD,
        f'{METHOD}\non_cut = "wait"',
        ("algorithm.on_cut", "drop", "keep"),
    ),
    "a stream without a rate": (TIMING, f"{TIMING}[stream]\nstart = 5\n", ("stream.rate",)),
    "a stream that starts with nothing": (
        TIMING,
        f"{TIMING}[stream]\nrate = 1.0\nstart = 0\n",
        ("stream.start = 0",),
    ),
    "a stream of whole batches": (
        "rounds = 4",
        "rounds = 4\nbatch = 0\nstream = { rate = 1.0 }",
        ("batch = 0",),
    ),
    "meetings without a length": (
        NETWORK,
        'kind = "poisson-meetings", devices = 10, rate = 0.1, duration = 0.0',
        ("network.duration = 0.0",),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    old, new, parts = REFUSED[case]
    assert SPEC.count(old) == 1
    Path("a.toml").write_text(SPEC.replace(old, new))
    before = files()
    assert_refused(gossamer("run", "a.toml", "-q", "--out", "run"), *parts)
    assert files() == before


def test_in_a_process_of_its_own() -> None:
    Path("a.toml").write_text(SPEC.replace(METHOD, 'kind = "fedavg"'))
    assert_refused(real("run", "a.toml", "-q", "--out", "run"), "FedAvg", "all devices")


def test_the_spec_itself_runs() -> None:
    Path("a.toml").write_text(SPEC)
    result = gossamer("run", "a.toml", "-q", "--out", "run")
    assert result.code == 0, result.err
