"""NIDS: a network-independent step size for decentralized optimization, on static links.

Z. Li, W. Shi, M. Yan. "A decentralized proximal-gradient method with network independent step-sizes
and separated convergence rates." IEEE Transactions on Signal Processing 67, 2019; here without a
non-smooth part.

    x¹      = x⁰ − η·d⁰
    x^{k+1} = (I + W)/2·(2·x^k − x^{k−1} − η·d^k + η·d^{k−1})

Assumptions: connected links that never change, smooth convex losses, full gradients for exactness,
and a constant rate below 2/L, whatever the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer.algorithms.base import Gradient, Mix, State
from gossamer.algorithms.registry import method
from gossamer.algorithms.static import StaticLinksMethod


@method(
    "nids",
    label="NIDS",
    paper="Li, Shi and Yan, IEEE TSP 67, 2019",
    needs="static symmetric links",
    exact=True,
)
@dataclass(frozen=True)
class NIDS(StaticLinksMethod):
    """D² with the lazy weights (I + W)/2, which allow any connected network.

    Args:
        eta: The learning rate, a constant.

    Example:
        >>> NIDS(eta=0.1)
        NIDS(eta=0.1)
    """

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "stepped": w0.clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        x = state["w"]
        stepped = x - self.eta * grad(x)
        if t == 0:
            return {"w": stepped.clone(), "stepped": stepped}
        ahead = x + stepped - state["stepped"]
        return {"w": (ahead + mix(ahead)) / 2, "stepped": stepped}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return 2 * state["w"] - self.eta * grad(state["w"]) - state["stepped"]
