"""Table 1: accuracy at the last round, at its best, and on average, for p = 1 and 15.

gossamer reproduce wpm table1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import gossamer as gs
from gossamer.study import Study
from papers.wpm.paper import (
    SPLITS,
    Key,
    Results,
    Scale,
    at_round,
    number,
    printed,
    studies,
    wpm,
    write_csv,
)

TITLE = "accuracy at 500, max, average; p = 1, 15; 10, 15, 20 devices"


def measures(scale: Scale) -> dict[str, Callable[[gs.Run], float]]:
    """Return the three columns of the table as functions of a run."""
    return {
        "at_500": at_round("accuracy", scale.rounds),
        "max": lambda run: float(run.metrics["accuracy"].max()),
        "average": lambda run: float(run.metrics["accuracy"][1:].mean()),
    }


def keys(scale: Scale) -> Iterator[tuple[float, int, str, Key]]:
    """Yield p, number of devices, split and key of every run."""
    for p in (1, 15):
        for devices in scale.table_devices:
            for split in SPLITS:
                yield p, devices, split, (wpm(scale, p), devices, split)


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs."""
    return studies(scale, (key for *_, key in keys(scale)))


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table."""
    paper = {}
    for line in printed("table1_accuracy", scale):
        paper[float(line["p"]), int(line["devices"]), line["split"]] = line
    rows = []
    for p, devices, split, key in keys(scale):
        for name, measure in measures(scale).items():
            row: dict[str, object] = {
                "p": p,
                "devices": devices,
                "split": split,
                "measure": name,
                "paper": paper.get((p, devices, split), {}).get(name, ""),
            }
            rows.append(row | number(results.over_seeds(key, measure), 2, 100))
    write_csv(out / "table1.csv", rows)
    return [out / "table1.csv"]
