"""D-PSGD with momentum: every device has its own momentum, models are mixed.

The baseline DSGDm of T. Lin, S. P. Karimireddy, S. U. Stich, M. Jaggi. "Quasi-global momentum:
accelerating decentralized deep learning on heterogeneous data." ICML 2021; with periodic
communication: H. Gao, H. Huang. "Periodic stochastic gradient descent with momentum for
decentralized training." 2020.

    m_i⁺ = β·m_i + d_i(w_i)
    w_i⁺ = Σ_j a_ij·(w_j − η·m_j⁺)          Nesterov: d_j + β·m_j⁺ in place of m_j⁺

The models are mixed and sent; the momentum stays on its device.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.dpsgd import DPSGD
from gossamer.algorithms.optimizers import SGD, check_coefficients
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate


@method(
    "momentum",
    label="Momentum",
    paper="Lin et al., ICML 2021 (DSGDm); Gao and Huang, 2020",
    tune={"eta": RATE, "beta": Choice((0.9, 0.8))},
)
@dataclass(frozen=True)
class Momentum(Preset):
    """D-PSGD, adapt-then-combine, with SGD's momentum on every device.

    Args:
        eta: The learning rate: a number or a schedule.
        beta: The momentum coefficient β.
        nesterov: Use Nesterov's form.

    Example:
        >>> Momentum(eta=0.05, nesterov=True).expand().optimizer
        SGD(momentum=0.9, nesterov=True)
    """

    eta: Rate = 0.01
    beta: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_coefficients(beta=self.beta)
        super().__post_init__()

    def expand(self) -> DPSGD:
        optimizer = SGD(self.beta, self.nesterov)
        return DPSGD(self.eta, order="adapt-then-combine", optimizer=optimizer)
