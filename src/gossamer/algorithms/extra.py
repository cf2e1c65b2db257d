"""EXTRA: an exact first-order algorithm for decentralized consensus optimization, on static links.

W. Shi, Q. Ling, G. Wu, W. Yin. "EXTRA: an exact first-order algorithm for decentralized consensus
optimization." SIAM Journal on Optimization 25, 2015.

    x¹      = W·x⁰ − η·d⁰
    x^{k+2} = x^{k+1} + W·x^{k+1} − (x^k + W·x^k)/2 − η·(d^{k+1} − d^k)

Assumptions: connected links that never change, smooth convex losses, full gradients for exactness,
and a constant rate below (1 + λ_min(W))/L. The second of the paper's two matrices is (I + W)/2, its
usual choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gossamer.algorithms.base import Gradient, Mix, State
from gossamer.algorithms.registry import method
from gossamer.algorithms.static import StaticLinksMethod


@method(
    "extra",
    label="EXTRA",
    paper="Shi et al., SIAM J. Optimization 25, 2015",
    needs="static symmetric links",
    exact=True,
)
@dataclass(frozen=True)
class EXTRA(StaticLinksMethod):
    """D-PSGD that takes back half of its own previous round: its fixed point is the optimum.

    Args:
        eta: The learning rate, a constant.

    Example:
        >>> EXTRA(eta=0.1)
        EXTRA(eta=0.1)
    """

    def init(self, w0: Tensor) -> State:
        # `correction` is (x^k + W·x^k)/2 − η·d^k of the previous round; from x⁰ the first round is
        # as printed.
        return {"w": w0.clone(), "correction": w0.clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        x = state["w"]
        Wx = mix(x)
        step = self.eta * grad(x)
        return {"w": x + Wx - step - state["correction"], "correction": (x + Wx) / 2 - step}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return mix(state["w"])
