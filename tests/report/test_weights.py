"""The histograms of weights: in the folder of a run, after a resume, and on a page."""

from __future__ import annotations

import importlib
import os
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from support.browser import Opened

import gossamer as gs
from gossamer._core import weight_bins
from gossamer.report.page_weights import weights
from gossamer.results.folder import RunFolder

STUDY = gs.Study(gs.DPSGD(0.1), gs.Ring(6), rounds=12, measure=gs.Measure(every=2))


class Stop(gs.Observer):
    """Stops a run after its sixth round."""

    def advanced(self, t: int) -> None:
        if t == 6:
            os.kill(os.getpid(), signal.SIGINT)


def test_every_measurement_has_its_histogram(tmp_path: Path) -> None:
    run = gs.run(STUDY, tmp_path / "run")
    kept = RunFolder(tmp_path / "run").weights()
    assert list(kept) == [0, 2, 4, 6, 8, 10, 12]
    final = torch.cat([x.flatten() for x in run.models.values()])
    assert kept[12] == weight_bins.histogram(final).tolist()
    assert {name for name in run.metrics if "weight" in name} == set()


def test_a_resumed_run_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("gossamer.study.run")  # the package has a function run
    monkeypatch.setattr(module, "_MAX_HISTOGRAMS", 4)
    gs.run(STUDY, tmp_path / "whole")
    with suppress(KeyboardInterrupt):
        gs.run(STUDY, tmp_path / "stopped", observers=[Stop()])
    gs.run(STUDY, tmp_path / "stopped", resume=True)
    whole = RunFolder(tmp_path / "whole").weights()
    assert list(whole) == [0, 4, 8, 12]
    assert RunFolder(tmp_path / "stopped").weights() == whole


@pytest.mark.parametrize("text", ["", "[]", "3", '{"0": 1}', '{"a": []}', '{"0": [1, 2]}'])
def test_damaged_histograms_are_left_out(tmp_path: Path, text: str) -> None:
    run = gs.run(STUDY, tmp_path / "run")
    path = tmp_path / "run" / "metrics.parquet"
    table = pq.read_table(path).replace_schema_metadata({"gossamer.weights": text})
    pq.write_table(table, path)
    assert RunFolder(tmp_path / "run").weights() == {}
    assert weights(run) is None


def test_a_page_draws_what_is_in_the_folder(tmp_path: Path) -> None:
    run = gs.run(STUDY, tmp_path / "run")
    drawn = weights(run)
    assert drawn is not None
    assert drawn["rounds"] == [0, 2, 4, 6, 8, 10, 12]
    edges = np.array(drawn["edges"])
    assert (np.diff(edges) > 0).all()
    assert len(drawn["counts"][0]) == len(edges) - 1
    final = torch.cat([x.flatten() for x in run.models.values()]).numpy()
    assert np.sum(drawn["counts"][-1]) >= 0.998 * len(final)
    inside = final[(final >= edges[0]) & (final < edges[-1])]
    assert abs(np.sum(drawn["counts"][-1]) - len(inside)) <= 2
    for share, value in zip((0.05, 0.5, 0.95), drawn["quantiles"][-1], strict=True):
        assert abs((final < value).mean() - share) < 0.02


def test_the_section_of_the_weights(report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    section = watched.page.locator("#weights")
    picture = section.get_by_role("img")
    assert section.locator(".met").count() > 2
    before = section.locator(".median").get_attribute("d")
    section.get_by_role("combobox", name="Weights of").select_option(index=1)
    assert section.locator(".median").get_attribute("d") != before
    assert "weights=" in watched.page.evaluate("location.hash")
    picture.hover(position={"x": 60, "y": 100})
    assert (section.locator(".facts").text_content() or "").startswith(
        "round 0: 5 % of the weights"
    )
    with watched.page.expect_download() as download:
        section.get_by_role("button", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0] == "round,from,to,weights"
    assert all(len(line.split(",")) == 4 for line in lines)
    watched.check_accessible()
    watched.check()
