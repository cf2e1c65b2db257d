"""Ablation: a power mean with a plain gradient step against the mirror step.

The paper says that the plain step misses the optimum; plain_step.py has a counterexample. This part
measures a typical case: a strongly convex problem with a known optimum and different data per
device, least squares with all samples in every round, on a random ring. The step size decreases as
1/t. To first order the power mean of w − η·d_j is w − η·(mean of d_j), except near 0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.engines import Simulator
from gossamer.report.figures import COLOURS, DASHES, STYLE
from gossamer.study import Study
from papers.wpm.paper import Scale, write_csv

TITLE = "ablation: plain gradient step against mirror step, on a problem with a known optimum"

POWERS = (1, 3, 5, 15)
PROBLEM = gs.LeastSquares(10, dimension=10, samples=40, heterogeneity=1.0)
RULES: dict[str, tuple[gs.StepRule, bool]] = {
    "plain step": (gs.Plain(), False),
    "mirror step, constant": (gs.Constant(), False),
    "mirror step, matched": (gs.Matched(1e-2), False),
    "mirror step, safe and anchored": (gs.Safe(), True),
}


def cells(scale: Scale) -> list[Study]:
    return []  # the runs are short; `make` executes them


def errors(algorithm: gs.WPM, rounds: np.ndarray) -> np.ndarray:
    """Return ‖mean of the models − optimum‖/‖optimum‖ after each round; ∞ once a run diverges."""
    plan = Study(
        algorithm,
        gs.RandomRing(10),
        PROBLEM,
        model=gs.LinearRegression(),
        batch=0,
        dtype="float64",
        threads=1,
    ).plan()
    simulator, optimum = Simulator(plan), PROBLEM.optimum()
    found = np.full(len(rounds), np.inf)
    for k, t in enumerate(rounds):
        try:
            simulator.advance(int(t))
        except gs.Diverged:
            break
        found[k] = np.linalg.norm(simulator.models().mean(0).numpy() - optimum) / np.linalg.norm(
            optimum
        )
    return found


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    rounds = np.unique(np.geomspace(1, 200 if scale.name == "tiny" else 3000, 50).astype(int))
    lines = {}
    for name, (rule, anchor) in RULES.items():
        for p in POWERS:
            etas = (0.3,) if scale.name == "tiny" else (0.03, 0.3, 1.0)
            runs = {
                eta: errors(gs.WPM(p, gs.Inverse(eta, 100), rule, anchor=anchor), rounds)
                for eta in etas
            }
            best = min(runs, key=lambda eta: runs[eta][-1])
            lines[name, p] = (best, runs[best])
    rows = [
        {
            "step": name,
            "p": p,
            "eta0": eta,
            "error_at_end": f"{values[-1]:.3g}",
            "rounds": int(rounds[-1]),
        }
        for (name, p), (eta, values) in lines.items()
    ]
    write_csv(out / "ablation.csv", rows)
    return [out / "ablation.csv", _draw(lines, rounds, out)]


def _draw(
    lines: dict[tuple[str, int], tuple[float, np.ndarray]], rounds: np.ndarray, out: Path
) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(RULES), figsize=(13, 3.1), sharey=True)
        for axis, name in zip(axes, RULES, strict=True):
            for p, colour, dash in zip(POWERS, COLOURS, DASHES, strict=False):
                axis.loglog(
                    rounds, lines[name, p][1], color=colour, linestyle=dash, label=f"p = {p}"
                )
            axis.set(title=name, xlabel="round")
        axes[0].set_ylabel("distance to the optimum, relative")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
        figure.suptitle(
            "Distance to the optimum with step sizes that fall as 1/t, each at its best start",
            fontsize=10,
        )
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "ablation.png", dpi=110)
        plt.close(figure)
    return out / "ablation.png"
