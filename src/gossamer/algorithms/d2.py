"""D²: decentralised training over decentralised data, on static links.

H. Tang, X. Lian, M. Yan, C. Zhang, J. Liu. "D²: decentralized training over decentralized data." ICML 2018.

Assumes connected links that never change, and weights W whose eigenvalues are all above −1/3. How much the devices' data
differ then does not matter; the noise of the gradients does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, check_static
from gossamer.algorithms.schedules import check_constant_eta
from gossamer.errors import InputError
from gossamer.network.base import Network


@register("algorithm", "d2")
@dataclass(frozen=True)
class D2(Algorithm):
    """A step from where the last two rounds lead to, then the mean: what heterogeneity adds in a round is taken back.

        x¹     = W·(x⁰ − η·d⁰)
        x^{k+1} = W·(2·x^k − x^{k−1} − η·d^k + η·d^{k−1})

    >>> D2(eta=0.1).label
    'D²'
    """

    eta: float = 0.01

    def __post_init__(self) -> None:
        check_constant_eta(self.eta, self.label)

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    @property
    def label(self) -> str:
        return "D²"

    def check(self, network: Network) -> None:
        super().check(network)
        check_static(self, network)
        if network.devices > 4000:
            raise InputError(
                "network",
                f"{network.devices} devices",
                "at most 4000: D² needs the eigenvalues of their weights",
            )
        lowest = float(np.linalg.eigvalsh(self.weights(network.links(0), 0, 0).dense())[0])
        if lowest <= -1 / 3 + 1e-9:
            accepted = "links whose weights have no eigenvalue of -1/3 or below, for D² diverges there; NIDS takes them"
            raise InputError(
                "network", f"{type(network).__name__}, with an eigenvalue of {lowest:.3f}", accepted
            )

    def init(self, w0: Tensor) -> State:
        return {
            "w": w0.clone(),
            "stepped": w0.clone(),
        }  # x^k − η·d^k of the round before; from x⁰ the first is as printed

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        stepped = state["w"] - self.eta * grad(state["w"])
        return {"w": mix(state["w"] + stepped - state["stepped"]), "stepped": stepped}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return 2 * state["w"] - self.eta * grad(state["w"]) - state["stepped"]
