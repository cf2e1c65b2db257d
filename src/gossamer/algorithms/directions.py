"""Directions: what a device steps along. Each is one idea of one paper, and goes with any mirror map, order and step rule.

A direction keeps its memory in the state, one row a device. `along` turns the gradient g of a step into the direction d;
`remember` looks at the whole round once it is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Mix, State
from gossamer.errors import InputError


class Direction(Protocol):
    @property
    def label(self) -> str: ...

    @property
    def looks_back(self) -> bool:
        """Whether `remember` needs the models from before and after the round."""

    def init(self, w0: Tensor) -> State: ...

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]: ...

    def remember(self, memory: State, w: Tensor, w_next: Tensor, eta: float | Tensor) -> State: ...


@register("direction", "steepest")
@dataclass(frozen=True)
class Steepest:
    """d = g: the gradient itself."""

    label: ClassVar[str] = ""
    looks_back: ClassVar[bool] = False

    def init(self, w0: Tensor) -> State:
        return {}

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]:
        return g, memory

    def remember(self, memory: State, w: Tensor, w_next: Tensor, eta: float | Tensor) -> State:
        return memory


@register("direction", "momentum")
@dataclass(frozen=True)
class Momentum(Steepest):
    """m⁺ = β·m + g, d = m⁺: every device has its own heavy ball."""

    beta: float = 0.9
    label: ClassVar[str] = "momentum"

    def __post_init__(self) -> None:
        _check_beta(self.beta)

    def init(self, w0: Tensor) -> State:
        return {"momentum": torch.zeros_like(w0)}

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]:
        m = self.beta * memory["momentum"] + g
        return m, {"momentum": m}


@register("direction", "quasi-global")
@dataclass(frozen=True)
class QuasiGlobal(Steepest):
    """d = g + β·b, and after the round b⁺ = β·b + (1 − β)·(w − w⁺)/η: momentum along the way that all have gone.

    T. Lin, S. P. Karimireddy, S. U. Stich, M. Jaggi. "Quasi-global momentum: accelerating decentralized deep learning on
    heterogeneous data." ICML 2021. It costs no messages. Its paper adapts, then combines.
    """

    beta: float = 0.9
    label: ClassVar[str] = "QG"
    looks_back: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_beta(self.beta)

    def init(self, w0: Tensor) -> State:
        return {"momentum": torch.zeros_like(w0)}

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]:
        return g + self.beta * memory["momentum"], memory

    def remember(self, memory: State, w: Tensor, w_next: Tensor, eta: float | Tensor) -> State:
        b = memory["momentum"]
        # Where a schedule has ended at η = 0, the way says nothing of a direction: the memory stays.
        rate = torch.as_tensor(eta, dtype=w.dtype, device=w.device)
        return {
            "momentum": torch.where(
                rate == 0, b, self.beta * b + (1 - self.beta) * ((w - w_next) / rate)
            )
        }


@register("direction", "tracking")
@dataclass(frozen=True)
class Tracking(Steepest):
    """y_t = A·y_{t−1} + g_t − g_{t−1}, d = A·y_t: each device's estimate of the gradient of all. Twice the bytes.

    S. Pu, A. Nedić. "Distributed stochastic gradient tracking methods." Mathematical Programming 187, 2021; with the push
    and pull of S. Pu, W. Shi, J. Xu, A. Nedić. "Push–pull gradient methods." IEEE TAC 66, 2021, where links are symmetric.
    """

    label: ClassVar[str] = "tracking"

    def init(self, w0: Tensor) -> State:
        return {"tracked": torch.zeros_like(w0), "gradient": torch.zeros_like(w0)}

    def along(self, g: Tensor, memory: State, mix: Mix) -> tuple[Tensor, State]:
        y = memory["tracked"] + g - memory["gradient"]
        y_mean = mix(y)
        return y_mean, {
            "tracked": y_mean,
            "gradient": g.clone(),
        }  # the next gradient may be written into this one's place


def _check_beta(beta: float) -> None:
    if not 0 <= beta < 1:
        raise InputError("beta", beta, "a number of at least 0 and below 1")
