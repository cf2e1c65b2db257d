"""What the forms of a gain do on a quadratic: error of the mean, and disagreement of the devices.

gossamer reproduce gain forms
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gossamer.report.figures import DASHES
from gossamer.results.palette import COLOURS
from gossamer.study import Study
from papers.drawing import saved_figure
from papers.gain.paper import Scale, write_csv
from papers.gain.quadratic import NO_GAIN, FloatArray, fading, harmonic, path, switched

TITLE = "theory: error of the mean and disagreement on a quadratic, by form of the gain"
H = 0.01  # η·λ
RHO = 0.9  # the second eigenvalue of the weights
ROUNDS = 1000
FORMS = {
    "no gain": NO_GAIN,
    "no gain, four times the rate": NO_GAIN,
    "gain 1.05 for 60 rounds": switched(1.05, 60),
    "gain 1 + 1/(t + 1) from the start": harmonic(1),
    "fading gain, n = 3": fading(3),
}
_LEADS = (0, 1, 2, 3, 4, 5)
_TOLERANCES = (0.5, 0.1, 0.01)


def cells(scale: Scale) -> list[Study]:
    """Return no runs: the recursions of this part are small."""
    return []


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    """Write the tables and the figure."""
    write_csv(out / "forms.csv", [_row(name) for name in FORMS])
    write_csv(out / "leads.csv", [_lead(n) for n in _LEADS])
    with saved_figure(out / "forms.png", 1, 2, figsize=(10, 4), layout="constrained") as (_, axes):
        _draw(axes[0], _errors, "error of the mean, relative to the start")
        _draw(axes[1], _disagreement, "disagreement, relative to no gain")
        axes[0].legend(fontsize=8)
        for axis in axes:
            axis.set_xlim(0, 400)
        axes[1].set_ylim(0, 3.5)
    return [out / "forms.csv", out / "leads.csv", out / "forms.png"]


def _rate(name: str) -> float:
    """Return η·λ of a line of the figure."""
    if name == "no gain, four times the rate":
        return 4 * H
    return H


def _errors(name: str) -> FloatArray:
    """Return the signed error of the mean by round, 1 at the start."""
    return 1 - path(FORMS[name], _rate(name), ROUNDS)


def _disagreement(name: str) -> FloatArray:
    """Return the disagreement by round, as a multiple of its limit without a gain."""
    base = path(NO_GAIN, H, ROUNDS, RHO)[-1]
    relative: FloatArray = np.abs(path(FORMS[name], _rate(name), ROUNDS, RHO)) / base
    return relative


def _row(name: str) -> dict[str, object]:
    """Return rounds to half of the error, largest overshoot, and errors later on."""
    error = _errors(name)
    disagreement = _disagreement(name)
    row: dict[str, object] = {"form": name}
    row["rounds_to_half"] = int(np.argmax(error <= 0.5))
    row["overshoot"] = f"{max(0.0, -error.min()):.3f}"
    row["error_at_300"] = f"{abs(error[300]):.3f}"
    row["error_at_1000"] = f"{abs(error[-1]):.1e}"
    row["largest_disagreement"] = f"{disagreement.max():.2f}"
    row["last_disagreement"] = f"{disagreement[-1]:.2f}"
    return row


def _lead(n: int) -> dict[str, object]:
    """Return when the error of a fading gain is first and finally below some tolerances."""
    error = np.abs(1 - path(fading(n), H, 20 * ROUNDS))
    row: dict[str, object] = {"lead": n}
    for tolerance in _TOLERANCES:
        row[f"first_{tolerance:g}"] = int(np.argmax(error <= tolerance))
        row[f"stays_{tolerance:g}"] = int(np.flatnonzero(error > tolerance)[-1]) + 1
    return row


def _draw(axis: Any, values: Any, title: str) -> None:
    for k, name in enumerate(FORMS):
        axis.plot(values(name), label=name, color=COLOURS[k], linestyle=DASHES[k])
    axis.set_title(title)
    axis.set_xlabel("round")
