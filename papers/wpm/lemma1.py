"""Lemma 1 as a figure: the distance to consensus in real runs, and its bound.

    gossamer reproduce wpm lemma1

The problem is convex and every constant is known. Device i has 50 samples X_i of a logistic
regression in 20 dimensions and uses all of them in every round, so that f_i does not change. Its
gradient is X_iᵀ·s/50 with every |s_k| < 1, so that its 2-norm is below ‖X_i‖₂/√50, and G is the
largest of these. The step is constant, since the analysis covers no other, and the order is that of
the analysis, Y⁺ = P·(Y - η·g): the models after a round are the y at which the next gradient is
taken.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import gossamer as gs
from gossamer.report.figures import DASHES
from gossamer.results.palette import COLOURS
from gossamer.study import Study
from gossamer.theory import Mixing, check_assumption1, consensus_bound, mixing_constants
from papers.drawing import saved_figure
from papers.wpm.paper import Scale, write_csv

TITLE = "theory: distance to consensus under Lemma 1's bound, p in 1, 3, 5, 15"
POWERS = (1, 3, 5, 15)
ETA = 0.01
DEVICES = 10
SAMPLES = 50  # per device
# Only `optimum` regularises; the runs do not.
PROBLEM = gs.Logistic(DEVICES, samples=SAMPLES, regularisation=1e-6)
NETWORK = gs.RandomRing(DEVICES)

FloatArray = NDArray[np.float64]

# Label, colour and dash of each line in lemma1.png and theorem1.png.
LINES: dict[str, dict[str, Any]] = {
    "measured": {"label": "measured", "color": COLOURS[0], "linestyle": DASHES[0]},
    "corrected": {"label": "bound, corrected", "color": COLOURS[1], "linestyle": DASHES[1]},
    "printed": {"label": "bound, as printed", "color": COLOURS[2], "linestyle": DASHES[2]},
    "spectral": {
        "label": "bound, corrected, with the ring's own mixing rate for ϑ and κ",
        "color": COLOURS[3],
        "linestyle": DASHES[3],
    },
}


def cells(scale: Scale) -> list[Study]:
    """Return no runs: those of this part are small and not in the sweep."""
    return []


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    """Write the table and the figure."""
    rounds = 100 if scale.name == "tiny" else 2000
    shown = np.unique(np.geomspace(1, rounds, 80).astype(int))
    rows: list[dict[str, object]] = []
    mixing_times: dict[str, object] = {
        "mixing_time": f"{1 / assumed_mixing(rounds).gap:.4g}",
        "spectral_mixing_time": f"{1 / spectral_mixing(rounds).gap:.4g}",
    }
    for p in POWERS:
        y, mean = run(p, ETA, rounds)
        known: Any = {"p": p, "eta": ETA, "lipschitz": lipschitz()}
        assumed: Any = {"mixing": assumed_mixing(rounds), **known}
        lines = {
            "measured": np.linalg.norm(y - mean[:, None], ord=p, axis=2).max(axis=1)[shown],
            "corrected": consensus_bound(y[0], shown, **assumed),
            "printed": consensus_bound(y[0], shown, printed=True, **assumed),
            "spectral": consensus_bound(y[0], shown, mixing=spectral_mixing(rounds), **known),
        }
        lines["looseness"] = lines["corrected"] / lines["measured"]
        lines["looseness_before_root"] = lines["looseness"] ** p
        lines["spectral_looseness"] = lines["spectral"] / lines["measured"]
        for k, t in enumerate(shown):
            values = {name: f"{line[k]:.6g}" for name, line in lines.items()}
            rows.append({"p": p, "round": t} | values | mixing_times)
    write_csv(out / "lemma1.csv", rows)
    _draw(rows, out / "lemma1.png")
    return [out / "lemma1.csv", out / "lemma1.png"]


def rounded(value: object) -> str:
    """Return a number with two significant digits, such as 80,000.

    Args:
        value: The number, or its text.
    """
    number = float(f"{float(str(value)):.2g}")
    if float(str(value)) < 10:
        return f"{number:,.1f}"
    return f"{number:,.0f}"


def _draw(rows: list[dict[str, object]], path: Path) -> None:
    with saved_figure(path, 1, len(POWERS), figsize=(13, 3.6), sharey=True) as (figure, axes):
        for axis, p in zip(axes, POWERS, strict=True):
            rows_of_p = [row for row in rows if row["p"] == p]
            rounds = [row["round"] for row in rows_of_p]
            for name, look in LINES.items():
                values = [float(str(row[name])) for row in rows_of_p]
                axis.loglog(rounds, values, linewidth=1.6, **look)
            looseness = rounded(rows_of_p[-1]["looseness"])
            axis.set_title(f"p = {p}: corrected / measured = {looseness}", fontsize=9)
            axis.set(xlabel="round", ylim=(3e-3, 3e3))
        axes[0].set_ylabel(r"distance in the p-norm, $\max_i\,\|y_i-\bar y\|_p$")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
        figure.suptitle(
            f"Lemma 1: distance to consensus. Logistic regression, {DEVICES} devices, "
            f"random ring, constant η = {ETA}",
            fontsize=10,
        )


# The problem, its constants and its runs, also for theorem1.py ------------------------------------


def run(p: float, eta: float, rounds: int) -> tuple[FloatArray, FloatArray]:
    """Run WPM on the problem.

    Args:
        p: The power.
        eta: The step size.
        rounds: Number of rounds.

    Returns:
        y_{i,t} as [t, i, n] and ȳ_t as [t, n], for t = 0…rounds.
    """
    task = gs.Task(PROBLEM.load(), PROBLEM.split(), gs.LogisticRegression(), batch=0)
    method = gs.WPM(p, eta, gs.Constant(), order="adapt-then-combine", anchor=False)
    simulator = gs.Simulator(gs.Plan(task, NETWORK, method, rounds, dtype="float64", threads=1))
    models = [simulator.models().clone()]
    for t in range(1, rounds + 1):
        simulator.advance(t)
        models.append(simulator.models().clone())
    y = torch.stack(models, dim=1)  # [i, t, n], as power_mean expects
    mean = gs.power_mean(y, torch.full((DEVICES,), 1 / DEVICES, dtype=torch.float64), p)
    return y.transpose(0, 1).numpy(), mean.numpy()


@cache
def lipschitz() -> float:
    """Return G: no gradient of any f_i has a larger 2-norm."""
    by_device = PROBLEM.load().x.double().numpy().reshape(DEVICES, SAMPLES, -1)
    return float(max(np.linalg.norm(x, ord=2) for x in by_device) / SAMPLES**0.5)


@cache
def assumed_mixing(rounds: int) -> Mixing:
    """Return the paper's ϑ and κ, from ζ and B of Assumption 1 in these rounds.

    Args:
        rounds: Number of rounds.
    """
    found = check_assumption1(NETWORK, rounds)
    assert found.holds
    assert found.b is not None
    return mixing_constants(found.zeta, DEVICES, found.b.aligned)


@cache
def spectral_mixing(rounds: int) -> Mixing:
    """Return ϑ and κ from the weights themselves.

    ‖P(t)…P(s) - 1/m‖₂ is at most the product of ‖P - 1/m‖₂ of its factors.

    Args:
        rounds: Number of rounds.
    """
    kappa = 0.0
    for t in range(rounds):
        weights = gs.metropolis(NETWORK.links(t)).dense()
        kappa = max(kappa, float(np.linalg.norm(weights - 1 / DEVICES, ord=2)))
    return Mixing(1.0, kappa, 1.0 - kappa)
