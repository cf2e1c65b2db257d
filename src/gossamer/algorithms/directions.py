"""Directions: what a device steps along. Each is one idea of one paper.

A direction works with any mirror map, order and step rule. It keeps its memory in the state, one
row per device. `along` turns the gradient g of a step into the direction d; `remember` updates the
memory after the round. What a device does by itself, such as momentum of its own, is an optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Mix, State
from gossamer.algorithms.optimizers import Adam, check_coefficients
from gossamer.algorithms.schedules import check_positive

# Added to the length of a path, as in its authors' code: a round that moves nothing is not divided
# by 0.
_NO_PATH = 1e-8


class Direction(Protocol):
    """What a device steps along."""

    @property
    def label(self) -> str:
        """A short name for tables."""

    @property
    def looks_back(self) -> bool:
        """True if `remember` needs the models before and after the round."""

    @property
    def mixes(self) -> bool:
        """True if it mixes an estimate of its own in every step."""

    @property
    def needs_gradients(self) -> bool:
        """True if it is right for gradients only, not for the directions of an optimiser."""

    def init(self, w0: Tensor) -> State:
        """Return the first memory."""

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]:
        """Return the direction of a step with gradient g, and what changes in the memory."""

    def remember(self, memory: State, w: Tensor, w_next: Tensor, eta: float | Tensor) -> State:
        """Return what changes in the memory after a round from w to w_next at rate eta."""


@register("direction", "gradient")
@dataclass(frozen=True)
class PlainGradient:
    """d = g: the gradient itself."""

    label: ClassVar[str] = ""
    looks_back: ClassVar[bool] = False
    mixes: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False

    def init(self, w0: Tensor) -> State:
        return {}

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]:
        return g, memory

    def remember(self, memory: State, w: Tensor, w_next: Tensor, eta: float | Tensor) -> State:
        return memory


@register("direction", "quasi-global-momentum")
@dataclass(frozen=True)
class QuasiGlobalMomentum(PlainGradient):
    """d = g + β·b, and after the round b⁺ = β·b + (1 − β)·(w − w⁺)/η: momentum of the shared path.

    T. Lin, S. P. Karimireddy, S. U. Stich, M. Jaggi. "Quasi-global momentum: accelerating
    decentralized deep learning on heterogeneous data." ICML 2021. It costs no messages. Its paper
    adapts, then combines.

    Args:
        beta: The momentum coefficient β.
    """

    beta: float = 0.9
    label: ClassVar[str] = "quasi-global"
    looks_back: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_coefficients(beta=self.beta)

    def init(self, w0: Tensor) -> State:
        return {"momentum": torch.zeros_like(w0)}

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]:
        return g + self.beta * memory["momentum"], memory

    def remember(self, memory: State, w: Tensor, w_next: Tensor, eta: float | Tensor) -> State:
        b = memory["momentum"]
        rate = torch.as_tensor(eta, dtype=w.dtype, device=w.device)
        moved = self.beta * b + (1 - self.beta) * ((w - w_next) / rate)
        # At η = 0, where a schedule has ended, the path has no direction: the memory stays.
        return {"momentum": torch.where(rate == 0, b, moved)}


@register("direction", "quasi-global-adam")
@dataclass(frozen=True)
class QuasiGlobalMoments(PlainGradient):
    """Adam's direction from moments of the shared path; see `QuasiGlobalAdam`.

    The path of a round is normalised, u = (w − w⁺)/‖w − w⁺‖, and enters both moments. It costs no
    messages.

    Args:
        beta1: The coefficient of the first moment.
        beta2: The coefficient of the second moment.
        eps: ε.
        gradient_weight: The weight c of the gradient in the first moment.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    gradient_weight: float = 1.0
    label: ClassVar[str] = "quasi-global Adam"
    looks_back: ClassVar[bool] = True
    needs_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Adam(self.beta1, self.beta2, self.eps)  # refuses what Adam refuses
        check_positive(gradient_weight=self.gradient_weight)

    def init(self, w0: Tensor) -> State:
        return Adam().init(w0)

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]:
        m = self.beta1 * memory["mean"] + self.gradient_weight * g
        v = self.beta2 * memory["square"] + (1 - self.beta2) * g**2
        k = memory["steps"].double() + 1
        m = m / (1 - self.beta1**k).to(g)
        v = v / (1 - self.beta2**k).to(g)
        return m / (v.sqrt() + self.eps), memory

    def remember(self, memory: State, w: Tensor, w_next: Tensor, eta: float | Tensor) -> State:
        path = w - w_next
        u = path / (path.norm(dim=1, keepdim=True) + _NO_PATH)
        return {
            "mean": self.beta1 * memory["mean"] + (1 - self.beta1) * u,
            "square": self.beta2 * memory["square"] + (1 - self.beta2) * u**2,
            "steps": memory["steps"] + 1,
        }


@register("direction", "gradient-tracking")
@dataclass(frozen=True)
class GradientTracking(PlainGradient):
    """y_t = A·y_{t−1} + g_t − g_{t−1}, d = A·y_t: estimates the mean gradient. Twice the bytes.

    S. Pu, A. Nedić. "Distributed stochastic gradient tracking methods." Mathematical Programming
    187, 2021; with the push and pull of S. Pu, W. Shi, J. Xu, A. Nedić. "Push–pull gradient
    methods." IEEE TAC 66, 2021, on symmetric links.
    """

    label: ClassVar[str] = "tracking"
    mixes: ClassVar[bool] = True
    needs_gradients: ClassVar[bool] = True

    def init(self, w0: Tensor) -> State:
        return {"tracked": torch.zeros_like(w0), "gradient": torch.zeros_like(w0)}

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]:
        y = memory["tracked"] + g - memory["gradient"]
        y_mean = mix(y)
        # A copy of g: the next gradient may overwrite it.
        return y_mean, {"tracked": y_mean, "gradient": g.clone()}
