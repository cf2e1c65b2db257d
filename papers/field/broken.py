"""One faulty device among ten at p = 1, 3 and 15, with each guard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import gossamer as gs
from gossamer.report.figures import STYLE
from gossamer.study import Study
from papers.wpm.paper import SPLIT_NAMES, SPLITS, Key, Results, Scale, number, studies, write_csv

TITLE = "one faulty device among ten, p in 1, 3, 15, with clipping, trimming and checking"

POWERS = (1, 3, 15)
BROKEN = 0  # the faulty device; with one label per device, no other has its label
FAULTS: dict[str, dict[str, Any]] = {
    "one sends ten times its model": {
        "sends": "large",
        "size": 10.0,
    },  # anchored: ten times its distance from the initial model
    "one sends noise": {"sends": "noise", "size": 0.3},
}
GUARDS: dict[str, Any] = {
    "no guard": None,
    "clip 0.3": gs.Clip(0.3),
    "clip 1": gs.Clip(1.0),
    "trimmed mean": gs.TrimmedMean(0.34),  # on a ring: the middle value of three
    "checked": gs.Checked(2.0),
}
SEEDS = 3


def algorithm(
    scale: Scale, p: float, fault: str | None = None, guard: str = "no guard"
) -> gs.Algorithm:
    """Return the robust WPM; with p = 1 it is D-PSGD."""
    method: gs.Algorithm = gs.WPM.robust(p, scale.eta)
    if GUARDS[guard] is not None:
        method = gs.Guarded(method, GUARDS[guard])
    return method if fault is None else gs.Broken(method, (BROKEN,), **FAULTS[fault])


def keys(scale: Scale) -> Iterator[tuple[str, str, float, str, Key]]:
    for split in SPLITS:
        for fault in (None, *FAULTS):
            for guard in GUARDS:
                for p in POWERS:
                    key = algorithm(scale, p, fault, guard), scale.table_devices[0], split
                    yield fault or "none is broken", guard, p, split, key


def setting(scale: Scale) -> Scale:
    return replace(
        scale, seeds=min(SEEDS, scale.seeds), every=10, test=0 if scale.name == "tiny" else 2000
    )


def cells(scale: Scale) -> list[Study]:
    return studies(setting(scale), (key for *_, key in keys(scale)))


def sound(cell: gs.Run) -> float:
    """Return the mean final accuracy of the devices that are not faulty."""
    return float(np.delete(cell.metrics["device_accuracy"][-1], BROKEN).mean())


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    here, rows = results.under(setting(scale)), []
    for fault, guard, p, split, key in keys(scale):
        several, found = here.cells(key), number(here.over_seeds(key, sound), 1, 100)
        rows.append(
            {"split": split, "device": fault, "guard": guard, "p": p}
            | {f"accuracy_at_{scale.rounds}_%": found["ours"], "accuracy_95": found["ours_95"]}
            | {"diverged": sum(cell.diverged for cell in several), "seeds": len(several)}
        )
    write_csv(out / "broken.csv", rows)
    return [_picture(scale, here, out), out / "broken.csv"]


def _picture(scale: Scale, results: Results, out: Path) -> Path:
    """Draw one heat map per split and fault: final accuracy of the others by guard and p."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    faults = {fault: None for fault, *_ in keys(scale)}
    found = {
        (fault, guard, p, split): results.cells(key) for fault, guard, p, split, key in keys(scale)
    }
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            len(SPLITS), len(faults), figsize=(10, 5), sharex=True, sharey=True
        )
        for axis, (split, fault) in zip(
            axes.flat, ((s, f) for s in SPLITS for f in faults), strict=True
        ):
            share = np.zeros((len(GUARDS), len(POWERS)))
            for i, guard in enumerate(GUARDS):
                for k, p in enumerate(POWERS):
                    several = found[fault, guard, p, split]
                    value = np.mean([0.0 if cell.diverged else sound(cell) for cell in several])
                    share[i, k] = value
                    text = (
                        "diverged"
                        if any(cell.diverged for cell in several)
                        else f"{100 * value:.0f}"
                    )
                    axis.text(
                        k,
                        i,
                        text,
                        ha="center",
                        va="center",
                        fontsize=8,
                        color="black" if value > 0.5 else "white",
                    )
            image = axis.imshow(share, cmap="viridis", vmin=0.1, vmax=0.9, aspect="auto")
            axis.set_xticks(range(len(POWERS)), [f"p = {p}" for p in POWERS])
            axis.set_yticks(range(len(GUARDS)), list(GUARDS))
            axis.grid(visible=False)
        for axis, fault in zip(axes[0], faults, strict=True):
            axis.set_title(fault, fontsize=9)
        for axis, split in zip(axes[:, 0], SPLITS, strict=True):
            axis.set_ylabel(SPLIT_NAMES[split])
        label = f"accuracy of the sound devices at round {scale.rounds}"
        figure.colorbar(image, ax=axes, label=label, format=lambda x, _: f"{x:.0%}")
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "broken.png", dpi=110)
        plt.close(figure)
    return out / "broken.png"
