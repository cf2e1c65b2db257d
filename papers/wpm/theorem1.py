"""Theorem 1: measured regret against the bound, and the rate that it guarantees.

The problem is that of lemma1.py. The regret is the mean over rounds 0…T-1 of F(ȳ_t) - F(x*), where
F is the mean of the devices' losses. For every p and T the run uses the η that minimises the
corrected bound. For comparison: the best of several constant η in hindsight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from gossamer.report.figures import COLOURS, DASHES, STYLE
from gossamer.study import Study
from gossamer.theory import best_rate, regret_bound
from papers.wpm.lemma1 import (
    DEVICES,
    LINES,
    POWERS,
    PROBLEM,
    FloatArray,
    assumed_mixing,
    lipschitz,
    rounded,
    run,
)
from papers.wpm.paper import Scale, write_csv

TITLE = "theory: average regret under Theorem 1's bound and its guaranteed rate, p in 1, 3, 5, 15"
FACTORS = 10.0 ** np.arange(
    0, 5.1, 0.5
)  # η in hindsight, relative to that of the theorem for the longest run


def cells(scale: Scale) -> list[Study]:
    return []  # the runs are short; `make` executes them


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    times = (5, 10, 20, 50) if scale.name == "tiny" else (10, 20, 50, 100, 200, 500, 1000, 2000)
    rows = [row for p in POWERS for row in _rows(p, times)]
    write_csv(out / "theorem1.csv", rows)
    _draw(rows, out / "theorem1.png")
    return [out / "theorem1.csv", out / "theorem1.png"]


def _rows(p: float, times: Sequence[int]) -> Iterator[dict[str, object]]:
    start, optimum, longest = run(p, 1.0, 0)[0][0], PROBLEM.optimum(), times[-1]
    least = losses(optimum[None])[0]
    mixing = assumed_mixing(longest)

    def bound(T: int, eta: float, printed: bool = False) -> float:
        return regret_bound(
            start, optimum, T, p=p, eta=eta, lipschitz=lipschitz(), mixing=mixing, printed=printed
        )

    def regrets(eta: float, rounds: int) -> FloatArray:
        """Return the average regret of a run after each of its rounds."""
        return np.cumsum(losses(run(p, eta, rounds)[1][:-1]) - least) / np.arange(1, rounds + 1)

    def best_eta(T: int) -> float:
        return float(
            10 ** minimize_scalar(lambda x: bound(T, 10.0**x), bounds=(-30, 3), method="bounded").x
        )

    tries = best_eta(longest) * FACTORS
    tried = np.stack([regrets(eta, longest) for eta in tries])
    for T in times:
        eta, best = best_eta(T), int(tried[:, T - 1].argmin())
        measured = regrets(eta, T)[-1]
        values = {
            "eta": eta,
            "measured": measured,
            "corrected": bound(T, eta),
            "printed": bound(T, eta, printed=True),
            "looseness": bound(T, eta) / measured,
            "hindsight_eta": tries[best],
            "hindsight": tried[best, T - 1],
            "idle": losses(start[:1])[0] - least,
        }
        yield {"p": p, "rounds": T} | {name: f"{value:.6g}" for name, value in values.items()}


def losses(models: FloatArray) -> FloatArray:
    """Return F, the mean of the losses of all devices, for every row."""
    data = PROBLEM.load()
    signed = data.x.double().numpy() * (2 * data.y.numpy() - 1)[:, None]
    return np.asarray(np.logaddexp(0.0, -(models @ signed.T)).mean(axis=1))


def _draw(rows: list[dict[str, object]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    looks = {name: LINES[name] for name in ("corrected", "printed", "measured")}
    looks["measured"] = {
        **looks["measured"],
        "label": "measured, at the η of the corrected bound",
        "marker": "o",
        "markersize": 3,
    }
    looks["hindsight"] = {
        "label": "measured, at the best η in hindsight",
        "color": COLOURS[5],
        "linestyle": DASHES[4],
    }
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 5, figsize=(15, 3.8))
        for axis, p in zip(axes[:4], POWERS, strict=True):
            of_p = [row for row in rows if row["p"] == p]
            for name, look in looks.items():
                axis.loglog(
                    [row["rounds"] for row in of_p],
                    [float(str(row[name])) for row in of_p],
                    linewidth=1.6,
                    **look,
                )
            axis.axhline(
                float(str(of_p[0]["idle"])),
                color="0.3",
                linewidth=0.8,
                zorder=1,
                label="regret of never moving at all",
            )
            axis.set_title(
                f"p = {p}: corrected / measured = {rounded(of_p[-1]['looseness'])}", fontsize=9
            )
            axis.set(xlabel="rounds T", ylim=(2e-4, 5e2))
            axis.sharey(axes[0])
            axis.tick_params(labelleft=axis is axes[0])
        axes[0].set_ylabel("average regret")
        _draw_rates(axes[4])
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8
        )
        figure.suptitle(
            f"Theorem 1: average regret. Logistic regression, {DEVICES} devices, random ring, "
            "η by the bound for each T",
            fontsize=10,
        )
        figure.savefig(path, dpi=110)
        plt.close(figure)


def _draw_rates(axis: Any) -> None:
    """Draw the guaranteed rates, relative to T = 1."""
    times = np.array([1.0, 1e6])
    for p, dash in zip(POWERS, DASHES, strict=False):
        axis.loglog(times, times ** best_rate(p), color="black", linestyle=dash, linewidth=1.4)
        axis.text(
            2e6,
            times[-1] ** best_rate(p),
            f"p = {p}\n{2 ** (p + 1):,} × T",
            fontsize=8,
            va="center",
        )
    axis.set_title(
        "the guarantee, $T^{-1/(p+1)}$, is worse with p;\nright: the rounds that halve it",
        fontsize=9,
    )
    axis.set(xlabel="rounds T", ylabel="guarantee, relative to T = 1", xlim=(1, 1e6))
