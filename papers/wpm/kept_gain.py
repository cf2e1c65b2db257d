"""A gain that is kept for longer, against a power mean: sparse links and one label per device.

gossamer reproduce wpm kept_gain
"""

from __future__ import annotations

from pathlib import Path

from gossamer.algorithms import GainControl
from gossamer.study import Study
from papers.wpm import regimes
from papers.wpm.paper import Results, Scale, number, rounds_to_target, studies, write_csv
from papers.wpm.tuning import Method, grid, tuned

TITLE = "a gain of 1.05 kept for 20, 40 and 60 rounds against a robust power mean; density 0.1"

METHODS = (
    regimes.BASE,
    regimes.ROBUST_15,
    *(
        Method(
            f"p = 1 with gain 1.05 for {rounds} rounds",
            lambda eta, rounds=rounds: GainControl(eta, 1.05, rounds),
        )
        for rounds in (20, 40, 60)
    ),
)
DENSITY = 0.1
SPLIT = "noniid"


def setting(scale: Scale) -> Scale:
    """Return the setting of the regime map at this density, where two devices per label exist."""
    return regimes.setting(scale, DENSITY, scale.map_devices[0])


def cells(scale: Scale) -> list[Study]:
    """Return the runs that tuning needs."""
    return grid(setting(scale), METHODS, scale.map_devices[0], SPLIT)


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs that are reported, once the rates are known."""
    here = results.under(setting(scale))
    devices = scale.map_devices[0]
    target = scale.targets[regimes.TARGET]
    found = []
    for method in METHODS:
        best = tuned(here, method, devices, SPLIT, target)
        found += studies(here.scale, [(method.at(best.eta), devices, SPLIT)])
    return found


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table."""
    here = results.under(setting(scale))
    devices = scale.map_devices[0]
    target = scale.targets[regimes.TARGET]
    count = rounds_to_target(scale, target)
    base = (regimes.BASE.at(tuned(here, regimes.BASE, devices, SPLIT, target).eta), devices, SPLIT)
    rows: list[dict[str, object]] = []
    for method in METHODS:
        best = tuned(here, method, devices, SPLIT, target)
        key = (method.at(best.eta), devices, SPLIT)
        saved = number(here.saved(base, key, count), 1, 100)
        row: dict[str, object] = {"devices": devices, "density": DENSITY, "method": method.name}
        row |= {"target": target, "eta": best.eta, "at_edge_of_grid": best.edge}
        row |= number(here.over_seeds(key, count))
        row |= {"saved_%": saved["ours"], "saved_95": saved["ours_95"]}
        rows.append(row)
    write_csv(out / "kept_gain.csv", rows)
    return [out / "kept_gain.csv"]
