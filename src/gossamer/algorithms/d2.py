"""D²: decentralized training over decentralized data, on static links.

H. Tang, X. Lian, M. Yan, C. Zhang, J. Liu. "D²: decentralized training over decentralized data."
ICML 2018.

    x¹      = W·(x⁰ − η·d⁰)
    x^{k+1} = W·(2·x^k − x^{k−1} − η·d^k + η·d^{k−1})

Assumptions: connected links that never change, and weights W whose eigenvalues are all above −1/3.
How much the devices' data differ then does not matter; the noise of the gradients does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from gossamer.algorithms.base import Gradient, Mix, State
from gossamer.algorithms.registry import method
from gossamer.algorithms.static import StaticLinksMethod
from gossamer.errors import InputError
from gossamer.network.base import Network

# The eigenvalues of a dense matrix of this many devices take seconds.
_MAX_DEVICES = 4000


@method(
    "d2",
    label="D²",
    paper="Tang et al., ICML 2018",
    needs="static symmetric links, eigenvalues above -1/3",
    exact=True,
)
@dataclass(frozen=True)
class D2(StaticLinksMethod):
    """A step that takes back what heterogeneous data added in the previous round, then the mean.

    Args:
        eta: The learning rate, a constant.

    Example:
        >>> D2(eta=0.1).label
        'D²'
    """

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def check(self, network: Network) -> None:
        super().check(network)
        if network.devices > _MAX_DEVICES:
            accepted = f"at most {_MAX_DEVICES}: D² needs the eigenvalues of their weights"
            raise InputError("network", f"{network.devices} devices", accepted)
        lowest = float(np.linalg.eigvalsh(self.weights(network.links(0), 0, 0).dense())[0])
        if lowest <= -1 / 3 + 1e-9:
            given = f"{type(network).__name__}, with an eigenvalue of {lowest:.3f}"
            accepted = (
                "links whose weights have no eigenvalue of -1/3 or below, for D² diverges there; "
                "NIDS takes them"
            )
            raise InputError("network", given, accepted)

    def init(self, w0: Tensor) -> State:
        # `stepped` is x^k − η·d^k of the round before; from x⁰ the first round is as printed.
        return {"w": w0.clone(), "stepped": w0.clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        stepped = state["w"] - self.eta * grad(state["w"])
        return {"w": mix(state["w"] + stepped - state["stepped"]), "stepped": stepped}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return 2 * state["w"] - self.eta * grad(state["w"]) - state["stepped"]
