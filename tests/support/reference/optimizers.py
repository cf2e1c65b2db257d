"""The local step of one device, as `torch.optim` documents it."""

from __future__ import annotations

from typing import Any

from gossamer.algorithms import SGD, Adam, AdamW
from gossamer.algorithms.local_step import LocalStep
from support.reference.steps import Vector


def direction(local_step: LocalStep, g: Vector, w: Vector, memory: dict[str, Any]) -> Vector:
    """Return what a device steps along: clip, then decay, then the optimiser."""
    if local_step.clip_norm is not None:
        norm = sum(value * value for value in g) ** 0.5
        g = g * min(1, local_step.clip_norm / (norm + 1e-6))
    g = g + local_step.weight_decay * w
    optimizer = local_step.optimizer
    if isinstance(optimizer, Adam):
        return adam(optimizer, g, w, memory)
    assert isinstance(optimizer, SGD)
    return sgd(optimizer, g, memory)


def sgd(optimizer: SGD, g: Vector, memory: dict[str, Any]) -> Vector:
    """Return the direction of SGD with or without momentum."""
    if optimizer.momentum == 0:
        return g
    b: Vector = g + optimizer.momentum * memory.get("b", 0)
    memory["b"] = b
    if optimizer.nesterov:
        return g + optimizer.momentum * b
    return b


def adam(optimizer: Adam, g: Vector, w: Vector, memory: dict[str, Any]) -> Vector:
    """Return the direction of Adam or AdamW."""
    t = memory["t"] = memory.get("t", 0) + 1
    m = memory["m"] = optimizer.beta1 * memory.get("m", 0) + (1 - optimizer.beta1) * g
    v = memory["v"] = optimizer.beta2 * memory.get("v", 0) + (1 - optimizer.beta2) * g**2
    m_hat = m / (1 - optimizer.beta1**t)
    v_hat = v / (1 - optimizer.beta2**t)
    d: Vector = m_hat / (v_hat**0.5 + optimizer.eps)
    if isinstance(optimizer, AdamW):
        d = d + optimizer.weight_decay * w
    return d
