"""Small runs for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.results.run import Run
from gossamer.results.tables import Comparison, Method


def compare_two_methods(out: Path) -> None:
    """Run two methods on three seeds, with simulated seconds."""
    study = gs.Study(
        gs.DPSGD(eta=0.1),
        gs.Ring(5),
        rounds=12,
        measure=gs.Measure(every=4),
        timing=gs.Timing(0.1, rate=1e6),
    )
    gs.compare([study, replace(study, algorithm=gs.SwarmSGD(eta=0.1))], seeds=3, out=out)


def read_comparison(out: Path) -> Comparison:
    """Read what `compare_two_methods` has written."""
    runs = [Run.read(path) for path in sorted(out.glob("*-seed*"))]
    first = Method(runs[0].label, tuple(runs[:3]))
    second = Method(runs[3].label, tuple(runs[3:]))
    return Comparison([first, second])
