"""`gossamer.read`: many runs as a table and as data frames."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gs
from gossamer.errors import DataError, DataWarning, MissingExtra
from gossamer.results import folder as run_folder
from gossamer.results.run import Run
from gossamer.results.runs import Runs
from gossamer.results.settings import differing_settings, flat_settings

STUDY = gs.Study(gs.DPSGD(eta=0.1), gs.Ring(4), rounds=6, measure=gs.Measure(every=3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods on two seeds, and one of them with another batch."""
    out = tmp_path_factory.mktemp("out") / "runs"
    swarm = replace(STUDY, algorithm=gs.SwarmSGD(eta=0.1))
    gs.compare([STUDY, swarm], seeds=2, out=out / "two")
    gs.run(replace(STUDY, batch=8), out / "small" / "batch")
    return out


@pytest.fixture(scope="module")
def runs(folder: Path) -> Runs:
    return gs.read(folder)


def test_all_runs_below_a_folder_are_read(folder: Path, runs: Runs) -> None:
    names = ["small/batch"]
    for method in ("d-psgd", "swarmsgd"):
        names += [f"two/{method}-seed{seed}" for seed in (0, 1)]
    assert runs.names() == names
    assert [run.seed for run in runs] == [0, 0, 1, 0, 1]
    assert len(runs[1:3]) == 2
    assert runs[-1].label == "SwarmSGD"
    assert gs.read(folder / "two", folder).names() == [*names[1:], names[0]]
    with pytest.raises(DataError, match="is not a folder"):
        gs.read(folder / "none")
    assert str(Runs()) == "no runs"
    assert Runs().to_pandas().columns.tolist() == ["run", "method", "seed", "round", "device"]
    assert "no runs" in Runs()._repr_html_()


def test_runs_are_printed_as_a_table(runs: Runs) -> None:
    lines = str(runs).splitlines()
    assert lines[0].split() == [
        *("run", "method", "seed", "batch", "rounds", "accuracy,", "%", "merged", "status")
    ]
    assert len(lines) == 2 + len(runs)
    first = lines[2].split()
    assert first[:5] == ["small/batch", "D-PSGD", "0", "8", "6"]
    assert first[5] == f"{100 * runs[0].summary['accuracy']:.2f}"
    assert first[-1] == "finished"
    assert repr(runs) == str(runs)
    shown = runs._repr_html_()
    assert shown.count("<tr>") == 1 + len(runs)
    assert "SwarmSGD" in shown


def test_a_narrow_terminal_leaves_settings_out(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "64")
    assert "batch" not in str(runs).splitlines()[0]
    monkeypatch.setenv("COLUMNS", "100")
    assert "batch" in str(runs).splitlines()[0]


def test_a_row_per_round_and_device(runs: Runs) -> None:
    frame = runs.to_pandas()
    assert frame.columns.tolist()[:3] == ["run", "method", "seed"]
    assert {"batch", "algorithm.kind"} <= set(frame.columns)
    assert len(frame) == 5 * 3 * 4
    own = frame[(frame.run == "two/swarmsgd-seed1") & (frame["round"] == 3)]
    assert own.device.tolist() == [0, 1, 2, 3]
    for name in ("accuracy", "loss", "distance"):
        np.testing.assert_array_equal(own[name], runs[4].metrics[f"device_{name}"][1])
    assert own.bytes.tolist() == [runs[4].metrics["bytes"][1]] * 4
    assert frame.batch.tolist() == [8] * 12 + [32] * 48


def test_a_row_per_round_with_the_means(runs: Runs) -> None:
    frame = runs.to_pandas(devices=False)
    assert len(frame) == 5 * 3
    assert "device" not in frame.columns
    for k, run in enumerate(runs):
        for name, values in run.metrics.items():
            if not name.startswith("device_"):
                np.testing.assert_array_equal(frame[name][3 * k : 3 * k + 3], values)
    means = runs.to_pandas().groupby(["run", "round"]).accuracy.mean()
    np.testing.assert_allclose(means, frame.set_index(["run", "round"]).accuracy, rtol=1e-6)


def test_polars_has_the_same_table(runs: Runs) -> None:
    for devices in (True, False):
        frame = runs.to_polars(devices)
        assert frame.columns == runs.to_pandas(devices).columns.tolist()
        assert frame.to_arrow().to_pylist() == runs.to_arrow(devices).to_pylist()


