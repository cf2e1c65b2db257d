"""Table 1: final, best and average accuracy for p = 1 and 15 on 10, 15 and 20 devices."""

from collections.abc import Iterator
from pathlib import Path

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
MEASURES = {
    "at_500": lambda scale: at_round("accuracy", scale.rounds),
    "max": lambda scale: lambda cell: float(cell.metrics["accuracy"].max()),
    "average": lambda scale: lambda cell: float(cell.metrics["accuracy"][1:].mean()),
}


def keys(scale: Scale) -> Iterator[tuple[float, int, str, Key]]:
    for p in (1, 15):
        for devices in scale.table_devices:
            for split in SPLITS:
                yield p, devices, split, (wpm(scale, p), devices, split)


def cells(scale: Scale) -> list[Study]:
    return studies(scale, (key for *_, key in keys(scale)))


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    paper = {
        (float(r["p"]), int(r["devices"]), r["split"]): r for r in printed("table1_accuracy", scale)
    }
    rows = [
        {
            "p": p,
            "devices": devices,
            "split": split,
            "measure": name,
            "paper": paper.get((p, devices, split), {}).get(name, ""),
        }
        | number(results.over_seeds(key, measure(scale)), 2, 100)
        for p, devices, split, key in keys(scale)
        for name, measure in MEASURES.items()
    ]
    write_csv(out / "table1.csv", rows)
    return [out / "table1.csv"]
