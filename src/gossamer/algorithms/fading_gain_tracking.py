"""Fading gain with gradient tracking: every device follows the mean gradient. Twice the bytes.

Ours; the tracking is that of S. Pu, A. Nedić, see `tracking`, the gain that of `fading_gain`.

    y_t  = A·(y_{t−1} + g_t − g_{t−1})              g_t: the gradients at w_t
    x    = A·w_t
    x'   = x + n/(t + 1)·(x − v)
    v⁺   = v + n/(t + 1 + n)·(x' − v)
    w⁺   = x' − η·y_t
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, descend
from gossamer.algorithms.fading_gain import check_lead, follow, run_ahead
from gossamer.algorithms.registry import RATE, method
from gossamer.algorithms.schedules import Rate, at, check_eta


@method(
    "fading-gain-tracking",
    label="Fading gain tracking",
    paper="ours, after Pu et al.",
    exact=True,
    tune={"eta": RATE},
)
@dataclass(frozen=True)
class FadingGainTracking(Algorithm):
    """Gradient tracking ahead of its running mean by a gain that fades.

    Args:
        eta: The learning rate: a number or a schedule.
        lead: n: at first the devices together move 1 + n times as fast as at this rate without the
            gain. 3 was the best of those tried on digits and MNIST.

    Example:
        >>> FadingGainTracking(eta=0.05)
        FadingGainTracking(eta=0.05, lead=3)
    """

    eta: Rate = 0.01
    lead: float = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_lead(self.lead)

    @property
    def needs_gradients(self) -> bool:
        return True

    def init(self, w0: Tensor) -> State:
        zero = torch.zeros_like(w0)
        return {"w": w0.clone(), "mean": w0.clone(), "tracked": zero, "gradient": zero.clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = state["w"]
        v = state["mean"]
        η = at(self.eta, t, mix.devices, w)
        x = run_ahead(mix(w), v, self.lead, t)
        g = grad(w).clone()  # the next gradient may overwrite it
        y = mix(state["tracked"] + g - state["gradient"])
        v = follow(v, x, self.lead, t)
        return {"w": descend(x, y, η), "mean": v, "tracked": y, "gradient": g}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return run_ahead(mix(state["w"]), state["mean"], self.lead, t)