def test_metrics_of_several_runs_are_told_apart_without_gossamer(folder: Path) -> None:
    files = sorted(folder.glob("two/*/metrics.parquet"))
    frame = pd.concat(pd.read_parquet(file) for file in files)
    counts = frame.groupby(["method", "seed"]).size()
    expected = {("D-PSGD", 0): 3, ("D-PSGD", 1): 3, ("SwarmSGD", 0): 3, ("SwarmSGD", 1): 3}
    assert counts.to_dict() == expected
    everything = pl.read_parquet(folder / "two/**/metrics.parquet")
    assert everything.group_by("method", "seed").len().height == 4
    schema = pq.read_schema(files[0])
    assert schema.names[:3] == ["method", "seed", "round"]


def test_a_metric_may_not_be_named_like_another_column() -> None:
    for name in ("method", "seed", "device", "finished"):
        with pytest.raises(gs.InputError, match="that is no other column"):
            gs.FunctionMetric(lambda outputs, targets: 1.0, name, "higher")


def test_many_devices_have_a_row_with_the_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gs.run(STUDY, tmp_path / "few")
    monkeypatch.setattr(run_folder, "MAX_DEVICE_COLUMNS", 3)
    many = gs.run(STUDY, tmp_path / "many")
    frame = gs.read(tmp_path).to_pandas()
    rows = frame[frame.run == "many"]
    assert rows.device.isna().all()
    np.testing.assert_array_equal(rows.accuracy, many.metrics["accuracy"])
    assert frame[frame.run == "few"].device.tolist() == [0, 1, 2, 3] * 3


def test_broken_and_unfinished_runs_are_listed(tmp_path: Path) -> None:
    gs.run(STUDY, tmp_path / "a")
    gs.run(STUDY, tmp_path / "b")
    (tmp_path / "a" / "metrics.parquet").write_bytes(b"PAR1")
    (tmp_path / "b" / "summary.json").unlink()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "spec.toml").write_text('seed = "x"\n')
    runs = gs.read(tmp_path)
    assert [run.status for run in runs] == ["broken", "stopped", "broken"]
    assert "broken" in str(runs)
    assert runs.settings == {}
    assert "Parquet" in runs[0].problem
    with pytest.warns(DataWarning, match="a is left out"):
        frame = runs.to_pandas(devices=False)
    assert frame.run.unique().tolist() == ["b"]
    assert runs[1:2].to_pandas(devices=False).method.tolist() == ["d-psgd"] * 3


def test_runs_in_memory() -> None:
    runs = Runs((gs.run(STUDY), gs.run(replace(STUDY, algorithm=gs.DPSGD(eta=0.2)))))
    assert runs.settings == {"algorithm.eta": [0.1, 0.2]}
    assert runs.names() == ["0", "1"]
    assert "eta" in str(runs).splitlines()[0]
    assert runs.to_pandas()["algorithm.eta"].unique().tolist() == [0.1, 0.2]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_package_is_named(
    runs: Runs, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{package} is not installed: pip install .*dataframe"):
        getattr(runs, f"to_{package}")()


VALUES = st.one_of(st.integers(-9, 9), st.floats(-1, 1), st.booleans(), st.text("ab"), st.none())


@given(st.lists(VALUES, min_size=2, max_size=5))
def test_settings_of_any_type_are_one_column(values: list[object]) -> None:
    runs = []
    for value in values:
        spec = {} if value is None else {"x": value}
        runs.append(Run(spec, {"round": np.array([0]), "loss": np.array([1.0])}, {}))
    frame = Runs(tuple(runs)).to_polars(devices=False)
    if all(value == values[0] for value in values):
        assert "x" not in frame.columns
        return
    column = frame["x"].to_list()
    kinds = {type(value) for value in values if value is not None}
    for value, found in zip(values, column, strict=True):
        if value is None or len(kinds) == 1 or kinds == {int, float}:
            assert found == value
        else:
            assert found == str(value)


def test_seeds_that_move_together_are_no_settings() -> None:
    def spec(seed: int, network: int, fault: int) -> dict[str, object]:
        faults = [{"kind": "churn", "seed": fault}]
        return {"seed": seed, "network": {"seed": network, "faults": faults}}

    assert differing_settings([spec(0, 5, 0), spec(3, 8, 3)]) == {}
    found = differing_settings([spec(0, 5, 0), spec(3, 8, 1)])
    assert found == {"network.faults.0.seed": [0, 1]}
    assert flat_settings({"a": [1, 2], "b": {"c": True}}) == {"a": "[1, 2]", "b.c": True}
