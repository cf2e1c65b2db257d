"""Runs, servers and a browser for the tests of reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import Opened, chromium, opener

from gossamer import DPSGD, WPM, Churn, Mobility, Random, Study, SwarmSGD, compare, run
from gossamer.engines import Measure
from gossamer.errors import Diverged
from gossamer.report.page import page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opened]:
    yield from opener(browser)


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods on two seeds; a run that diverged; a run in a moving network with churn."""
    folder = tmp_path_factory.mktemp("runs")
    network = Random(8, 0.3)
    studies = [
        Study(WPM(p=3), network, rounds=40, name="made"),
        Study(DPSGD(eta=0.05), network, rounds=40, name="made"),
    ]
    compare(studies, seeds=2, out=folder / "two")
    diverging = Study(DPSGD(eta=1e20), network, rounds=40, measure=Measure(every=1))
    with pytest.raises(Diverged):
        run(diverging, folder / "diverged")
    moving = Mobility(12, radius=0.3) & Churn(0.2, 0.5)
    run(Study(SwarmSGD(), moving, rounds=20, measure=Measure(every=2)), folder / "moving")
    return folder


@pytest.fixture(scope="package")
def report(runs: Path) -> Path:
    """The report of all runs."""
    page([runs / "two", runs / "diverged", runs / "moving"], runs / "report.html")
    return runs / "report.html"


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """One finished run, which a test may change."""
    run(Study(DPSGD(eta=0.1), Random(6, density=0.4), rounds=30), tmp_path / "run")
    return tmp_path / "run"
