"""K-GT: gradient tracking with local steps. Twice the bytes.

Y. Liu, T. Lin, A. Koloskova, S. U. Stich. "Decentralized gradient tracking with local steps."
Optimization Methods and Software, 2024, arXiv:2301.01313.

    x_i⁰ = x_i, then x_i^{k+1} = x_i^k − η·(d_i(x_i^k) + c_i)    K = local_steps times
    z_i  = (x_i − x_i^K)/(K·η)                                   the mean direction
    c_i⁺ = c_i − z_i + Σ_j a_ij·z_j
    x_i⁺ = Σ_j a_ij·(x_j − η_s·K·η·z_j)

x − η_s·K·η·z and z are mixed and sent in one message. The correction c stays on its device; it
tends to the difference between the mean gradient and the device's own, so that the local steps of
all devices lead to the same point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, check_local_steps, descend
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate, at, check_eta, check_positive


@method(
    "k-gt",
    label="K-GT",
    paper="Liu et al., Optimization Methods and Software, 2024",
    exact=True,
    tune={"eta": RATE, "local_steps": Choice((2, 4, 8))},
)
@dataclass(frozen=True)
class KGT(Algorithm):
    """Local steps along corrected gradients, then the mean of the models and of the directions.

    Differences from the paper: c starts at 0, where the paper starts it at the difference between
    the mean of the first gradients and the device's own; both sum to 0 over the devices. z is
    summed up over the steps, so that η = 0 does no harm.

    Args:
        eta: The learning rate η of the local steps: a number or a schedule.
        local_steps: K, the number of steps per round.
        outer_eta: η_s, the share of the local path that is kept.

    Example:
        >>> KGT(eta=0.05, local_steps=8).label
        'K-GT'
    """

    eta: Rate = 0.01
    local_steps: int = 4
    outer_eta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_local_steps(self.local_steps)
        check_positive(outer_eta=self.outer_eta)

    @property
    def needs_gradients(self) -> bool:
        return True

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "correction": torch.zeros_like(w0)}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        x = state["w"]
        c = state["correction"]
        η = at(self.eta, t, mix.devices, x)
        z = self._direction(x, c, grad, η)
        stepped = x - self.outer_eta * self.local_steps * η * z
        x_mean, z_mean = mix(torch.cat([stepped, z], 1)).chunk(2, 1)
        return {"w": x_mean.contiguous(), "correction": c - z + z_mean}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        x = state["w"]
        η = at(self.eta, t, mix.devices, x)
        return x - self.local_steps * η * self._direction(x, state["correction"], grad, η)

    def _direction(self, x: Tensor, c: Tensor, grad: Gradient, η: float | Tensor) -> Tensor:
        """Return z, the mean direction of the local steps from x."""
        z = torch.zeros_like(x)
        x_k = x.clone()
        for k in range(self.local_steps):
            d = grad(x_k, k) + c
            x_k = descend(x_k, d, η)
            z += d
        return z / self.local_steps
