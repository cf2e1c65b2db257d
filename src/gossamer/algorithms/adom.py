"""ADOM: an accelerated decentralised method for time-varying networks, on the dual problem.

D. Kovalev, E. Shulgin, P. Richtárik, A. Rogozin, A. Gasnikov. "ADOM: accelerated decentralized optimization method for
time-varying networks." ICML 2021.

Assumes that the links of every round connect all devices (checked where they never change), that all are here in every
round, that every device's own loss is μ-strongly convex and L-smooth, and that ∇f_i* is at hand: least squares over all
samples (batch = 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State
from gossamer.errors import InputError
from gossamer.network.base import Network
from gossamer.network.inspect import connected


@register("algorithm", "adom")
@dataclass(frozen=True)
class ADOM(Algorithm):
    """Nesterov's method on min F*(z) over Σ_i z_i = 0, its projection replaced by gossip with error feedback m.

        z_g = τ·z + (1 − τ)·z_f                    x = ∇F*(z_g), the models
        Δ   = σ·W·(m − η·x)                        m⁺ = m − η·x − Δ
        z⁺  = z + η·α·(z_g − z) + Δ                z_f⁺ = z_g − θ·W·x

    W = I − A for the weights A of the round: its eigenvalues are 0 and from λ to 2, and `chi` = 2/λ at the least, over all
    rounds. With L = `smoothness` and μ = `strong_convexity` of the devices' own losses, as its Theorem 1 has it:
    α = 1/(2L), η = 2·√(μL)/(7χ), θ = μ/2, σ = 1/2, τ = √(μ/L)/(7χ): its θ = μ/λ_max and σ = 1/λ_max, with 2 for λ_max.
    It starts from z = z_f = m = 0, wherever the shared model is. A message holds two vectors.

    >>> ADOM(smoothness=2.0, strong_convexity=0.5, chi=4.0).label
    'ADOM'
    """

    smoothness: float = 1.0
    strong_convexity: float = 0.1
    chi: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.smoothness < math.inf:
            raise InputError("smoothness", self.smoothness, "a number above 0")
        if not 0 < self.strong_convexity <= self.smoothness:
            raise InputError(
                "strong_convexity",
                self.strong_convexity,
                "a number above 0 and at most the smoothness",
            )
        if not 1 <= self.chi < math.inf:
            raise InputError("chi", self.chi, "a number of at least 1")

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def check(self, network: Network) -> None:
        super().check(network)
        if network.period == 1 and not connected(network.links(0)):
            raise InputError(
                "network",
                type(network).__name__,
                "links that connect all devices in every round, as ADOM needs",
            )

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), **{name: torch.zeros_like(w0) for name in ("z", "z_f", "m")}}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        if mix.active is not None and not mix.active.all():
            raise InputError(
                "network",
                f"devices that are away in round {t}",
                "one where all are always here, as ADOM needs",
            )
        z, m, L, μ = state["z"], state["m"], self.smoothness, self.strong_convexity
        α, η = 1 / (2 * L), 2 * math.sqrt(μ * L) / (7 * self.chi)
        z_g = self._z_g(state)
        x = grad.conjugate(z_g)
        both = torch.cat([m - η * x, x], 1)
        Δ, Wx = ((both - mix(both)) / 2).chunk(2, 1)
        return {"w": x, "z": z + η * α * (z_g - z) + Δ, "z_f": z_g - μ * Wx, "m": m - η * x - Δ}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return grad.conjugate(self._z_g(state))

    def _z_g(self, state: State) -> Tensor:
        τ = math.sqrt(self.strong_convexity / self.smoothness) / (7 * self.chi)
        return τ * state["z"] + (1 - τ) * state["z_f"]
