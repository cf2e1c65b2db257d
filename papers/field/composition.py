"""The map of the composition: mirror map x direction x gain by network and number of devices.

One label per device. Each method has its own best rate of a grid, tuned on another seed and on
samples held out from the training data. Every power mean has a control: a gain without a power
mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np

import gossamer as gs
from gossamer.algorithms.recipes import gain_control, quasi_global, tracking
from gossamer.report.figures import STYLE
from gossamer.study import Study
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
    Method("D-PSGD", lambda eta: gs.WPM(1, eta, gs.Matched())),
    Method("gain 1.1 @20 (control)", lambda eta: gain_control(eta, 1.1, 20)),
    Method("p = 15", lambda eta: gs.WPM.robust(15, eta)),
    Method("QG", lambda eta: quasi_global(eta)),
    Method("QG, gain 1.05 @20 (control)", lambda eta: quasi_global(eta, gain=gs.Switch(1.05, 20))),
    Method("QG, gain 1.1 @20 (control)", lambda eta: quasi_global(eta, gain=gs.Switch(1.1, 20))),
    Method("QG, p = 5 @20", lambda eta: quasi_global(eta, p=gs.Switch(5, 20))),
    Method("QG, p = 15 @20", lambda eta: quasi_global(eta, p=gs.Switch(15, 20))),
    Method("tracking", lambda eta: tracking(eta)),
    Method("tracking, gain 1.1 @20 (control)", lambda eta: tracking(eta, gain=gs.Switch(1.1, 20))),
    Method("tracking, p = 5 @20", lambda eta: tracking(eta, gs.Switch(5, 20))),
)


def setting(scale: Scale, network: str, devices: int) -> Scale:
    tiny = scale.name == "tiny"
    return replace(
        scale,
        network=NETWORKS[network],
        rounds=scale.rounds if tiny else 300 if devices < 100 else 200,
        seeds=min(3, scale.seeds),
        tuning_seeds=scale.tuning_seeds[:1],
        grid=scale.grid if tiny else (0.01, 0.02, 0.04, 0.08, 0.16),
        test=0 if tiny else 2000,
        measure_at="after_mix",
    )


def places(scale: Scale) -> Iterator[tuple[int, str, Scale]]:
    for devices in scale.figure_devices:
        for network in NETWORKS:
            yield devices, network, setting(scale, network, devices)


def chosen(scale: Scale, results: Results) -> Iterator[tuple[int, str, Scale, Method, Tuned]]:
    for devices, network, here in places(scale):
        tuning = results.under(on_held_out(here))
        for method in METHODS:
            yield (
                devices,
                network,
                here,
                method,
                tuned(tuning, method, devices, SPLIT, scale.target),
            )


def cells(scale: Scale) -> list[Study]:
    return [
        study
        for devices, _, here in places(scale)
        for study in grid(on_held_out(here), METHODS, devices, SPLIT)
    ]


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs to report, with the tuned rates."""
    return [
        study
        for devices, _, here, method, best in chosen(scale, results)
        for study in studies(here, [(method.at(best.eta), devices, SPLIT)])
    ]


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    rows = []
    for devices, network, here, method, best in chosen(scale, results):
        key = (method.at(best.eta), devices, SPLIT)
        found = {
            "devices": devices,
            "network": network,
            "method": method.name,
            "eta": best.eta,
            "at_edge_of_grid": best.edge,
        }
        rounds = number(results.under(here).over_seeds(key, rounds_to_target(scale)), 0)
        sent = number(results.under(here).over_seeds(key, megabytes_to_target(scale)), 1)
        rows.append(
            found
            | {
                "rounds": rounds["ours"],
                "rounds_95": rounds["ours_95"],
                "megabytes": sent["ours"],
                "within": here.rounds,
            }
        )
    write_csv(out / "composition.csv", rows)
    return [out / "composition.csv", _map(scale, rows, out)]


def _map(scale: Scale, rows: list[dict[str, object]], out: Path) -> Path:
    """Draw one panel per number of devices: rounds to the target, coloured against D-PSGD."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    by = {(row["devices"], row["network"], row["method"]): row["rounds"] for row in rows}
    within = {
        row["devices"]: float(str(row["within"])) for row in rows
    }  # what is not reached takes longer than that
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            1,
            len(scale.figure_devices),
            figsize=(3 + 3.2 * len(scale.figure_devices), 4),
            sharey=True,
        )
        for axis, devices in zip(np.atleast_1d(axes), scale.figure_devices, strict=True):
            colour = np.full((len(METHODS), len(NETWORKS)), np.nan)
            for i, method in enumerate(METHODS):
                for k, network in enumerate(NETWORKS):
                    rounds, base = (
                        by[devices, network, name] for name in (method.name, METHODS[0].name)
                    )
                    colour[i, k] = np.log2(
                        float(str(base or within[devices])) / float(str(rounds or within[devices]))
                    )
                    dark = abs(colour[i, k]) > 2
                    shown = f"{float(str(rounds)):.0f}" if rounds != "" else "–"
                    axis.text(
                        k,
                        i,
                        shown,
                        ha="center",
                        va="center",
                        fontsize=8,
                        color="white" if dark else "black",
                    )
            image = axis.imshow(colour, cmap="RdBu", vmin=-3, vmax=3, aspect="auto")
            axis.set_xticks(
                range(len(NETWORKS)), list(NETWORKS), rotation=30, ha="right", fontsize=8
            )
            axis.set_yticks(range(len(METHODS)), [method.name for method in METHODS], fontsize=8)
            axis.set_title(f"{devices} devices", fontsize=9)
            axis.grid(visible=False)
        figure.colorbar(
            image,
            ax=axes,
            label="times as fast as tuned D-PSGD (at least, where that has –)",
            format=lambda x, _: f"{2**x:.3g}×",
        )
        figure.suptitle(
            f"Rounds to {scale.target:.0%}, one label a device, every rate tuned; –: not reached",
            fontsize=10,
        )
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "composition.png", dpi=110)
        plt.close(figure)
    return out / "composition.png"
