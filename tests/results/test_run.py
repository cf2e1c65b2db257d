"""`Run`: read from a folder in any status."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import gossamer as gs
from gossamer.errors import DataError, Diverged, GossamerError, InputError
from gossamer.report.content import report_content
from gossamer.results.folder import RunFolder
from gossamer.results.run import Run
from gossamer.results.tables import Comparison, Method
from gossamer.study import study_of


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    gs.run(gs.Study(gs.DPSGD(), rounds=10, seed=3, name="demo"), folder)
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_a_run_is_read_back_as_it_was_made(tmp_path: Path) -> None:
    study = gs.Study(rounds=10)
    made = gs.run(study, tmp_path / "out")
    read = Run.read(tmp_path / "out")
    assert made.study is study
    assert read.study is None
    assert study_of(read) == study
    assert read.spec == made.spec
    assert read.summary == made.summary
    assert read.label == made.label
    assert read.folder == made.folder
    for name, values in made.metrics.items():
        np.testing.assert_array_equal(read.metrics[name], values)
    for name, part in made.models.items():
        assert torch.equal(read.models[name], part)


def test_what_a_run_says_of_itself(finished: Path) -> None:
    run = Run.read(finished)
    assert (run.status, run.status_text, run.finished, run.diverged) == (
        "finished",
        "",
        True,
        False,
    )
    assert (run.name, run.label, run.seed) == ("demo", "D-PSGD", 3)
    assert (run.round, run.rounds, run.devices) == (10, 10, 10)
    assert run.title() == "demo: 10 devices, 10 rounds"
    assert run.title(5) == "demo: 10 devices, 10 rounds, 5 seeds"
    assert run.has("accuracy")
    assert not run.has("simulated_seconds")


def test_only_some_columns_are_loaded(finished: Path) -> None:
    run = Run.read(finished, columns=("round", "loss", "simulated_seconds"))
    assert list(run.metrics) == ["round", "loss"]


def test_models_are_loaded_when_they_are_used(copy: Path) -> None:
    (copy / "models.safetensors").unlink()
    run = Run.read(copy)
    with pytest.raises(DataError, match="has no models"):
        _ = run.models
    with pytest.raises(DataError, match="no folder"):
        _ = Run({}, {}, {}).models


RING = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]


class OwnRing(gs.Network):
    """A network of one's own, without fields."""

    devices = 5

    def links(self, t: int) -> gs.Links:
        return gs.Links.of(5, np.array(RING))


class Plain(gs.Algorithm):
    """A method of one's own, whose description no encoding can write."""

    def round(self, state, grad, mix, t):
        return {"w": mix(state["w"]) - 0.1 * grad(state["w"])}

    def halfway(self, state, grad, mix, t):
        return mix(state["w"])

    def __repr__(self) -> str:
        return 'Plain(\x00\x1b[31m\ud800 é """ \' \\)'


X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
IN_PYTHON = gs.Study(
    gs.DPSGD(),
    gs.Callback(5, lambda t: RING),
    data=gs.from_arrays(X[:40], (X[:40, 0] > 0).long(), X[40:], (X[40:, 0] > 0).long()),
    model=gs.Module(lambda: nn.Linear(4, 2)),
    batch=4,
    rounds=3,
)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"network": OwnRing()},
        {"network": gs.Callback(5, lambda t: RING) & gs.LinkFailure(0.5)},
        {"algorithm": Plain()},
        {"algorithm": gs.DPSGD(eta=lambda t: 0.1)},
        {"model": gs.Module(nn.Linear(4, 2), loss=nn.functional.cross_entropy)},
        {"split": gs.from_lists([[k, k + 5] for k in range(5)])},
        {"measure": gs.Measure(metrics=(gs.FunctionMetric(lambda o, t: 0.5, "half", "higher"),))},
        {"measure": gs.Measure(metrics=(gs.FunctionMetric(lambda o, t: np.inf, "far", "lower"),))},
        {"measure": gs.Measure(merged=False)},
    ],
)
def test_a_run_with_parts_made_in_python_is_read(tmp_path: Path, change: dict[str, Any]) -> None:
    made = gs.run(replace(IN_PYTHON, **change), tmp_path / "run")
    run = Run.read(tmp_path / "run")
    assert run.finished
    assert run.devices == 5
    assert run.spec == made.spec
    assert (run.label, run.columns, run.targets) == (made.label, made.columns, made.targets)
    assert run.models["weight"].shape == (5, 2, 4)
    assert torch.equal(run.models["weight"], made.models["weight"])
    for name, values in made.metrics.items():
        np.testing.assert_array_equal(run.metrics[name], values)
    assert run.spec["data"]["kind"] == "python"
    assert run.label in run._repr_html_()
    assert len(gs.read(tmp_path).to_pandas()) == 2 * 5
    with pytest.raises(GossamerError, match="made in Python"):
        study_of(run)


