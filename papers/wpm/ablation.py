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

ETAS = (0.03, 0.3, 1.0)  # the first step sizes; all are shown

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
    last = 3000
    etas: tuple[float, ...] = ETAS
    if scale.name == "tiny":
        last = 100
        etas = ETAS[1:2]
    rounds = np.unique(np.geomspace(1, last, 50).astype(int))
    lines: dict[tuple[str, int, float], FloatArray] = {}
    rows: list[dict[str, object]] = []
    for name, (rule, anchor) in RULES.items():
        for p in POWERS:
            for eta in etas:
                method = gs.WPM(p, gs.Inverse(eta, 100), rule, anchor=anchor)
                found = errors(method, rounds)
                lines[name, p, eta] = found
                row: dict[str, object] = {"step": name, "p": p, "eta0": eta}
                row |= {"error_at_end": f"{found[-1]:.3g}", "rounds": int(rounds[-1])}
                rows.append(row)
    write_csv(out / "ablation.csv", rows)
    return [out / "ablation.csv", _draw(lines, etas, rounds, out / "ablation.png")]


def _draw(
    lines: dict[tuple[str, int, float], FloatArray],
    etas: tuple[float, ...],
    rounds: NDArray[np.int64],
    path: Path,
) -> Path:
    """Draw one panel per step rule and first step size."""
    size = {"figsize": (13, 1 + 2.3 * len(etas)), "sharex": True, "sharey": True, "squeeze": False}
    with saved_figure(path, len(etas), len(RULES), **size) as (figure, axes):
        for row, eta in zip(axes, etas, strict=True):
            for axis, name in zip(row, RULES, strict=True):
                for p, colour, dash in zip(POWERS, COLOURS, DASHES, strict=False):
                    look = {"color": colour, "linestyle": dash, "label": f"p = {p}"}
                    axis.loglog(rounds, lines[name, p, eta], **look)
            row[0].set_ylabel(f"η₀ = {eta:g}\ndistance, relative")
        for axis, name in zip(axes[0], RULES, strict=True):
            axis.set_title(name)
        for axis in axes[-1]:
            axis.set_xlabel("round")
        axes[0][0].set_ylim(1e-4, 100)
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
        figure.suptitle(
            "Distance to the optimum with step sizes that fall as 1/t from η₀; "
            "a line that leaves its panel at the top and does not return has diverged",
            fontsize=10,
        )
    return path
