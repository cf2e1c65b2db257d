"""The content of a report, without a browser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.listing import column

from gossamer.report import grouping
from gossamer.report.content import report_content
from gossamer.results.find import select_runs
from gossamer.results.folder import RunFolder
from gossamer.results.statistics import Reached, interval


def content_of(runs: Path) -> dict[str, Any]:
    content, _ = report_content(
        [
            grouping.read(folder)
            for folder in select_runs([runs / "two", runs / "diverged", runs / "moving"])
        ]
    )
    return content


def test_runs_that_differ_in_their_seed_are_one_method(runs: Path) -> None:
    content = content_of(runs)
    assert [len(line["early"]) for line in content["curves"]] == [0, 0, 0, 0]
    assert [cells[1]["text"] for cells in content["results"]["rows"]] == ["2", "2", "1", "1"]
    # One per seed, which the diverged run shares, and the moving one.
    assert len(content["networks"]) == 3
    notes = " ".join(content["notes"])
    assert "differ in more than their method" in notes
    assert "rounds is 40 or 20" in notes
    assert "diverged at round 1" in notes


def test_bands_are_the_intervals_of_the_tables(runs: Path) -> None:
    line = content_of(runs)["curves"][1]
    metrics = []
    for seed in (0, 1):
        metrics.append(RunFolder(runs / "two" / f"d-psgd-seed{seed}").metrics())
    for k, pair in enumerate(zip(*column(metrics, "loss"), strict=True)):
        assert line["y"]["loss"]["mean"][k] == pytest.approx(interval(pair).mean, rel=1e-5)
        assert line["y"]["loss"]["half"][k] == pytest.approx(interval(pair).half, rel=1e-5)


def test_a_target_shows_the_seeds_that_have_reached_it(runs: Path) -> None:
    content = content_of(runs)
    table = content["targets"]
    labels = column(table["columns"], "label")
    for row, folder in zip(table["rows"][:2], ("wpm-p-3", "d-psgd"), strict=True):
        summaries = []
        for seed in (0, 1):
            summaries.append(RunFolder(runs / "two" / f"{folder}-seed{seed}").summary() or {})
        for target in ("0.8", "0.9"):
            cell = row[labels.index(f"rounds to {float(target) * 100:g} %")]
            reached = [s["rounds_to"][f"accuracy >= {target}"] for s in summaries]
            assert cell["text"] == Reached.over(reached).format(0)


def test_a_seed_that_diverged_is_shown_beside_the_mean(runs: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        shutil.copytree(runs / "two" / f"d-psgd-seed{seed}", tmp_path / f"s{seed}")
    summary = json.loads((tmp_path / "s1" / "summary.json").read_text())
    facts = summary | {"finished": False, "diverged": {"round": 23, "device": 0}}
    (tmp_path / "s1" / "summary.json").write_text(json.dumps(facts))
    content, _ = report_content([grouping.read(f) for f in select_runs([tmp_path])])
    assert content["results"]["rows"][0][1] == {
        "text": "1 of 2",
        "value": 1,
        "note": "seed 1 diverged at round 23",
    }
    assert content["curves"][0]["early"][0]["ended"] == "diverged at round 23"
    assert content["curves"][0]["y"]["loss"]["half"] is None


def test_the_same_run_twice_counts_once(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "two" / "d-psgd-seed0", tmp_path / "again")
    one = runs / "two" / "d-psgd-seed0"
    content, _ = report_content(
        [grouping.read(f) for f in select_runs([one, one, tmp_path / "again"])]
    )
    assert len(content["runs"]) == 1
    assert "once more, with the same seed" in content["notes"][0]
