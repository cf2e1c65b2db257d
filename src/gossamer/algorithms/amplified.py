"""The control of WPM: D-PSGD whose averaged displacement from the start is multiplied by a gain.

Where few of n devices move a coordinate, the mean divides the move by n and the power mean by n^(1/p): most of what a power
mean gains is this inflation of the shared displacement. A gain without any power mean gives it too, so a claim for p > 1
has to be compared with this.

    w̄_i  = w₀ + gain·(Σ_j a_ij·w_j − w₀)     for the first `rounds` rounds, then Σ_j a_ij·w_j
    w_i⁺ = w̄_i − η·d_i(w̄_i)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, descend
from gossamer.algorithms.schedules import Schedule, at, check_eta
from gossamer.errors import InputError


@dataclass(frozen=True)
class Amplified(Algorithm):
    """D-PSGD with the averaged displacement times `gain` in the first `rounds` rounds.

    >>> Amplified(eta=0.05, gain=1.1, rounds=20)
    Amplified(eta=0.05, gain=1.1, rounds=20)
    """

    eta: float | Schedule = 0.01
    gain: float = 1.05
    rounds: int = 20

    def __post_init__(self) -> None:
        check_eta(self.eta)
        if not 0 < self.gain < math.inf:
            raise InputError("gain", self.gain, "a number above 0")
        if self.rounds < 0:
            raise InputError("rounds", self.rounds, "a whole number of at least 0")

    @property
    def label(self) -> str:
        return f"gain {self.gain:g}"

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "start": w0[:1].clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w_mean = self._mean(state, mix, t)
        return {**state, "w": descend(w_mean, grad(w_mean), at(self.eta, t, mix.devices, w_mean))}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return self._mean(state, mix, t)

    def _mean(self, state: State, mix: Mix, t: int) -> Tensor:
        w_mean = mix(state["w"])
        return torch.lerp(state["start"], w_mean, self.gain) if t < self.rounds else w_mean
