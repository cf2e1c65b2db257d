"""Step rules: how far the mirror-descent step goes.

    z⁺ = w̄^[p] − rate·d,   w⁺ = (z⁺)^[1/p]

A rule says what `rate` is. The paper found that this makes or breaks WPM. Every rule is written in scaled form, so that
w̄^[p] is never formed where it would underflow. At p = 1 all but `Ratio` are w̄ − η·d, by D-PSGD's own kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import hardshrink

from gossamer import backend as kernels
from gossamer._core.registry import register
from gossamer.algorithms.base import check_choice, descend
from gossamer.errors import InputError
from gossamer.mirror import blockwise, root, short_root, signed_power, signed_power_

Rate = float | Tensor


class StepRule(Protocol):
    """w⁺ from the aggregate w̄ along d; `loss` gives each device's batch loss at w̄ if the rule asks for it."""

    def __call__(
        self, w: Tensor, d: Tensor, eta: Rate, p: float, loss: Callable[[], Tensor]
    ) -> Tensor: ...


@register("step", "constant")
@dataclass(frozen=True)
class Constant:
    """rate = η, the same for every p and coordinate."""

    def rate(self, eta: Rate, p: float) -> Rate:
        return eta

    def __call__(
        self, w: Tensor, d: Tensor, eta: Rate, p: float, loss: Callable[[], Tensor]
    ) -> Tensor:
        rate = self.rate(eta, p)
        return (
            descend(w, d, rate)
            if p == 1
            else blockwise(lambda out, w, g: _dual_step(out, w, g, p), w, w, rate * d.double())
        )


@register("step", "power")
@dataclass(frozen=True)
class Power(Constant):
    """rate = η^(1 + p/2), the paper's rule for its η₀ (at p = 1 it gives 0.001 for η₀ = 0.01)."""

    def rate(self, eta: Rate, p: float) -> Rate:
        try:
            return (eta if isinstance(eta, float) else eta.double()) ** (
                1 + p / 2
            )  # beyond float32 for large p
        except OverflowError:
            return math.inf  # the run diverges, and says so


@register("step", "matched")
@dataclass(frozen=True)
class Matched:
    """rate = η·p·max(|w̄|, floor)^(p−1), coordinate by coordinate: to first order the primal step is η·d for every p.

    With s = max(|w̄|, floor):  w⁺ = s·((w̄/s)^[p] − η·p·d/s)^[1/p].
    """

    floor: float = 1e-2

    def __post_init__(self) -> None:
        if not 0 < self.floor < math.inf:
            raise InputError("floor", self.floor, "a number above 0")

    def __call__(
        self, w: Tensor, d: Tensor, eta: Rate, p: float, loss: Callable[[], Tensor]
    ) -> Tensor:
        if p == 1:
            return descend(w, d, eta)
        g, rate = (d, eta) if isinstance(eta, float) else (eta * d, 1.0)
        if kernels.serve(p, w, g):
            return kernels.matched_step(w, g, rate, p, self.floor, safe=isinstance(self, Safe))
        return blockwise(lambda out, w, g: self._step(out, w, g, rate, p), w, w, g)

    def _step(self, out: Tensor, w: Tensor, g: Tensor, rate: float, p: float) -> None:
        size = w.abs()
        s = size.clamp_min(self.floor)
        if (
            w.dtype == torch.float64
        ):  # no direction, no move: (w/s)^[p] may be too small even for float64
            z = signed_power_(w / s, p).addcdiv_(g, s, value=-rate * p)
            out.copy_(torch.where(g == 0, w, root(z, p).mul_(s)))
            return
        # float32 is as good, but for what it cannot hold: a power below 1e-36 is taken as 0 (denormal numbers are very
        # slow), and where no gradient hides that, the step is taken in float64.
        smallest = 1e-36 ** (1 / p)
        if (
            p > 31
        ):  # many multiplications: log and exp are faster, and their error is divided by p in the root
            z = size.div_(s).clamp_min_(smallest).log_().mul_(p).exp_().mul_(w.sign())
        else:  # w/s is w/floor, cut at ±1
            z = signed_power_(
                hardshrink(torch.mul(w, 1 / self.floor, out=out).clamp_(-1, 1), smallest),
                p,
                room=out,
            )
        z.addcdiv_(g, s, value=-rate * p)
        lost = None
        if not torch.abs(z, out=out).amin().item() > 1e-30:
            lost = (~(out > 1e-30)).nonzero().squeeze(1)
        short_root(z, p, out=out).mul_(s)
        if lost is not None:
            exact = torch.empty(len(lost), dtype=torch.float64, device=w.device)
            Matched._step(self, exact, w[lost].double(), g[lost].double(), rate, p)
            out[lost] = exact.float()


@register("step", "safe")
@dataclass(frozen=True)
class Safe(Matched):
    """`Matched`, but w̄ − η·d where the sign would change: a relative step above 1/p flips a weight's sign otherwise."""

    floor: float = 1e-3

    def _step(self, out: Tensor, w: Tensor, g: Tensor, rate: float, p: float) -> None:
        super()._step(out, w, g, rate, p)
        kept = (
            (out * w).sign_().clamp_min_(0)
        )  # 1 where the sign is kept, else 0: four times faster than torch.where
        plain = torch.sub(w, g, alpha=rate)
        out.mul_(kept).add_(plain.mul_(kept.neg_().add_(1)))


@register("step", "plain")
@dataclass(frozen=True)
class Plain:
    """w̄ − η·d: no mirror step at all. The paper says that a power mean then misses the optimum; kept to show it."""

    def __call__(
        self, w: Tensor, d: Tensor, eta: Rate, p: float, loss: Callable[[], Tensor]
    ) -> Tensor:
        return descend(w, d, eta)


@register("step", "ratio")
@dataclass(frozen=True)
class Ratio:
    """rate = η·‖w̄^[p]‖/‖d‖, or as the paper prints it η·|w̄^[p]|/|f(w̄)|: kept to show that it does not work."""

    form: str = "norm"

    def __post_init__(self) -> None:
        check_choice("form", self.form, ("norm", "printed"))

    def __call__(
        self, w: Tensor, d: Tensor, eta: Rate, p: float, loss: Callable[[], Tensor]
    ) -> Tensor:
        if self.form == "printed":  # z̄ − η·|z̄|/|f|·d = z̄·(1 − η·sgn(z̄)·d/|f|)
            return w * signed_power(1 - eta * torch.sign(w) * d / loss()[:, None].abs(), 1 / p)
        s = w.abs().amax(1, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)
        z = signed_power((w / s).double(), p)
        norm = d.norm(dim=1, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)
        return root(z - z.norm(dim=1, keepdim=True) * (eta * d / norm), p, w.dtype) * s


def _dual_step(out: Tensor, w: Tensor, g: Tensor, p: float) -> None:
    """(w^[p] − g)^[1/p], scaled by the larger of |w| and |g|^(1/p), so that neither power leaves float64."""
    q = signed_power(g.double(), 1 / p)
    s = torch.maximum(w.abs().double(), q.abs()).clamp_min_(torch.finfo(torch.float64).tiny)
    out.copy_(s * root(signed_power(w / s, p) - signed_power(q / s, p), p))
