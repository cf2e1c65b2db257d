"""Devices that compute by themselves and send each other vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import mpmath
import numpy as np
import torch

from gossamer.algorithms import Composition, Preset
from gossamer.engines import Plan
from gossamer.network import Links, NetworkWeights
from support.reference.optimizers import direction
from support.reference.steps import Vector
from support.reference.weights import Shares, shares

Value = TypeVar("Value")
Vectors = dict[int, Vector]  # per device
Inbox = dict[int, Vectors]  # inbox[i][j]: what device i has of j


def each(devices: Iterable[int], value: Callable[[int], Value]) -> dict[int, Value]:
    """Return value(i) for every device i."""
    return {i: value(i) for i in devices}


class Devices:
    """The devices of a plan, each with its state, and the messages that they send.

    Args:
        plan: What to run.
        exact: Compute in mpmath instead of float64, for powers that float64 cannot represent.
    """

    def __init__(self, plan: Plan, exact: bool = False) -> None:
        self.plan = plan
        self.algorithm = plan.algorithm
        while isinstance(self.algorithm, Preset):
            self.algorithm = self.algorithm.expand()
        self.number: Callable[[float], Any] = mpmath.mpf if exact else float
        self.dtype: Any = object if exact else np.float64
        self.devices = range(plan.task.devices)
        cpu = torch.device("cpu")
        self.workers = []
        for i in self.devices:
            worker = plan.task.worker(np.array([i]), plan.seed, torch.float64, cpu)
            self.workers.append(worker)
        self.start = self.lift(self.workers[0].start()[0])

        # The state of a device is its model, or its displacement from the start if the method is
        # anchored there.
        self.anchored = isinstance(self.algorithm, Composition) and self.algorithm.anchor
        self.x: Vectors = dict.fromkeys(self.devices, self.start)
        if self.anchored:
            self.x = dict.fromkeys(self.devices, 0 * self.start)
        self.memory: dict[str, Vectors] = {}  # what a method keeps per device, by name
        # What the optimiser of each device keeps, by name.
        self.optimizer_memory: dict[int, dict[str, Any]] = {i: {} for i in self.devices}

        self.round = 0
        self.links: Links
        self.active: list[int]  # the devices that are not away in this round
        self.messages = 0
        self.elements_sent = 0.0

    def lift(self, x: torch.Tensor) -> Vector:
        """Return a tensor as a vector of the computation's numbers."""
        return np.array([self.number(value) for value in x.tolist()], dtype=self.dtype)

    # What a device does by itself

    def model(self, x: Vector) -> Vector:
        """Return the model that a state stands for."""
        return x + self.start if self.anchored else x

    def models(self) -> Vector:
        """Return the models of all devices, in float64."""
        return np.array([[float(v) for v in self.model(self.x[i])] for i in self.devices])

    def gradient(self, i: int, x: Vector, step: int = 0) -> Vector:
        """Return what device i steps along: its gradient, after the method's local step."""
        local_step = self.plan.algorithm.local_step
        g = self.plain_gradient(i, x, step)
        return direction(local_step, g, self.model(x), self.optimizer_memory[i])

    def plain_gradient(self, i: int, x: Vector, step: int = 0) -> Vector:
        """Return the gradient of device i on its batch of this round and local step."""
        only_row = torch.tensor([0])
        return self.lift(self.workers[i].gradient(self._row(x), self.round, step, only_row)[0])

    def loss(self, i: int, x: Vector) -> Any:
        """Return the loss of device i on its batch of this round."""
        return self.number(self.workers[i].loss(self._row(x), self.round).item())

    def conjugate(self, i: int, z: Vector) -> Vector:
        """Return the point where the gradient of device i is z.

        The gradient is affine, H·x + c, so that a few calls determine H and c.
        """
        c = self.plain_gradient(i, 0 * z)
        H = np.stack([self.plain_gradient(i, e) - c for e in np.eye(len(z))], 1)
        return np.linalg.solve(H, z - c)

    def eta(self, i: int) -> Any:
        """Return η_i(t)."""
        eta = self.algorithm.eta  # type: ignore[attr-defined]
        now = eta(self.round) if callable(eta) else eta
        return self.number(now if isinstance(now, int | float) else now[i])

    def kept(self, name: str, start: Vector | None = None) -> Vectors:
        """Return what the active devices keep under a name; at first `start`, or zeros."""
        if name not in self.memory:
            first = 0 * self.start if start is None else start
            self.memory[name] = dict.fromkeys(self.devices, first)
        return each(self.active, lambda i: self.memory[name][i])

    def _row(self, x: Vector) -> torch.Tensor:
        return torch.tensor([[float(value) for value in self.model(x)]], dtype=torch.float64)

    # What devices do together

    def weights(self, rule: Any = None) -> Shares:
        """Return the weights of this round, by default as the network says."""
        rule = NetworkWeights() if rule is None else rule
        return shares(rule, self.links, self.round, self.plan.seed, self.active, self.number)

    def send(self, x: Vectors, a: Shares) -> Inbox:
        """Send the vector of each device to all that take a share of it."""
        inbox: Inbox = {}
        for i in a:
            inbox[i] = {}
            for j in a[i]:
                inbox[i][j] = x[j]
                if j != i:
                    self.count(len(x[j]))
        return inbox

    def count(self, elements: float, messages: int = 1) -> None:
        """Count messages, and how many elements they have in all."""
        self.messages += messages
        self.elements_sent += elements

    def mix(self, x: Vectors, a: Shares) -> Vectors:
        """Send the vectors and return Σ_j a_ij·x_j per device."""
        inbox = self.send(x, a)
        return each(a, lambda i: weighted_sum(inbox[i], a[i]))


def weighted_sum(x: Vectors, a: dict[int, Any]) -> Vector:
    """Return Σ_j a_j·x_j, in ascending order of j."""
    total = 0 * next(iter(x.values()))
    for j in sorted(a):
        total = total + a[j] * x[j]
    return total
