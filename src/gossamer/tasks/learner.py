"""What every model offers an engine: a start, gradients and scores, for a whole stack of devices at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer import draws
from gossamer.backend import Batches
from gossamer.errors import InputError

Buffers = dict[str, Tensor]


@dataclass(frozen=True)
class Scores:
    """One number a device: the mean loss over the test samples, and the share that was classified rightly (NaN if none is)."""

    loss: Tensor
    accuracy: Tensor


class Learner(ABC):
    """A model bound to the shape of its data. Models are rows: w is [devices, parameters]."""

    shapes: dict[str, tuple[int, ...]]  # the names and shapes of a row's parts, in order
    draws: bool = False  # whether the model itself draws (dropout), and so needs keys
    concurrent: bool = False  # whether several threads may train at once
    at_once: int = 3_200_000  # numbers of batches that are worked on together: measured, with their outputs they stay in cache

    @property
    def parameters(self) -> int:
        return sum(torch.Size(shape).numel() for shape in self.shapes.values())

    def unstack(self, row: Tensor) -> dict[str, Tensor]:
        """A row's parts by name, such as {"weight": …, "bias": …}."""
        sizes = [torch.Size(shape).numel() for shape in self.shapes.values()]
        parts = row.split(sizes, dim=-1)
        return {
            name: part.reshape((*row.shape[:-1], *shape))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    @abstractmethod
    def init(self, seed: int) -> Tensor:
        """The start, one row: the same for all devices."""

    def features(self, x: Tensor) -> Tensor:
        """The samples in the form that this model reads fastest; done once, before training."""
        return x

    def buffers(self) -> Buffers:
        """What a device keeps beside its parameters (BatchNorm's running statistics): one device's, unstacked."""
        return {}

    @abstractmethod
    def gradient(
        self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        """Write the gradient of each device's mean loss over its batch x [devices, batch, …] to `out`.

        `keys` [devices] are 64 named random bits a device, for what is random in the model itself (dropout).
        """

    def batch_gradient(
        self, w: Tensor, batches: Batches, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        """Do the same for batches that are not gathered yet."""
        x, y = batches.gather()
        self.gradient(w, x, y, buffers, keys, out)

    @abstractmethod
    def loss(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor) -> Tensor:
        """Each device's mean loss over its batch, as in `gradient`."""

    def conjugate(self, z: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Where the gradient of each device's mean loss over x [devices, samples, …] is z; few models have it."""
        name = type(self).__name__.strip("_").removesuffix("Learner")
        raise InputError(
            "model",
            name,
            '"least-squares", the one model whose loss has a conjugate in closed form',
        )

    @abstractmethod
    def scores(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers) -> Scores:
        """Every device's model on the same test samples x."""


def uniform_start(seed: int, parameters: int, fan_in: int) -> Tensor:
    """Uniform on ±1/√fan_in, by name: ±1/28 for MNIST's 784 pixels."""
    bound = fan_in**-0.5
    return torch.from_numpy((2 * draws.uniform(seed, "start", range(parameters)) - 1) * bound)