def test_the_label_of_a_method_made_in_python_before_the_run_has_ended(tmp_path: Path) -> None:
    gs.run(replace(IN_PYTHON, algorithm=Plain()), tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    assert Run.read(tmp_path / "run").label == "Plain"
    for described in ("Mine", "Mine(eta=0.1)", "<__main__.Mine object>"):
        assert Run({"algorithm": {"kind": "python", "is": described}}, {}, {}).label == "Mine"


def test_a_run_that_diverged_has_its_measurements(tmp_path: Path) -> None:
    with pytest.raises(Diverged):
        gs.run(gs.Study(gs.DPSGD(eta=1e30), rounds=50), tmp_path / "wild")
    run = Run.read(tmp_path / "wild")
    assert run.status == "diverged"
    assert run.diverged
    assert run.status_text == f"diverged at round {run.round}"
    assert run.metrics["round"].tolist()[0] == 0


def test_a_run_that_was_stopped(copy: Path) -> None:
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps(summary | {"finished": False, "rounds": 4}))
    run = Run.read(copy)
    assert (run.status, run.round) == ("stopped", 4)
    assert run.status_text == "stopped after round 4 of 10"
    (copy / "summary.json").unlink()
    (copy / "metrics.parquet").unlink()
    run = Run.read(copy)
    assert (run.status, run.round, run.metrics) == ("stopped", 0, {})
    assert run.label == "d-psgd" or run.label == "dpsgd"  # its name in the spec


def test_a_run_of_real_devices_is_read(copy: Path) -> None:
    """`fleet collect` adds what no simulated run has."""
    path = copy / "summary.json"
    summary = json.loads(path.read_text())
    counts = {"0": {"committed": 7}, "2": {"committed": 7}}
    summary |= {"devices": [0, 2], "missing": ["n1"], "unfinished": {"n2": 9}, "counts": counts}
    path.write_text(json.dumps(summary | {"refused": {"n3": "its model has other names"}}))
    assert Run.read(copy).summary["missing"] == ["n1"]
    path.write_text(json.dumps(summary | {"devices": 3}))
    with pytest.raises(DataError, match="wrong value of 'devices'"):
        Run.read(copy)


def test_what_is_no_run_is_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no run"):
        Run.read(tmp_path / "nowhere")
    pq.write_table(pa.table({"a": ["x"]}), copy / "metrics.parquet")
    with pytest.raises(DataError, match="needs a column round"):
        Run.read(copy)
    (copy / "spec.toml").write_text("a = [")
    with pytest.raises(DataError, match="is not a spec"):
        Run.read(copy)
    run = Run.broken(copy, "damaged")
    assert (run.status, run.label, run.seed) == ("broken", "unknown", 0)


def test_a_run_of_version_0_1_is_read(tmp_path: Path) -> None:
    """Its columns are accuracy and loss without method and seed, and its targets are apart."""
    folder = RunFolder(tmp_path)
    folder.create(
        'name = "old"\nrounds = 20\n[measure]\naccuracy_targets = [0.8]\nloss_targets = [1.0]\n'
        '[network]\nkind = "ring"\ndevices = 3\n[algorithm]\nkind = "d-psgd"\n'
    )
    table = pa.table(
        {
            "round": [0, 10, 20],
            "accuracy": [0.1, 0.7, 0.9],
            "accuracy_worst": [0.1, 0.6, 0.8],
            "accuracy_best": [0.1, 0.8, 0.95],
            "loss": [2.3, 1.2, 0.9],
            "loss_worst": [2.3, 1.3, 1.0],
            "loss_best": [2.3, 1.0, 0.8],
            "distance": [0.0, 0.2, 0.1],
            "messages": [0, 60, 120],
            "bytes": [0, 600, 1200],
        }
    )
    pq.write_table(table, tmp_path / "metrics.parquet")
    folder.write_summary(
        {
            "name": "old",
            "method": "D-PSGD",
            "finished": True,
            "rounds": 20,
            "accuracy": 0.9,
            "accuracy_worst": 0.8,
            "loss": 0.9,
            "distance": 0.1,
            "bytes": 1200,
            "rounds_to_accuracy": {"0.8": 20},
            "bytes_to_accuracy": {"0.8": 1200},
            "rounds_to_loss": {"1": 20},
            "bytes_to_loss": {"1": 1200},
        }
    )
    old = Run.read(tmp_path)
    assert [column.name for column in old.columns] == ["accuracy", "loss"]
    assert [target.text for target in old.targets] == ["accuracy >= 0.8", "loss <= 1"]
    assert old.summary["rounds_to"] == {"accuracy >= 0.8": 20, "loss <= 1": 20}
    headings, rows = Comparison([Method(old.label, (old,))]).table()
    assert rows == [["D-PSGD", "90.00", "80.00", "0.900", "20", "20", "0.100", "0.0"]]
    assert "rounds\nto 80 %" in headings
    content, _ = report_content([old])
    assert content["metrics"][0]["targets"] == [0.8]
    assert gs.read(tmp_path).to_pandas().method.tolist() == ["D-PSGD"] * 3
    unfinished = replace(old, summary={})
    assert [target.text for target in unfinished.targets] == ["accuracy >= 0.8", "loss <= 1"]


def test_rounds_to_any_target(finished: Path) -> None:
    run = Run.read(finished)
    measured = float(run.metrics["accuracy"][1])
    assert run.rounds_to(f"accuracy >= {measured - 1e-3:.4f}") in (0, 10)
    assert run.rounds_to("accuracy >= 1") == math.inf
    assert run.rounds_to("loss <= 1e9", merged=True) == 0
    with pytest.raises(InputError, match="metrics that are measured: accuracy, loss"):
        run.rounds_to("rmse <= 1")
    plain = replace(run, metrics={"round": run.metrics["round"], "loss": run.metrics["loss"]})
    with pytest.raises(InputError, match="has not measured a merged model"):
        plain.rounds_to("loss <= 1", merged=True)
