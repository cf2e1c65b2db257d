"""The search of the product of readings for the one that fits both rows of Table 2 best.

    gossamer reproduce wpm search_readings

1. Screening: readings drawn at random, on the cells of p = 15 and p = 1 with one label per device.
2. Descent: from our reading, the best of the screening and further draws, change one axis at a
   time while the four corners of Table 2 come closer; then from the best with mirror steps only.
3. Finals: the best readings on all ten cells; each chooses its criterion here.
4. Confirmation: some of them with that criterion on fresh seeds.

Every run is kept, so that a search that was stopped goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from gossamer.study import Study
from papers.wpm.paper import Scale, expected, write_csv
from papers.wpm.reading_runs import CRITERIA, Cell, Criterion, Curves, Runs
from papers.wpm.reading_search import MIRROR, NOT_REACHED, TINY, Plan, Search
from papers.wpm.reading_space import AXES, Reading, size

TITLE = "search of the product of readings for the best fit to Table 2; 20 minutes on one core"

Row = dict[str, object]
CellRuns = dict[Cell, list[Curves]]


def cells(scale: Scale) -> list[Study]:
    """Return no runs: the search makes its own, which no study can describe."""
    return []


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    """Search, and write the tables."""
    plan = Plan()
    journal = Path("runs") / "reproduce-wpm" / "search_readings.jsonl"
    if scale.name == "tiny":
        plan = TINY
        journal = journal.with_name("search_readings_tiny.jsonl")
    search = Search(plan, Runs(plan.setting, journal))
    search.run()
    tables = {
        "search_readings": best_rows(search),
        "search_readings_effects": effect_rows(search),
        "search_readings_size": size_rows(search),
    }
    paths = []
    for name, rows in tables.items():
        paths.append(out / f"{name}.csv")
        write_csv(paths[-1], rows)
    return paths


def best_rows(search: Search) -> list[Row]:
    """Return the paper's rounds, and those of the best readings and of ours.

    Readings have a row for the seed of the search, where they chose their criterion, and some one
    for fresh seeds.

    Args:
        search: A search that has ended.
    """
    confirmed = _to_confirm(search.ranked)
    rows = [_paper_row(search.table)]
    for k, reading in enumerate(search.ranked):
        if k >= search.plan.shown and reading not in confirmed:
            continue
        criterion = search.finals[reading].criterion
        rows.append({"rank": k + 1, **_search_row(search, reading, criterion)})
        if reading in confirmed:
            rows.append({"rank": k + 1, **_fresh_row(search, reading, criterion)})
    ours = search.on_table(Reading())
    rows.append({"rank": "ours", **_search_row(search, Reading(), ours.criterion)})
    return rows


def _to_confirm(ranked: Sequence[Reading]) -> list[Reading]:
    """Return the best reading, the best with our scaling of the pixels, and with a mirror step.

    Args:
        ranked: The readings of the finals, the closest first.
    """
    found = [ranked[0]]
    found += [reading for reading in ranked if reading.pixels == "normalised"][:1]
    found += [reading for reading in ranked if reading.rule in MIRROR][:1]
    return found


def _paper_row(table: Sequence[Cell]) -> Row:
    """Return what the paper prints: the rounds of Table 2, and accuracies of Table 1."""
    row: Row = {"rank": "paper", "seeds": "", "distance": "", "iid": "", "noniid": ""}
    for cell in table:
        row[_name(cell)] = round(cell.paper)
    row |= _saved({_name(cell): cell.paper for cell in table})
    for printed in expected("table1_accuracy"):
        if printed["devices"] == "10":
            row[f"accuracy_{printed['split']}_p{printed['p']}"] = float(printed["at_500"])
    return row


def _search_row(search: Search, reading: Reading, criterion: Criterion) -> Row:
    """Return the row of a reading on the seed of the search."""
    runs = {cell: [search.short_run(reading, cell)] for cell in search.table}
    return {"seeds": "search", **_row(search, reading, criterion, runs)}


def _fresh_row(search: Search, reading: Reading, criterion: Criterion) -> Row:
    """Return the row of a reading on fresh seeds, with the accuracies at the end."""
    runs: CellRuns = {}
    accuracies: Row = {}
    for cell in search.table:
        seeds = search.plan.fresh_seeds
        runs[cell] = [search.full_run(reading, cell, seed) for seed in seeds]
        if cell.p in (1, 15):
            accuracies[f"accuracy_{_name(cell)}"] = _final_accuracy(runs[cell], criterion)
    return {"seeds": "fresh", **_row(search, reading, criterion, runs), **accuracies}


def _row(search: Search, reading: Reading, criterion: Criterion, runs: CellRuns) -> Row:
    """Return the distances, the rounds, and what the reading is."""
    counts: Row = {}
    means: dict[str, float] = {}
    logs: dict[str, list[float]] = {"iid": [], "noniid": []}
    for cell in search.table:
        mean = _mean_rounds(runs[cell], criterion)
        logs[cell.split].append(abs(math.log(max(mean, 1.0) / cell.paper)))
        means[_name(cell)] = mean
        counts[_name(cell)] = _shown(mean, int(runs[cell][0].rounds[-1]))
    return {
        "distance": _factor(logs["iid"] + logs["noniid"]),
        "iid": _factor(logs["iid"]),
        "noniid": _factor(logs["noniid"]),
        **counts,
        **_saved(means),
        "reading": reading.label,
        "criterion": criterion.label,
        **asdict(reading),
        "place": criterion.place,
        "model": criterion.model,
        "metric": criterion.metric,
        "target": criterion.target,
    }


def _saved(rounds: dict[str, float]) -> Row:
    """Return the share of the rounds of p = 1 that p = 15 saves, in per cent."""
    found: Row = {}
    for split in ("iid", "noniid"):
        share = 1 - rounds[f"{split}_p15"] / rounds[f"{split}_p1"]
        found[f"{split}_saved_%"] = round(100 * share)
    return found


def _mean_rounds(runs: Sequence[Curves], criterion: Criterion) -> float:
    index = CRITERIA.index(criterion)
    rounds = [float(curves.reached(NOT_REACHED)[index]) for curves in runs]
    return sum(rounds) / len(rounds)


def _final_accuracy(runs: Sequence[Curves], criterion: Criterion) -> float:
    """Return the mean accuracy in per cent at the end, of the model that the criterion names."""
    column = replace(criterion, metric="accuracy").column
    accuracies = [100 * curves.at(column, math.inf) for curves in runs]
    return round(sum(accuracies) / len(accuracies), 1)


def effect_rows(search: Search) -> list[Row]:
    """Return for every value of every axis what the screening and the descents found.

    Args:
        search: A search that has ended.
    """
    rows: list[Row] = []
    for axis in AXES:
        for value in axis.values:
            accuracies = []
            for reading in _with(search.screened, axis.name, value):
                accuracies.append(100 * search.screened[reading])
            distances = []
            for reading in _with(search.fits, axis.name, value):
                distances.append(search.fits[reading].distance)
            rows.append(
                {
                    "axis": axis.name,
                    "value": value,
                    "screened": len(accuracies),
                    "mean_accuracy_%": _rounded(np.mean(accuracies) if accuracies else None, 1),
                    "best_accuracy_%": _rounded(max(accuracies, default=None), 1),
                    "on_corners": len(distances),
                    "best_distance": _rounded(min(distances, default=None), 2),
                }
            )
    return rows


def size_rows(search: Search) -> list[Row]:
    """Return the size of the space, and how much of it was tried.

    Args:
        search: A search that has ended.
    """
    readings = size()
    numbers = {
        "axes": len(AXES),
        "readings": readings,
        "criteria": len(CRITERIA),
        "readings with a criterion": readings * len(CRITERIA),
        "readings tried": len(search.tried),
        "on four cells": len(search.fits),
        "on ten cells": len(search.finals),
        "runs": len(search.runs.used),
    }
    rows: list[Row] = [{"what": what, "number": number} for what, number in numbers.items()]
    for k, distance in enumerate(search.descents):
        rows.append({"what": f"distance of descent {k + 1}", "number": round(distance, 2)})
    return rows


def _with(readings: Iterable[Reading], axis: str, value: object) -> list[Reading]:
    """Return the readings with a value on an axis, of those for which the axis has an effect."""
    found = []
    for reading in readings:
        other = replace(reading, **{axis: _another(axis, value)}).canonical()
        if getattr(reading, axis) == value and other != reading:
            found.append(reading)
    return found


def _another(axis: str, value: object) -> object:
    """Return another value of an axis."""
    values = next(a.values for a in AXES if a.name == axis)
    return next(other for other in values if other != value)


def _name(cell: Cell) -> str:
    return f"{cell.split}_p{cell.p}"


def _factor(logs: Sequence[float]) -> float:
    return round(math.exp(sum(logs) / len(logs)), 2)


def _shown(mean: float, rounds: int) -> object:
    if mean > rounds:
        return f">{rounds}"
    return round(mean)


def _rounded(value: float | None, digits: int) -> object:
    if value is None:
        return ""
    return round(float(value), digits)
