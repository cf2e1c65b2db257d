"""A power mean with a plain gradient step can miss the optimum for every step size.

    gossamer reproduce wpm plain_step

Two devices with full mixing and f_i(x) = (x − c_i)²/2, c = (3, −1): the optimum is 1. Both devices
hold x, step to x − η·(x − c_i) and take the power mean of the two. With x = k·η, p = 3 and η → 0 a
fixed point satisfies (k + 3)³ + (k − 1)³ = 2·k³, that is 3·k² + 15·k + 13 = 0: k = −3.884 (stable)
and k = −1.116 (unstable). Every start below about −1.116·η ends at about −3.884·η.
"""

from __future__ import annotations

import math
from pathlib import Path

from gossamer.study import Study
from papers.wpm.paper import Scale, write_csv

TITLE = "theory: two devices on which a power mean with a plain gradient step misses the optimum"

P = 3
CENTRES = (3.0, -1.0)
OPTIMUM = 1.0
RATES = (0.1, 0.01, 0.001, 0.0001)
STARTS = (-0.5, 0.0, 2.0)


def cells(scale: Scale) -> list[Study]:
    """Return no runs: this part needs none of the sweep."""
    return []


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    """Write the table."""
    rows: list[dict[str, object]] = []
    for start in STARTS:
        for eta in RATES:
            x = end(start, eta)
            slope = (one_round(x + 1e-7 * eta, eta) - one_round(x - 1e-7 * eta, eta)) / (2e-7 * eta)
            rows.append(
                {
                    "start": start,
                    "eta": eta,
                    "end": f"{x:.6f}",
                    "end_over_eta": f"{x / eta:.3f}",
                    "distance_to_optimum": f"{abs(x - OPTIMUM):.6f}",
                    "stable": "yes" if abs(slope) < 1 else "no",
                }
            )
    write_csv(out / "plain_step.csv", rows)
    return [out / "plain_step.csv"]


def one_round(x: float, eta: float) -> float:
    """Return the power mean of both devices' models after a plain gradient step from x."""
    total = 0.0
    for centre in CENTRES:
        total += (x - eta * (x - centre)) ** P
    return math.copysign(abs(total / len(CENTRES)) ** (1 / P), total)


def end(start: float, eta: float) -> float:
    """Return the model after so many rounds that it no longer changes: 30/η of them."""
    x = start
    for _ in range(math.ceil(30 / eta)):
        x = one_round(x, eta)
    return x
