"""Table 4: consensus distance by p at five rounds; the row for p = 1 is not in the paper."""

from pathlib import Path

from gossamer.study import Study
from papers.wpm import table2
from papers.wpm.paper import Results, Scale, at_round, number, printed, write_csv

TITLE = "consensus distance by p at rounds 100 to 500; 10 devices"


def cells(scale: Scale) -> list[Study]:
    return table2.cells(scale)


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    paper = {(float(r["p"]), r["split"]): r for r in printed("table4_consensus_distance", scale)}
    rows = [
        {
            "p": p,
            "split": split,
            "round": t,
            "paper": paper.get((p, split), {}).get(f"at_{100 * (k + 1)}", ""),
        }
        | number(results.over_seeds(key, at_round("distance", t)), 3)
        for p, split, key in table2.keys(scale)
        for k, t in enumerate(scale.checkpoints)
    ]
    write_csv(out / "table4.csv", rows)
    return [out / "table4.csv"]
