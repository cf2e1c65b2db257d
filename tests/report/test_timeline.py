"""What devices of the events engine do over time, on the page of a report."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.browser import Opened
from support.command import gossamer

import gossamer as gs
from gossamer.report.content import report_content
from gossamer.report.grouping import read
from gossamer.report.page import page
from gossamer.results.folder import RunFolder

pytestmark = pytest.mark.slow

STATES = ("computing", "exchanging", "waiting", "away")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the events engine in pairs, with batteries, and one with common rounds."""
    folder = tmp_path_factory.mktemp("timeline")
    study = gs.Study(
        gs.DPSGD(0.1),
        gs.RandomRing(8),
        rounds=20,
        timing=gs.Timing(gs.LogUniform(0.1, 1.0), rate=2e4, latency=0.05),
        energy=gs.Energy(step=1.0, byte=0.0, battery=12.0, charge=4.0),
        measure=gs.Measure(every=4),
    )
    gs.run(study, folder / "events", engine=gs.Events())
    gs.run(gs.Study(rounds=10), folder / "rounds")
    page([folder / "events"], folder / "events.html")
    page([folder / "rounds"], folder / "rounds.html")
    return folder


@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_lane_per_device(report: Path, open_page: Opened, size: str, scheme: str) -> None:
    watched = open_page((report / "events.html").as_uri(), size, scheme)
    watched.check_fits()
    watched.check_accessible()
    assert "What devices do over time" in watched.page.locator("h2").all_text_contents()
    titles = watched.page.locator("#activity svg title").all_text_contents()
    assert [title.partition(":")[0] for title in titles] == [
        "all devices",
        *(f"device {k}" for k in range(8)),
    ]
    metrics = RunFolder(report / "events").metrics()
    for device in range(8):
        shown = dict(re.findall(r"(\w+) ([\d.]+) %", titles[1 + device]))
        for state in STATES:
            percent = 100 * metrics[f"device_{state}"][-1, device] / 20
            assert float(shown[state]) == pytest.approx(percent, rel=0.06, abs=0.06)
    assert np.any(metrics["device_away"][-1] > 0)
    assert watched.page.locator("#activity svg path.away").first.get_attribute("d")
    assert "simulated s" in str(watched.page.locator("output").text_content())
    watched.check()


def test_steps_and_staleness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables have both, and a figure can be drawn over steps."""
    monkeypatch.chdir(tmp_path)
    study = gs.Study(
        gs.ADPSGD(0.1), gs.RandomRing(10), rounds=10, timing=gs.Timing(0.3, rate=1e5, latency=0.4)
    )
    gs.run(study, tmp_path / "run", engine=gs.Events())
    content, _ = report_content([read(tmp_path / "run")])
    headings = {column["label"] for column in content["others"]["columns"]}
    assert {"steps", "staleness"} <= headings
    assert content["curves"][0]["x"]["steps"][-1] == 330
    done = gossamer("figure", str(tmp_path / "run"), "--x", "steps", "--out", "steps.svg")
    assert done.code == 0, done.err


def test_a_run_with_common_rounds_has_no_lanes(report: Path, open_page: Opened) -> None:
    watched = open_page((report / "rounds.html").as_uri(), "desktop", "light")
    assert watched.page.locator("#activity").count() == 0
    assert watched.page.locator("nav a").count() == 6
    watched.check()
