"""Table 3: rounds to the target by the number of devices, p = 1 and 15.

Two blocks of the printed table are swapped; expected/table3_convergence_by_devices.csv has both
readings and the reason.
"""

from pathlib import Path

from gossamer.study import Study
from papers.wpm import table1
from papers.wpm.paper import Results, Scale, number, printed, rounds_to_target, write_csv

TITLE = "rounds to 88 % by devices 10, 15, 20; p = 1, 15"


def cells(scale: Scale) -> list[Study]:
    return table1.cells(scale)


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    paper: dict[tuple[str, float, str, int], str] = {
        (r["reading"], float(r["p"]), r["split"], int(r["devices"])): r["iterations"]
        for r in printed("table3_convergence_by_devices", scale)
    }
    rows = [
        {"p": p, "split": split, "devices": devices}
        | {
            f"paper_{reading}": paper.get((reading, p, split, devices), "")
            for reading in ("as_printed", "as_read")
        }
        | number(results.over_seeds(key, rounds_to_target(scale)))
        for p, devices, split, key in table1.keys(scale)
    ]
    write_csv(out / "table3.csv", rows)
    return [out / "table3.csv"]
