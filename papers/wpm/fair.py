"""The fair comparison: every method with its own best settings, in the setting of the paper.

gossamer reproduce wpm fair
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gossamer.study import Study
from papers.search import Family
from papers.wpm.comparison import (
    AT_THE_MEAN,
    CONTROL,
    D_PSGD,
    ROBUST,
    Place,
    compared,
    matched,
    needed,
)
from papers.wpm.paper import SPLITS, Results, Scale, write_csv

TITLE = "every method with its own best settings; rounds to several targets; 10 devices"

METHODS = (D_PSGD, AT_THE_MEAN, matched(3), matched(15), ROBUST, CONTROL)
# On IID data every method needs far fewer rounds than the paper's 500.
ROUNDS = {"iid": 200, "noniid": 500}
TINY_METHODS = (D_PSGD, AT_THE_MEAN, matched(3), CONTROL)


def methods(scale: Scale) -> tuple[Family, ...]:
    """Return the methods: all, or few to try the code."""
    if scale.name == "tiny":
        return TINY_METHODS
    return METHODS


def places(scale: Scale) -> Iterator[Place]:
    """Yield every split; measured on some of the test samples, the same for all."""
    devices = scale.table_devices[0]
    target = scale.targets[-1]
    if scale.name == "tiny":
        yield Place(scale, devices, "noniid", target)
        return
    for split in SPLITS:
        here = replace(scale, test=1000, rounds=ROUNDS[split])
        yield Place(here, devices, split, target)


def cells(scale: Scale) -> list[Study]:
    """Return the first runs that tuning needs."""
    return then(scale, Results(scale, {}))


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs that are needed next: for tuning, then those that are reported."""
    return needed(results, places(scale), methods(scale))


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table."""
    rows: list[dict[str, object]] = []
    for place in places(scale):
        rows += compared(results, place, methods(scale), scale.targets)
    write_csv(out / "fair.csv", rows)
    return [out / "fair.csv"]
