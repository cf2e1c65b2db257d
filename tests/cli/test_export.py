"""`gossamer export`: measurements and tables for other programs."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from support.command import REAL, assert_refused, gossamer
from support.runs import compare_two_methods

import gossamer as gs


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "two"
    compare_two_methods(folder)
    return folder


@pytest.mark.parametrize("options", [(), ("--means",)])
def test_csv_and_parquet_are_the_tables_of_to_pandas(
    out: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    expected = gs.read(out).to_pandas(devices=not options)
    result = gossamer("export", out, "--to", "csv", *options)
    assert (result.code, result.err) == (0, "")
    frame = pd.read_csv(io.StringIO(result.out))
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)
    file = tmp_path / "all.parquet"
    result = gossamer("export", out, "--to", "parquet", "-o", file, *options)
    assert (result.code, result.out) == (0, "")
    assert "all.parquet" in result.err
    pd.testing.assert_frame_equal(pd.read_parquet(file), expected)


def test_parquet_to_standard_output(out: Path, tmp_path: Path) -> None:
    file = tmp_path / "piped.parquet"
    with file.open("wb") as sink:
        subprocess.run([*REAL, "export", str(out), "--to", "parquet"], stdout=sink, check=True)
    assert len(pd.read_parquet(file)) == len(gs.read(out).to_pandas())


def test_latex_is_the_table_of_the_comparison(out: Path, tmp_path: Path) -> None:
    result = gossamer("export", out, "--to", "latex")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert [line.split(" & ")[0] for line in lines[-4:-2]] == ["D-PSGD", "SwarmSGD"]
    assert "\\%" in lines[4]
    shutil.copytree(out, tmp_path / "copy")
    summary = next((tmp_path / "copy").glob("d-psgd-seed0")) / "summary.json"
    summary.write_text(summary.read_text().replace('"finished": true', '"finished": false'))
    result = gossamer("export", tmp_path / "copy", "--to", "latex")
    assert result.code == 0
    assert "copy/d-psgd-seed0 is left out: it stopped" in result.err


def test_what_cannot_be_exported_is_refused(out: Path, tmp_path: Path) -> None:
    assert_refused(gossamer("export", out, "--to", "xml"), "--to", "'xml'", "'csv'")
    assert_refused(gossamer("export", tmp_path / "none", "--to", "csv"), "is not a folder")
    for name in ("csv", "latex"):
        assert_refused(gossamer("export", tmp_path, "--to", name), "these")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "spec.toml").write_text("a = [")
    result = gossamer("export", tmp_path, "--to", "latex")
    assert result.code == 2
    assert "a is left out" in result.err
