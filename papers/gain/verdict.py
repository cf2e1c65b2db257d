"""Bytes to each target against the methods that a fading gain has to beat, cell by cell.

    gossamer reproduce gain verdict

It reads the results of `gossamer reproduce field`, where every method is tuned on other seeds and
on held-out samples, and compares two methods seed by seed: same links, batches and initial model.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gossamer.study import Study
from papers.drawing import heat_map, saved_figure
from papers.field.compare import TASKS
from papers.gain.paper import FIELD, Scale, write_csv

TITLE = "bytes to each target: fading gain against quasi-global momentum, tracking and tuned gains"
_SHORT_NAMES = {task.name: name for name, task in TASKS.items()}
RIVALS = {
    "fading-gain": ("d-psgd", "gain-control", "momentum", "quasi-global", "tracking"),
    "fading-gain-tracking": ("tracking", "gain-tracking", "quasi-global", "fading-gain"),
}
# Cheaper on so many of five seeds is a yes, dearer on so many a no.
_DECIDED = 4

Cell = tuple[str, str, str, str]  # task, split, network, devices
Costs = dict[str, float]  # megabytes by seed; infinite if the target is not reached
Table = dict[tuple[Cell, str, str], Costs]  # by cell, method and target


@dataclass(frozen=True)
class Comparison:
    """Two methods on one cell, for one target.

    Attributes:
        cheaper: Number of seeds on which the first method reaches the target with fewer bytes.
        dearer: Number of seeds on which the second does.
        ratio: Geometric mean of first/second over the seeds on which both reach it; NaN if none.
    """

    cheaper: int
    dearer: int
    ratio: float

    @property
    def verdict(self) -> str:
        """ "yes", "no" or "even"."""
        if self.cheaper >= _DECIDED:
            return "yes"
        if self.dearer >= _DECIDED:
            return "no"
        return "even"


def cells(scale: Scale) -> list[Study]:
    """Return no runs: this part reads those of papers/field."""
    return []


def make(scale: Scale, results: object, out: Path, folder: Path = FIELD) -> list[Path]:
    """Write one row per comparison, their counts, and a figure per task that has results.

    Args:
        scale: The setting; not used.
        results: The runs; not used.
        out: Where the files go.
        folder: Where the results of papers/field are.
    """
    made = []
    rows = []
    for task in TASKS:
        table = costs(folder / f"{task}.csv")
        found = list(comparisons(table))
        if found:
            rows += found
            made.append(_figure(task, found, out))
    write_csv(out / "verdict.csv", rows or [_row(("", "", "", ""), "", "", "", None)])
    write_csv(out / "counts.csv", counts(rows) or [dict.fromkeys(_COUNTS, "")])
    write_csv(out / "summary.csv", summary(rows) or [{"method": ""}])
    return [out / "verdict.csv", out / "counts.csv", out / "summary.csv", *made]


def costs(path: Path) -> Table:
    """Return the megabytes to each target, of a CSV of papers/field.

    Args:
        path: The file. If it does not exist, the table is empty.
    """
    table: Table = defaultdict(dict)
    if not path.exists():
        return {}
    with path.open() as file:
        for row in csv.DictReader(file):
            cell = (row["task"], row["split"], row["network"], row["devices"])
            for column, value in row.items():
                name, found, target = column.partition("megabytes_to_")
                if found and not name:
                    if row.get("diverged") == "True":
                        value = ""  # a run that diverges reaches no target
                    table[cell, row["method"], target][row["seed"]] = float(value or math.inf)
    return dict(table)


def compared(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Comparison:
    """Compare two methods seed by seed.

    Args:
        ours: Megabytes of the first by seed.
        theirs: Megabytes of the second by seed.

    Example:
        >>> compared({"0": 1.0, "1": 2.0}, {"0": 4.0, "1": math.inf})
        Comparison(cheaper=2, dearer=0, ratio=0.25)
    """
    cheaper = 0
    dearer = 0
    logs = []
    for seed in sorted(ours.keys() & theirs.keys()):
        first = ours[seed]
        second = theirs[seed]
        cheaper += first < second
        dearer += second < first
        if math.isfinite(first) and math.isfinite(second):
            logs.append(math.log(first / second))
    ratio = math.exp(sum(logs) / len(logs)) if logs else math.nan
    return Comparison(cheaper, dearer, ratio)


def comparisons(table: Table) -> Iterator[dict[str, object]]:
    """Yield a row for every cell, target, method of ours and rival that have results.

    Args:
        table: See `costs`; of one task.
    """
    last = max((target for _, _, target in table), key=float, default="")
    for (cell, method, target), ours in table.items():
        for rival in RIVALS.get(method, ()):
            theirs = table.get((cell, rival, target))
            if theirs:
                row = _row(cell, method, rival, target, compared(ours, theirs))
                yield row | {"last": "yes" if target == last else "no"}


_COUNTS = ("task", "target", "method", "against", "split", "cells", "yes", "even", "no", "ratio")


def counts(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the number of cells per verdict for each task, split and target.

    Args:
        rows: The rows of `comparisons`.
    """
    groups: dict[tuple[object, ...], list[dict[str, object]]] = defaultdict(list)
    for row in rows:
        key = (row["task"], row["target"], row["method"], row["against"], row["split"])
        groups[key].append(row)
    return [_count(key, group) for key, group in sorted(groups.items(), key=str)]


