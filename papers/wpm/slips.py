"""Errors of the paper's analysis, each with a case in which the printed form fails.

Signed powers x^[p] throughout. In the dual every run is linear, Y⁺ = P·(Y - η·g). The formulas, and
errors of notation without numerical effect, are in `gossamer.theory` and theory.md.
"""

from __future__ import annotations

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
    """A case: the measured value, the side of the bound it must be on, and both forms of it.

    `corrected_measured` is given if the correction also changes the left side.
    """

    slip: str
    setting: str
    measured: float
    must_be: str
    printed: float
    corrected: float
    corrected_measured: float | None = None

    def row(self) -> dict[str, object]:
        mended = self.measured if self.corrected_measured is None else self.corrected_measured
        return {
            "slip": self.slip,
            "setting": self.setting,
            "measured": f"{self.measured:.6g}",
            "must_be": self.must_be,
            "printed": f"{self.printed:.6g}",
            "printed_holds": self._holds(self.measured, self.printed),
            "measured_corrected": f"{mended:.6g}",
            "corrected": f"{self.corrected:.6g}",
            "corrected_holds": self._holds(mended, self.corrected),
        }

    def _holds(self, value: float, bound: float) -> str:
        holds = {"at most": value <= bound, "at least": value >= bound, "equal to": value == bound}[
            self.must_be
        ]
        return "yes" if holds else "no"


def cells(scale: Scale) -> list[Study]:
    return []


def make(scale: Scale, results: object, out: Path) -> list[Path]:
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
    """Claim 1 does not restrict p; its proof needs an odd p."""
    x, y, p = 1.0, -1.0, 2
    bound = abs(x - y) ** p / 2 ** (p - 1)
    signed = bound + float(claim1_gap(x, y, p))
    return Slip(
        "Claim 1 with plain even powers; signed powers mend it",
        "p = 2, x = 1, y = -1: |x^p - y^p|",
        abs(x**p - y**p), "at least", bound, bound, signed,
    )  # fmt: skip


def half_the_square() -> Slip:
    x, y = np.array([3.0, 0.0]), np.array([1.0, 0.0])
    square = float(((x - y) ** 2).sum())
    return Slip(
        "the divergence of ½‖x‖² is half of the square",
        "p = 1, x = (3, 0), y = (1, 0): D(x, y)",
        divergence(x, y, p=1), "equal to", square, square / 2,
    )  # fmt: skip


def lemma1_in_the_2_norm() -> Slip:
    away, bound = _two_that_disagree(1000)
    return Slip(
        "Lemma 1 read in the 2-norm, the norm of its assumptions",
        "m = 2, P = [[.9 .1] [.1 .9]], f = ±⟨g x⟩, g = 1/√n, η = 0.01, p = 3, y_0 = 0, n = 1000, "
        "round 40",
        float(np.linalg.norm(away)), "at most", bound(printed=True), bound(euclidean=True),
    )  # fmt: skip


def lemma1_in_the_p_norm() -> Slip:
    away, bound = _two_that_disagree(120_000)
    return Slip(
        "Lemma 1 in the p-norm, its proof's own",
        "the same with n = 120000",
        float(np.linalg.norm(away, ord=3)), "at most", bound(printed=True), bound(),
    )  # fmt: skip


def theorem1() -> Slip:
    """One device, so consensus is trivial: the term of the step fails. Every step flips signs."""
    n, p, eta, rounds = 10_000, 3, 0.01, 300
    slope = n**-0.5
    start = np.full((1, n), (eta * slope / 2) ** (1 / p))
    dual, regret = start[0] ** p, 0.0
    for _ in range(rounds):
        regret += (
            slope * float((np.abs(dual) ** (1 / p)).sum()) / rounds
        )  # f(x) = ‖x‖₁/√n is 0 at its best, x = 0
        dual = dual - eta * slope * np.sign(dual)
    known: Any = {
        "p": p,
        "eta": eta,
        "lipschitz": 1.0,
        "mixing": mixing_constants(1.0, devices=1, b=1),
    }
    printed, corrected = (
        regret_bound(start, np.zeros(n), rounds, printed=printed, **known)
        for printed in (True, False)
    )
    return Slip(
        "Theorem 1: G bounds a 2-norm where one dual to the (p+1)-norm is due",
        "m = 1, f = ‖x‖₁/√n, η = 0.01, p = 3, y_0 = (η/2√n)^(1/p), n = 10000, T = 300: "
        "average regret",
        regret, "at most", printed, corrected,
    )  # fmt: skip


def _two_that_disagree(n: int, rounds: int = 40) -> tuple[FloatArray, Any]:
    """Return y_1 - ȳ after some rounds of two opposed devices, and the bound of Lemma 1."""
    p, eta = 3, 0.01
    weights, gradients = (
        np.array([[0.9, 0.1], [0.1, 0.9]]),
        np.outer([1.0, -1.0], np.full(n, n**-0.5)),
    )
    dual = np.zeros((2, n))
    for _ in range(rounds):
        dual = weights @ (dual - eta * gradients)
    known: Any = {
        "p": p,
        "eta": eta,
        "lipschitz": 1.0,
        "mixing": mixing_constants(0.1, devices=2, b=1),
    }

    def bound(**how: Any) -> float:
        return float(consensus_bound(np.zeros((2, n)), rounds, **known, **how))

    return np.cbrt(dual[0]) - np.cbrt(dual.mean(axis=0)), bound
