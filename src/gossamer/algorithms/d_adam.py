"""D-Adam: D-PSGD with Adam on every device.

The baseline DAdam of T. Lin, S. P. Karimireddy, S. U. Stich, M. Jaggi. "Quasi-global momentum:
accelerating decentralized deep learning on heterogeneous data." ICML 2021; after P. Nazari,
D. A. Tarzanagh, G. Michailidis. "DAdam: a consensus-based distributed adaptive gradient method for
online optimization." IEEE Transactions on Signal Processing 70, 2022.

    m_i⁺ = β₁·m_i + (1 − β₁)·d_i(w_i)       v_i⁺ = β₂·v_i + (1 − β₂)·d_i(w_i)²
    w_i⁺ = Σ_j a_ij·(w_j − η·m̂_j/(√v̂_j + ε))     m̂ = m⁺/(1 − β₁ᵏ), v̂ = v⁺/(1 − β₂ᵏ) in step k

The models are mixed and sent; both moments and the number of steps stay on their device.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.dpsgd import DPSGD
from gossamer.algorithms.optimizers import Adam
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import ADAM_RATE, Choice, method
from gossamer.algorithms.schedules import Rate

BETA1 = Choice((0.9, 0.8))


@method(
    "d-adam",
    label="D-Adam",
    paper="Lin et al., ICML 2021 (DAdam); Nazari et al., IEEE TSP 70, 2022",
    tune={"eta": ADAM_RATE, "beta1": BETA1, "weight_decay": Choice((0.0, 0.001))},
)
@dataclass(frozen=True)
class DAdam(Preset):
    """D-PSGD, adapt-then-combine, with Adam on every device.

    Nazari et al. combine, then adapt, and divide by a running maximum of v (AMSGrad).

    Args:
        eta: The learning rate: a number or a schedule.
        beta1: The coefficient of the first moment.
        beta2: The coefficient of the second moment.
        eps: ε.

    Example:
        >>> DAdam(eta=0.002).label
        'D-Adam'
    """

    eta: Rate = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def expand(self) -> DPSGD:
        optimizer = Adam(self.beta1, self.beta2, self.eps)
        return DPSGD(self.eta, order="adapt-then-combine", optimizer=optimizer)
