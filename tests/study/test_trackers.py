"""Weights & Biases and MLflow, offline: what they hold of a run, as their own readers say."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command import assert_refused, gossamer
from support.interrupts import stop
from support.listing import attribute
from support.wandb_files import OfflineRun, offline_runs

import gossamer as gs
from gossamer.errors import Diverged, InputError, MissingExtra
from gossamer.results.run import Run
from gossamer.study.track import track_finished, trackers
from gossamer.study.track.base import RUNS_FILE, scalars, settings

TARGET = "accuracy >= 0.4"
MEASURE = gs.Measure(every=5, targets=(TARGET,))
STUDY = gs.Study(gs.DPSGD(eta=0.1), gs.Ring(5), rounds=12, measure=MEASURE)
DIVERGES = replace(STUDY, algorithm=gs.DPSGD(eta=1e30), rounds=100)
SPEC = """
rounds = 4
network = { kind = "ring", devices = 4 }
measure = { every = 2 }
algorithm = [{ kind = "d-psgd" }, { kind = "swarm-sgd" }]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, which is the home folder too; no setting of this machine."""
    for name in list(os.environ):
        if name.startswith(("WANDB", "MLFLOW")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.chdir(tmp_path)
    Path("two.toml").write_text(SPEC)
    return tmp_path


def rows_of(run: Run) -> dict[int, dict[str, float]]:
    """Return what a tracker is to hold of a run, by round."""
    found = {}
    for index, t in enumerate(run.metrics["round"]):
        row = {name: values[index] for name, values in run.metrics.items()}
        found[int(t)] = scalars(STUDY.measure, row)
    return found


# -- wandb ---------------------------------------------------------------------------------------


@pytest.fixture
def wandb() -> Iterator[Any]:
    """The package; its process ends with the test."""
    module = pytest.importorskip("wandb")
    yield module
    module.teardown()


def runs_in(wandb: Any, folder: Path) -> list[OfflineRun]:
    """Return the runs that wandb wrote; its process writes the last of them when it ends."""
    wandb.teardown()
    return offline_runs(folder)


def test_wandb_holds_a_run_offline(wandb: Any, here: Path) -> None:
    board = gs.WandB(tags=["winter"], settings={"silent": True}, notes="by a test")
    done = gs.run(replace(STUDY, name="fleet"), "runs/a", observers=[board])
    (run,) = runs_in(wandb, here / "wandb")
    assert (run.project, run.group, run.name) == ("gossamer", "fleet", "a")
    assert run.tags == ("D-PSGD", "winter")
    assert run.exit_code == 0
    assert run.config == settings(replace(STUDY, name="fleet"))
    assert run.config["algorithm.eta"] == 0.1
    assert run.history == rows_of(done)
    assert run.summary["status"] == "finished"
    assert run.summary[f"rounds_to.{TARGET}"] == done.summary["rounds_to"][TARGET] == 5
    assert run.summary["accuracy/mean"] == done.summary["accuracy"]
    assert "command" not in run.summary
    assert board.note == "wandb: written offline; `wandb sync wandb/offline-run-*` uploads it"


def test_wandb_of_comparisons_stopped_and_diverged_runs(
    wandb: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = gossamer("compare", "two.toml", "--track", "wandb", "--out", "r/meet")
    assert result.code == 0
    assert result.err.endswith("`wandb sync wandb/offline-run-*` uploads it\n")
    assert "WARNING" not in result.err
    runs = runs_in(wandb, here / "wandb")
    assert attribute(runs, "name") == ["d-psgd-seed0", "swarmsgd-seed0"]
    assert {(run.project, run.group) for run in runs} == {("gossamer", "meet")}
    for run in runs:
        assert list(run.history) == [0, 2, 4]

    monkeypatch.chdir(here / "r")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_RUN_GROUP", "yours")
    (board,) = trackers("wandb", "demo")
    stop(STUDY, here / "stopped", monkeypatch, 9, board)
    with pytest.raises(Diverged):
        gs.run(DIVERGES, here / "failed", observers=[board])
    done = gs.run(STUDY, here / "stopped", resume=True, observers=[board])
    failed, resumed, stopped = runs_in(wandb, here / "r" / "wandb")
    assert {(run.project, run.group) for run in (failed, resumed)} == {("mine", "yours")}
    assert (failed.exit_code, failed.summary["status"]) == (1, "diverged")
    assert failed.summary["diverged.round"] > 0
    if len(resumed.history) < len(stopped.history):
        resumed, stopped = stopped, resumed
    assert resumed.id == stopped.id
    assert (stopped.exit_code, stopped.summary["status"]) == (1, "stopped")
    assert resumed.history == rows_of(done)


def test_wandb_leaves_an_open_run_of_the_user_alone(wandb: Any, here: Path) -> None:
    mine = wandb.init(project="mine", mode="offline", settings=wandb.Settings(silent=True))
    gs.run(STUDY, observers=[gs.WandB(settings={"silent": True})])
    mine.log({"x": 1.0}, step=3)
    mine.finish()
    runs = {run.project: run for run in runs_in(wandb, here / "wandb")}
    assert runs["mine"].history == {3: {"x": 1.0}}
    assert list(runs["gossamer"].history) == [0, 5, 10, 12]
    assert runs["gossamer"].name == "d-psgd-seed0"


def test_wandb_uploads_only_if_it_is_asked_to(wandb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def init(**options: Any) -> None:
        modes.append(options["mode"])
        raise OSError("no server")

    monkeypatch.setattr(wandb, "init", init)
    for mode, variable in ((None, ""), ("online", ""), (None, "online")):
        monkeypatch.setenv("WANDB_MODE", variable)
        with pytest.warns(RuntimeWarning, match="WandB.started failed.*no server"):
            gs.run(STUDY, observers=[gs.WandB(mode=mode)])
    assert modes == ["offline", "online", None]  # None: wandb reads the variable


# -- MLflow --------------------------------------------------------------------------------------


@pytest.fixture
def client(here: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of a store in the current folder, which is the one of `--track mlflow` too."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{here}/mlruns")
    return mlflow.MlflowClient()


def history(client: Any, run: Any) -> dict[int, dict[str, float]]:
    """Return the measurements that a store holds of a run, by round."""
    found: dict[int, dict[str, float]] = {}
    for name in run.data.metrics:
        if name.startswith("summary/"):
            continue
        for metric in client.get_metric_history(run.info.run_id, name):
            assert name not in found.setdefault(metric.step, {})
            found[metric.step][name] = metric.value
    return found


def runs_of(client: Any, experiment: str) -> dict[str, Any]:
    """Return the runs of an experiment by name."""
    number = client.get_experiment_by_name(experiment).experiment_id
    return {run.info.run_name: run for run in client.search_runs([number])}


def assert_holds(client: Any) -> None:
    board = gs.MLflow(tags={"season": "winter"})
    done = gs.run(replace(STUDY, name="fleet"), "runs/a", observers=[board])
    run = runs_of(client, "fleet")["a"]
    assert run.info.status == "FINISHED"
    assert history(client, run) == rows_of(done)
    expected = {name: str(value) for name, value in settings(replace(STUDY, name="fleet")).items()}
    assert run.data.params == expected
    tags = {"method": "D-PSGD", "seed": "0", "season": "winter", "status": "finished"}
    assert tags.items() <= run.data.tags.items()
    assert run.data.metrics["summary/rounds_to.accuracy ge 0.4"] == 5
    assert board.note.startswith("MLflow: experiment 'fleet' of ")


def test_mlflow_holds_a_run(client: Any) -> None:
    assert_holds(client)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MLflow's own use of SQLAlchemy
def test_mlflow_holds_a_run_in_a_database(
    client: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sqlalchemy")
    uri = f"sqlite:///{here}/fleet.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert_holds(type(client)(uri))


def test_mlflow_of_comparisons_stopped_and_diverged_runs(
    client: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = gossamer("compare", "two.toml", "--track", "mlflow", "--out", "runs/meet")
    assert result.code == 0
    assert result.err.endswith(f"MLflow: experiment 'meet' of file:{here}/mlruns\n")
    runs = runs_of(client, "meet")
    assert sorted(runs) == ["d-psgd-seed0", "swarmsgd-seed0"]
    for run in runs.values():
        assert list(history(client, run)) == [0, 2, 4]

    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    (board,) = trackers("mlflow", "demo")
    stop(STUDY, here / "stopped", monkeypatch, 9, board)
    stopped = runs_of(client, "mine")["stopped"]
    assert (stopped.info.status, stopped.data.tags["status"]) == ("KILLED", "stopped")
    with pytest.raises(Diverged):
        gs.run(DIVERGES, here / "failed", observers=[board])
    done = gs.run(STUDY, here / "stopped", resume=True, observers=[board])
    runs = runs_of(client, "mine")
    assert sorted(runs) == ["failed", "stopped"]
    failed = runs["failed"]
    assert (failed.info.status, failed.data.tags["status"]) == ("FAILED", "diverged")
    resumed = runs["stopped"]
    assert resumed.info.run_id == stopped.info.run_id
    assert resumed.info.status == "FINISHED"
    assert history(client, resumed) == rows_of(done)


def test_finished_runs_are_tracked_once(client: Any, here: Path) -> None:
    done = gs.compare([STUDY], seeds=2, out="runs/fleet")
    board = gs.MLflow()
    gs.compare([STUDY], seeds=2, out="runs/fleet", observers=[board])
    track_finished(done, [board])
    runs = runs_of(client, "study")
    assert sorted(runs) == ["d-psgd-seed0", "d-psgd-seed1"]
    for run, name in zip(done[0].runs, sorted(runs), strict=True):
        assert history(client, runs[name]) == rows_of(run)
    (here / "runs/fleet/d-psgd-seed0" / RUNS_FILE).write_text("[not json")
    track_finished(done, [board])
    assert len(client.search_runs([runs["d-psgd-seed0"].info.experiment_id])) == 3


def test_a_run_that_fails_at_once_leaves_no_folder(client: Any, here: Path) -> None:
    def links(t: int) -> list[tuple[int, int]]:
        raise OSError("no radio")

    with pytest.raises(OSError, match="no radio"):
        gs.run(replace(STUDY, network=gs.Callback(5, links)), "a", observers=[gs.MLflow()])
    assert not Path("a").exists()


def test_mlflow_says_which_store_it_cannot_open(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="uri = 'ftp://host' is not accepted"):
        gs.MLflow(uri="ftp://host")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "ftp://host")
    assert_refused(gossamer("run", "--track", "mlflow"), "MLFLOW_TRACKING_URI = 'ftp://host'")


@pytest.mark.slow
def test_nothing_is_written_to_the_home_folder_by_mlflow(here: Path) -> None:
    """MLflow is imported anew, in a process of its own: it would report its use from there."""
    pytest.importorskip("mlflow")
    from support.processes import run as run_process

    code = (
        "import os, gossamer as gs; board = gs.MLflow(); import mlflow.telemetry as t; "
        "print(t.get_telemetry_client(), 'MLFLOW_DISABLE_TELEMETRY' in os.environ)"
    )
    env = {**os.environ, "MLFLOW_TRACKING_URI": "mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}
    for name in ("CI", "PYTEST_CURRENT_TEST", "DO_NOT_TRACK"):
        env.pop(name, None)
    done = run_process([sys.executable, "-c", code], env=env)
    assert done.stdout.split() == ["None", "False"], done.stderr
    assert not (here / "home").exists()


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'gossamer\[{name}\]' brings it"):
        trackers(name)
    assert_refused(gossamer("run", "--track", name), f"gossamer[{name}]")


def test_an_unknown_tracker_is_refused() -> None:
    assert_refused(gossamer("run", "--track", "wandbb"), "'wandbb'", "did you mean 'wandb'?")
