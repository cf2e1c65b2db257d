"""Table 2: rounds to the target by p on 10 devices, and what each p saves against p = 1.

gossamer reproduce wpm table2
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gossamer.study import Study
from papers.wpm.paper import (
    SPLITS,
    Key,
    Results,
    Scale,
    number,
    printed,
    rounds_to_target,
    studies,
    wpm,
    write_csv,
)

TITLE = "rounds to 88 % by p in 1, 3, 5, 9, 15; 10 devices"
POWERS = (1, 3, 5, 9, 15)


def keys(scale: Scale) -> Iterator[tuple[float, str, Key]]:
    """Yield p, split and key of every run."""
    for split in SPLITS:
        for p in POWERS:
            yield p, split, (wpm(scale, p), scale.table_devices[0], split)


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs."""
    return studies(scale, (key for *_, key in keys(scale)))


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table."""
    paper = {}
    for row in printed("table2_convergence_by_p", scale):
        paper[float(row["p"]), row["split"]] = float(row["iterations"])
    count = rounds_to_target(scale)
    rows = []
    for p, split, key in keys(scale):
        base = (wpm(scale, 1), *key[1:])
        saved = number(results.saved(base, key, count), 1, 100)
        paper_saved: object = ""
        if paper:
            paper_saved = round(100 * (1 - paper[p, split] / paper[1, split]), 1)
        rows.append(
            {
                "split": split,
                "p": p,
                "paper": paper.get((p, split), ""),
                **number(results.over_seeds(key, count)),
                "paper_saved_%": paper_saved,
                "ours_saved_%": saved["ours"],
                "ours_saved_95": saved["ours_95"],
            }
        )
    write_csv(out / "table2.csv", rows)
    return [out / "table2.csv"]
