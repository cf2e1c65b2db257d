"""Quasi-global Adam: Adam whose moments follow the path that all devices share.

QG-DAdam of T. Lin, S. P. Karimireddy, S. U. Stich, M. Jaggi. "Quasi-global momentum: accelerating
decentralized deep learning on heterogeneous data." ICML 2021.

    m_i  = β₁·m̂_i + c·g_i                    v_i = β₂·v̂_i + (1 − β₂)·g_i²
    w_i⁺ = Σ_j a_ij·(w_j − η·(m_j/(1 − β₁ᵏ))/(√(v_j/(1 − β₂ᵏ)) + ε))
    u_i  = (w_i − w_i⁺)/‖w_i − w_i⁺‖
    m̂_i⁺ = β₁·m̂_i + (1 − β₁)·u_i            v̂_i⁺ = β₂·v̂_i + (1 − β₂)·u_i²

The models are mixed and sent. m̂, v̂ and the number of rounds stay on their device, but they follow
models after mixing, not the gradients of the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition
from gossamer.algorithms.d_adam import BETA1
from gossamer.algorithms.directions import QuasiGlobalMoments
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import ADAM_RATE, Choice, method
from gossamer.algorithms.schedules import Rate


@method(
    "quasi-global-adam",
    label="Quasi-global Adam",
    paper="Lin et al., ICML 2021 (QG-DAdam)",
    tune={"eta": ADAM_RATE, "beta1": BETA1, "beta2": Choice((0.999, 0.99))},
)
@dataclass(frozen=True)
class QuasiGlobalAdam(Preset):
    """QG-DAdam, adapt-then-combine, with the path normalised over the whole model.

    As in the authors' code, the weight c of the gradient is 1, the moments are corrected for their
    start at 0, and 1e-8 is added to the length of the path. The paper prints c = 1 − β₁, with which
    the method learns far more slowly.

    Args:
        eta: The learning rate: a number or a schedule.
        beta1: The coefficient of the first moment.
        beta2: The coefficient of the second moment.
        eps: ε.
        gradient_weight: The weight c of the gradient in the first moment.

    Example:
        >>> QuasiGlobalAdam(eta=0.002).label
        'Quasi-global Adam'
    """

    eta: Rate = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    gradient_weight: float = 1.0

    def expand(self) -> Composition:
        direction = QuasiGlobalMoments(self.beta1, self.beta2, self.eps, self.gradient_weight)
        return Composition(eta=self.eta, direction=direction, order="adapt-then-combine")
