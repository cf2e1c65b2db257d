"""What a gain does on quadratics: the formulas of README.md, and the iterations they describe.

Device i has f_i(x) = λ/2·‖x − o_i‖², all start at 0, and h = η·λ. A round is

    x' = gain of the mean of the neighbourhood,   w⁺ = x' − h·(x' − o)

Along an eigenvector of the weights with eigenvalue ρ a round is a recursion of one number: ρ = 1 is
the mean of all devices, every other ρ a part of their disagreement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import eval_laguerre, hyp1f1

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Form:
    """A gain: x' = x + a(t)·(x − v), where v is the start or a running mean of x'.

    Attributes:
        gain: a, a function of the round.
        follow: The weight with which x' enters v, a function of the round; 0 for the start.
    """

    gain: Callable[[int], float]
    follow: Callable[[int], float] = lambda t: 0.0


NO_GAIN = Form(lambda t: 0.0)


def constant(gain: float) -> Form:
    """Return a gain on the displacement from the start that never ends."""
    return Form(lambda t: gain - 1)


def switched(gain: float, rounds: int) -> Form:
    """Return a gain on the displacement from the start for some rounds, as of `GainControl`."""
    return Form(lambda t: gain - 1 if t < rounds else 0.0)


def harmonic(c: float) -> Form:
    """Return the gain 1 + c/(t + 1) on the displacement from the start."""
    return Form(lambda t: c / (t + 1))


def fading(lead: float) -> Form:
    """Return the gain of `FadingGain` on the displacement from the running mean."""
    return Form(lambda t: lead / (t + 1), lambda t: lead / (t + 1 + lead))


def path(form: Form, h: float, rounds: int, rho: float = 1.0, optimum: float = 1.0) -> FloatArray:
    """Return x' in every round, along one eigenvector of the weights.

    Args:
        form: The gain.
        h: η·λ.
        rounds: Number of rounds.
        rho: The eigenvalue.
        optimum: The component of the devices' optima.
    """
    w = 0.0
    v = 0.0
    found = np.empty(rounds)
    for t in range(rounds):
        x = rho * w
        x += form.gain(t) * (x - v)
        v += form.follow(t) * (x - v)
        w = x - h * (x - optimum)
        found[t] = x
    return found


def constant_gain_limit(gain: float, h: float, rho: float = 1.0) -> float:
    """Return where a constant gain ends, as a multiple of the component of the optima.

    Args:
        gain: The gain.
        h: η·λ.
        rho: The eigenvalue.

    Returns:
        The limit; infinite if the recursion does not converge.

    Example:
        >>> constant_gain_limit(1.0, 0.01)
        1.0
    """
    factor = gain * rho
    if abs(factor * (1 - h)) >= 1:
        return float("inf")
    return factor * h / (1 - factor * (1 - h))


def harmonic_displacement(c: float, tau: FloatArray) -> FloatArray:
    """Return the displacement under the gain 1 + c/t as a multiple of the distance to the optimum.

    Args:
        c: Below 1.
        tau: η·λ·t.
    """
    # M(1; 2 − c; −τ), by Kummer's transformation.
    displacement: FloatArray = tau / (1 - c) * np.exp(-tau) * hyp1f1(1 - c, 2 - c, tau)
    return displacement


def fading_error(lead: int, tau: FloatArray) -> FloatArray:
    """Return the distance from the optimum of a fading gain as a multiple of the first one.

    Args:
        lead: n.
        tau: η·λ·t.
    """
    error: FloatArray = np.exp(-tau) * eval_laguerre(lead, tau)
    return error
