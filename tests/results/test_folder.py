"""Run folders: what is in them."""

from __future__ import annotations

import json
import platform
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from support.listing import names_in
from support.runs import SPEC, run_spec

from gossamer.engines import Snapshot
from gossamer.errors import DataError
from gossamer.results import folder as run_folder
from gossamer.results.folder import RunFolder
from gossamer.study import spec


@pytest.fixture(autouse=True)
def _in_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(SPEC)


def test_what_is_in_a_run_folder() -> None:
    run_spec("--out", "out", "--seed", "3")
    folder = Path("out")
    assert names_in(folder) == [
        "metrics.parquet",
        "models.safetensors",
        "spec.toml",
        "summary.json",
    ]
    (study,) = spec.studies(spec.read(Path("a.toml")), "a", seed=3)
    assert spec.studies(tomllib.loads((folder / "spec.toml").read_text())) == [study]
    assert spec.dumps(study) == (folder / "spec.toml").read_text()  # every default is written out

    table = pq.read_table(folder / "metrics.parquet")
    assert set(table["method"].to_pylist()) == {"WPM p=15"}
    assert set(table["seed"].to_pylist()) == {3}
    table = table.drop_columns(["method", "seed"])
    plain = ["round"]
    for metric in ("accuracy", "loss"):
        for ending in ("", "_worst", "_best", "_merged", "_merged_power"):
            plain.append(metric + ending)
    plain += ["distance", "power_distance", "messages", "bytes"]
    assert table.column_names == [*plain, "device_accuracy", "device_loss", "device_distance"]
    whole = ("round", "messages", "bytes")
    for name in plain:
        assert table.schema.field(name).type == (pa.int64() if name in whole else pa.float64())
    for name in table.column_names[len(plain) :]:
        assert {len(row) for row in table[name].to_pylist()} == {10}
    assert table["round"].to_pylist() == [0, 8, 16, 20]
    accuracy = np.array(table["device_accuracy"].to_pylist())
    for name, reduced in (
        ("accuracy", accuracy.mean(1)),
        ("accuracy_worst", accuracy.min(1)),
        ("accuracy_best", accuracy.max(1)),
    ):
        np.testing.assert_allclose(
            table[name].to_numpy(), reduced, rtol=1e-6
        )  # devices are kept in float32
    assert (
        table["loss_worst"].to_pylist()
        >= table["loss"].to_pylist()
        >= table["loss_best"].to_pylist()
    )

    summary = json.loads((folder / "summary.json").read_text())
    for name in plain:
        assert summary[name] == table[name].to_pylist()[-1]
    assert (summary["name"], summary["method"], summary["seed"]) == ("a", "WPM p=15", 3)
    assert (summary["finished"], summary["rounds"]) == (True, 20)
    first = next(
        (
            t
            for t, a in zip(table["round"].to_pylist(), table["accuracy"].to_pylist(), strict=True)
            if a >= 0.3
        ),
        None,
    )
    targets = {"accuracy >= 0.3": first, "accuracy >= 1": None, "loss <= 100": 0}
    assert summary["rounds_to"] == targets
    assert summary["bytes_to"]["loss <= 100"] == 0
    assert summary["rounds_to_merged"].keys() == targets.keys()
    assert summary["versions"]["torch"] == torch.__version__
    assert summary["versions"]["python"] == platform.python_version()
    assert summary["versions"].keys() == {
        "gossamer",
        "torch",
        "numpy",
        "python",
        "machine",
        "processor",
        "kernels",
    }
    assert "run a.toml -q --out out --seed 3" in summary["command"]
    assert 0 <= summary["seconds_measuring"] <= summary["seconds"]

    with safe_open(folder / "models.safetensors", framework="pt") as models:
        names = models.keys()
        shapes = {name: models.get_slice(name).get_shape() for name in names}
    assert shapes == {"weight": [10, 10, 64], "bias": [10, 10]}


def test_many_devices_have_no_column_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "MAX_DEVICE_COLUMNS", 9)
    run_spec("--out", "out")
    assert not [
        name
        for name in pq.read_table("out/metrics.parquet").column_names
        if name.startswith("device_")
    ]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_checkpoint_with_one_wrong_bit_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    folder = RunFolder(tmp_path)
    tensors = {"w": torch.arange(6.0).view(2, 3), "buffer/n": torch.tensor([1, 2])}
    folder.write_snapshot(Snapshot(7, 8, 9, tensors))
    path = tmp_path / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    try:
        read = folder.snapshot()
    except DataError:
        return
    # A bit of no meaning, such as one of the spaces that fill the header up.
    assert read is not None
    assert (read.round, read.messages, read.bytes) == (7, 8, 9)
    for name, x in tensors.items():
        assert torch.equal(read.tensors[name], x)
