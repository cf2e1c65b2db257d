"""Readings x tables: what the paper leaves open, read in several ways, and how well each fits.

gossamer reproduce wpm readings
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.study import Study
from papers.wpm import table1, table2
from papers.wpm.paper import (
    Density,
    Key,
    Results,
    Scale,
    at_round,
    expected,
    rounds_to_target,
    studies,
    wpm,
    write_csv,
)

TITLE = "readings of what the paper leaves open, and how close each comes to each table"

SEEDS = 2
OTHER_TARGETS = (0.87, 0.89)  # of our own reading; they need no other runs


def fixed_ring(devices: int, seed: int) -> gs.Network:
    """Return a ring that never changes."""
    return gs.Ring(devices)


def readings(scale: Scale) -> dict[str, Scale]:
    """Return our reading, and others that each differ from it in what their name says.

    Args:
        scale: The setting.
    """
    base = replace(scale, seeds=min(SEEDS, scale.seeds), every=2 * scale.every)
    floor = gs.Matched(1e-3)
    found = {
        "ours": base,
        "gradient at w": replace(base, gradient_at="local"),
        "adapt, then combine": replace(base, order="adapt-then-combine", measure_at="after_mix"),
        "measured after the mix": replace(base, measure_at="after_mix"),
        "a ring that never changes": replace(base, network=fixed_ring),
        "density 0.1": replace(base, network=Density(0.1)),
        "density 0.5": replace(base, network=Density(0.5)),
        "density 1": replace(base, network=Density(1.0)),
        "step: power": replace(base, step=gs.Power()),
        "step: constant": replace(base, step=gs.Constant()),
        "step: matched, floor 0.001": replace(base, step=floor),
        "step: matched, floor 0.001, density 0.1": replace(base, step=floor, network=Density(0.1)),
        "step: safe (ours, not the paper's)": replace(base, step=gs.Safe()),
    }
    if scale.name == "tiny":
        return {name: found[name] for name in ("ours", "step: power", "density 0.5")}
    return found


def keys(scale: Scale) -> Iterator[Key]:
    """Yield the keys of Table 2, and of Table 1 for the smallest and largest number of devices."""
    for *_, key in table2.keys(scale):
        yield key
    for _, devices, _, key in table1.keys(scale):
        if devices in (scale.table_devices[0], scale.table_devices[-1]):
            yield key


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs."""
    found = []
    for reading in readings(scale).values():
        found += studies(reading, dict.fromkeys(keys(reading)))
    return found


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table."""
    rows: list[dict[str, object]] = []
    for name, reading in readings(scale).items():
        found = results.under(reading)
        rows.append({"reading": name} | _row(reading, found, scale.target))
        if name == "ours":
            for target in OTHER_TARGETS:
                label = f"{name}, target {target:.0%}"
                rows.append({"reading": label} | _row(reading, found, target))
    write_csv(out / "readings.csv", rows)
    return [out / "readings.csv"]


def _row(scale: Scale, results: Results, target: float) -> dict[str, object]:
    """Return how far a reading is from each table.

    That is a typical factor (1 is a perfect fit), and for Table 1 a typical distance in points.
    """
    ten = scale.table_devices[0]
    # The smallest and largest number of devices; 15 devices show nothing more.
    devices = {"10": scale.table_devices[0], "20": scale.table_devices[-1]}

    def rounds(key: Key) -> float:
        """Return the mean rounds to the target; twice the run if it is not reached."""
        found = [rounds_to_target(scale, target)(run) for run in results.cells(key)]
        return sum(value or 2 * scale.rounds for value in found) / len(found)

    def mean(key: Key, column: str, t: int) -> float:
        """Return the mean of a metric in round t; NaN if a run diverged."""
        runs = results.cells(key)
        values = [math.nan if run.diverged else at_round(column, t)(run) for run in runs]
        return sum(values) / len(values)

    points = []
    for r in expected("table1_accuracy"):
        if r["devices"] in devices:
            key = (wpm(scale, float(r["p"])), devices[r["devices"]], r["split"])
            ours = 100 * mean(key, "accuracy", scale.rounds)
            points.append(abs(ours - float(r["at_500"])))
    table2_pairs: dict[str, list[tuple[float, float]]] = {"iid": [], "noniid": []}
    for r in expected("table2_convergence_by_p"):
        key = (wpm(scale, float(r["p"])), ten, r["split"])
        table2_pairs[r["split"]].append((rounds(key), float(r["iterations"])))
    table3_pairs = []
    for r in expected("table3_convergence_by_devices"):
        if r["reading"] == "as_read" and r["devices"] in devices:
            key = (wpm(scale, float(r["p"])), devices[r["devices"]], r["split"])
            table3_pairs.append((rounds(key), float(r["iterations"])))
    table4_pairs = []
    for r in expected("table4_consensus_distance"):
        key = (wpm(scale, float(r["p"])), ten, r["split"])
        for k, t in enumerate(scale.checkpoints):
            table4_pairs.append((mean(key, "distance", t), float(r[f"at_{100 * (k + 1)}"])))
    row: dict[str, object] = {
        "table1_points_off": round(sum(points) / len(points), 1),
        "table2_iid_factor_off": _factor(table2_pairs["iid"]),
        "table2_noniid_factor_off": _factor(table2_pairs["noniid"]),
        "table3_factor_off": _factor(table3_pairs),
        "table4_factor_off": _factor(table4_pairs),
    }
    for split in ("iid", "noniid"):
        for p in table2.POWERS:
            row[f"{split}_p{p}"] = _shown(rounds((wpm(scale, p), ten, split)), scale)
    return row


def _factor(pairs: Iterable[tuple[float, float]]) -> float:
    """Return exp of the mean |log(ours/paper)|."""
    logs = [abs(math.log(max(ours, 1e-9) / paper)) for ours, paper in pairs]
    return round(math.exp(sum(logs) / len(logs)), 2)


def _shown(rounds: float, scale: Scale) -> object:
    if rounds > scale.rounds:
        return f">{scale.rounds}"
    return round(rounds)
