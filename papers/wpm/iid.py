"""IID data: momentum against tuned D-PSGD, in the setting of the fair comparison.

gossamer reproduce wpm iid
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.algorithms import QuasiGlobal
from gossamer.study import Study
from papers.wpm.paper import Results, Scale, number, rounds_to_target, studies, write_csv
from papers.wpm.tuning import Method, grid, tuned

TITLE = "IID data: heavy ball and quasi-global momentum against D-PSGD, each with its own best rate"

BASE = Method("D-PSGD", lambda eta: gs.WPM(1, eta, gs.Matched(), anchor=False))
METHODS = (
    BASE,
    Method(
        "heavy ball per device",
        lambda eta: gs.Composition(eta=eta, optimizer=gs.SGD(0.9)),
    ),
    Method("quasi-global momentum", lambda eta: QuasiGlobal(eta, 0.9)),
)
SPLIT = "iid"


def settings(scale: Scale) -> Iterator[tuple[str, Scale]]:
    """Yield the data sets with their settings: target, batch size and test samples."""
    if scale.name == "tiny":
        yield "digits", replace(scale, target=scale.targets[-1])
        return
    yield "MNIST", replace(scale, rounds=300, test=1000, target=0.88)
    yield "digits", replace(scale, data=gs.Digits(), rounds=300, batch=32, target=0.95)


def cells(scale: Scale) -> list[Study]:
    """Return the runs that tuning needs."""
    found = []
    for _, setting in settings(scale):
        found += grid(setting, METHODS, setting.table_devices[0], SPLIT)
    return found


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs that are reported, once the rates are known."""
    found = []
    for _, setting in settings(scale):
        devices = setting.table_devices[0]
        for method in METHODS:
            best = tuned(results.under(setting), method, devices, SPLIT, setting.target)
            found += studies(setting, [(method.at(best.eta), devices, SPLIT)])
    return found


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table."""
    rows: list[dict[str, object]] = []
    for data, setting in settings(scale):
        here = results.under(setting)
        devices = setting.table_devices[0]
        count = rounds_to_target(setting)
        base = (BASE.at(tuned(here, BASE, devices, SPLIT, setting.target).eta), devices, SPLIT)
        for method in METHODS:
            best = tuned(here, method, devices, SPLIT, setting.target)
            key = (method.at(best.eta), devices, SPLIT)
            saved = number(here.saved(base, key, count), 1, 100)
            row: dict[str, object] = {"data": data, "method": method.name}
            row |= {"target": setting.target, "eta": best.eta, "at_edge_of_grid": best.edge}
            row |= number(here.over_seeds(key, count))
            row |= {"saved_%": saved["ours"], "saved_95": saved["ours_95"]}
            rows.append(row)
    write_csv(out / "iid.csv", rows)
    return [out / "iid.csv"]
