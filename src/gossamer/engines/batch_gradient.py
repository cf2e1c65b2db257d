"""The gradients that a method sees in one round of the simulator."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gossamer.network.base import IntArray
from gossamer.tasks import Worker


@dataclass(frozen=True)
class BatchGradient:
    """`algorithms.Gradient` of one round.

    Args:
        worker: Computes gradients on the data of the devices.
        t: The round.
        steps: Number of gradients per device, which every call increases; None: not counted.
    """

    worker: Worker
    t: int
    steps: IntArray | None = None

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        self._count(rows)
        return self.worker.gradient(w, self.t, step, rows)

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        return self.worker.loss(w, self.t, step)

    def conjugate(self, z: Tensor) -> Tensor:
        self._count(None)
        return self.worker.conjugate(z)

    def _count(self, rows: Tensor | None) -> None:
        if self.steps is None:
            return
        if rows is None:
            self.steps[:] += 1
        else:
            self.steps[rows.cpu().numpy()] += 1
