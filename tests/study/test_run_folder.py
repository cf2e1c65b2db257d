"""Run folders: their files; interrupted, killed and resumed runs give the same results."""

from __future__ import annotations

import importlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from support import processes
from support.command import REAL, Result, gossamer
from support.interrupts import stop_after
from support.listing import contents_of, names_in, times_of
from support.processes import DEADLINE, has_loaded, needs_proc, started, wait_until
from support.runs import SPEC, run_spec

import gossamer as gs
from gossamer.results import folder as store
from gossamer.results.live import LIVE_FILE as LIVE
from gossamer.study import Interrupted, Run, study_of

pytestmark = pytest.mark.slow

# The package has a function of the same name, which hides the module.
running = importlib.import_module("gossamer.study.run")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(SPEC)


def assert_same_run(one: Path | str, other: Path | str) -> None:
    """Assert equal models, measurements and summary (without times and commands), bit for bit."""
    names = names_in(one)
    assert names == ["metrics.parquet", "models.safetensors", "spec.toml", "summary.json"]
    assert names == names_in(other)
    models = load_file(Path(one) / "models.safetensors")
    others = load_file(Path(other) / "models.safetensors")
    assert models.keys() == others.keys()
    for name, part in models.items():
        assert torch.equal(part.view(torch.uint8), others[name].view(torch.uint8)), name
    assert pq.read_table(f"{one}/metrics.parquet").equals(pq.read_table(f"{other}/metrics.parquet"))
    summaries = []
    for folder in (one, other):
        summaries.append(json.loads((Path(folder) / "summary.json").read_text()))
    for summary in summaries:
        for passing in ("seconds", "seconds_measuring", "command"):
            del summary[passing]
    assert summaries[0] == summaries[1]


# -- contents ------------------------------------------------------------------------------------


