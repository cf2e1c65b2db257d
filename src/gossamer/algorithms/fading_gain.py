"""Fading gain: D-PSGD that runs ahead of the running mean of its own models. Ours, no paper.

    x_i  = Σ_j a_ij·w_j
    x_i' = x_i + n/(t + 1)·(x_i − v_i)              the gain, which fades by itself
    v_i⁺ = v_i + n/(t + 1 + n)·(x_i' − v_i)         the running mean, later models weigh more
    w_i⁺ = x_i' − η·d_i(x_i')

n is the lead. The displacement x − v holds what all devices moved in common over many rounds; what
they moved apart has mostly cancelled in it. So the gain makes the shared movement 1 + n times as
fast as η does, and leaves the disagreement of the devices at that of η. Where the models have
converged, x = v, and the gain does nothing: it has the fixed points of D-PSGD. On a quadratic of
curvature λ the distance from the optimum follows e^(−τ)·L_n(τ) with τ = η·λ·t and Laguerre's
polynomial L_n; see papers/gain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, descend
from gossamer.algorithms.registry import RATE, method
from gossamer.algorithms.schedules import Rate, at, check_eta
from gossamer.errors import InputError


@method("fading-gain", label="Fading gain", paper="ours", tune={"eta": RATE})
@dataclass(frozen=True)
class FadingGain(Algorithm):
    """D-PSGD with the gradient at the aggregate, ahead of its running mean by a gain that fades.

    Args:
        eta: The learning rate: a number or a schedule.
        lead: n: at first the devices together move 1 + n times as fast as at this rate without the
            gain. 3 was the best of those tried on digits and MNIST.

    Example:
        >>> FadingGain(eta=0.05)
        FadingGain(eta=0.05, lead=3)
    """

    eta: Rate = 0.01
    lead: float = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_lead(self.lead)

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "mean": w0.clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        v = state["mean"]
        η = at(self.eta, t, mix.devices, v)
        x = run_ahead(mix(state["w"]), v, self.lead, t)
        v = follow(v, x, self.lead, t)
        return {"w": descend(x, grad(x), η), "mean": v}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return run_ahead(mix(state["w"]), state["mean"], self.lead, t)


def check_lead(lead: float) -> None:
    """Raise InputError if a lead is negative or not finite.

    Args:
        lead: n.
    """
    if not 0 <= lead < math.inf:
        raise InputError("lead", lead, "a number of at least 0")


def run_ahead(x: Tensor, mean: Tensor, lead: float, t: int) -> Tensor:
    """Return x + n/(t + 1)·(x − v), in a tensor of its own.

    Args:
        x: The models after the mix.
        mean: v, their running mean.
        lead: n.
        t: The round.
    """
    return x + lead / (t + 1) * (x - mean)


def follow(mean: Tensor, x: Tensor, lead: float, t: int) -> Tensor:
    """Return the running mean with x in it, v + n/(t + 1 + n)·(x − v).

    The model of round s has the weight C(s + n − 1, n − 1), which is 1 at n = 1.

    Args:
        mean: v.
        x: The models after the gain.
        lead: n.
        t: The round.
    """
    return mean + lead / (t + 1 + lead) * (x - mean)
