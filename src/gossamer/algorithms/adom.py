"""ADOM: an accelerated decentralized method for time-varying networks, on the dual problem.

D. Kovalev, E. Shulgin, P. Richtárik, A. Rogozin, A. Gasnikov. "ADOM: accelerated decentralized
optimization method for time-varying networks." ICML 2021.

    z_g = τ·z + (1 − τ)·z_f                    x = ∇F*(z_g), the models
    Δ   = σ·W·(m − η·x)                        m⁺ = m − η·x − Δ
    z⁺  = z + η·α·(z_g − z) + Δ                z_f⁺ = z_g − θ·W·x

Assumptions: the links of every round connect all devices (checked for static links), all devices
are active in every round, every device's loss is μ-strongly convex and L-smooth, and ∇f_i* is
known: least squares over all samples (batch = 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from gossamer.algorithms.base import Algorithm, Gradient, Mix, State
from gossamer.algorithms.local_step import LocalStep
from gossamer.algorithms.registry import method
from gossamer.errors import InputError
from gossamer.network.base import Network
from gossamer.network.inspect import connected


@method(
    "adom",
    label="ADOM",
    paper="Kovalev et al., ICML 2021",
    needs="symmetric links, connected in every round; nobody away; least squares over all samples",
    exact=True,
)
@dataclass(frozen=True)
class ADOM(Algorithm):
    """Nesterov's method on min F*(z) over Σ_i z_i = 0, its projection replaced by gossip.

    W = I − A for the weights A of the round: its eigenvalues are 0 and those from λ to 2. The
    constants are those of its Theorem 1 with λ_max = 2: α = 1/(2L), η = 2·√(μL)/(7χ), θ = μ/2, σ =
    1/2, τ = √(μ/L)/(7χ). It starts from z = z_f = m = 0, whatever the shared model is. A message
    holds two vectors.

    Args:
        smoothness: L of the devices' own losses.
        strong_convexity: μ of the devices' own losses.
        chi: χ, at least 2/λ over all rounds.

    Example:
        >>> ADOM(smoothness=2.0, strong_convexity=0.5, chi=4.0).label
        'ADOM'
    """

    smoothness: float = 1.0
    strong_convexity: float = 0.1
    chi: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_local_step()
        if not 0 < self.smoothness < math.inf:
            raise InputError("smoothness", self.smoothness, "a number above 0")
        if not 0 < self.strong_convexity <= self.smoothness:
            accepted = "a number above 0 and at most the smoothness"
            raise InputError("strong_convexity", self.strong_convexity, accepted)
        if not 1 <= self.chi < math.inf:
            raise InputError("chi", self.chi, "a number of at least 1")

    def _check_local_step(self) -> None:
        """Raise InputError for a local step: there is none."""
        for field in fields(LocalStep):
            value = getattr(self, field.name)
            if value != field.default:
                accepted = "nothing: ADOM takes no gradient steps, it asks for ∇f_i* itself"
                raise InputError(field.name, value, accepted)

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    @property
    def connected_rounds(self) -> bool:
        return True

    def check(self, network: Network) -> None:
        super().check(network)
        if network.period == 1 and not connected(network.links(0)):
            accepted = "links that connect all devices in every round, as ADOM needs"
            raise InputError("network", type(network).__name__, accepted)

    def init(self, w0: Tensor) -> State:
        return {
            "w": w0.clone(),
            "z": torch.zeros_like(w0),
            "z_f": torch.zeros_like(w0),
            "m": torch.zeros_like(w0),
        }

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        if mix.active is not None and not mix.active.all():
            accepted = "one where all are always here, as ADOM needs"
            raise InputError("network", f"devices that are away in round {t}", accepted)
        z = state["z"]
        m = state["m"]
        L = self.smoothness
        μ = self.strong_convexity
        α = 1 / (2 * L)
        η = 2 * math.sqrt(μ * L) / (7 * self.chi)
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
