"""The step-rule study: what breaks as p grows, why, and what repairs it.

    gossamer reproduce wpm step_rules

This is what the "found lessons" of the paper are about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import gossamer as gs
from gossamer.report.figures import DASHES
from gossamer.results.palette import COLOURS
from gossamer.study import Study
from papers.drawing import heat_map, saved_figure
from papers.wpm.paper import (
    SPLIT_NAMES,
    SPLITS,
    Key,
    Results,
    Scale,
    number,
    rounds_to_target,
    studies,
    write_csv,
)

TITLE = "step rules x p in 1 … 101: rounds to the target, accuracy, the effective step"

# Each step rule, and True if the power mean is anchored at the start.
RULES: dict[str, tuple[gs.StepRule, bool]] = {
    "constant": (gs.Constant(), False),
    "power": (gs.Power(), False),
    "matched 1e-3": (gs.Matched(1e-3), False),
    "matched 1e-2": (gs.Matched(1e-2), False),
    "safe": (gs.Safe(), False),
    "safe, anchored": (gs.Safe(), True),
    "matched 1e-3, anchored": (gs.Matched(1e-3), True),
    "ratio, norms": (gs.Ratio("norm"), False),
    "ratio, as printed": (gs.Ratio("printed"), False),
    "plain step": (gs.Plain(), False),
}
SEEDS = 2
SHOWN = ("constant", "power", "matched 1e-2", "safe", "ratio, as printed")  # effective_step.png


def algorithm(scale: Scale, name: str, p: float) -> gs.WPM:
    """Return WPM with one of the step rules."""
    rule, anchor = RULES[name]
    return gs.WPM(p, scale.eta, rule, anchor=anchor)


def keys(scale: Scale) -> Iterator[tuple[str, float, str, Key]]:
    """Yield step rule, p, split and key of every run."""
    for split in SPLITS:
        for name in RULES:
            for p in scale.study_powers:
                yield name, p, split, (algorithm(scale, name, p), scale.table_devices[0], split)


def setting(scale: Scale) -> Scale:
    """Return the setting of this study: fewer seeds and test samples."""
    test = 0 if scale.name == "tiny" else 2000
    return replace(scale, seeds=min(SEEDS, scale.seeds), every=10, test=test)


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs."""
    return studies(setting(scale), (key for *_, key in keys(scale)))


def final_accuracy(run: gs.Run) -> float:
    """Return the accuracy at the end of a run."""
    return float(run.metrics["accuracy"][-1])


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table and two figures."""
    reported = results.under(setting(scale))
    rows = []
    for name, p, split, key in keys(scale):
        runs = reported.cells(key)
        accuracy = number(reported.over_seeds(key, final_accuracy), 1, 100)
        rows.append(
            {
                "split": split,
                "rule": name,
                "p": p,
                **number(reported.over_seeds(key, rounds_to_target(scale))),
                f"accuracy_at_{scale.rounds}_%": accuracy["ours"],
                "accuracy_95": accuracy["ours_95"],
                "diverged": sum(run.diverged for run in runs),
                "seeds": len(runs),
            }
        )
    write_csv(out / "step_rules.csv", rows)
    return [
        _draw_accuracy(scale, reported, out / "step_rules.png"),
        _draw_effective_step(out / "effective_step.png"),
        out / "step_rules.csv",
    ]


def _draw_accuracy(scale: Scale, results: Results, path: Path) -> Path:
    """Draw one heat map per split: the final accuracy of every rule, by p."""
    powers = scale.study_powers
    with saved_figure(path, 1, 2, figsize=(11, 4.2), sharey=True) as (figure, axes):
        for axis, split in zip(axes, SPLITS, strict=True):
            accuracy = np.zeros((len(RULES), len(powers)))
            texts: list[list[str]] = []
            for i, name in enumerate(RULES):
                texts.append([])
                for k, p in enumerate(powers):
                    key = (algorithm(scale, name, p), scale.table_devices[0], split)
                    runs = results.cells(key)
                    values = [0.0 if run.diverged else final_accuracy(run) for run in runs]
                    accuracy[i, k] = np.mean(values)
                    has_diverged = any(run.diverged for run in runs)
                    texts[-1].append("diverged" if has_diverged else f"{100 * accuracy[i, k]:.0f}")
            white = accuracy <= 0.5
            image = heat_map(
                axis, accuracy, texts, white, fontsize=7, cmap="viridis", vmin=0.1, vmax=0.9
            )
            axis.set_xticks(range(len(powers)), [f"{p:g}" for p in powers])
            axis.set_yticks(range(len(RULES)), list(RULES))
            axis.set(xlabel="p", title=SPLIT_NAMES[split])
        label = f"accuracy at round {scale.rounds}"
        figure.colorbar(image, ax=axes, label=label, format=lambda x, _: f"{x:.0%}")
    return path


def _draw_effective_step(path: Path, eta: float = 0.01, d: float = 0.1, loss: float = 2.0) -> Path:
    """Draw how far one step moves a weight, relative to η·d, the step of p = 1."""
    w = torch.logspace(-5, 0.5, 400, dtype=torch.float64)[:, None]
    g = torch.full_like(w, d)
    f = torch.full((len(w),), loss, dtype=torch.float64)
    with saved_figure(path, 1, 3, figsize=(12, 3.4), sharey=True) as (figure, axes):
        for axis, p in zip(axes, (3, 15, 101), strict=True):
            for name, colour, dash in zip(SHOWN, COLOURS, DASHES, strict=False):
                rule, _ = RULES[name]
                moved = (w - rule(w.clone(), g.clone(), eta, gs.PowerMap(p), lambda: f)).abs() / (
                    eta * d
                )
                look = {"color": colour, "linestyle": dash, "label": name}
                axis.loglog(w[:, 0], moved[:, 0].clamp_min(1e-9), **look)
            axis.axhline(1, color="0.6", linewidth=0.8, zorder=0)
            axis.axvspan(1e-5, eta * d * p, color="0.93", zorder=0)
            look = {"fontsize": 8, "ha": "left", "va": "top", "color": "0.35"}
            axis.text(eta * d * p, 2e5, " $\\eta p |d|$", **look)
            axis.set(xlabel="size of the weight", title=f"p = {p}")
            axis.set(xlim=(1e-5, 3), ylim=(1e-6, 1e6))
        axes[0].set_ylabel("step / (η·d)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
        figure.suptitle(
            "How far one step moves a weight, against the step of p = 1 (η = 0.01, d = 0.1)",
            fontsize=10,
        )
    return path
