"""Follow a run through live.jsonl."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

import gossamer as gs
from gossamer.results.live import LIVE_FILE, LineReader, RunFollower, columns_of


def test_lines_of_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    lines = LineReader(path)
    assert lines.new() == (True, [{"a": 1}, {"a": 2}])
    assert lines.new() == (False, [])
    with path.open("a") as file:
        file.write(': 3}\nnonsense\n[1]\n{"a": 4}\n')
    assert lines.new() == (False, [{"a": 3}, {"a": 4}])
    (tmp_path / "other").write_text('{"a": 5}\n')
    os.replace(tmp_path / "other", path)  # as `Live` does when it thins its records out
    assert lines.new() == (True, [{"a": 5}])
    path.write_text("")
    assert lines.new() == (True, [])
    path.unlink()
    with pytest.raises(FileNotFoundError):
        lines.new()


def test_records_become_columns() -> None:
    columns = columns_of(
        [
            {"round": 1, "loss": 2.0, "device_loss": [1.0, 3.0]},
            {"round": 2, "loss": None},
        ]
    )
    assert columns["round"].tolist() == [1, 2]
    assert columns["round"].dtype == np.int64
    np.testing.assert_array_equal(columns["loss"], [2.0, np.nan])
    np.testing.assert_array_equal(columns["device_loss"], [[1.0, 3.0], [np.nan, np.nan]])
    assert columns_of([]) == {}


def test_a_run_is_followed_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    gs.run(gs.Study(rounds=12, measure=gs.Measure(every=6)), folder)
    summary = (folder / "summary.json").read_bytes()
    (folder / "summary.json").unlink()
    line = {"round": 7, "left": 2.5, "record": {"round": 6, "accuracy": 0.5, "loss": 1.5}}
    (folder / LIVE_FILE).write_text(json.dumps(line) + "\n")
    follower = RunFollower(folder)

    run = follower.run()
    assert (run.status, run.round, run.rounds) == ("running", 7, 12)
    assert run.status_text == "running, round 7 of 12"
    assert run.progress is not None
    assert run.progress.left == 2.5
    assert run.progress.silent < 60
    assert run.metrics["accuracy"].tolist() == [0.5]

    long_ago = time.time() - 1000
    os.utime(folder / LIVE_FILE, (long_ago, long_ago))
    run = follower.run()
    assert run.progress is not None
    assert run.progress.silent > 900

    (folder / "summary.json").write_bytes(summary)
    (folder / LIVE_FILE).unlink()
    run = follower.run()
    assert (run.status, run.round, run.progress) == ("finished", 12, None)
    assert run.metrics["round"].tolist() == [0, 6, 12]
