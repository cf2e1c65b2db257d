"""Step rules: the length of a mirror-descent step.

    z⁺ = w̄^[p] − rate·d,   w⁺ = (z⁺)^[1/p]

A rule says what `rate` is. The paper found that WPM depends on it. Every rule is computed in scaled
form, so that w̄^[p] is never formed where it would underflow. At p = 1 all but `Ratio` are w̄ −
η·d, computed by the same function as D-PSGD's step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from gossamer import backend
from gossamer._core.registry import register
from gossamer.algorithms.base import check_choice, descend
from gossamer.backend.powers import blockwise, root
from gossamer.errors import InputError
from gossamer.mirror import MirrorMap, signed_power

Eta = float | Tensor
Loss = Callable[[], Tensor]


class StepRule(Protocol):
    """A step from the aggregate w̄ along d."""

    @property
    def powers_only(self) -> bool:
        """True if the rule is defined for power maps only."""

    @property
    def linear_at_identity(self) -> bool:
        """True if the step is w̄ − η·d for the identity map."""

    @property
    def uniform(self) -> bool:
        """True if the rate is the same for every coordinate: the step is linear in the dual."""

    def rate(self, eta: Eta, p: float) -> Eta:
        """Return the rate of a uniform rule."""

    def __call__(self, w: Tensor, d: Tensor, eta: Eta, mirror: MirrorMap, loss: Loss) -> Tensor:
        """Return w⁺.

        Args:
            w: The aggregate w̄, which may be overwritten.
            d: The direction.
            eta: The learning rate: a number, or one per device as [devices, 1].
            mirror: The mirror map of the round.
            loss: Returns each device's batch loss at w̄.
        """


@dataclass(frozen=True)
class _Rule:
    """The properties that most rules share."""

    powers_only: ClassVar[bool] = True
    linear_at_identity: ClassVar[bool] = True
    uniform: ClassVar[bool] = False

    def rate(self, eta: Eta, p: float) -> Eta:
        raise NotImplementedError


@register("step", "constant")
@dataclass(frozen=True)
class Constant(_Rule):
    """rate = η, the same for every mirror map and coordinate."""

    powers_only: ClassVar[bool] = False
    uniform: ClassVar[bool] = True

    def rate(self, eta: Eta, p: float) -> Eta:
        return eta

    def __call__(self, w: Tensor, d: Tensor, eta: Eta, mirror: MirrorMap, loss: Loss) -> Tensor:
        p = mirror.power
        if p is None:
            return mirror.to_primal(mirror.to_dual(w) - eta * d, w.dtype)
        rate = self.rate(eta, p)
        if p == 1:
            return descend(w, d, rate)
        return blockwise(lambda out, w, g: _dual_step(out, w, g, p), w, w, rate * d.double())


@register("step", "power")
@dataclass(frozen=True)
class Power(Constant):
    """rate = η^(1 + p/2), the paper's rule for its η₀. At p = 1 it gives 0.001 for η₀ = 0.01."""

    powers_only: ClassVar[bool] = True

    def rate(self, eta: Eta, p: float) -> Eta:
        try:
            # Large p exceeds the range of float32.
            base = eta if isinstance(eta, float) else eta.double()
            return base ** (1 + p / 2)
        except OverflowError:
            return math.inf  # the run diverges and reports it


@register("step", "matched")
@dataclass(frozen=True)
class Matched(_Rule):
    """rate = η·p·max(|w̄|, floor)^(p−1) per coordinate: to first order the step is η·d for every p.

    With s = max(|w̄|, floor):  w⁺ = s·((w̄/s)^[p] − η·p·d/s)^[1/p].

    Args:
        floor: The smallest magnitude to which the rate is matched.
    """

    floor: float = 1e-2
    safe: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.floor < math.inf:
            raise InputError("floor", self.floor, "a number above 0")

    def __call__(self, w: Tensor, d: Tensor, eta: Eta, mirror: MirrorMap, loss: Loss) -> Tensor:
        p = mirror.power
        assert p is not None
        if p == 1:
            return descend(w, d, eta)
        g, rate = (d, eta) if isinstance(eta, float) else (eta * d, 1.0)
        return backend.matched_step(w, g, rate, p, self.floor, self.safe)


@register("step", "safe")
@dataclass(frozen=True)
class Safe(Matched):
    """`Matched`, but w̄ − η·d where the sign would change.

    A relative step above 1/p would otherwise flip the sign of a weight.
    """

    floor: float = 1e-3
    safe: ClassVar[bool] = True


@register("step", "plain")
@dataclass(frozen=True)
class Plain(_Rule):
    """w̄ − η·d: no mirror step. The paper shows that a power mean then misses the optimum."""

    powers_only: ClassVar[bool] = False

    def __call__(self, w: Tensor, d: Tensor, eta: Eta, mirror: MirrorMap, loss: Loss) -> Tensor:
        return descend(w, d, eta)


@register("step", "ratio")
@dataclass(frozen=True)
class Ratio(_Rule):
    """rate = η·‖w̄^[p]‖/‖d‖, or η·|w̄^[p]|/|f(w̄)| as the paper prints it. It does not work.

    Args:
        form: "norm" or "printed".
    """

    form: str = "norm"
    linear_at_identity: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_choice("form", self.form, ("norm", "printed"))

    def __call__(self, w: Tensor, d: Tensor, eta: Eta, mirror: MirrorMap, loss: Loss) -> Tensor:
        p = mirror.power
        assert p is not None
        if self.form == "printed":  # z̄ − η·|z̄|/|f|·d = z̄·(1 − η·sgn(z̄)·d/|f|)
            return w * signed_power(1 - eta * torch.sign(w) * d / loss()[:, None].abs(), 1 / p)
        tiny = torch.finfo(w.dtype).tiny
        s = w.abs().amax(1, keepdim=True).clamp_min(tiny)
        z = signed_power((w / s).double(), p)
        norm = d.norm(dim=1, keepdim=True).clamp_min(tiny)
        return root(z - z.norm(dim=1, keepdim=True) * (eta * d / norm), p, w.dtype) * s


def _dual_step(out: Tensor, w: Tensor, g: Tensor, p: float) -> None:
    """Compute (w^[p] − g)^[1/p], scaled by the larger of |w| and |g|^(1/p) to stay in float64."""
    q = signed_power(g.double(), 1 / p)
    s = torch.maximum(w.abs().double(), q.abs()).clamp_min_(torch.finfo(torch.float64).tiny)
    out.copy_(s * root(signed_power(w / s, p) - signed_power(q / s, p), p))
