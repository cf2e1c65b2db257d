"""Small data, and batches of a stack of devices."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.tasks import Data, Learner


def data(
    classes: int | None = 3, shape: tuple[int, ...] = (5,), samples: int = 40, seed: int = 0
) -> Data:
    """Return small data with samples of every class, or with regression targets."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, *shape, generator=generator)
    y = torch.arange(samples) % classes if classes else torch.randn(samples, generator=generator)
    return Data(x, y, x[:20], y[:20], "test", classes)


@dataclass
class Batch:
    """Models, batches and keys of a stack of devices, in float64."""

    w: Tensor
    x: Tensor
    y: Tensor
    keys: Tensor

    @classmethod
    def of(
        cls,
        learner: Learner,
        source: Data,
        devices: int = 3,
        batch: int = 8,
        seed: int = 0,
        spread: float = 1.0,
    ) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        w = (
            learner.init(seed).double()
            + spread * torch.randn(devices, learner.parameters, generator=generator).double()
        )
        index = torch.randint(source.samples, (devices, batch), generator=generator)
        keys = torch.randint(-(2**62), 2**62, (devices,), generator=generator)
        return cls(w, learner.features(source.x.double())[index], typed(source.y)[index], keys)

    def gradient(self, learner: Learner, buffers: dict[str, Tensor] | None = None) -> Tensor:
        out = torch.empty_like(self.w)
        learner.gradient(self.w, self.x, self.y, {} if buffers is None else buffers, self.keys, out)
        return out

    def loss(self, learner: Learner, buffers: dict[str, Tensor] | None = None) -> Tensor:
        return learner.loss(self.w, self.x, self.y, {} if buffers is None else buffers, self.keys)


def typed(y: Tensor) -> Tensor:
    return y.double() if y.is_floating_point() else y


def buffers_of(learner: Learner, devices: int) -> dict[str, Tensor]:
    """Return the buffers of all devices, in float64."""
    found = {}
    for name, b in learner.buffers().items():
        found[name] = (b.double() if b.is_floating_point() else b).expand(devices, *b.shape).clone()
    return found


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([x.reshape(-1) for x in tensors])


def flat_gradient(module: nn.Module) -> Tensor:
    """Return the gradients of a module's parameters, in one row."""
    slopes: Any = [p.grad for p in module.parameters()]
    return flat(slopes)


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(x.shape) for name, x in tensors.items()}


def plain_modules(learner: Learner, make: Callable[[], nn.Module], w: Tensor) -> list[nn.Module]:
    """Return one module per device, with its row of w as parameters."""
    copies = [copy.deepcopy(make()).double() for _ in w]
    for module, row in zip(copies, w, strict=True):
        for name, part in learner.unstack(row).items():
            module.get_parameter(name).data.copy_(part)
    return copies
