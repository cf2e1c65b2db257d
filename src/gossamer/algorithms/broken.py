"""A broken device, to see what it does to the others: a sensor that ran hot, a bit that flipped, a model of another scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from gossamer import draws
from gossamer._core.registry import register
from gossamer.algorithms.base import Mix, Neighbours, check_choice
from gossamer.algorithms.wrapper import LinkMix, Wrapper
from gossamer.errors import InputError
from gossamer.network.base import Network

Sends = Literal["large", "opposite", "noise", "nan"]


@register("algorithm", "broken")
@dataclass(frozen=True)
class Broken(Wrapper):
    """Any method, among whose devices some are broken: what they *send* is wrong, what they keep is not.

    A broken device does not know that it is: it goes on learning. In place of x it sends, by `sends`:

        large       size·x
        opposite    −size·x
        noise       size·N(0, 1), drawn by name for every round
        nan         not a number

    x is whatever the method mixes: a model, its distance from the start where that is anchored, a tracked gradient.
    A guard goes inside, where it sees what was sent: Broken(Guarded(method, rule)).

    >>> from gossamer.algorithms.dpsgd import DPSGD
    >>> Broken(DPSGD(eta=0.1), devices=(0, 3), sends="large", size=10).label
    'D-PSGD, 2 broken'
    """

    devices: tuple[int, ...] = (0,)
    sends: Sends = "large"
    size: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("sends", self.sends, get_args(Sends))
        if not 0 < self.size < math.inf:
            raise InputError("size", self.size, "a number above 0")
        if len(set(self.devices)) != len(self.devices) or any(i < 0 for i in self.devices):
            raise InputError("devices", list(self.devices), "numbers of devices, from 0, each once")

    @property
    def label(self) -> str:
        return f"{self.algorithm.label}, {len(self.devices)} broken"

    def check(self, network: Network) -> None:
        super().check(network)
        if any(i >= network.devices for i in self.devices):
            raise InputError(
                "algorithm.devices",
                list(self.devices),
                f"numbers of devices below {network.devices}",
            )

    def through(self, mix: Mix, t: int) -> Mix:
        return _BrokenMix(mix, self, t)

    def sent(self, x: Tensor, devices: Tensor, t: int) -> Tensor:
        """What the devices of a stack send in round t in place of x [devices, numbers]: a new tensor."""
        broken, x = self.among(devices), x.clone()
        match self.sends:
            case "large":
                x[broken] *= self.size
            case "opposite":
                x[broken] *= -self.size
            case "noise":
                drawn = draws.normal(
                    self.seed,
                    "broken",
                    t,
                    devices[broken].cpu().numpy()[:, None],
                    np.arange(x.shape[1]),
                )
                x[broken] = self.size * torch.from_numpy(drawn).to(x)
            case "nan":
                x[broken] = math.nan
        return x

    def among(self, devices: Tensor) -> Tensor:
        """Which of these devices are broken: a mask."""
        return torch.isin(
            devices, torch.tensor(self.devices, dtype=devices.dtype, device=devices.device)
        )


@dataclass(frozen=True)
class _BrokenMix(LinkMix):
    """What everybody has in front of it: of a broken neighbour what it sent, of itself what it has."""

    broken: Broken
    t: int

    def neighbours(self, x: Tensor) -> Neighbours:
        near = self.mix.neighbours(self.broken.sent(x, self.devices, self.t))
        own = (near.receiver == near.sender).nonzero().squeeze(1)
        return near._replace(value=near.value.index_copy(0, own, x[near.receiver[own]]))

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        return self.mix.all_reduce(self.broken.sent(x, self.devices, self.t), star)
