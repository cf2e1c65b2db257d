"""SwarmSGD: pairs of devices that meet step locally and average.

G. Nadiradze, A. Sabour, P. Davies, S. Li, D. Alistarh. "Asynchronous Decentralized SGD with Quantized and Local Updates"
(SwarmSGD). NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State, check_choice, descend
from gossamer.algorithms.schedules import Schedule, at, check_eta
from gossamer.errors import InputError
from gossamer.network.weights import Matching, OnePair, WeightRule


@register("algorithm", "swarm")
@dataclass(frozen=True)
class SwarmSGD(Algorithm):
    """A random linked pair: each of the two takes `local_steps` steps of its own, then both keep the average.

        w_i ← w_i − η·d_i(w_i)   local_steps times, for the paired devices only
        w_i⁺ = w_j⁺ = (w_i + w_j) / 2

    `pairs`: "one" pair a round, as its paper has it (a clock that rings at one link: the simulator only), or "matching":
    every link whose named draw is the lowest at both of its ends, which the devices can find out among themselves.

    This is the form in which the two wait for each other. Its paper also has one without waiting, quantised models and a
    number of local steps that is drawn, and its theory is for a regular graph that never changes.

    >>> SwarmSGD(local_steps=1)
    SwarmSGD(eta=0.01, local_steps=1, pairs='one')
    """

    eta: float | Schedule = 0.01
    local_steps: int = 1
    pairs: Literal["one", "matching"] = "one"

    def __post_init__(self) -> None:
        check_eta(self.eta)
        check_choice("pairs", self.pairs, ("one", "matching"))
        if self.local_steps < 1:
            raise InputError("local_steps", self.local_steps, "a whole number of at least 1")

    @property
    def weights(self) -> WeightRule:
        return OnePair() if self.pairs == "one" else Matching()

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return {"w": mix(self.halfway(state, grad, mix, t))}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w = state["w"].clone()
        paired = (
            mix.active.nonzero().squeeze(1) if mix.active is not None else mix.devices.new_empty(0)
        )
        if len(paired):
            w_paired, η = w[paired], at(self.eta, t, mix.devices[paired], w)
            for step in range(self.local_steps):
                w_paired = descend(w_paired, grad(w_paired, step, paired), η)
            w[paired] = w_paired
        return w
