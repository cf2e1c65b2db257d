"""Quasi-global momentum: momentum along the path that all devices share.

T. Lin, S. P. Karimireddy, S. U. Stich, M. Jaggi. "Quasi-global momentum: accelerating decentralized
deep learning on heterogeneous data." ICML 2021.

    w_i⁺ = Σ_j a_ij·(w_j − η·(g_j + β·b_j))
    b_i⁺ = β·b_i + (1 − β)·(w_i − w_i⁺)/η
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition
from gossamer.algorithms.directions import QuasiGlobalMomentum
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate

BETA = Choice((0.9, 0.8))


@method(
    "quasi-global",
    label="Quasi-global",
    paper="Lin et al., ICML 2021",
    tune={"eta": RATE, "beta": BETA},
)
@dataclass(frozen=True)
class QuasiGlobal(Preset):
    """QG-DSGDm, the heavy-ball form with μ = β, adapt-then-combine as in its paper.

    The Nesterov form, QG-DSGDm-N, is left out.

    Args:
        eta: The learning rate: a number or a schedule.
        beta: The momentum coefficient β.

    Example:
        >>> QuasiGlobal(eta=0.05).label
        'Quasi-global'
    """

    eta: Rate = 0.01
    beta: float = 0.9

    def expand(self) -> Composition:
        return Composition(
            eta=self.eta, direction=QuasiGlobalMomentum(self.beta), order="adapt-then-combine"
        )
