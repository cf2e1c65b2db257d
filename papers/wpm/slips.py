"""Errors of the paper's analysis that a number can show: cases in which the printed form fails.

    gossamer reproduce wpm slips

Powers are signed powers x^[p]. In the dual every run is linear, Y⁺ = P·(Y - η·g), so that a run is
one line of code. The formulas, and errors of notation that no number shows, are in
`gossamer.theory` and theory.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.study import Study
from gossamer.theory import claim1_gap, consensus_bound, divergence, mixing_constants, regret_bound
from papers.wpm.lemma1 import FloatArray
from papers.wpm.paper import Scale, write_csv

TITLE = (
    "theory: where the printed Claim 1, Lemma 1 and Theorem 1 fail, and the corrected forms hold"
)


@dataclass(frozen=True)
class Slip:
    """A case in which a printed bound fails.

    Attributes:
        slip: What is wrong.
        setting: The case.
        measured: The value that is bounded.
        must_be: Its relation to the bound: "at most", "at least" or "equal to".
        printed: The bound as printed.
        corrected: The corrected bound.
        corrected_measured: The bounded value of the corrected form, if it is another.
    """

    slip: str
    setting: str
    measured: float
    must_be: str
    printed: float
    corrected: float
    corrected_measured: float | None = None

    def row(self) -> dict[str, object]:
        """Return the row of the table."""
        corrected_measured = self.corrected_measured
        if corrected_measured is None:
            corrected_measured = self.measured
        return {
            "slip": self.slip,
            "setting": self.setting,
            "measured": f"{self.measured:.6g}",
            "must_be": self.must_be,
            "printed": f"{self.printed:.6g}",
            "printed_holds": self._holds(self.measured, self.printed),
            "measured_corrected": f"{corrected_measured:.6g}",
            "corrected": f"{self.corrected:.6g}",
            "corrected_holds": self._holds(corrected_measured, self.corrected),
        }

    def _holds(self, value: float, bound: float) -> str:
        relations = {
            "at most": value <= bound,
            "at least": value >= bound,
            "equal to": value == bound,
        }
        return "yes" if relations[self.must_be] else "no"


def cells(scale: Scale) -> list[Study]:
    """Return no runs: this part needs none of the sweep."""
    return []


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    """Write the table."""
    slips = [
        even_powers(),
        half_the_square(),
        lemma1_in_the_2_norm(),
        lemma1_in_the_p_norm(),
        theorem1(),
    ]
    write_csv(out / "slips.csv", [slip.row() for slip in slips])
    return [out / "slips.csv"]


def even_powers() -> Slip:
    """Claim 1 says "x, y real" and nothing about p; its proof needs an odd one."""
    x = 1.0
    y = -1.0
    p = 2
    bound = abs(x - y) ** p / 2 ** (p - 1)
    return Slip(
        slip="Claim 1 with plain even powers; signed powers mend it",
        setting="p = 2, x = 1, y = -1: |x^p - y^p|",
        measured=abs(x**p - y**p),
        must_be="at least",
        printed=bound,
        corrected=bound,
        corrected_measured=bound + float(claim1_gap(x, y, p)),
    )


def half_the_square() -> Slip:
    """The divergence for p = 1 is printed without its factor ½."""
    x = np.array([3.0, 0.0])
    y = np.array([1.0, 0.0])
    square = float(((x - y) ** 2).sum())
    return Slip(
        slip="the divergence of ½‖x‖² is half of the square",
        setting="p = 1, x = (3, 0), y = (1, 0): D(x, y)",
        measured=divergence(x, y, p=1),
        must_be="equal to",
        printed=square,
        corrected=square / 2,
    )


def lemma1_in_the_2_norm() -> Slip:
    """Lemma 1 does not name its norm; in the 2-norm the printed bound fails."""
    distance, bound = _two_opposite_losses(1000)
    return Slip(
        slip="Lemma 1 read in the 2-norm, the norm of its assumptions",
        setting=(
            "m = 2, P = [[.9 .1] [.1 .9]], f = ±⟨g x⟩, g = 1/√n, η = 0.01, p = 3, y_0 = 0, "
            "n = 1000, round 40"
        ),
        measured=float(np.linalg.norm(distance)),
        must_be="at most",
        printed=bound(printed=True),
        corrected=bound(euclidean=True),
    )


def lemma1_in_the_p_norm() -> Slip:
    """In the p-norm, that of its proof, the printed bound fails for more dimensions."""
    distance, bound = _two_opposite_losses(120_000)
    return Slip(
        slip="Lemma 1 in the p-norm, its proof's own",
        setting="the same with n = 120000",
        measured=float(np.linalg.norm(distance, ord=3)),
        must_be="at most",
        printed=bound(printed=True),
        corrected=bound(),
    )


def theorem1() -> Slip:
    """One device is always in consensus, so that what fails is the term of the step.

    The start is such that every step flips the sign.
    """
    n = 10_000
    p = 3
    eta = 0.01
    rounds = 300
    slope = n**-0.5
    start = np.full((1, n), (eta * slope / 2) ** (1 / p))
    dual = start[0] ** p
    regret = 0.0
    for _ in range(rounds):
        # f(x) = ‖x‖₁/√n is 0 at its minimum, x = 0.
        regret += slope * float((np.abs(dual) ** (1 / p)).sum()) / rounds
        dual = dual - eta * slope * np.sign(dual)
    known: Any = {
        "p": p,
        "eta": eta,
        "lipschitz": 1.0,
        "mixing": mixing_constants(1.0, devices=1, b=1),
    }
    return Slip(
        slip="Theorem 1: G bounds a 2-norm where one dual to the (p+1)-norm is due",
        setting=(
            "m = 1, f = ‖x‖₁/√n, η = 0.01, p = 3, y_0 = (η/2√n)^(1/p), n = 10000, T = 300: "
            "average regret"
        ),
        measured=regret,
        must_be="at most",
        printed=regret_bound(start, np.zeros(n), rounds, printed=True, **known),
        corrected=regret_bound(start, np.zeros(n), rounds, **known),
    )


def _two_opposite_losses(n: int, rounds: int = 40) -> tuple[FloatArray, Callable[..., float]]:
    """Run two devices with opposite losses and large own weights.

    Returns:
        y_1 - ȳ after the rounds, and Lemma 1's bound on it.
    """
    p = 3
    eta = 0.01
    weights = np.array([[0.9, 0.1], [0.1, 0.9]])
    gradients = np.outer([1.0, -1.0], np.full(n, n**-0.5))
    dual = np.zeros((2, n))
    for _ in range(rounds):
        dual = weights @ (dual - eta * gradients)
    known: Any = {
        "p": p,
        "eta": eta,
        "lipschitz": 1.0,
        "mixing": mixing_constants(0.1, devices=2, b=1),
    }

    def bound(**options: Any) -> float:
        return float(consensus_bound(np.zeros((2, n)), rounds, **known, **options))

    return np.cbrt(dual[0]) - np.cbrt(dual.mean(axis=0)), bound
