"""Table 4: consensus distance by p at five points of the run.

    gossamer reproduce wpm table4

The paper has no row for p = 1; it is added here.
"""

from __future__ import annotations

from pathlib import Path

from gossamer.study import Study
from papers.wpm import table2
from papers.wpm.paper import Results, Scale, at_round, number, printed, write_csv

TITLE = "consensus distance by p at rounds 100 to 500; 10 devices"


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs: those of Table 2."""
    return table2.cells(scale)


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table."""
    paper = {}
    for line in printed("table4_consensus_distance", scale):
        paper[float(line["p"]), line["split"]] = line
    rows = []
    for p, split, key in table2.keys(scale):
        for k, t in enumerate(scale.checkpoints):
            row: dict[str, object] = {
                "p": p,
                "split": split,
                "round": t,
                "paper": paper.get((p, split), {}).get(f"at_{100 * (k + 1)}", ""),
            }
            rows.append(row | number(results.over_seeds(key, at_round("distance", t)), 3))
    write_csv(out / "table4.csv", rows)
    return [out / "table4.csv"]
