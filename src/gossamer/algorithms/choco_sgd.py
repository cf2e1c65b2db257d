"""CHOCO-SGD: gossip of compressed differences.

A. Koloskova, S. U. Stich, M. Jaggi. "Decentralized stochastic optimization and gossip algorithms
with compressed communication." ICML 2019.

    w_i  ← w_i − η·d_i(w_i)
    ŵ_i  ← ŵ_i + C(w_i − ŵ_i)                    only C(w_i − ŵ_i) is sent
    w_i⁺ = w_i + γ·Σ_j a_ij·(ŵ_j − ŵ_i)

When links change, ŵ_i is one vector, what every neighbour of the round knows of i, and it changes
in every round. The change is enough for those that i sent to in the round before; any other is sent
ŵ_i whole. The models are those of the fixed network's equations with the round's weights; sparse,
short meetings cost bytes. At first ŵ is the start, which all share; as printed it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.composition import Composition
from gossamer.algorithms.compression import Compressor, TopK
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate
from gossamer.errors import InputError


@method(
    "choco-sgd",
    label="CHOCO-SGD",
    paper="Koloskova, Stich and Jaggi, ICML 2019",
    tune={"eta": RATE, "pull": Choice((0.1, 0.3, 1.0))},
)
@dataclass(frozen=True)
class ChocoSGD(Preset):
    """A step, then gossip of the compressed change.

    Args:
        eta: The learning rate: a number or a schedule.
        compress: The compressor C.
        pull: The consensus rate γ, above 0 and at most 1.

    Example:
        >>> ChocoSGD(eta=0.05).compress
        TopK(share=0.1)
    """

    eta: Rate = 0.01
    compress: Compressor = TopK(0.1)  # noqa: RUF009 - frozen
    pull: float = 0.3

    def expand(self) -> Composition:
        if self.compress is None:
            raise InputError("compress", None, "a compressor, such as TopK(0.1)")
        return Composition(
            eta=self.eta, order="adapt-then-combine", compress=self.compress, pull=self.pull
        )
