"""The regime map: rounds saved against D-PSGD by density and split, each at its best rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np

import gossamer as gs
from gossamer.algorithms.recipes import gain_control
from gossamer.report.figures import STYLE
from gossamer.study import Interval, Study
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

BASE = Method("D-PSGD (p = 1)", lambda eta: gs.WPM(1, eta, gs.Matched()))
MATCHED_15 = Method("WPM p = 15, matched", lambda eta: gs.WPM(15, eta, gs.Matched()))
ROBUST_15 = Method("WPM p = 15, robust", lambda eta: gs.WPM.robust(15, eta))
METHODS = (
    BASE,
    Method("WPM p = 3, matched", lambda eta: gs.WPM(3, eta, gs.Matched())),
    MATCHED_15,
    ROBUST_15,
    Method("p = 1 with gain 1.05", lambda eta: gain_control(eta, 1.05, 20)),
)
AT_MOST = 20  # devices; with more, only two of the methods are run
TARGET = -2  # index in the scale's targets: the middle one


def methods(devices: int) -> Sequence[Method]:
    return METHODS if devices <= AT_MOST else (BASE, ROBUST_15)


def setting(scale: Scale, density: float, devices: int) -> Scale:
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
    for devices in scale.map_devices:
        for density in scale.map_densities:
            for split in SPLIT_NAMES:
                yield devices, density, split


def cells(scale: Scale) -> list[Study]:
    return [
        study
        for devices, density, split in places(scale)
        for study in grid(setting(scale, density, devices), methods(devices), devices, split)
    ]


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs to report, with the tuned rates."""
    found = []
    for devices, density, split in places(scale):
        here = setting(scale, density, devices)
        best = [
            (method, tuned(results.under(here), method, devices, split, scale.targets[TARGET]))
            for method in methods(devices)
        ]
        found += studies(here, [(method.at(rate.eta), devices, split) for method, rate in best])
    return found


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    target, rows, shown = scale.targets[TARGET], [], {}
    count = rounds_to_target(scale, target)
    for devices, density, split in places(scale):
        here = results.under(setting(scale, density, devices))
        base = (BASE.at(tuned(here, BASE, devices, split, target).eta), devices, split)
        for method in methods(devices):
            best = tuned(here, method, devices, split, target)
            key = (method.at(best.eta), devices, split)
            rounds = here.over_seeds(key, count)
            saved = here.saved(base, key, count)
            gain = number(saved, 1, 100)
            rows.append(
                {
                    "devices": devices,
                    "density": density,
                    "split": split,
                    "method": method.name,
                    "target": target,
                }
                | {"eta": best.eta, "at_edge_of_grid": best.edge}
                | number(rounds)
                | {"saved_%": gain["ours"], "saved_95": gain["ours_95"]}
            )
            shown[devices, method.name, density, split] = (
                here.over_seeds(base, count),
                rounds,
                saved,
            )
    write_csv(out / "regimes.csv", rows)
    return [
        *(_map(scale, devices, shown, out) for devices in scale.map_devices),
        out / "regimes.csv",
    ]


Shown = dict[tuple[int, str, float, str], tuple[Interval | None, Interval | None, Interval | None]]


def _map(scale: Scale, devices: int, shown: Shown, out: Path) -> Path:
    """Draw one panel per method; blue: fewer rounds than tuned D-PSGD, red: more."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = [method.name for method in methods(devices) if method is not BASE]
    splits, densities = list(SPLIT_NAMES), scale.map_densities
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            1,
            len(names),
            figsize=(max(7.5, 1.2 + 2.9 * len(names)), 3.2),
            sharey=True,
            squeeze=False,
        )
        for axis, name in zip(axes[0], names, strict=True):
            share = np.full((len(splits), len(densities)), np.nan)
            for i, split in enumerate(splits):
                for k, density in enumerate(densities):
                    base, rounds, saved = shown[devices, name, density, split]
                    text = (
                        "neither"
                        if base is None and rounds is None
                        else "only\nit"
                        if base is None
                        else "only\np = 1"
                    )
                    if saved is not None:
                        share[i, k], sure = (
                            saved.mean,
                            saved.half is not None and abs(saved.mean) > saved.half,
                        )
                        text = f"{saved.mean:+.0%}" if sure else f"({saved.mean:+.0%})"
                    elif base is None and rounds is not None:
                        share[i, k] = 1.0
                    elif rounds is None and base is not None:
                        share[i, k] = -1.0
                    dark = abs(share[i, k]) > 0.45
                    axis.text(
                        k,
                        i,
                        text,
                        ha="center",
                        va="center",
                        fontsize=7,
                        color="white" if dark else "black",
                    )
            image = axis.imshow(share, cmap="RdBu", vmin=-0.6, vmax=0.6, aspect="auto")
            axis.set_xticks(range(len(densities)), [f"{d:g}" for d in densities])
            axis.set_yticks(range(len(splits)), [SPLIT_NAMES[s] for s in splits])
            axis.set_title(name, fontsize=9)
            axis.set_xlabel("density")
            axis.grid(visible=False)
        figure.colorbar(image, ax=axes[0], label="rounds saved", format=lambda x, _: f"{x:+.0%}")
        title = (
            f"Rounds to {scale.targets[TARGET]:.0%} saved against tuned D-PSGD, {devices} devices; "
            "in brackets: not significant"
        )
        figure.suptitle(title, fontsize=10)
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"regimes_{devices}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
    return path
