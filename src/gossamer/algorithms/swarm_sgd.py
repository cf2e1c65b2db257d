"""SwarmSGD: pairs of devices that meet step locally and average.

G. Nadiradze, A. Sabour, P. Davies, S. Li, D. Alistarh. "Asynchronous Decentralized SGD with
Quantized and Local Updates" (SwarmSGD). NeurIPS 2021.

    w_i ← w_i − η·d_i(w_i)   local_steps times, for the paired devices only
    w_i⁺ = w_j⁺ = (w_i + w_j) / 2

Without rounds it is the paper's non-blocking form, in which nobody waits for the steps of another:
a_i is the model after the last meeting, without the steps that were taken since.

    w_i ← w_i − η·d_i(w_i)                     all the time
    w_i ← (a_i + a_j)/2 + (w_i − a_i),  a_i ← w_i      in a meeting of i and j

Quantized models and a drawn number of local steps are left out; the theory of the paper is for a
static regular graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer.algorithms.asynchronous import Asynchronous, average_with
from gossamer.algorithms.base import (
    Gradient,
    Mix,
    State,
    check_choice,
    check_local_steps,
    descend,
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
class SwarmSGD(Asynchronous):
    """Random linked pairs: both devices take local steps, then both keep the average.

    Args:
        eta: The learning rate: a number or a schedule.
        local_steps: The number of steps per paired device and round; without rounds, the least
            number of steps between two meetings that a device begins.
        pairs: "one" pair per round, as in the paper (it needs a shared clock: simulator only), or
            "matching": every link whose draw is the lowest at both of its ends, which devices can
            find out among themselves. Without rounds it has no effect.
        on_cut: What becomes of models whose contact ends before they have arrived: "drop" them, or
            "keep" them until the same two devices meet again, where they continue. Without effect
            in rounds.

    Example:
        >>> SwarmSGD(local_steps=1)
        SwarmSGD(eta=0.01, local_steps=1, pairs='one', on_cut='drop')
    """

    eta: Rate = 0.01
    local_steps: int = 1
    pairs: Literal["one", "matching"] = "one"
    on_cut: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_choice("pairs", self.pairs, ("one", "matching"))
        check_choice("on_cut", self.on_cut, ("drop", "keep"))
        check_local_steps(self.local_steps)

    # -- without rounds ---------------------------------------------------------------------------

    @property
    def steps_between_messages(self) -> int:
        return self.local_steps

    def init_asynchronous(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "anchor": w0.clone()}

    def step(self, state: State, w_read: Tensor, grad: Gradient, devices: Tensor, t: int) -> State:
        w = state["w"]
        return {**state, "w": descend(w, grad(w_read), at(self.eta, t, devices, w))}

    @property
    def message(self) -> str:
        return "anchor"

    def send(self, state: State, devices: Tensor, number: Tensor) -> tuple[State, Tensor]:
        return state, state["anchor"]

    def receive(self, state: State, received: Tensor, sent: Tensor) -> State:
        w = average_with(state["w"], received, sent)
        return {**state, "w": w, "anchor": w.clone()}

    # -- in rounds --------------------------------------------------------------------------------

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
