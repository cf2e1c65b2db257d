"""DGD: the distributed subgradient method, with a falling rate.

A. Nedić, A. Ozdaglar. "Distributed subgradient methods for multi-agent optimization." IEEE TAC 54,
2009.

    w_i⁺ = Σ_j a_ij·w_j − η/√(1 + t)·d_i(w_i)
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.dpsgd import DPSGD
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import method
from gossamer.algorithms.schedules import InverseSqrt


@method("dgd", label="DGD", paper="Nedić and Ozdaglar, IEEE TAC 54, 2009")
@dataclass(frozen=True)
class DGD(Preset):
    """D-PSGD with the rate η/√(1 + t).

    Its paper analyses a constant rate, which with full gradients is D-PSGD; the falling one leads
    to the optimum.

    Args:
        eta: The learning rate of round 0.

    Example:
        >>> DGD(eta=0.1).expand().eta
        InverseSqrt(start=0.1, every=1.0)
    """

    eta: float = 0.1

    def expand(self) -> DPSGD:
        return DPSGD(InverseSqrt(self.eta), "local", "combine-then-adapt")
