"""Alternative readings of what the paper leaves open, compared with its tables."""

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


def fixed_ring(devices: int, seed: int) -> gs.Network:
    """Return a static ring."""
    return gs.Ring(devices)


def readings(scale: Scale) -> dict[str, Scale]:
    """Return our reading, and others that differ from it as their name says."""
    base = replace(scale, seeds=min(SEEDS, scale.seeds), every=2 * scale.every)
    readings = {
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
        "step: matched, floor 0.001": replace(base, step=gs.Matched(1e-3)),
        "step: matched, floor 0.001, density 0.1": replace(
            base, step=gs.Matched(1e-3), network=Density(0.1)
        ),
        "step: safe (ours, not the paper's)": replace(base, step=gs.Safe()),
    }
    return (
        {name: readings[name] for name in ("ours", "step: power", "density 0.5")}
        if scale.name == "tiny"
        else readings
    )


def keys(scale: Scale) -> Iterator[Key]:
    yield from (key for *_, key in table2.keys(scale))
    yield from (
        key
        for _, devices, _, key in table1.keys(scale)
        if devices in (scale.table_devices[0], scale.table_devices[-1])
    )


def cells(scale: Scale) -> list[Study]:
    return [
        study
        for reading in readings(scale).values()
        for study in studies(reading, dict.fromkeys(keys(reading)))
    ]


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    rows: list[dict[str, object]] = []
    for name, reading in readings(scale).items():
        # Another target needs no other runs.
        for target in (scale.target, *((0.87, 0.89) if name == "ours" else ())):
            label = name if target == scale.target else f"{name}, target {target:.0%}"
            rows.append({"reading": label} | _row(reading, results.under(reading), target))
    write_csv(out / "readings.csv", rows)
    return [out / "readings.csv"]


def _row(scale: Scale, results: Results, target: float) -> dict[str, object]:
    """Return the distance of a reading to each table: a factor; for Table 1, points."""
    ten = scale.table_devices[0]

    def rounds(key: Key) -> float:
        found = [rounds_to_target(scale, target)(cell) for cell in results.cells(key)]
        return sum(value or 2 * scale.rounds for value in found) / len(
            found
        )  # not reached: as if in twice the rounds

    def mean(key: Key, column: str, t: int) -> float:
        cells = results.cells(key)
        return sum(
            math.nan if cell.diverged else at_round(column, t)(cell) for cell in cells
        ) / len(cells)

    table2_pairs = {
        split: [
            (rounds((wpm(scale, float(r["p"])), ten, split)), float(r["iterations"]))
            for r in expected("table2_convergence_by_p")
            if r["split"] == split
        ]
        for split in ("iid", "noniid")
    }
    places = {
        "10": scale.table_devices[0],
        "20": scale.table_devices[-1],
    }  # the fewest and the most: 15 say nothing more
    table3_pairs = [
        (
            rounds((wpm(scale, float(r["p"])), places[r["devices"]], r["split"])),
            float(r["iterations"]),
        )
        for r in expected("table3_convergence_by_devices")
        if r["reading"] == "as_read" and r["devices"] in places
    ]
    points = [
        100
        * mean(
            (wpm(scale, float(r["p"])), places[r["devices"]], r["split"]), "accuracy", scale.rounds
        )
        - float(r["at_500"])
        for r in expected("table1_accuracy")
        if r["devices"] in places
    ]
    distances = [
        (
            mean((wpm(scale, float(r["p"])), ten, r["split"]), "distance", t),
            float(r[f"at_{100 * (k + 1)}"]),
        )
        for r in expected("table4_consensus_distance")
        for k, t in enumerate(scale.checkpoints)
    ]
    return {
        "table1_points_off": round(sum(map(abs, points)) / len(points), 1),
        "table2_iid_factor_off": _factor(table2_pairs["iid"]),
        "table2_noniid_factor_off": _factor(table2_pairs["noniid"]),
        "table3_factor_off": _factor(table3_pairs),
        "table4_factor_off": _factor(distances),
        **{
            f"{split}_p{p}": _shown(rounds((wpm(scale, p), ten, split)), scale)
            for split in ("iid", "noniid")
            for p in table2.POWERS
        },
    }


def _factor(pairs: Iterable[tuple[float, float]]) -> float:
    """exp of the mean |log(ours/paper)|."""
    logs = [abs(math.log(max(ours, 1e-9) / paper)) for ours, paper in pairs]
    return round(math.exp(sum(logs) / len(logs)), 2)


def _shown(rounds: float, scale: Scale) -> object:
    return round(rounds) if rounds <= scale.rounds else f">{scale.rounds}"
