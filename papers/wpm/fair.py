"""The fair comparison: every method at its own best rate, tuned on seeds that are not reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.algorithms.recipes import gain_control
from gossamer.study import Study
from papers.wpm.paper import SPLITS, Results, Scale, number, rounds_to_target, studies, write_csv
from papers.wpm.tuning import Method, Tuned, grid, tuned

TITLE = "every method with its own best rate; rounds to several targets; 10 devices"

METHODS = (
    Method("D-PSGD (p = 1)", lambda eta: gs.WPM(1, eta, gs.Matched())),
    *(
        Method(f"WPM p = {p}, matched", lambda eta, p=p: gs.WPM(p, eta, gs.Matched()))
        for p in (3, 5, 15)
    ),
    *(Method(f"WPM p = {p}, robust", lambda eta, p=p: gs.WPM.robust(p, eta)) for p in (3, 5, 15)),
    Method(
        "WPM p = 5, robust, 20 rounds, then 1", lambda eta: gs.WPM.robust(gs.Switch(5, 20), eta)
    ),
    *(
        Method(f"p = 1 with gain {gain}", lambda eta, gain=gain: gain_control(eta, gain, 20))
        for gain in (1.05, 1.1)
    ),
    Method("SwarmSGD", lambda eta: gs.SwarmSGD(eta, local_steps=1)),
    Method("All-Reduce (not decentralised)", lambda eta: gs.AllReduce(eta)),
)


def setting(scale: Scale) -> Scale:
    """Return the setting with fewer test samples, the same for all methods."""
    return replace(scale, test=0 if scale.name == "tiny" else 1000)


def chosen(scale: Scale, results: Results) -> Iterator[tuple[str, Method, float, Tuned]]:
    results = results.under(setting(scale))
    for split in SPLITS:
        for method in METHODS:
            for target in scale.targets:
                yield (
                    split,
                    method,
                    target,
                    tuned(results, method, scale.table_devices[0], split, target),
                )


def cells(scale: Scale) -> list[Study]:
    return [
        study
        for split in SPLITS
        for study in grid(setting(scale), METHODS, scale.table_devices[0], split)
    ]


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs to report, with the tuned rates."""
    keys = {
        (method.at(best.eta), scale.table_devices[0], split): None
        for split, method, _, best in chosen(scale, results)
    }
    return studies(setting(scale), keys)


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    reported = results.under(setting(scale))
    base = {}
    rows = []
    for split, method, target, best in chosen(scale, results):
        key = (method.at(best.eta), scale.table_devices[0], split)
        base.setdefault((split, target), key)  # the first method is the baseline
        count = rounds_to_target(scale, target)
        saved = number(reported.saved(base[split, target], key, count), 1, 100)
        reached = sum(count(cell) is not None for cell in reported.cells(key))
        rows.append(
            {
                "split": split,
                "method": method.name,
                "target": target,
                "eta": best.eta,
                "at_edge_of_grid": best.edge,
            }
            | number(reported.over_seeds(key, count))
            | {
                "seeds_that_reached": reached,
                "saved_%": saved["ours"],
                "saved_95": saved["ours_95"],
            }
        )
    write_csv(out / "fair.csv", rows)
    return [out / "fair.csv"]
