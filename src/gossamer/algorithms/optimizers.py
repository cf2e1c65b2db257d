"""Optimisers: what turns the gradient of a local step into its direction.

Every method takes one in its field `optimizer`. With g the gradient of a device at its model w, an
optimiser returns the direction d, and the method steps along it: w − η·d. So every optimiser works
with every mirror map, order and step rule. Its memory has one row per device, stays with its device
and is never mixed. On one device the steps equal those of `torch.optim`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.errors import InputError

Memory = dict[str, Tensor]


class Optimizer(Protocol):
    """What turns gradients into directions."""

    @property
    def label(self) -> str:
        """A short name for tables."""

    @property
    def has_memory(self) -> bool:
        """True if a direction depends on earlier gradients."""

    @property
    def adaptive(self) -> bool:
        """True if the length of a step does not depend on that of the gradient, as with Adam."""

    def init(self, w0: Tensor) -> Memory:
        """Return the first memory, one row per device, for models like w0."""

    def direction(self, g: Tensor, w: Tensor, memory: Memory) -> Tensor:
        """Return the direction of a step, and update the memory in place.

        Args:
            g: The gradients, one row per device. They are not changed.
            w: The models at which they were taken.
            memory: The memory of these devices.

        Returns:
            A new tensor, or g itself.
        """


@register("optimizer", "sgd")
@dataclass(frozen=True)
class SGD:
    """d = g, or with momentum m⁺ = μ·m + g and d = m⁺, Nesterov's d = g + μ·m⁺.

    Args:
        momentum: The momentum coefficient μ. 0: no memory.
        nesterov: Use Nesterov's form, which needs momentum.

    Example:
        >>> SGD(momentum=0.9).label
        'momentum 0.9'
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_coefficients(momentum=self.momentum)
        if self.nesterov and self.momentum == 0:
            raise InputError("nesterov", self.nesterov, "a momentum above 0 with it, or false")

    @property
    def label(self) -> str:
        if not self.has_memory:
            return "SGD"
        form = "Nesterov" if self.nesterov else "momentum"
        return f"{form} {self.momentum:g}"

    @property
    def has_memory(self) -> bool:
        return self.momentum != 0

    @property
    def adaptive(self) -> bool:
        return False

    def init(self, w0: Tensor) -> Memory:
        if not self.has_memory:
            return {}
        return {"momentum": torch.zeros_like(w0)}

    def direction(self, g: Tensor, w: Tensor, memory: Memory) -> Tensor:
        if not self.has_memory:
            return g
        m = memory["momentum"].mul_(self.momentum).add_(g)
        if self.nesterov:
            return g.add(m, alpha=self.momentum)
        return m.clone()  # the caller may change a direction


@register("optimizer", "adam")
@dataclass(frozen=True)
class Adam:
    """d = m̂/(√v̂ + ε), with m and v running means of g and g², corrected for their start at 0.

    D. P. Kingma, J. Ba. "Adam: a method for stochastic optimization." ICLR 2015. Every device
    counts its own steps, since devices may be away.

    Args:
        beta1: The coefficient of m.
        beta2: The coefficient of v.
        eps: ε.

    Example:
        >>> g = torch.tensor([[3.0, -0.5]])
        >>> adam = Adam()
        >>> adam.direction(g, g, adam.init(g)).round(decimals=3).tolist()
        [[1.0, -1.0]]
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_coefficients(beta1=self.beta1, beta2=self.beta2)
        if not 0 < self.eps < math.inf:
            raise InputError("eps", self.eps, "a number above 0")

    @property
    def label(self) -> str:
        """The name and what differs from the defaults."""
        parts = [type(self).__name__]
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(f"{field.name}={value:g}")
        return " ".join(parts)

    @property
    def has_memory(self) -> bool:
        return True

    @property
    def adaptive(self) -> bool:
        return True

    def init(self, w0: Tensor) -> Memory:
        return {
            "mean": torch.zeros_like(w0),
            "square": torch.zeros_like(w0),
            "steps": torch.zeros_like(w0[:, :1]),
        }

    def direction(self, g: Tensor, w: Tensor, memory: Memory) -> Tensor:
        m = memory["mean"].lerp_(g, 1 - self.beta1)
        v = memory["square"].mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        steps = memory["steps"].add_(1).double()
        # In float64: in float32, 1 − β₂ᵗ of a first step has four digits only.
        root = (1 - self.beta2**steps).sqrt().to(g)
        share = (1 - self.beta1**steps).to(g)
        # In place: of large models the temporaries count.
        scale = v.sqrt().div_(root).add_(self.eps)
        return (m / share).div_(scale)


@register("optimizer", "adamw")
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: d = m̂/(√v̂ + ε) + λ·w.

    I. Loshchilov, F. Hutter. "Decoupled weight decay regularization." ICLR 2019. The decay does not
    enter m and v; a method's own `weight_decay` does.

    Args:
        beta1: The coefficient of m.
        beta2: The coefficient of v.
        eps: ε.
        weight_decay: λ.

    Example:
        >>> AdamW(weight_decay=0.1).label
        'AdamW weight_decay=0.1'
    """

    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay(self.weight_decay)

    def direction(self, g: Tensor, w: Tensor, memory: Memory) -> Tensor:
        return super().direction(g, w, memory).add_(w, alpha=self.weight_decay)


def check_coefficients(**values: float) -> None:
    """Raise InputError unless the coefficients of running means are in [0, 1).

    Args:
        values: The coefficients by the names of their fields.
    """
    for name, value in values.items():
        if not 0 <= value < 1:
            raise InputError(name, value, "a number of at least 0 and below 1")


def check_decay(weight_decay: float) -> None:
    """Raise InputError for a weight decay that is negative or not finite.

    Args:
        weight_decay: The value.
    """
    if not 0 <= weight_decay < math.inf:
        raise InputError("weight_decay", weight_decay, "a number of at least 0")
