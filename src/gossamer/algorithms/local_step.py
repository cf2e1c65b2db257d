"""The local step: what happens to a gradient before a method steps along it.

    g ← ∇f_i(w)                     the gradient on the batch
    g ← g·min(1, clip/‖g‖)          `clip_norm`, per device
    g ← g + λ·w                     `weight_decay`
    d = optimizer(g, w)             `optimizer`

A method calls `grad(w)` and receives d. It need not know of the local step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from gossamer.algorithms.optimizers import SGD, Memory, Optimizer, check_decay
from gossamer.errors import InputError

State = dict[str, Tensor]

PLAIN_SGD = SGD()
_PREFIX = "optimizer."  # prefix of the tensors of an optimiser's memory in the state
# Elements of models above which an optimiser works in blocks, for small temporaries.
_ELEMENTS_AT_ONCE = 1 << 22
_CLIP_EPS = 1e-6  # as in torch.nn.utils.clip_grad_norm_: a gradient of 0 is not divided by 0


class Gradient(Protocol):
    """The data of one round, as an algorithm sees them."""

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        """Return each device's stochastic gradient at its row of w.

        If the method has an optimiser, it is the optimiser's direction; every call is one of its
        steps. The next call may overwrite the result.

        Args:
            w: One model per row.
            step: The local step of the round, which decides the batch.
            rows: The rows of the stack that w holds. None: all.
        """

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        """Return each device's loss at its row of w on the same batch."""

    def conjugate(self, z: Tensor) -> Tensor:
        """Return ∇f_i*(z_i), the point where the gradient of device i's loss is z_i.

        Only tasks that have it in closed form offer it.
        """


@dataclass(frozen=True)
class LocalStep:
    """The fields that every method has for its local step.

    Args:
        optimizer: What turns gradients into directions.
        weight_decay: λ of the L2 decay.
        clip_norm: The largest norm of a device's gradient. None: no limit.
    """

    optimizer: Optimizer = PLAIN_SGD
    weight_decay: float = 0.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        check_decay(self.weight_decay)
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise InputError("clip_norm", self.clip_norm, "a number above 0")

    @property
    def plain(self) -> bool:
        """True if a method steps along the gradient itself."""
        return self == LocalStep()

    def init(self, w0: Tensor) -> State:
        """Return the optimiser's first memory, as a part of the state.

        Args:
            w0: The start [devices, parameters].
        """
        return _as_state(self.optimizer.init(w0))

    def gradient(self, grad: Gradient, state: State) -> LocalGradient:
        """Return the gradient that a method is given in a round.

        Args:
            grad: The gradient of the task.
            state: The state at the start of the round; the memory in it is updated in place.
        """
        memory = {}
        for name, x in state.items():
            if name.startswith(_PREFIX):
                memory[name.removeprefix(_PREFIX)] = x
        return LocalGradient(grad, self, memory)

    def label(self, default: Optimizer) -> str:
        """Return what differs from a method's defaults, for tables.

        Args:
            default: The method's default optimiser.

        Example:
            >>> from gossamer.algorithms.optimizers import Adam
            >>> LocalStep(Adam(), clip_norm=1.0).label(SGD())
            'Adam clip 1'
        """
        parts = []
        if self.optimizer != default:
            parts.append(self.optimizer.label)
        if self.weight_decay:
            parts.append(f"decay {self.weight_decay:g}")
        if self.clip_norm is not None:
            parts.append(f"clip {self.clip_norm:g}")
        return " ".join(parts)


@dataclass(frozen=True)
class LocalGradient:
    """A `Gradient` that clips, decays, and applies an optimiser.

    Args:
        grad: The gradient of the task.
        local_step: What to apply.
        memory: The optimiser's memory, one row per device, which is updated in place.
    """

    grad: Gradient
    local_step: LocalStep
    memory: Memory = field(default_factory=dict)

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        g = self.grad(w, step, rows)
        if self.local_step.clip_norm is not None:
            g = _clipped(g, self.local_step.clip_norm)
        if self.local_step.weight_decay:
            g = g.add(w, alpha=self.local_step.weight_decay)
        optimizer = self.local_step.optimizer
        if rows is None:
            return self._direction(g, w)
        memory = {name: x[rows] for name, x in self.memory.items()}
        d = optimizer.direction(g, w, memory)
        for name, x in memory.items():
            self.memory[name].index_copy_(0, rows, x)
        return d

    def _direction(self, g: Tensor, w: Tensor) -> Tensor:
        """Return the directions of all devices, in the memory of g if the models are large."""
        optimizer = self.local_step.optimizer
        if g.numel() <= _ELEMENTS_AT_ONCE or not optimizer.has_memory:
            return optimizer.direction(g, w, self.memory)
        count = max(1, _ELEMENTS_AT_ONCE // g.shape[1])
        for first in range(0, len(g), count):
            part = slice(first, first + count)
            memory = {name: x[part] for name, x in self.memory.items()}  # views
            g[part] = optimizer.direction(g[part], w[part], memory)
        return g

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        return self.grad.loss(w, step)

    def conjugate(self, z: Tensor) -> Tensor:
        return self.grad.conjugate(z)

    def state(self) -> State:
        """Return the memory as a part of the state."""
        return _as_state(self.memory)

    def without_effect(self) -> LocalGradient:
        """Return the same gradient with a copy of the memory."""
        copy = {name: x.clone() for name, x in self.memory.items()}
        return LocalGradient(self.grad, self.local_step, copy)


def _as_state(memory: Memory) -> State:
    return {_PREFIX + name: x for name, x in memory.items()}


def _clipped(g: Tensor, largest: float) -> Tensor:
    """Return gradients scaled to at most this norm, row by row."""
    norm = torch.linalg.vector_norm(g, dim=1, keepdim=True)
    return g * (largest / (norm + _CLIP_EPS)).clamp(max=1)
