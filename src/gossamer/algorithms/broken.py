"""Broken devices: what a device does to the others if it sends wrong values."""

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
    """Any method with some broken devices: what they send is wrong, what they keep is not.

    A broken device goes on learning. In place of x it sends, by `sends`:

        large       size·x
        opposite    −size·x
        noise       size·N(0, 1), drawn for every round
        nan         NaN

    x is whatever the method mixes: a model, its distance from the start if it is anchored, a
    tracked gradient. A guard goes inside, where it sees what was sent: Broken(Guarded(method,
    rule)).

    Args:
        algorithm: The method.
        devices: The numbers of the broken devices.
        sends: What they send.
        size: The factor, above 0.
        seed: The seed of the noise.

    Example:
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

    @property
    def changes_messages(self) -> bool:
        return True

    def check(self, network: Network) -> None:
        super().check(network)
        if any(i >= network.devices for i in self.devices):
            accepted = f"numbers of devices below {network.devices}"
            raise InputError("algorithm.devices", list(self.devices), accepted)

    def through(self, mix: Mix, t: int) -> Mix:
        return _BrokenMix(mix, self, t)

    def sent(self, x: Tensor, devices: Tensor, t: int) -> Tensor:
        """Return what the devices of a stack send in round t in place of x: a new tensor.

        Args:
            x: Tensor [devices, elements].
            devices: The numbers of the devices of the stack.
            t: The round.
        """
        broken = self.among(devices)
        x = x.clone()
        match self.sends:
            case "large":
                x[broken] *= self.size
            case "opposite":
                x[broken] *= -self.size
            case "noise":
                rows = devices[broken].cpu().numpy()[:, None]
                drawn = draws.normal(self.seed, "broken", t, rows, np.arange(x.shape[1]))
                x[broken] = self.size * torch.from_numpy(drawn).to(x)
            case "nan":
                x[broken] = math.nan
        return x

    def among(self, devices: Tensor) -> Tensor:
        """Return a mask of the devices that are broken."""
        broken = torch.tensor(self.devices, dtype=devices.dtype, device=devices.device)
        return torch.isin(devices, broken)


@dataclass(frozen=True)
class _BrokenMix(LinkMix):
    """A mix in which a broken device's neighbours receive what it sends."""

    broken: Broken
    t: int

    def neighbours(self, x: Tensor) -> Neighbours:
        near = self.mix.neighbours(self.broken.sent(x, self.devices, self.t))
        own = (near.receiver == near.sender).nonzero().squeeze(1)
        return near._replace(value=near.value.index_copy(0, own, x[near.receiver[own]]))

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        return self.mix.all_reduce(self.broken.sent(x, self.devices, self.t), star)
