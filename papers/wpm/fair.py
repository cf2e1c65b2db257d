"""The fair comparison: every method with its own best rate, tuned on seeds that are not reported.

gossamer reproduce wpm fair
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gossamer as gs
from gossamer.algorithms import GainControl
from gossamer.study import Study
from papers.wpm.paper import SPLITS, Results, Scale, number, rounds_to_target, studies, write_csv
from papers.wpm.tuning import Method, Tuned, grid, tuned

TITLE = "every method with its own best rate; rounds to several targets; 10 devices"

METHODS = (
    Method("D-PSGD (p = 1)", lambda eta: gs.WPM(1, eta, gs.Matched(), anchor=False)),
    Method("WPM p = 3, matched", lambda eta: gs.WPM(3, eta, gs.Matched(), anchor=False)),
    Method("WPM p = 5, matched", lambda eta: gs.WPM(5, eta, gs.Matched(), anchor=False)),
    Method("WPM p = 15, matched", lambda eta: gs.WPM(15, eta, gs.Matched(), anchor=False)),
    Method("WPM p = 3, robust", lambda eta: gs.WPM(3, eta)),
    Method("WPM p = 5, robust", lambda eta: gs.WPM(5, eta)),
    Method("WPM p = 15, robust", lambda eta: gs.WPM(15, eta)),
    Method("WPM p = 5, robust, 20 rounds, then 1", lambda eta: gs.WPM(gs.Switch(5, 20), eta)),
    Method("p = 1 with gain 1.05", lambda eta: GainControl(eta, 1.05, 20)),
    Method("p = 1 with gain 1.1", lambda eta: GainControl(eta, 1.1, 20)),
    Method("SwarmSGD", lambda eta: gs.SwarmSGD(eta, local_steps=1)),
    Method("All-Reduce (not decentralised)", lambda eta: gs.AllReduce(eta)),
)
BASE = METHODS[0]


def setting(scale: Scale) -> Scale:
    """Return the setting of this study: measured on some of the test samples, the same for all."""
    return replace(scale, test=0 if scale.name == "tiny" else 1000)


def chosen(scale: Scale, results: Results) -> Iterator[tuple[str, Method, float, Tuned]]:
    """Yield every split, method and target with the tuned rate."""
    tuning = results.under(setting(scale))
    for split in SPLITS:
        for method in METHODS:
            for target in scale.targets:
                best = tuned(tuning, method, scale.table_devices[0], split, target)
                yield split, method, target, best


def cells(scale: Scale) -> list[Study]:
    """Return the runs that tuning needs."""
    found = []
    for split in SPLITS:
        found += grid(setting(scale), METHODS, scale.table_devices[0], split)
    return found


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs that are reported, once the rates are known."""
    keys: dict[Any, None] = {}
    for split, method, _, best in chosen(scale, results):
        keys[method.at(best.eta), scale.table_devices[0], split] = None
    return studies(setting(scale), keys)


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table."""
    reported = results.under(setting(scale))
    base = {}
    rows = []
    for split, method, target, best in chosen(scale, results):
        key = (method.at(best.eta), scale.table_devices[0], split)
        if method is BASE:
            base[split, target] = key
        count = rounds_to_target(scale, target)
        saved = number(reported.saved(base[split, target], key, count), 1, 100)
        reached = sum(count(run) is not None for run in reported.cells(key))
        rows.append(
            {
                "split": split,
                "method": method.name,
                "target": target,
                "eta": best.eta,
                "at_edge_of_grid": best.edge,
                **number(reported.over_seeds(key, count)),
                "seeds_that_reached": reached,
                "saved_%": saved["ours"],
                "saved_95": saved["ours_95"],
            }
        )
    write_csv(out / "fair.csv", rows)
    return [out / "fair.csv"]
