"""The regime map: the rounds that a method saves against D-PSGD, by density and split.

    gossamer reproduce wpm regimes

Both have their own best learning rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.algorithms import GainControl
from gossamer.study import Interval, Study
from papers.drawing import heat_map, saved_figure
from papers.wpm.paper import (
    SPLIT_NAMES,
    Density,
    Results,
    Scale,
    number,
    rounds_to_target,
    studies,
    write_csv,
)
from papers.wpm.tuning import Method, grid, tuned

TITLE = "rounds saved against tuned p = 1, by density, split and devices: a heat map"

BASE = Method("D-PSGD (p = 1)", lambda eta: gs.WPM(1, eta, gs.Matched(), anchor=False))
MATCHED_15 = Method("WPM p = 15, matched", lambda eta: gs.WPM(15, eta, gs.Matched(), anchor=False))
ROBUST_15 = Method("WPM p = 15, robust", lambda eta: gs.WPM(15, eta))
METHODS = (
    BASE,
    Method("WPM p = 3, matched", lambda eta: gs.WPM(3, eta, gs.Matched(), anchor=False)),
    MATCHED_15,
    ROBUST_15,
    Method("p = 1 with gain 1.05", lambda eta: GainControl(eta, 1.05, 20)),
)
AT_MOST = 20  # devices up to which every method is run; with more devices, only two
TARGET = -2  # index of the target among those of the scale: the middle one


def methods(devices: int) -> Sequence[Method]:
    """Return the methods that are run on a number of devices."""
    if devices <= AT_MOST:
        return METHODS
    return (BASE, ROBUST_15)


def setting(scale: Scale, density: float, devices: int) -> Scale:
    """Return the setting of one density and number of devices."""
    return replace(
        scale,
        network=Density(density),
        rounds=scale.map_rounds if devices <= AT_MOST else scale.map_rounds * 2 // 3,
        seeds=min(scale.map_seeds, scale.seeds),
        tuning_seeds=scale.tuning_seeds[:1],
        grid=tuple(eta for eta in scale.grid if 0.003 < eta < 0.3) or scale.grid,
        test=0 if scale.name == "tiny" else 1000,
    )


def places(scale: Scale) -> Iterator[tuple[int, float, str]]:
    """Yield every number of devices, density and split of the map."""
    for devices in scale.map_devices:
        for density in scale.map_densities:
            for split in SPLIT_NAMES:
                yield devices, density, split


def cells(scale: Scale) -> list[Study]:
    """Return the runs that tuning needs."""
    found = []
    for devices, density, split in places(scale):
        found += grid(setting(scale, density, devices), methods(devices), devices, split)
    return found


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs that are reported, once the rates are known."""
    target = scale.targets[TARGET]
    found = []
    for devices, density, split in places(scale):
        here = setting(scale, density, devices)
        for method in methods(devices):
            best = tuned(results.under(here), method, devices, split, target)
            found += studies(here, [(method.at(best.eta), devices, split)])
    return found


@dataclass(frozen=True)
class Cell:
    """One cell of the map: rounds of D-PSGD and of the method, and the share that it saves.

    None: the target is not reached by every seed.
    """

    base: Interval | None
    rounds: Interval | None
    saved: Interval | None

    @property
    def share(self) -> float:
        """The value of the colour: 1 or -1 if only one of the two reaches the target."""
        if self.saved is not None:
            return self.saved.mean
        if self.base is None and self.rounds is not None:
            return 1.0
        if self.base is not None and self.rounds is None:
            return -1.0
        return np.nan

    @property
    def text(self) -> str:
        """The text of the cell; a share that is not significant is in brackets."""
        if self.saved is not None:
            share = f"{self.saved.mean:+.0%}"
            half = self.saved.half
            is_significant = half is not None and abs(self.saved.mean) > half
            return share if is_significant else f"({share})"
        if self.base is not None:
            return "only\np = 1"
        if self.rounds is not None:
            return "only\nit"
        return "neither"


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table and one map per number of devices."""
    target = scale.targets[TARGET]
    count = rounds_to_target(scale, target)
    rows = []
    shown = {}
    for devices, density, split in places(scale):
        here = results.under(setting(scale, density, devices))
        base = (BASE.at(tuned(here, BASE, devices, split, target).eta), devices, split)
        for method in methods(devices):
            best = tuned(here, method, devices, split, target)
            key = (method.at(best.eta), devices, split)
            cell = Cell(
                here.over_seeds(base, count),
                here.over_seeds(key, count),
                here.saved(base, key, count),
            )
            saved = number(cell.saved, 1, 100)
            rows.append(
                {
                    "devices": devices,
                    "density": density,
                    "split": split,
                    "method": method.name,
                    "target": target,
                    "eta": best.eta,
                    "at_edge_of_grid": best.edge,
                    **number(cell.rounds),
                    "saved_%": saved["ours"],
                    "saved_95": saved["ours_95"],
                }
            )
            shown[devices, method.name, density, split] = cell
    write_csv(out / "regimes.csv", rows)
    maps = [_draw(scale, devices, shown, out) for devices in scale.map_devices]
    return [*maps, out / "regimes.csv"]


def _draw(
    scale: Scale, devices: int, shown: dict[tuple[int, str, float, str], Cell], out: Path
) -> Path:
    """Draw one heat map per method; blue: fewer rounds than tuned D-PSGD, red: more."""
    path = out / f"regimes_{devices}.png"
    names = [method.name for method in methods(devices) if method is not BASE]
    densities = scale.map_densities
    size = {"figsize": (max(7.5, 1.2 + 2.9 * len(names)), 3.2), "sharey": True, "squeeze": False}
    with saved_figure(path, 1, len(names), **size) as (figure, axes):
        for axis, name in zip(axes[0], names, strict=True):
            share = np.full((len(SPLIT_NAMES), len(densities)), np.nan)
            texts = []
            for i, split in enumerate(SPLIT_NAMES):
                cells = [shown[devices, name, density, split] for density in densities]
                share[i] = [cell.share for cell in cells]
                texts.append([cell.text for cell in cells])
            white = np.abs(share) > 0.45
            image = heat_map(
                axis, share, texts, white, fontsize=7, cmap="RdBu", vmin=-0.6, vmax=0.6
            )
            axis.set_xticks(range(len(densities)), [f"{density:g}" for density in densities])
            axis.set_yticks(range(len(SPLIT_NAMES)), list(SPLIT_NAMES.values()))
            axis.set_title(name, fontsize=9)
            axis.set_xlabel("density")
        figure.colorbar(image, ax=axes[0], label="rounds saved", format=lambda x, _: f"{x:+.0%}")
        figure.suptitle(
            f"Rounds to {scale.targets[TARGET]:.0%} saved against tuned D-PSGD, "
            f"{devices} devices; in brackets: not significant",
            fontsize=10,
        )
    return path
