"""Step rules: which ones fail as p grows, why, and which ones do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

import gossamer as gs
from gossamer.report.figures import COLOURS, DASHES, STYLE
from gossamer.study import Study
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

RULES: dict[str, tuple[gs.StepRule, bool]] = {  # rule, and whether the power mean is anchored
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


def algorithm(scale: Scale, name: str, p: float) -> gs.WPM:
    rule, anchor = RULES[name]
    return gs.WPM(p, scale.eta, rule, anchor=anchor)


def keys(scale: Scale) -> Iterator[tuple[str, float, str, Key]]:
    for split in SPLITS:
        for name in RULES:
            for p in scale.study_powers:
                yield name, p, split, (algorithm(scale, name, p), scale.table_devices[0], split)


def setting(scale: Scale) -> Scale:
    return replace(
        scale, seeds=min(SEEDS, scale.seeds), every=10, test=0 if scale.name == "tiny" else 2000
    )


def cells(scale: Scale) -> list[Study]:
    return studies(setting(scale), (key for *_, key in keys(scale)))


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    here, rows = results.under(setting(scale)), []
    for name, p, split, key in keys(scale):
        several = here.cells(key)
        last = number(
            here.over_seeds(key, lambda cell: float(cell.metrics["accuracy"][-1])), 1, 100
        )
        rows.append(
            {"split": split, "rule": name, "p": p}
            | number(here.over_seeds(key, rounds_to_target(scale)))
            | {f"accuracy_at_{scale.rounds}_%": last["ours"], "accuracy_95": last["ours_95"]}
            | {"diverged": sum(cell.diverged for cell in several), "seeds": len(several)}
        )
    write_csv(out / "step_rules.csv", rows)
    return [_accuracy(scale, here, out), _effective(out), out / "step_rules.csv"]


def _accuracy(scale: Scale, results: Results, out: Path) -> Path:
    """Draw one heat map per split: the final accuracy of every rule by p."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
        for axis, split in zip(axes, SPLITS, strict=True):
            share = np.zeros((len(RULES), len(scale.study_powers)))
            for i, name in enumerate(RULES):
                for k, p in enumerate(scale.study_powers):
                    found = results.cells(
                        (algorithm(scale, name, p), scale.table_devices[0], split)
                    )
                    value = np.mean(
                        [0.0 if c.diverged else float(c.metrics["accuracy"][-1]) for c in found]
                    )
                    share[i, k] = value
                    text = "diverged" if any(c.diverged for c in found) else f"{100 * value:.0f}"
                    axis.text(
                        k,
                        i,
                        text,
                        ha="center",
                        va="center",
                        fontsize=7,
                        color="black" if value > 0.5 else "white",
                    )
            image = axis.imshow(share, cmap="viridis", vmin=0.1, vmax=0.9, aspect="auto")
            axis.set_xticks(range(len(scale.study_powers)), [f"{p:g}" for p in scale.study_powers])
            axis.set_yticks(range(len(RULES)), list(RULES))
            axis.set(xlabel="p", title=SPLIT_NAMES[split])
            axis.grid(visible=False)
        figure.colorbar(
            image,
            ax=axes,
            label=f"accuracy at round {scale.rounds}",
            format=lambda x, _: f"{x:.0%}",
        )
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "step_rules.png", dpi=110)
        plt.close(figure)
    return out / "step_rules.png"


SHOWN = ("constant", "power", "matched 1e-2", "safe", "ratio, as printed")


def _effective(out: Path, eta: float = 0.01, d: float = 0.1, loss: float = 2.0) -> Path:
    """Draw the change of a weight of size w̄ in one step, relative to η·d, the step of p = 1."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    w = torch.logspace(-5, 0.5, 400, dtype=torch.float64)[:, None]
    g, f = torch.full_like(w, d), torch.full((len(w),), loss, dtype=torch.float64)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), sharey=True)
        for axis, p in zip(axes, (3, 15, 101), strict=True):
            for name, colour, dash in zip(SHOWN, COLOURS, DASHES, strict=False):
                rule, _ = RULES[name]
                moved = (w - rule(w.clone(), g.clone(), eta, p, lambda: f)).abs() / (eta * d)
                axis.loglog(
                    w[:, 0], moved[:, 0].clamp_min(1e-9), color=colour, linestyle=dash, label=name
                )
            axis.axhline(1, color="0.6", linewidth=0.8, zorder=0)
            axis.axvspan(1e-5, eta * d * p, color="0.93", zorder=0)
            axis.text(
                eta * d * p, 2e5, " $\\eta p |d|$", fontsize=8, ha="left", va="top", color="0.35"
            )
            axis.set(
                xlabel="size of the weight", title=f"p = {p}", xlim=(1e-5, 3), ylim=(1e-6, 1e6)
            )
        axes[0].set_ylabel("step / (η·d)")
        named = zip(*axes[0].get_legend_handles_labels(), strict=True)
        lines, labels = zip(*named, strict=True)
        figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
        figure.suptitle(
            "How far one step moves a weight, against the step of p = 1 (η = 0.01, d = 0.1)",
            fontsize=10,
        )
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "effective_step.png", dpi=110)
        plt.close(figure)
    return out / "effective_step.png"
