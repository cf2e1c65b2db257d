"""The map of the composition: mirror map x direction x gain, by network and number of devices.

    gossamer reproduce field composition

There is one label per device. Each method has the best learning rate of a grid, tuned on another
seed and on samples held out from the training data. Every power mean is shown next to a control
with a gain and no power mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.algorithms import (
    GainControl,
    GainQuasiGlobal,
    GainTracking,
    QuasiGlobal,
    Tracking,
    WPMQuasiGlobal,
    WPMTracking,
)
from gossamer.study import Study
from papers.drawing import heat_map, saved_figure
from papers.field.paper import Results, Scale, megabytes_to_target, on_held_out
from papers.wpm.paper import Density, number, random_ring, rounds_to_target, studies, write_csv
from papers.wpm.tuning import Method, Tuned, grid, tuned

TITLE = "the composition: rounds to the target by method, network and devices; one label per device"

SPLIT = "noniid"
NETWORKS = {
    "density 0.05": Density(0.05),
    "density 0.1": Density(0.1),
    "random ring": random_ring,
    "density 0.5": Density(0.5),
}
METHODS = (
    Method("D-PSGD", lambda eta: gs.WPM(1, eta, gs.Matched(), anchor=False)),
    Method("gain 1.1 @20 (control)", lambda eta: GainControl(eta, 1.1, 20)),
    Method("p = 15", lambda eta: gs.WPM(15, eta)),
    Method("QG", lambda eta: QuasiGlobal(eta)),
    Method("QG, gain 1.05 @20 (control)", lambda eta: GainQuasiGlobal(eta, gain=1.05)),
    Method("QG, gain 1.1 @20 (control)", lambda eta: GainQuasiGlobal(eta, gain=1.1)),
    Method("QG, p = 5 @20", lambda eta: WPMQuasiGlobal(eta, p=gs.Switch(5, 20))),
    Method("QG, p = 15 @20", lambda eta: WPMQuasiGlobal(eta, p=gs.Switch(15, 20))),
    Method("tracking", lambda eta: Tracking(eta)),
    Method("tracking, gain 1.1 @20 (control)", lambda eta: GainTracking(eta, gain=1.1)),
    Method("tracking, p = 5 @20", lambda eta: WPMTracking(eta, gs.Switch(5, 20))),
)
BASE = METHODS[0]


def setting(scale: Scale, network: str, devices: int) -> Scale:
    """Return the setting of one network and number of devices."""
    setting = replace(
        scale,
        network=NETWORKS[network],
        seeds=min(3, scale.seeds),
        tuning_seeds=scale.tuning_seeds[:1],
        measure_at="after_mix",
    )
    if scale.name == "tiny":
        return replace(setting, test=0)
    rounds = 300 if devices < 100 else 200
    return replace(setting, rounds=rounds, grid=(0.01, 0.02, 0.04, 0.08, 0.16), test=2000)


def settings(scale: Scale) -> Iterator[tuple[int, str, Scale]]:
    """Yield every number of devices and network with its setting."""
    for devices in scale.figure_devices:
        for network in NETWORKS:
            yield devices, network, setting(scale, network, devices)


def chosen(scale: Scale, results: Results) -> Iterator[tuple[int, str, Scale, Method, Tuned]]:
    """Yield every setting and method with its tuned rate."""
    for devices, network, here in settings(scale):
        tuning = results.under(on_held_out(here))
        for method in METHODS:
            best = tuned(tuning, method, devices, SPLIT, scale.target)
            yield devices, network, here, method, best


def cells(scale: Scale) -> list[Study]:
    """Return the runs that tuning needs."""
    found = []
    for devices, _, here in settings(scale):
        found += grid(on_held_out(here), METHODS, devices, SPLIT)
    return found


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs that are reported, once the rates are known."""
    found = []
    for devices, _, here, method, best in chosen(scale, results):
        found += studies(here, [(method.at(best.eta), devices, SPLIT)])
    return found


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table and the figure."""
    rows = []
    for devices, network, here, method, best in chosen(scale, results):
        key = (method.at(best.eta), devices, SPLIT)
        reported = results.under(here)
        rounds = number(reported.over_seeds(key, rounds_to_target(scale)), 0)
        sent = number(reported.over_seeds(key, megabytes_to_target(scale)), 1)
        rows.append(
            {
                "devices": devices,
                "network": network,
                "method": method.name,
                "eta": best.eta,
                "at_edge_of_grid": best.edge,
                "rounds": rounds["ours"],
                "rounds_95": rounds["ours_95"],
                "megabytes": sent["ours"],
                "within": here.rounds,
            }
        )
    write_csv(out / "composition.csv", rows)
    return [out / "composition.csv", _draw(scale, rows, out / "composition.png")]


def _draw(scale: Scale, rows: list[dict[str, object]], path: Path) -> Path:
    """Draw one heat map per number of devices: rounds to the target, compared with D-PSGD's."""
    rounds = {}
    shown = {}
    for row in rows:
        key = (row["devices"], row["network"], row["method"])
        # A method that does not reach the target takes longer than the run.
        rounds[key] = float(str(row["rounds"] or row["within"]))
        shown[key] = "–" if row["rounds"] == "" else f"{float(str(row['rounds'])):.0f}"
    count = len(scale.figure_devices)
    size = {"figsize": (3 + 3.2 * count, 4), "sharey": True}
    with saved_figure(path, 1, count, **size) as (figure, axes):
        for axis, devices in zip(np.atleast_1d(axes), scale.figure_devices, strict=True):
            speed_up = np.full((len(METHODS), len(NETWORKS)), np.nan)
            texts = []
            for i, method in enumerate(METHODS):
                for k, network in enumerate(NETWORKS):
                    base = rounds[devices, network, BASE.name]
                    speed_up[i, k] = np.log2(base / rounds[devices, network, method.name])
                texts.append([shown[devices, network, method.name] for network in NETWORKS])
            white = np.abs(speed_up) > 2
            image = heat_map(axis, speed_up, texts, white, cmap="RdBu", vmin=-3, vmax=3)
            axis.set_xticks(
                range(len(NETWORKS)), list(NETWORKS), rotation=30, ha="right", fontsize=8
            )
            axis.set_yticks(range(len(METHODS)), [method.name for method in METHODS], fontsize=8)
            axis.set_title(f"{devices} devices", fontsize=9)
        label = "times as fast as tuned D-PSGD (at least, where that has –)"
        figure.colorbar(image, ax=axes, label=label, format=lambda x, _: f"{2**x:.3g}×")
        figure.suptitle(
            f"Rounds to {scale.target:.0%}, one label per device, every rate tuned; –: not reached",
            fontsize=10,
        )
    return path