def summary(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the verdicts at the last target of each task, a column per task.

    Args:
        rows: The rows of `comparisons`.

    Returns:
        A row per method, rival and kind of data (IID, or different between devices). A cell such as
        "5 / 2 / 1 (0.82)" has the numbers of cells with the verdicts yes, even and no, and the
        ratio of bytes.
    """
    groups: dict[tuple[object, ...], dict[object, list[dict[str, object]]]] = {}
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    for row in rows:
        if row["last"] == "yes":
            data = "IID" if row["split"] == "iid" else "different"
            by_task = groups.setdefault((row["method"], row["against"], data), {})
            by_task.setdefault(row["task"], []).append(row)
    found = []
    for key, by_task in sorted(groups.items(), key=str):
        line: dict[str, object] = dict(zip(("method", "against", "data"), key, strict=True))
        for task in tasks:
            line[_SHORT_NAMES[str(task)]] = _summary_of(by_task.get(task, []))
        found.append(line)
    return found


def _summary_of(group: list[dict[str, object]]) -> str:
    if not group:
        return ""
    row = _count((), group)
    ratio = row["ratio"] or "–"
    return f"{row['yes']} / {row['even']} / {row['no']} ({ratio})"


def _count(key: tuple[object, ...], group: list[dict[str, object]]) -> dict[str, object]:
    verdicts = [row["verdict"] for row in group]
    row: dict[str, object] = dict(zip(_COUNTS, (*key, len(group)), strict=False))
    for verdict in ("yes", "even", "no"):
        row[verdict] = verdicts.count(verdict)
    logs = [math.log(float(str(row["ratio"]))) for row in group if row["ratio"]]
    row["ratio"] = f"{math.exp(sum(logs) / len(logs)):.2f}" if logs else ""
    return row


def _row(
    cell: Cell, method: str, rival: str, target: str, found: Comparison | None
) -> dict[str, object]:
    row: dict[str, object] = dict(zip(("task", "split", "network", "devices"), cell, strict=True))
    row |= {"method": method, "against": rival, "target": target}
    if found is None:
        return row | dict.fromkeys(("cheaper", "dearer", "ratio", "verdict"), "")
    ratio = "" if math.isnan(found.ratio) else f"{found.ratio:.3f}"
    row |= {"cheaper": found.cheaper, "dearer": found.dearer, "ratio": ratio}
    return row | {"verdict": found.verdict}


def _figure(task: str, rows: list[dict[str, object]], out: Path) -> Path:
    """Draw the ratios of bytes at the last target: cells by rivals."""
    shown = [row for row in rows if row["last"] == "yes"]
    last = float(str(shown[0]["target"]))
    shown.sort(key=lambda row: str(row["split"]))
    cells: dict[str, None] = {}
    columns: dict[str, None] = {}
    for row in shown:
        cells[_cell_name(row)] = None
        columns[f"{row['method']}\nagainst {row['against']}"] = None
    values = np.zeros((len(cells), len(columns)))
    texts = [[""] * len(columns) for _ in cells]
    for row in shown:
        i = list(cells).index(_cell_name(row))
        k = list(columns).index(f"{row['method']}\nagainst {row['against']}")
        texts[i][k] = str(row["ratio"])[:4] or "–"
        values[i, k] = {"yes": 1.0, "no": -1.0}.get(str(row["verdict"]), 0.0)
    path = out / f"verdict_{task}.png"
    size = (2 + 1.25 * len(columns), 1.5 + 0.32 * len(cells))
    with saved_figure(path, figsize=size, layout="constrained") as (_, axis):
        heat_map(axis, values, texts, np.zeros(values.shape, bool), cmap="PRGn", vmin=-2, vmax=2)
        axis.set_xticks(range(len(columns)), list(columns), rotation=30, ha="right", fontsize=7)
        axis.set_yticks(range(len(cells)), list(cells), fontsize=7)
        axis.set_title(
            f"{shown[0]['task']}: bytes to {last:.0%}, relative to the other method\n"
            "green: fewer on at least 4 of 5 seeds; purple: more; –: no seed on which both arrive",
            fontsize=8,
        )
    return path


def _cell_name(row: dict[str, object]) -> str:
    return f"{row['split']}, {row['network']}, {row['devices']} devices"
