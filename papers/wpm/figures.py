"""Common code of Figures 1 to 6: one panel for different p, three for numbers of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import gossamer as gs
from gossamer.report.figures import COLOURS, DASHES, STYLE
from gossamer.study import Study, interval
from papers.wpm.paper import (
    SPLIT_NAMES,
    Key,
    Results,
    Scale,
    number,
    rounds_to_target,
    studies,
    swarm,
    wpm,
    write_csv,
)
from papers.wpm.table2 import POWERS

Panel = tuple[str, list[Key]]

# A method has the same style in every panel.
_LABELS = (*(f"WPM p={p}" for p in reversed(POWERS)), "SwarmSGD")
_STYLES = dict(zip(_LABELS, zip(COLOURS, DASHES, strict=True), strict=False))


def panels(scale: Scale, split: str) -> list[Panel]:
    """Return the paper's panels: every p on the fewest devices, then four methods per size."""
    methods: list[gs.Algorithm] = [wpm(scale, 15), wpm(scale, 3), wpm(scale, 1), swarm(scale)]
    fewest = scale.figure_devices[0]
    return [
        (
            f"different p, {fewest} devices",
            [(wpm(scale, p), fewest, split) for p in reversed(POWERS)],
        ),
        *(
            (f"{devices} devices", [(method, devices, split) for method in methods])
            for devices in scale.figure_devices
        ),
    ]


def cells(scale: Scale, split: str) -> list[Study]:
    return studies(scale, {key: None for _, keys in panels(scale, split) for key in keys})


def curves(
    scale: Scale,
    results: Results,
    out: Path,
    name: str,
    split: str,
    column: str,
    label: str,
    unit: float,
) -> list[Path]:
    """Draw one curve per method with its 95 % band over the seeds; write some rounds as CSV."""
    lines = {}
    for key in dict.fromkeys(key for _, several in panels(scale, split) for key in several):
        runs = [cell.metrics for cell in results.cells(key) if not cell.diverged]
        points = [interval(values) for values in zip(*(run[column] for run in runs), strict=True)]
        mean = unit * np.array([point.mean for point in points])
        lines[key] = (
            runs[0]["round"],
            mean,
            unit * np.array([point.half or 0.0 for point in points]),
        )

    def draw(axis: Any, keys: Sequence[Key]) -> None:
        for key in keys:
            colour, dash = _STYLES[key[0].label]
            rounds, mean, half = lines[key]
            axis.plot(rounds, mean, color=colour, linestyle=dash, label=key[0].label)
            axis.fill_between(
                rounds, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0
            )
        axis.set_xlabel("round")

    rows = [
        {
            "devices": key[1],
            "method": key[0].label,
            "round": int(t),
            column: round(float(m), 3),
            "95": round(float(h), 3),
        }
        for key, line in lines.items()
        for t, m, h in zip(*line, strict=True)
        if t <= 2 * scale.every or t % (scale.rounds // 10) == 0
    ]
    write_csv(out / f"{name}.csv", rows)
    return [*_four(scale, out, name, split, label, draw), out / f"{name}.csv"]


def speeds(scale: Scale, results: Results, out: Path, name: str, split: str) -> list[Path]:
    """Draw one bar per method: rounds to the target, if all seeds reached it."""

    def draw(axis: Any, keys: Sequence[Key]) -> None:
        for place, key in enumerate(keys):
            colour, _ = _STYLES[key[0].label]
            value = results.over_seeds(key, rounds_to_target(scale))
            if value is None:
                text = f"not in {scale.rounds}"
                axis.text(
                    place,
                    scale.rounds * 0.02,
                    text,
                    rotation=90,
                    ha="center",
                    va="bottom",
                    fontsize=8,
                )
            else:
                axis.bar(place, value.mean, yerr=value.half, color=colour, capsize=3)
        axis.set_xticks(
            range(len(keys)), [key[0].label.removeprefix("WPM ") for key in keys], fontsize=8
        )
        axis.set(xlim=(-0.6, len(keys) - 0.4), ylim=(0, scale.rounds))

    keys = {key: None for _, several in panels(scale, split) for key in several}
    rows = [
        {"devices": key[1], "method": key[0].label}
        | number(results.over_seeds(key, rounds_to_target(scale)))
        for key in keys
    ]
    write_csv(out / f"{name}.csv", rows)
    return [
        *_four(scale, out, name, split, f"rounds to {scale.target:.0%}", draw, legend=False),
        out / f"{name}.csv",
    ]


def _four(
    scale: Scale,
    out: Path,
    name: str,
    split: str,
    label: str,
    draw: Callable[[Any, Sequence[Key]], None],
    legend: bool = True,
) -> list[Path]:
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context({**STYLE, "svg.hashsalt": "gossamer"}):
        shown = panels(scale, split)
        figure, axes = plt.subplots(1, len(shown), figsize=(1 + 3 * len(shown), 3.1), sharey=True)
        for axis, (title, keys) in zip(axes, shown, strict=True):
            draw(axis, keys)
            axis.set_title(title, fontsize=9)
        axes[0].set_ylabel(label)
        if legend:
            named = {
                text: line
                for axis in axes
                for line, text in zip(*axis.get_legend_handles_labels(), strict=True)
            }
            order = [label for label in _STYLES if label in named]
            figure.legend(
                [named[label] for label in order],
                order,
                loc="outside lower center",
                ncols=len(order),
                fontsize=8,
            )
        of = " (CIFAR-10, linear SVM)" if isinstance(scale.data, gs.Cifar10) else ""
        figure.suptitle(
            f"Figure {name.removeprefix('figure')}{of}: {SPLIT_NAMES[split]}", fontsize=10
        )
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / f"{name}.png", dpi=110)
        plt.close(figure)
    return [out / f"{name}.png"]
