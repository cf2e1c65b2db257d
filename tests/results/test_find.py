"""Find run folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import DataError, InputError
from gossamer.results import find
from gossamer.results.find import find_runs, select_runs


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.toml").write_text("")
    return folder


def test_runs_are_found_in_natural_order_down_to_a_depth(tmp_path: Path) -> None:
    for name in ("x-seed10", "x-seed9", "x-seed1", "1/2/3/4/5/deep", "1/2/3/4/5/6/7/8/too-deep"):
        make_run(tmp_path / name)
    make_run(tmp_path / "x-seed1" / "inner")  # a folder within a run is no run
    names = [path.name for path in find_runs(tmp_path)]
    assert names == ["deep", "x-seed1", "x-seed9", "x-seed10"]


def test_runs_are_selected_once(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"seed{k}") for k in (2, 10, 1)]
    assert select_runs([tmp_path]) == [runs[2], runs[0], runs[1]]
    assert select_runs([runs[1], tmp_path]) == [runs[1], runs[2], runs[0]]


def test_what_is_no_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="at least one run folder"):
        select_runs([])
    with pytest.raises(DataError, match="holds no run"):
        select_runs([tmp_path])
    with pytest.raises(DataError, match="is no folder"):
        select_runs([tmp_path / "nothing"])
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    monkeypatch.setattr(find, "MAX_RUNS", 1)
    with pytest.raises(InputError, match="at most 1"):
        select_runs([tmp_path])
