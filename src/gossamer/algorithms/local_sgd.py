"""Local SGD: several steps between two rounds of gossip, over changing links.

A. Koloskova, N. Loizou, S. Boreiri, M. Jaggi, S. U. Stich. "A unified theory of decentralized SGD
with changing topology and local updates." ICML 2020.

    w_i⁺ = Σ_j a_ij·(w_j − η·Σ_s d_j,s)
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate
from gossamer.network.weights import NetworkWeights, WeightRule


@method(
    "local-sgd",
    label="Local SGD",
    paper="Koloskova et al., ICML 2020",
    tune={"eta": RATE, "local_steps": Choice((2, 4, 8))},
)
@dataclass(frozen=True)
class LocalSGD(Preset):
    """Local steps, then gossip by any weights.

    Args:
        eta: The learning rate: a number or a schedule.
        local_steps: The number of steps per round.
        weights: The rule that turns links into weights.

    Example:
        >>> LocalSGD(eta=0.05, local_steps=8).label
        'Local SGD'
    """

    eta: Rate = 0.01
    local_steps: int = 4
    weights: WeightRule = NetworkWeights()  # noqa: RUF009 - frozen

    def expand(self) -> Composition:
        return Composition(
            eta=self.eta,
            order="adapt-then-combine",
            local_steps=self.local_steps,
            weights=self.weights,
        )
