"""Signals, locks and byte-order marks: what a person does to a run from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command import REAL, assert_refused, gossamer

from gossamer.errors import DataError
from gossamer.results.folder import RunFolder

# A run whose fourth round takes ten minutes. It ignores no signal, even if the tests run in nohup.
SLOW = """
import signal, sys, time
import gossamer as gs

signal.signal(signal.SIGHUP, signal.SIG_DFL)

class Slow(gs.DPSGD):
    def round(self, state, grad, mix, t):
        if t >= 3:
            open("long", "w").close()
            for _ in range(6000):
                time.sleep(0.1)
        return super().round(state, grad, mix, t)

try:
    gs.run(gs.Study(Slow(eta=0.1), rounds=10, measure=gs.Measure(every=1)), "out")
except gs.Interrupted as error:
    print(error)
    sys.exit(error.exit_code)
"""
_PATIENCE = 900.0  # seconds, for a busy machine


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _wait_for(pattern: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not list(Path().glob(pattern)):
        assert time.monotonic() < end, f"there is no {pattern}"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_inside_a_long_round_ends_it_and_keeps_what_is_measured(number: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, text=True)
    try:
        _wait_for("long")
        process.send_signal(number)
        said, _ = process.communicate(timeout=_PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130
    assert said == "stopped inside round 4 of 10; out is kept and --resume continues it\n"
    assert RunFolder(Path("out")).metrics()["round"].tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_sigint_to_the_parent_alone_ends_a_tune() -> None:
    """The processes of its pool do not receive it from a terminal, and save their runs."""
    Path("a.toml").write_text(
        'rounds = 1000000\nnetwork = { kind = "random", devices = 50, density = 0.1 }\n'
    )
    words = [*REAL, "tune", "a.toml", "--budget", "40", "--methods", "d-psgd,swarm-sgd"]
    process = subprocess.Popen(
        [*words, "--workers", "1", "-q"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    _wait_for("runs/tune-a/cells/*/live.jsonl")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 130
    assert "the same command continues it" in said
    kept = [*Path().glob("runs/tune-a/cells/*/checkpoint.safetensors")]
    kept += Path().glob("runs/tune-a/cells/*/summary.json")  # stopped inside a long round
    assert kept


def test_a_folder_is_run_by_one_process_at_a_time() -> None:
    Path("a.toml").write_text("rounds = 2\n")
    assert gossamer("run", "a.toml", "-q", "--out", "out").code == 0
    Path("out/summary.json").unlink()  # as if it had been killed
    with RunFolder(Path("out")).locked():
        refused = gossamer("run", "a.toml", "-q", "--out", "out", "--resume")
        assert_refused(refused, "out is in use: another process runs in it")
        with pytest.raises(DataError, match="in use"), RunFolder(Path("out")).locked():
            pass
    assert gossamer("run", "a.toml", "-q", "--out", "out", "--resume").code == 0


def test_resume_takes_the_settings_of_the_folder() -> None:
    """Neither the spec nor what --set and --seed changed is given again."""
    Path("a.toml").write_text("rounds = 2\n")
    words = ["--set", "batch=16", "--seed", 3]
    assert gossamer("run", "a.toml", "-q", "--out", "out", *words).code == 0
    Path("out/summary.json").unlink()  # as if it had been killed
    before = Path("out/spec.toml").read_text()
    assert gossamer("run", "-q", "--resume", "--out", "out").code == 0
    assert Path("out/spec.toml").read_text() == before
    assert Path("out/summary.json").exists()


def test_byte_order_marks_are_ignored() -> None:
    mark = b"\xef\xbb\xbf"
    Path("a.toml").write_bytes(mark + b"rounds = 2\n")
    assert gossamer("run", "a.toml", "-q", "--out", "out").code == 0
    for name in ("spec.toml", "summary.json"):
        file = Path("out", name)
        file.write_bytes(mark + file.read_bytes())
    assert gossamer("run", "a.toml", "-q", "--out", "out", "--resume").code == 0
    for name in ("contacts.csv", "contacts.txt"):
        Path(name).write_bytes(mark + b"time,a,b\n0,x,y\n1,y,z\n2,x,z\n")
        assert gossamer("network", "show", name).code == 0
    Path("split.json").write_bytes(mark + b"[[0, 1], [2, 3]]")
    words = ["--set", "network={kind='full',devices=2}"]
    words += ["--set", "split={kind='lists',path='split.json'}"]
    assert gossamer("run", "a.toml", "-q", "--out", "lists", *words).code == 0


def test_a_finished_run_without_its_metrics_is_named() -> None:
    Path("a.toml").write_text("rounds = 2\n")
    for name in ("whole", "lost"):
        assert gossamer("run", "a.toml", "-q", "--out", name, "--seed", len(name)).code == 0
    os.unlink("lost/metrics.parquet")
    for runs in (["lost"], ["whole", "lost"]):
        assert gossamer("report", *runs, "-o", "r.html").code == 0
        assert "lost is finished, but its metrics.parquet is missing" in Path("r.html").read_text()
    drawn = gossamer("figure", "whole", "lost", "-o", "f.pdf")
    assert drawn.code == 0
    assert "its metrics.parquet is missing" in drawn.err


def test_a_report_is_a_page() -> None:
    refused = gossamer("report", "runs", "-o", "r.pdf")
    assert_refused(refused, "--out = 'r.pdf' is not accepted", "`gossamer figure` draws .pdf")


TOO_LARGE = [
    ("batch=100000000000", "batch = 100000000000 is not accepted: give a smaller batch"),
    ("rounds=100000000000000", "measure.every = 10 is not accepted: give a larger number"),
    ('model={kind="mlp",hidden=[1000000000000000000]}', "hidden = (1000000000000000000,) is not"),
    ('model={kind="cnn",channels=[1000000000,1000000000]}', "channels = (1000000000, 1000000000)"),
    ("algorithm.p=1e300", "algorithm.p = 1e+300 is not accepted: give a number at most 1000000"),
    (f"rounds=1{'0' * 5000}", "--set rounds: its value is not TOML: Exceeds the limit"),
]


@pytest.mark.parametrize(("setting", "sentence"), TOO_LARGE)
def test_what_does_not_fit_the_memory_is_refused_before_it_is_taken(
    setting: str, sentence: str
) -> None:
    Path("a.toml").write_text("rounds = 2\n")
    assert_refused(gossamer("run", "a.toml", "-q", "--out", "out", "--set", setting), sentence)
    assert not Path("out").exists()