def test_a_run_without_a_folder(tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    assert gs.run(gs.Study(rounds=5)).folder is None
    assert set(tmp_path.iterdir()) == before


def test_measurements_only_at_the_end() -> None:
    run_spec("--out", "out", "--set", "measure.every=0")
    assert pq.read_table("out/metrics.parquet")["round"].to_pylist() == [20]


def test_zero_rounds_give_the_start() -> None:
    run_spec("--out", "out", "--set", "rounds=0")
    assert pq.read_table("out/metrics.parquet")["round"].to_pylist() == [0]
    assert pq.read_table("out/metrics.parquet")["distance"].to_pylist() == [
        pytest.approx(0, abs=1e-6)
    ]  # a mean in float32


# -- stopped and resumed -------------------------------------------------------------------------


METHODS = {
    "wpm in the primal": gs.WPM(p=15, eta=0.05),
    "wpm in the dual": gs.WPM(p=3, eta=1e-4, step=gs.Constant(), anchor=False),
    "p changes": gs.WPM(p=gs.Switch(5, 6), eta=gs.Cosine(0.1, 12)),
    "swarm-sgd": gs.SwarmSGD(eta=0.05, local_steps=2),
    "all-reduce": gs.AllReduce(eta=0.05),
}
MODELS = {
    "softmax": gs.Softmax(),
    "dropout": gs.Mlp(hidden=(8,), dropout=0.3),
    "batch norm": gs.Cnn(channels=(2, 2), norm=True),
}


def study_with(method: str, model: str) -> gs.Study:
    network = gs.Random(10, 0.2) & gs.Churn(0.1, 0.5)
    at = "after_mix" if method == "swarm-sgd" else "after_step"
    return gs.Study(
        METHODS[method],
        network,
        model=MODELS[model],
        batch=4,
        rounds=12,
        measure=gs.Measure(every=5, at=at),
    )


@pytest.mark.parametrize(
    ("method", "model"),
    [
        *((name, "softmax") for name in METHODS),
        ("p changes", "dropout"),
        ("swarm-sgd", "batch norm"),
    ],
)
def test_a_run_interrupted_at_any_moment_resumes_bit_for_bit(
    method: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_with(method, model)
    gs.run(study, "whole")
    chance = random.Random(f"{method} {model}")
    for trial in range(4):
        folder = tmp_path / str(trial)
        calls = [trial, *(chance.randrange(40) for _ in range(3))]
        for number in calls:
            with monkeypatch.context() as patch:
                patch.setattr(running, "stop_on_signal", partial(stop_after, number))
                message = ""
                try:
                    gs.run(study, folder, resume=True)
                except Interrupted as stopped:
                    message = str(stopped)
            assert json.loads((folder / "summary.json").read_text())["finished"] is (message == "")
            assert message == "" or f"{folder} is kept and --resume continues it" in message
        gs.run(study, folder, resume=True)
        assert_same_run(folder, "whole")


def test_a_finished_run_is_not_run_again() -> None:
    run_spec("--out", "out")
    contents = contents_of("out")
    times = times_of(Path("out").iterdir())
    run_spec("--out", "out", "--resume")
    assert contents_of("out") == contents
    assert times_of(Path("out").iterdir()) == times


def test_resume_without_a_run_starts_one() -> None:
    run_spec("--out", "out", "--resume")
    run_spec("--out", "whole")
    assert_same_run("out", "whole")


def test_resume_from_another_folder_finds_the_files_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's spec has absolute paths."""
    assert gossamer("network", "show", "a.toml", "--save", "links.parquet").code == 0
    (tmp_path / "elsewhere").mkdir()
    for number, setting in enumerate(
        ("'links.parquet'", "'../links.parquet'", f"'{tmp_path}/links.parquet'")
    ):
        monkeypatch.chdir(tmp_path / "elsewhere" if number == 1 else tmp_path)
        words = [
            "run",
            tmp_path / "a.toml",
            "-q",
            "--set",
            f"network={{kind='file',path={setting}}}",
        ]
        assert gossamer(*words, "--out", tmp_path / f"out{number}").code == 0
        monkeypatch.chdir("/")
        assert isinstance(study_of(Run.read(tmp_path / f"out{number}")).network, gs.Sequence)
        again = gossamer(
            "run",
            tmp_path / f"out{number}" / "spec.toml",
            "-q",
            "--resume",
            "--out",
            tmp_path / f"out{number}",
        )
        assert (again.code, again.err) == (0, "")


# -- signals, for real ---------------------------------------------------------------------------

LONGER = ["--set", "rounds=1200", "--set", "measure.every=7"]


def interrupted(
    *words: object, when: Callable[[int], bool], later: float = 0, by: int = signal.SIGINT
) -> Result:
    """Run the real command, and send it a signal some seconds after `when(pid)` is true."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started([*REAL, *words], **pipes) as process:
        wait_until(lambda: process.poll() is not None or when(process.pid), "the run has begun")
        time.sleep(later)
        process.send_signal(by)
        out, err = process.communicate(timeout=DEADLINE)
    return Result(process.returncode, out, err)


def has_begun(pid: int) -> bool:
    return Path("out/spec.toml").exists()


def has_measured(pid: int) -> bool:
    live = Path("out") / LIVE
    return live.exists() and b'"record"' in live.read_bytes()


def loads_torch(pid: int) -> bool:
    return has_loaded(pid, "libtorch")


def assert_stopped(result: Result) -> None:
    assert result.code == 130
    assert result.err.startswith("gossamer: stopped")
    assert result.err.count("\n") == 1


@needs_proc
@pytest.mark.slow
def test_ctrl_c_at_random_moments_and_resume() -> None:
    chance = random.Random(0)
    codes = []
    for moment in (has_begun, loads_torch, loads_torch):
        later = chance.uniform(0.0, 0.6) if moment is has_begun else chance.uniform(1.0, 3.0)
        words = ["run", "a.toml", "-q", "--out", "out", "--resume", *LONGER]
        result = interrupted(*words, when=moment, later=later)
        codes.append(result.code)
        if result.code == 0:
            break
        assert_stopped(result)
    assert 130 in codes
    run_spec("--out", "out", "--resume", *LONGER)
    run_spec("--out", "whole", *LONGER)
    assert_same_run("out", "whole")


@pytest.mark.slow
def test_sigterm_stops_a_run_like_ctrl_c() -> None:
    words = ["run", "a.toml", "-q", "--out", "out", "--set", "rounds=1000000"]
    result = interrupted(*words, when=has_measured, by=signal.SIGTERM)
    assert result.code == 130
    command = "gossamer run --resume --out out"
    assert f"of 1000000; out is kept and --resume continues it: {command}" in result.err
    assert Path("out/checkpoint.safetensors").exists()


@needs_proc
@pytest.mark.slow
def test_ctrl_c_while_torch_is_loaded() -> None:
    """An exception would abort a C++ library that is being loaded: see `cli._interrupt`."""
    chance = random.Random(1)
    words = ["run", "a.toml", "-q", "--out", "out", "--resume", "--set", "rounds=1000000"]
    for _ in range(4):
        assert_stopped(interrupted(*words, when=loads_torch, later=chance.uniform(0.0, 0.8)))


KILLED = """
import importlib, os, signal, sys
running = importlib.import_module("gossamer.study.run")
running._CHECKPOINT_SECONDS = 0.0
running._CHECKPOINT_SPACING = 0
sync, left = os.fsync, iter(range(int(sys.argv.pop(1))))

def kill_at_the_last(handle):
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(handle)

os.fsync = kill_at_the_last
from gossamer.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("write", [0, 1, 2, 20, 21])
def test_killed_in_the_middle_of_a_write(write: int) -> None:
    """After SIGKILL during the n-th write, earlier files are intact and the run can be resumed."""
    words = [
        "run",
        "a.toml",
        "-q",
        "--out",
        "out",
        "--set",
        "rounds=200",
        "--set",
        "measure.every=7",
    ]
    killed = processes.run([sys.executable, "-c", KILLED, write, *words])
    assert killed.returncode == -signal.SIGKILL
    (half_written,) = Path("out").glob(".*.part")
    name = ["spec.toml", "metrics.parquet", "checkpoint.safetensors"][
        0 if write == 0 else 1 + (write - 1) % 2
    ]
    assert half_written.name.startswith(f".{name}.")
    folder = store.RunFolder(Path("out"))
    if write > 2:
        snapshot = (
            folder.snapshot()
        )  # both whole, metrics first: what came before the checkpoint has been measured
        assert snapshot.round > 0
        assert set(range(0, snapshot.round + 1, 7)) <= set(folder.metrics()["round"].tolist())
    run_spec(*words[3:], "--resume")
    run_spec("--out", "whole", *words[5:])
    assert_same_run("out", "whole")
