"""The ablation: a power mean with a plain gradient step, against the mirror step.

    gossamer reproduce wpm ablation

The paper says that the plain step misses the optimum; plain_step.py has a case in which it does.
This part measures a typical case: a strongly convex problem with a known optimum and different data
per device, least squares with all samples in every round, on a random ring. The step size decreases
as 1/t. To first order the power mean of w − η·d_j is w − η·(mean of d_j), except near 0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import gossamer as gs
from gossamer.engines import Simulator
from gossamer.report.figures import DASHES
from gossamer.results.palette import COLOURS
from gossamer.study import Study
from papers.drawing import saved_figure
from papers.wpm.paper import Scale, write_csv

TITLE = "ablation: plain gradient step against mirror step, on a problem with a known optimum"

POWERS = (1, 3, 5, 15)
PROBLEM = gs.LeastSquares(10, dimension=10, samples=40, heterogeneity=1.0)
# Each step rule, and True if the power mean is anchored at the start.
RULES: dict[str, tuple[gs.StepRule, bool]] = {
    "plain step": (gs.Plain(), False),
    "mirror step, constant": (gs.Constant(), False),
    "mirror step, matched": (gs.Matched(1e-2), False),
    "mirror step, safe and anchored": (gs.Safe(), True),
}

FloatArray = NDArray[np.float64]


def cells(scale: Scale) -> list[Study]:
    """Return no runs: those of this part are small and not in the sweep."""
    return []


def errors(algorithm: gs.WPM, rounds: NDArray[np.int64]) -> FloatArray:
    """Return ‖mean of the models − optimum‖/‖optimum‖ after some rounds.

    Args:
        algorithm: The method.
        rounds: The rounds, ascending.

    Returns:
        The errors; infinite from the round in which a run diverges.
    """
    study = Study(
        algorithm,
        gs.RandomRing(10),
        PROBLEM,
        model=gs.LinearRegression(),
        batch=0,
        dtype="float64",
        threads=1,
    )
    simulator = Simulator(study.plan())
    optimum = PROBLEM.optimum()
    found = np.full(len(rounds), np.inf)
    for k, t in enumerate(rounds):
        try:
            simulator.advance(int(t))
        except gs.Diverged:
            break
        distance = np.linalg.norm(simulator.models().mean(0).numpy() - optimum)
        found[k] = distance / np.linalg.norm(optimum)
    return found


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    """Write the table and the figure."""
    last = 200 if scale.name == "tiny" else 3000
    etas = (0.3,) if scale.name == "tiny" else (0.03, 0.3, 1.0)
    rounds = np.unique(np.geomspace(1, last, 50).astype(int))
    lines = {}
    rows: list[dict[str, object]] = []
    for name, (rule, anchor) in RULES.items():
        for p in POWERS:
            runs = {}
            for eta in etas:
                method = gs.WPM(p, gs.Inverse(eta, 100), rule, anchor=anchor)
                runs[eta] = errors(method, rounds)
            best = min(runs, key=lambda eta: runs[eta][-1])
            lines[name, p] = runs[best]
            rows.append(
                {
                    "step": name,
                    "p": p,
                    "eta0": best,
                    "error_at_end": f"{runs[best][-1]:.3g}",
                    "rounds": int(rounds[-1]),
                }
            )
    write_csv(out / "ablation.csv", rows)
    return [out / "ablation.csv", _draw(lines, rounds, out / "ablation.png")]


def _draw(lines: dict[tuple[str, int], FloatArray], rounds: NDArray[np.int64], path: Path) -> Path:
    with saved_figure(path, 1, len(RULES), figsize=(13, 3.1), sharey=True) as (figure, axes):
        for axis, name in zip(axes, RULES, strict=True):
            for p, colour, dash in zip(POWERS, COLOURS, DASHES, strict=False):
                look = {"color": colour, "linestyle": dash, "label": f"p = {p}"}
                axis.loglog(rounds, lines[name, p], **look)
            axis.set(title=name, xlabel="round")
        axes[0].set_ylabel("distance to the optimum, relative")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
        figure.suptitle(
            "Distance to the optimum with step sizes that fall as 1/t, each at its best start",
            fontsize=10,
        )
    return path
