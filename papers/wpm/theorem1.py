"""Theorem 1 as a figure: the regret of real runs, its bound, and the rate that it guarantees.

    gossamer reproduce wpm theorem1

The problem is that of lemma1.py. The regret is the mean over rounds 0…T-1 of F(ȳ_t) - F(x*), where
F is the mean of the devices' losses. For every p and T the run takes the η at which the corrected
bound is smallest. The best regret that any of several constant η reaches is shown as well; without
it the figure would compare bounds, not p.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from gossamer.report.figures import DASHES
from gossamer.results.palette import COLOURS
from gossamer.study import Study
from gossamer.theory import best_rate, regret_bound
from papers.drawing import saved_figure
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
# The η that are tried in hindsight, relative to the theorem's for the longest run.
FACTORS = 10.0 ** np.arange(0, 5.1, 0.5)


def cells(scale: Scale) -> list[Study]:
    """Return no runs: those of this part are small and not in the sweep."""
    return []


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    """Write the table and the figure."""
    times: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000, 2000)
    if scale.name == "tiny":
        times = (5, 10, 20, 50)
    rows: list[dict[str, object]] = []
    for p in POWERS:
        rows += _rows(p, times)
    write_csv(out / "theorem1.csv", rows)
    _draw(rows, out / "theorem1.png")
    return [out / "theorem1.csv", out / "theorem1.png"]


def _rows(p: float, times: Sequence[int]) -> Iterator[dict[str, object]]:
    """Yield the rows of the table for one p."""
    start = run(p, 1.0, 0)[0][0]
    optimum = PROBLEM.optimum()
    least = losses(optimum[None])[0]
    longest = times[-1]
    mixing = assumed_mixing(longest)

    def bound(T: int, eta: float, printed: bool = False) -> float:
        return regret_bound(
            start, optimum, T, p=p, eta=eta, lipschitz=lipschitz(), mixing=mixing, printed=printed
        )

    def regrets(eta: float, rounds: int) -> FloatArray:
        """Return the average regret of a run after each of its rounds."""
        means = run(p, eta, rounds)[1]
        return np.cumsum(losses(means[:-1]) - least) / np.arange(1, rounds + 1)

    def best_eta(T: int) -> float:
        found = minimize_scalar(lambda x: bound(T, 10.0**x), bounds=(-30, 3), method="bounded")
        return float(10**found.x)

    tried_etas = best_eta(longest) * FACTORS
    tried = np.stack([regrets(eta, longest) for eta in tried_etas])
    for T in times:
        eta = best_eta(T)
        best = int(tried[:, T - 1].argmin())
        measured = regrets(eta, T)[-1]
        values = {
            "eta": eta,
            "measured": measured,
            "corrected": bound(T, eta),
            "printed": bound(T, eta, printed=True),
            "looseness": bound(T, eta) / measured,
            "hindsight_eta": tried_etas[best],
            "hindsight": tried[best, T - 1],
            "idle": losses(start[:1])[0] - least,
        }
        yield {"p": p, "rounds": T} | {name: f"{value:.6g}" for name, value in values.items()}


def losses(models: FloatArray) -> FloatArray:
    """Return F, the mean of all devices' losses, at every model.

    Args:
        models: One model per row.
    """
    data = PROBLEM.load()
    signed = data.x.double().numpy() * (2 * data.y.numpy() - 1)[:, None]
    return np.asarray(np.logaddexp(0.0, -(models @ signed.T)).mean(axis=1))


def _draw(rows: list[dict[str, object]], path: Path) -> None:
    looks = {
        "corrected": LINES["corrected"],
        "printed": LINES["printed"],
        "measured": {
            **LINES["measured"],
            "label": "measured, at the η of the corrected bound",
            "marker": "o",
            "markersize": 3,
        },
        "hindsight": {
            "label": "measured, at the best η in hindsight",
            "color": COLOURS[5],
            "linestyle": DASHES[4],
        },
    }
    with saved_figure(path, 1, 5, figsize=(15, 3.8)) as (figure, axes):
        for axis, p in zip(axes[:4], POWERS, strict=True):
            rows_of_p = [row for row in rows if row["p"] == p]
            rounds = [row["rounds"] for row in rows_of_p]
            for name, look in looks.items():
                values = [float(str(row[name])) for row in rows_of_p]
                axis.loglog(rounds, values, linewidth=1.6, **look)
            axis.axhline(
                float(str(rows_of_p[0]["idle"])),
                color="0.3",
                linewidth=0.8,
                zorder=1,
                label="regret of never moving at all",
            )
            looseness = rounded(rows_of_p[-1]["looseness"])
            axis.set_title(f"p = {p}: corrected / measured = {looseness}", fontsize=9)
            axis.set(xlabel="rounds T", ylim=(2e-4, 5e2))
            axis.sharey(axes[0])
            axis.tick_params(labelleft=axis is axes[0])
        axes[0].set_ylabel("average regret")
        _draw_rates(axes[4])
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
        figure.suptitle(
            f"Theorem 1: average regret. Logistic regression, {DEVICES} devices, random ring, "
            "η by the bound for each T",
            fontsize=10,
        )


def _draw_rates(axis: Any) -> None:
    """Draw the guaranteed rates, relative to T = 1."""
    times = np.array([1.0, 1e6])
    for p, dash in zip(POWERS, DASHES, strict=False):
        rate = best_rate(p)
        axis.loglog(times, times**rate, color="black", linestyle=dash, linewidth=1.4)
        text = f"p = {p}\n{2 ** (p + 1):,} × T"
        axis.text(2e6, times[-1] ** rate, text, fontsize=8, va="center")
    axis.set_title(
        "the guarantee, $T^{-1/(p+1)}$, is worse with p;\nright: the rounds that halve it",
        fontsize=9,
    )
    axis.set(xlabel="rounds T", ylabel="guarantee, relative to T = 1", xlim=(1, 1e6))
