"""What Figures 1 to 6 share: four panels, one for different p and three for numbers of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gossamer as gs
from gossamer.report.figures import DASHES
from gossamer.results.palette import COLOURS
from gossamer.study import Study, interval
from papers.drawing import saved_figure
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

# A method looks the same in every panel.
_LABELS = (*(f"WPM p={p}" for p in reversed(POWERS)), "SwarmSGD")
_STYLES = dict(zip(_LABELS, zip(COLOURS, DASHES, strict=True), strict=False))


def panels(scale: Scale, split: str) -> list[Panel]:
    """Return the paper's four panels as titles and keys.

    The first has every p on the smallest number of devices, the others have four methods on each
    number of devices.

    Args:
        scale: The setting.
        split: Name of the split.
    """
    fewest = scale.figure_devices[0]
    powers: list[Key] = [(wpm(scale, p), fewest, split) for p in reversed(POWERS)]
    found: list[Panel] = [(f"different p, {fewest} devices", powers)]
    methods: list[gs.Algorithm] = [wpm(scale, 15), wpm(scale, 3), wpm(scale, 1), swarm(scale)]
    for devices in scale.figure_devices:
        keys: list[Key] = [(method, devices, split) for method in methods]
        found.append((f"{devices} devices", keys))
    return found


def keys_of(scale: Scale, split: str) -> list[Key]:
    """Return the keys of all panels, each once."""
    found: dict[Key, None] = {}
    for _, keys in panels(scale, split):
        found |= dict.fromkeys(keys)
    return list(found)


def cells(scale: Scale, split: str) -> list[Study]:
    """Return the runs that a figure needs."""
    return studies(scale, keys_of(scale, split))


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
    """Draw one curve per method with its 95 % confidence band; write some points as a table.

    A method has no curve and no points where a seed diverged.

    Args:
        scale: The setting.
        results: The runs.
        out: The folder to write to.
        name: Name of the figure and of its files.
        split: Name of the split.
        column: The metric.
        label: Label of the vertical axis.
        unit: Factor, such as 100 for per cent.

    Returns:
        The files.
    """
    lines: dict[Key, Any] = {}
    rows: list[dict[str, object]] = []
    for key in keys_of(scale, split):
        if any(run.diverged for run in results.cells(key)):
            row: dict[str, object] = {"devices": key[1], "method": key[0].label}
            row["round"] = "diverged"
            rows.append(row | {column: "", "95": ""})
            continue
        runs = [run.metrics for run in results.cells(key)]
        points = [interval(values) for values in zip(*(run[column] for run in runs), strict=True)]
        rounds = runs[0]["round"]
        mean = unit * np.array([point.mean for point in points])
        half = unit * np.array([point.half or 0.0 for point in points])
        lines[key] = (rounds, mean, half)
        for t, m, h in zip(rounds, mean, half, strict=True):
            if t <= 2 * scale.every or t % (scale.rounds // 10) == 0:
                point: dict[str, object] = {"devices": key[1], "method": key[0].label}
                point["round"] = int(t)
                rows.append(point | {column: round(float(m), 3), "95": round(float(h), 3)})

    def draw(axis: Any, keys: Sequence[Key]) -> None:
        for key in keys:
            colour, dash = _STYLES[key[0].label]
            if key not in lines:
                axis.plot([], [], color=colour, linestyle=dash, label=f"{key[0].label}, diverged")
                continue
            rounds, mean, half = lines[key]
            axis.plot(rounds, mean, color=colour, linestyle=dash, label=key[0].label)
            axis.fill_between(
                rounds, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0
            )
        axis.set_xlabel("round")

    write_csv(out / f"{name}.csv", rows)
    return [_draw(scale, out, name, split, label, draw), out / f"{name}.csv"]


def speeds(scale: Scale, results: Results, out: Path, name: str, split: str) -> list[Path]:
    """Draw the rounds to the target as one bar per method, and write them as a table.

    There is no bar where a seed does not reach the target.

    Args:
        scale: The setting.
        results: The runs.
        out: The folder to write to.
        name: Name of the figure and of its files.
        split: Name of the split.

    Returns:
        The files.
    """

    def draw(axis: Any, keys: Sequence[Key]) -> None:
        for x, key in enumerate(keys):
            colour, _ = _STYLES[key[0].label]
            value = results.over_seeds(key, rounds_to_target(scale))
            if value is None:
                look = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 8}
                axis.text(x, scale.rounds * 0.02, f"not in {scale.rounds}", **look)
            else:
                axis.bar(x, value.mean, yerr=value.half, color=colour, capsize=3)
        labels = [key[0].label.removeprefix("WPM ") for key in keys]
        axis.set_xticks(range(len(keys)), labels, fontsize=8)
        axis.set(xlim=(-0.6, len(keys) - 0.4), ylim=(0, scale.rounds))

    rows = []
    for key in keys_of(scale, split):
        row: dict[str, object] = {"devices": key[1], "method": key[0].label}
        rows.append(row | number(results.over_seeds(key, rounds_to_target(scale))))
    write_csv(out / f"{name}.csv", rows)
    label = f"rounds to {scale.target:.0%}"
    return [_draw(scale, out, name, split, label, draw, legend=False), out / f"{name}.csv"]


def _draw(
    scale: Scale,
    out: Path,
    name: str,
    split: str,
    label: str,
    draw: Callable[[Any, Sequence[Key]], None],
    legend: bool = True,
) -> Path:
    """Draw the four panels of a figure side by side."""
    path = out / f"{name}.png"
    shown = panels(scale, split)
    size = {"figsize": (1 + 3 * len(shown), 3.1), "sharey": True}
    with saved_figure(path, 1, len(shown), **size) as (figure, axes):
        for axis, (title, keys) in zip(axes, shown, strict=True):
            draw(axis, keys)
            axis.set_title(title, fontsize=9)
        axes[0].set_ylabel(label)
        if legend:
            _draw_legend(figure, axes)
        data = " (CIFAR-10, linear SVM)" if isinstance(scale.data, gs.Cifar10) else ""
        number = name.removeprefix("figure")
        figure.suptitle(f"Figure {number}{data}: {SPLIT_NAMES[split]}", fontsize=10)
    return path


def _draw_legend(figure: Any, axes: Any) -> None:
    """Draw one legend for all panels, with every method once and in a fixed order."""
    lines: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        lines |= dict(zip(labels, handles, strict=True))
    order = [label for label in _STYLES if label in lines]
    figure.legend(
        [lines[label] for label in order],
        order,
        loc="outside lower center",
        ncols=len(order),
        fontsize=8,
    )
