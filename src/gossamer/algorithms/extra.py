"""EXTRA: an exact first-order algorithm for decentralised consensus optimisation, on static links.

W. Shi, Q. Ling, G. Wu, W. Yin. "EXTRA: an exact first-order algorithm for decentralized consensus optimization." SIAM
Journal on Optimization 25, 2015.

Assumes connected links that never change, smooth convex losses, full gradients for exactness, and a constant rate below
(1 + λ_min(W))/L. The second of the paper's two matrices is (I + W)/2 here, its usual choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, check_static
from gossamer.algorithms.schedules import check_constant_eta
from gossamer.network.base import Network


@register("algorithm", "extra")
@dataclass(frozen=True)
class EXTRA(Algorithm):
    """D-PSGD with its own last round taken back by half: the fixed point is the optimum, at a constant rate.

        x¹     = W·x⁰ − η·d⁰
        x^{k+2} = x^{k+1} + W·x^{k+1} − (x^k + W·x^k)/2 − η·(d^{k+1} − d^k)

    >>> EXTRA(eta=0.1)
    EXTRA(eta=0.1)
    """

    eta: float = 0.01

    def __post_init__(self) -> None:
        check_constant_eta(self.eta, self.label)

    def check(self, network: Network) -> None:
        super().check(network)
        check_static(self, network)

    def init(self, w0: Tensor) -> State:
        # `correction` is (x^k + W·x^k)/2 − η·d^k of the round before; from x⁰ the first round is as printed.
        return {"w": w0.clone(), "correction": w0.clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        x, Wx = state["w"], mix(state["w"])
        step = self.eta * grad(x)
        return {"w": x + Wx - step - state["correction"], "correction": (x + Wx) / 2 - step}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return mix(state["w"])
