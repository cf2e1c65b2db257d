"""The interface of a model to an engine: start, gradients and scores of a stack of devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer import draws
from gossamer.backend import Batches
from gossamer.errors import InputError
from gossamer.tasks.metric import Metric

Buffers = dict[str, Tensor]
"""What a device keeps beside its parameters, by name, such as BatchNorm's running statistics."""


@dataclass(frozen=True)
class Scores:
    """The scores of a stack of models on the test samples, one value per device.

    Args:
        loss: Mean loss.
        metrics: The values of the metrics, by name.
    """

    loss: Tensor
    metrics: dict[str, Tensor]


class Learner(ABC):
    """A model bound to the shape of its data. Models are rows: w is [devices, parameters]."""

    shapes: dict[str, tuple[int, ...]]
    """Names and shapes of the parts of a row, in order."""

    draws: bool = False
    """True if the model draws random values itself (dropout), and so needs keys."""

    concurrent: bool = False
    """True if several threads may train at once."""

    elements_per_thread: int = 300_000
    """Elements of batches per thread from which several threads pay, if several may train."""

    integers: bool = False
    """True if samples of whole numbers reach the model as int64, as an embedding needs them."""

    sample_elements: int | None = None
    """Elements that a pass works on per sample, if they are many more than a sample has."""

    at_once: int = 3_200_000
    """Elements of batches that are worked on together.

    Measured: with their outputs, they stay in the processor's cache.
    """

    @property
    def parameters(self) -> int:
        """Number of parameters of one model."""
        return sum(torch.Size(shape).numel() for shape in self.shapes.values())

    def unstack(self, row: Tensor) -> dict[str, Tensor]:
        """Return the parts of rows by name, such as {"weight": …, "bias": …}.

        Args:
            row: One model or a stack of models: [parameters] or [devices, parameters].

        Returns:
            Views of the rows.
        """
        sizes = [torch.Size(shape).numel() for shape in self.shapes.values()]
        parts = {}
        for (name, shape), part in zip(self.shapes.items(), row.split(sizes, dim=-1), strict=True):
            parts[name] = part.reshape((*row.shape[:-1], *shape))
        return parts

    def stack(self, parts: dict[str, Tensor]) -> Tensor:
        """Return rows from their parts by name: the inverse of `unstack`.

        Args:
            parts: The parts of one model, or of a stack of models; other names are ignored.

        Returns:
            [parameters] or [devices, parameters].
        """
        rows = []
        for name, shape in self.shapes.items():
            part = parts[name]
            rows.append(part.reshape(*part.shape[: part.dim() - len(shape)], -1))
        return torch.cat(rows, dim=-1)

    @abstractmethod
    def init(self, seed: int) -> Tensor:
        """Return the start that all devices share: [parameters]."""

    def features(self, x: Tensor) -> Tensor:
        """Return samples in the form that the model reads fastest; called once, before training."""
        return x

    def buffers(self) -> Buffers:
        """Return the buffers of one device."""
        return {}

    @abstractmethod
    def gradient(
        self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        """Write the gradient of each device's mean batch loss to `out`, and update the buffers.

        Args:
            w: The models [devices, parameters].
            x: Batches [devices, batch, …].
            y: Targets [devices, batch, …].
            buffers: The buffers of the devices, [devices, …] each.
            keys: 64 random bits per device, for what is random in the model itself (dropout).
            out: Buffer like w.
        """

    def batch_gradient(
        self, w: Tensor, batches: Batches, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        """Do the same for batches that are not gathered yet.

        Args:
            w: The models [devices, parameters].
            batches: One batch per device.
            buffers: As in `gradient`.
            keys: As in `gradient`.
            out: Buffer like w.
        """
        x, y = batches.gather()
        self.gradient(w, x, y, buffers, keys, out)

    @abstractmethod
    def loss(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor) -> Tensor:
        """Return each device's mean loss over its batch. Arguments as in `gradient`."""

    def conjugate(self, z: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return where the gradient of each device's mean loss over x is z. Few models have it.

        Args:
            z: The gradients [devices, parameters].
            x: All samples of each device: [devices, samples, …].
            y: Their targets.

        Raises:
            InputError: If the model has no conjugate in closed form.
        """
        name = type(self).__name__.strip("_").removesuffix("Learner")
        raise InputError(
            "model",
            name,
            '"least-squares", the one model whose loss has a conjugate in closed form',
        )

    @abstractmethod
    def scores(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        buffers: Buffers,
        metrics: Sequence[Metric] = (),
    ) -> Scores:
        """Score every device's model on the same test samples.

        Args:
            w: The models [devices, parameters].
            x: Test samples [samples, …].
            y: Their targets.
            buffers: The buffers of the devices.
            metrics: What to measure beside the loss.
        """


def uniform_start(seed: int, parameters: int, fan_in: int) -> Tensor:
    """Draw a start that is uniform on ±1/√fan_in, by name: ±1/28 for MNIST's 784 pixels.

    Args:
        seed: The seed of the run.
        parameters: Number of values.
        fan_in: Inputs of each output.
    """
    bound = fan_in**-0.5
    return torch.from_numpy((2 * draws.uniform(seed, "start", range(parameters)) - 1) * bound)
