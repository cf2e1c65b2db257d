"""The gradients that a method sees in one round of the simulator."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gossamer.errors import InputError
from gossamer.network.base import IntArray
from gossamer.tasks import Worker


@dataclass(frozen=True)
class BatchGradient:
    """`algorithms.Gradient` of one round.

    Args:
        worker: Computes gradients on the data of the devices.
        t: The round; or the round of each row of the stack.
        steps: Number of gradients per device, which every call increases; None: not counted.
        devices: The rows of the worker that the stack holds; None: all.
        samples: The samples of the first step, from `Worker.draw_samples`; None: not drawn yet.
        arrived: How many samples each row of the stack has so far; None: all.
    """

    worker: Worker
    t: int | IntArray
    steps: IntArray | None = None
    devices: Tensor | None = None
    samples: IntArray | None = None
    arrived: IntArray | None = None

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        if not isinstance(w, Tensor):
            raise InputError("grad(w): w", w, "a tensor of models, one row per device")
        self._count(rows)
        samples = self.samples if step == 0 and rows is None else None
        arrived = self._arrived(rows)
        t, rows = self._of(rows)
        return self.worker.gradient(w, t, step, rows, samples, arrived)

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        t, rows = self._of(None)
        return self.worker.loss(w, t, step, rows, self.arrived)

    def conjugate(self, z: Tensor) -> Tensor:
        self._count(None)
        return self.worker.conjugate(z, self.devices)

    def _of(self, rows: Tensor | None) -> tuple[int | IntArray, Tensor | None]:
        """Return the rounds and the worker's rows of some rows of the stack."""
        if self.devices is None or rows is None:
            return self.t, self.devices if rows is None else rows
        t = self.t
        if not isinstance(t, int):
            t = t[rows.cpu().numpy()]
        return t, self.devices[rows]

    def _arrived(self, rows: Tensor | None) -> IntArray | None:
        if self.arrived is None or rows is None:
            return self.arrived
        return self.arrived[rows.cpu().numpy()]

    def _count(self, rows: Tensor | None) -> None:
        if self.steps is None:
            return
        if rows is None:
            self.steps[:] += 1
        else:
            self.steps[rows.cpu().numpy()] += 1
