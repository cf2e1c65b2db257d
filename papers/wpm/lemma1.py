"""Lemma 1: measured distance to consensus against the bound.

The problem is convex and every constant is known. Device i has 50 samples X_i of a logistic
regression in 20 dimensions and uses all of them in every round, so f_i does not change. Its
gradient is X_iᵀ·s/50 with every |s_k| < 1, so its 2-norm is below ‖X_i‖₂/√50, and G is the largest
of these. The step is constant, since the analysis covers no other, and the order is that of the
analysis, Y⁺ = P·(Y - η·g): the next gradient is taken at the models after the round.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import gossamer as gs
from gossamer.report.figures import COLOURS, DASHES, STYLE
from gossamer.study import Study
from gossamer.theory import Mixing, check_assumption1, consensus_bound, mixing_constants
from papers.wpm.paper import Scale, write_csv

TITLE = "theory: distance to consensus under Lemma 1's bound, p in 1, 3, 5, 15"
POWERS = (1, 3, 5, 15)
ETA = 0.01
DEVICES, SAMPLES = 10, 50
PROBLEM = gs.Logistic(
    DEVICES, samples=SAMPLES, regularisation=1e-6
)  # only `optimum` regularises; the runs do not
NETWORK = gs.RandomRing(DEVICES)

FloatArray = NDArray[np.float64]

# Label, colour and dash of the lines in lemma1.png and theorem1.png.
LINES: dict[str, dict[str, Any]] = {
    name: {"label": label, "color": COLOURS[k], "linestyle": DASHES[k]}
    for k, (name, label) in enumerate(
        {
            "measured": "measured",
            "corrected": "bound, corrected",
            "printed": "bound, as printed",
            "spectral": "bound, corrected, with the ring's own mixing rate for ϑ and κ",
        }.items()
    )
}


def cells(scale: Scale) -> list[Study]:
    return []  # the runs are short; `make` executes them


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    rounds = 100 if scale.name == "tiny" else 2000
    shown = np.unique(np.geomspace(1, rounds, 80).astype(int))
    rows: list[dict[str, object]] = []
    for p in POWERS:
        y, mean = run(p, ETA, rounds)
        known: Any = {"p": p, "eta": ETA, "lipschitz": lipschitz()}
        lines = {
            "measured": np.linalg.norm(y - mean[:, None], ord=p, axis=2).max(axis=1)[shown],
            "corrected": consensus_bound(y[0], shown, mixing=assumed_mixing(rounds), **known),
            "printed": consensus_bound(
                y[0], shown, mixing=assumed_mixing(rounds), printed=True, **known
            ),
            "spectral": consensus_bound(y[0], shown, mixing=spectral_mixing(rounds), **known),
        }
        lines["looseness"] = lines["corrected"] / lines["measured"]
        for k, t in enumerate(shown):
            rows.append(
                {"p": p, "round": t} | {name: f"{values[k]:.6g}" for name, values in lines.items()}
            )
    write_csv(out / "lemma1.csv", rows)
    _draw(rows, out / "lemma1.png")
    return [out / "lemma1.csv", out / "lemma1.png"]


def rounded(value: object) -> str:
    """Return a number with two significant digits, as in 80,000."""
    return f"{float(f'{float(str(value)):.2g}'):,.{1 if float(str(value)) < 10 else 0}f}"


def _draw(rows: list[dict[str, object]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True)
        for axis, p in zip(axes, POWERS, strict=True):
            of_p = [row for row in rows if row["p"] == p]
            for name, look in LINES.items():
                axis.loglog(
                    [row["round"] for row in of_p],
                    [float(str(row[name])) for row in of_p],
                    linewidth=1.6,
                    **look,
                )
            axis.set_title(
                f"p = {p}: corrected / measured = {rounded(of_p[-1]['looseness'])}", fontsize=9
            )
            axis.set(xlabel="round", ylim=(3e-3, 3e3))
        axes[0].set_ylabel(r"distance in the p-norm, $\max_i\,\|y_i-\bar y\|_p$")
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
        )
        figure.suptitle(
            f"Lemma 1: distance to consensus. Logistic regression, {DEVICES} devices, "
            f"random ring, constant η = {ETA}",
            fontsize=10,
        )
        figure.savefig(path, dpi=110)
        plt.close(figure)


# -- the problem, its constants and its runs, shared with theorem1.py --


def run(p: float, eta: float, rounds: int) -> tuple[FloatArray, FloatArray]:
    """y_{i,t} as [t, i, n] and ȳ_t as [t, n], for t = 0…rounds."""
    task = gs.Task(PROBLEM.load(), PROBLEM.split(), gs.LogisticRegression(), batch=0)
    method = gs.WPM(p, eta, gs.Constant(), order="adapt-then-combine")
    simulator = gs.Simulator(gs.Plan(task, NETWORK, method, rounds, dtype="float64", threads=1))
    models = [simulator.models().clone()]
    for t in range(1, rounds + 1):
        simulator.advance(t)
        models.append(simulator.models().clone())
    y = torch.stack(models, dim=1)  # devices first, as power_mean expects
    mean = gs.power_mean(y, torch.full((DEVICES,), 1 / DEVICES, dtype=torch.float64), p)
    return y.transpose(0, 1).numpy(), mean.numpy()


@cache
def lipschitz() -> float:
    """Return G, an upper bound of the 2-norm of the gradient of every f_i."""
    by_device = PROBLEM.load().x.double().numpy().reshape(DEVICES, SAMPLES, -1)
    return float(max(np.linalg.norm(x, ord=2) for x in by_device) / SAMPLES**0.5)


@cache
def assumed_mixing(rounds: int) -> Mixing:
    """ϑ and κ as the paper has them, from Assumption 1's ζ and B as these rounds show them."""
    found = check_assumption1(NETWORK, rounds)
    assert found.holds
    assert found.b is not None
    return mixing_constants(found.zeta, DEVICES, found.b.aligned)


@cache
def spectral_mixing(rounds: int) -> Mixing:
    """Return the constants from the weights: ‖P(t)…P(s) - 1/m‖₂ ≤ the product of ‖P - 1/m‖₂."""
    kappa = max(
        np.linalg.norm(gs.metropolis(NETWORK.links(t)).dense() - 1 / DEVICES, ord=2)
        for t in range(rounds)
    )
    return Mixing(1.0, float(kappa), 1.0 - float(kappa))
