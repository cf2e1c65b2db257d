"""SwarmSGD: pairs of devices that meet step locally and average.

G. Nadiradze, A. Sabour, P. Davies, S. Li, D. Alistarh. "Asynchronous Decentralized SGD with
Quantized and Local Updates" (SwarmSGD). NeurIPS 2021.

    w_i ← w_i − η·d_i(w_i)   local_steps times, for the paired devices only
    w_i⁺ = w_j⁺ = (w_i + w_j) / 2

This is the form in which the two wait for each other. Its paper also has one without waiting,
quantized models and a drawn number of local steps; its theory is for a static regular graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer.algorithms.base import (
    Algorithm,
    Gradient,
    Mix,
    State,
    check_choice,
    check_local_steps,
    descend_locally,
)
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate, at, check_eta
from gossamer.network.weights import Matching, OnePair, WeightRule


@method(
    "swarm-sgd",
    label="SwarmSGD",
    paper="Nadiradze et al., NeurIPS 2021",
    tune={"eta": RATE, "pairs": Choice(("matching", "one"))},
)
@dataclass(frozen=True)
class SwarmSGD(Algorithm):
    """Random linked pairs: both devices take local steps, then both keep the average.

    Args:
        eta: The learning rate: a number or a schedule.
        local_steps: The number of steps per paired device and round.
        pairs: "one" pair per round, as in the paper (it needs a shared clock: simulator only), or
            "matching": every link whose draw is the lowest at both of its ends, which devices can
            find out among themselves.

    Example:
        >>> SwarmSGD(local_steps=1)
        SwarmSGD(eta=0.01, local_steps=1, pairs='one')
    """

    eta: Rate = 0.01
    local_steps: int = 1
    pairs: Literal["one", "matching"] = "one"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_choice("pairs", self.pairs, ("one", "matching"))
        check_local_steps(self.local_steps)

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
        if mix.active is None:
            return w
        paired = mix.active.nonzero().squeeze(1)
        if not len(paired):
            return w
        w_paired = w[paired]
        η = at(self.eta, t, mix.devices[paired], w)
        w[paired] = descend_locally(w_paired, grad, η, self.local_steps, paired)
        return w
