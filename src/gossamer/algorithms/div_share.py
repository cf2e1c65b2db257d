"""DivShare: models travel in fragments, each to another neighbour.

S. Biswas, A.-M. Kermarrec, A. Marouani, R. Pires, R. Sharma, M. de Vos. "Boosting Asynchronous
Decentralized Learning with Model Fragmentation." WWW 2025.

    w_i ← w_i − η·d_i(w_i)
    w_i[k] ← (w_i[k] + Σ_r w_r[k])/(1 + n_k)      for every fragment k, of which n_k have arrived

A fragment fits into a contact that is too short for a model. The mean of the models is not kept:
a device that receives a fragment gives none back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gossamer._core import checks
from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.algorithms.base import Gradient, Mix, State, descend
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import Rate, at, check_eta


@method(
    "divshare",
    label="DivShare",
    paper="Biswas et al., WWW 2025",
    tune={"eta": RATE, "fragments": Choice((2, 5, 10))},
)
@dataclass(frozen=True)
class DivShare(Asynchronous):
    """Each device sends one fragment after the other, and averages what it received by fragment.

    The paper sends every fragment to a fixed number of random devices, in random order. Here a
    device sends as many fragments as its links carry while it computes, in turn, each to a random
    neighbour in contact. In rounds it sends one fragment per round, to all of its neighbours.

    Args:
        eta: The learning rate: a number or a schedule.
        fragments: Number of fragments of a model.

    Example:
        >>> DivShare(eta=0.05, fragments=4).label
        'DivShare 4'
    """

    eta: Rate = 0.01
    fragments: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        checks.whole("fragments", self.fragments, 1, 10_000)

    @property
    def label(self) -> str:
        return self.labelled(f"DivShare {self.fragments}")

    # -- without rounds ---------------------------------------------------------------------------

    @property
    def exchange(self) -> Literal["both", "one-way"]:
        return "one-way"

    @property
    def sending(self) -> Literal["one", "each", "always"]:
        return "always"

    def init_asynchronous(self, w0: Tensor) -> State:
        length = self._length(w0)
        return {
            "w": w0.clone(),
            "received": w0.new_zeros(len(w0), self.fragments * length),
            "count": w0.new_zeros(len(w0), self.fragments),
        }

    def step(self, state: State, w_read: Tensor, grad: Gradient, devices: Tensor, t: int) -> State:
        w = state["w"]
        w = descend(w, grad(w_read), at(self.eta, t, devices, w))
        w = self._averaged(w, state["received"], state["count"])
        nothing = torch.zeros_like
        return {
            "w": w,
            "received": nothing(state["received"]),
            "count": nothing(state["count"]),
        }

    def send(self, state: State, devices: Tensor, number: Tensor) -> tuple[State, Tensor]:
        return state, self._message(state["w"], (devices + number) % self.fragments)

    def receive(self, state: State, received: Tensor, sent: Tensor) -> State:
        rows = torch.arange(len(received), device=received.device)
        return {**state, **self._collect(state["received"], state["count"], rows, received)}

    # -- in rounds --------------------------------------------------------------------------------

    @property
    def merges_one_by_one(self) -> bool:
        return True

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "mix"

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = self.halfway(state, grad, mix, t)
        message = self._message(w, (mix.devices + t) % self.fragments)
        size = message.shape[1] * message.element_size()
        inbox = mix.with_message_size(size, size).neighbours(message)
        from_others = (inbox.receiver != inbox.sender) & (inbox.weight != 0)
        collected = self._collect(
            w.new_zeros(len(w), self.fragments * self._length(w)),
            w.new_zeros(len(w), self.fragments),
            inbox.receiver[from_others],
            inbox.value[from_others],
        )
        return {"w": self._averaged(w, collected["received"], collected["count"])}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        w = state["w"]
        return descend(w.clone(), grad(w), at(self.eta, t, mix.devices, w))

    # -- fragments --------------------------------------------------------------------------------

    def _length(self, w: Tensor) -> int:
        """Return the number of parameters of a fragment; the last one may be filled up."""
        return math.ceil(w.shape[1] / self.fragments)

    def _message(self, w: Tensor, fragment: Tensor) -> Tensor:
        """Return one fragment of each model, after the fragment's number."""
        length = self._length(w)
        filled = torch.nn.functional.pad(w, (0, self.fragments * length - w.shape[1]))
        columns = fragment[:, None] * length + torch.arange(length, device=w.device)
        return torch.cat([fragment[:, None].to(w.dtype), filled.gather(1, columns)], 1)

    def _collect(self, received: Tensor, count: Tensor, rows: Tensor, message: Tensor) -> State:
        """Add messages to what some rows have received, in place."""
        length = message.shape[1] - 1
        fragment = message[:, 0].to(torch.int64)
        columns = fragment[:, None] * length + torch.arange(length, device=message.device)
        received.index_put_((rows[:, None], columns), message[:, 1:], accumulate=True)
        ones = torch.ones_like(message[:, 0])
        count.index_put_((rows, fragment), ones, accumulate=True)
        return {"received": received, "count": count}

    def _averaged(self, w: Tensor, received: Tensor, count: Tensor) -> Tensor:
        """Return the mean of each model and the fragments that it has received."""
        parameters = w.shape[1]
        number = count.repeat_interleave(self._length(w), dim=1)[:, :parameters]
        return (w + received[:, :parameters]) / (1 + number)
