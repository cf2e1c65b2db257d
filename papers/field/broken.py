"""One broken device among ten: its effect for p = 1, 3 and 15, and what each guard restores.

gossamer reproduce field broken
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import gossamer as gs
from gossamer.study import Study
from papers.drawing import heat_map, saved_figure
from papers.wpm.paper import SPLIT_NAMES, SPLITS, Key, Results, Scale, number, studies, write_csv

TITLE = "one faulty device among ten, p in 1, 3, 15, with clipping, trimming and checking"

POWERS = (1, 3, 15)
BROKEN = 0  # number of the broken device; with one label per device, no other has its label
FAULTS: dict[str, dict[str, Any]] = {
    # The method is anchored, so that this is ten times the distance from the start.
    "one sends ten times its model": {"sends": "large", "size": 10.0},
    "one sends noise": {"sends": "noise", "size": 0.3},
}
GUARDS: dict[str, Any] = {
    "no guard": None,
    "clip 0.3": gs.Clip(0.3),
    "clip 1": gs.Clip(1.0),
    "trimmed mean": gs.TrimmedMean(0.34),  # on a ring: the median of three
    "checked": gs.Checked(2.0),
}
SEEDS = 3


def algorithm(
    scale: Scale, p: float, fault: str | None = None, guard: str = "no guard"
) -> gs.Algorithm:
    """Return recommended WPM (D-PSGD if p = 1) with a guard and a broken device.

    Args:
        scale: The setting with the learning rate.
        p: The power.
        fault: A key of FAULTS, or None for no broken device.
        guard: A key of GUARDS.
    """
    method: gs.Algorithm = gs.WPM(p, scale.eta)
    if GUARDS[guard] is not None:
        method = gs.Guarded(method, GUARDS[guard])
    if fault is None:
        return method
    return gs.Broken(method, (BROKEN,), **FAULTS[fault])


def keys(scale: Scale) -> Iterator[tuple[str, str, float, str, Key]]:
    """Yield fault, guard, p, split and key of every run."""
    for split in SPLITS:
        for fault in (None, *FAULTS):
            for guard in GUARDS:
                for p in POWERS:
                    key = algorithm(scale, p, fault, guard), scale.table_devices[0], split
                    yield fault or "none is broken", guard, p, split, key


def setting(scale: Scale) -> Scale:
    """Return the setting of this study: fewer seeds and test samples."""
    test = 0 if scale.name == "tiny" else 2000
    return replace(scale, seeds=min(SEEDS, scale.seeds), every=10, test=test)


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs."""
    return studies(setting(scale), (key for *_, key in keys(scale)))


def sound_accuracy(run: gs.Run) -> float:
    """Return the mean accuracy at the end of the devices that are not broken."""
    return float(np.delete(run.metrics["device_accuracy"][-1], BROKEN).mean())


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table and the figure."""
    reported = results.under(setting(scale))
    rows = []
    for fault, guard, p, split, key in keys(scale):
        runs = reported.cells(key)
        accuracy = number(reported.over_seeds(key, sound_accuracy), 1, 100)
        rows.append(
            {
                "split": split,
                "device": fault,
                "guard": guard,
                "p": p,
                f"accuracy_at_{scale.rounds}_%": accuracy["ours"],
                "accuracy_95": accuracy["ours_95"],
                "diverged": sum(run.diverged for run in runs),
                "seeds": len(runs),
            }
        )
    write_csv(out / "broken.csv", rows)
    return [_draw(scale, reported, out / "broken.png"), out / "broken.csv"]


def _draw(scale: Scale, results: Results, path: Path) -> Path:
    """Draw one heat map per split and fault: the final accuracy by guard and p."""
    runs = {}
    for fault, guard, p, split, key in keys(scale):
        runs[fault, guard, p, split] = results.cells(key)
    faults = list(dict.fromkeys(fault for fault, *_ in runs))
    size = {"figsize": (10, 5), "sharex": True, "sharey": True}
    with saved_figure(path, len(SPLITS), len(faults), **size) as (figure, axes):
        for row, split in zip(axes, SPLITS, strict=True):
            row[0].set_ylabel(SPLIT_NAMES[split])
            for axis, fault in zip(row, faults, strict=True):
                accuracy = np.zeros((len(GUARDS), len(POWERS)))
                texts: list[list[str]] = []
                for i, guard in enumerate(GUARDS):
                    texts.append([])
                    for k, p in enumerate(POWERS):
                        accuracy[i, k], text = _mean_accuracy(runs[fault, guard, p, split])
                        texts[-1].append(text)
                white = accuracy <= 0.5
                image = heat_map(axis, accuracy, texts, white, cmap="viridis", vmin=0.1, vmax=0.9)
                axis.set_xticks(range(len(POWERS)), [f"p = {p}" for p in POWERS])
                axis.set_yticks(range(len(GUARDS)), list(GUARDS))
        for axis, fault in zip(axes[0], faults, strict=True):
            axis.set_title(fault, fontsize=9)
        label = f"accuracy of the sound devices at round {scale.rounds}"
        figure.colorbar(image, ax=axes, label=label, format=lambda x, _: f"{x:.0%}")
    return path


def _mean_accuracy(runs: list[gs.Run]) -> tuple[float, str]:
    """Return the mean over seeds (0 for a run that diverged), and its text."""
    values = [0.0 if run.diverged else sound_accuracy(run) for run in runs]
    mean = float(np.mean(values))
    if any(run.diverged for run in runs):
        return mean, "diverged"
    return mean, f"{100 * mean:.0f}"
