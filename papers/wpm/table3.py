"""Table 3: rounds to the target by the number of devices, p = 1 and 15.

    gossamer reproduce wpm table3

Two blocks of the printed table are swapped; expected/table3_convergence_by_devices.csv gives both
readings, and why.
"""

from __future__ import annotations

from pathlib import Path

from gossamer.study import Study
from papers.wpm import table1
from papers.wpm.paper import Results, Scale, number, printed, rounds_to_target, write_csv

TITLE = "rounds to 88 % by devices 10, 15, 20; p = 1, 15"


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs: those of Table 1."""
    return table1.cells(scale)


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table."""
    paper: dict[tuple[str, float, str, int], str] = {}
    for row in printed("table3_convergence_by_devices", scale):
        place = (row["reading"], float(row["p"]), row["split"], int(row["devices"]))
        paper[place] = row["iterations"]
    rows = []
    for p, devices, split, key in table1.keys(scale):
        rows.append(
            {
                "p": p,
                "split": split,
                "devices": devices,
                "paper_as_printed": paper.get(("as_printed", p, split, devices), ""),
                "paper_as_read": paper.get(("as_read", p, split, devices), ""),
                **number(results.over_seeds(key, rounds_to_target(scale))),
            }
        )
    write_csv(out / "table3.csv", rows)
    return [out / "table3.csv"]
