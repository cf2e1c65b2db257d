"""Which classes the final model of a device confuses, from the models in its run folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer._core.columns import Column
from gossamer.engines import Plan
from gossamer.report import pack
from gossamer.tasks.metric import Metric

MAX_PRODUCTS = 4_000_000_000
"""Parameters × test samples × devices of all runs of a page: seconds on one core."""

_MAX_SAMPLES = 1000  # test samples that every device predicts
_MAX_CLASSES = 100
_MAX_DEVICES = 100  # devices of a run that are shown; of more, an even sample


class _Counter(Metric):
    """Counts the pairs of true and predicted class of every model that is scored."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._meters: list[_CounterMeter] = []

    @property
    def column(self) -> Column:
        return Column("confusion")

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        pairs = targets * self._classes + outputs.argmax(-1)
        return torch.bincount(pairs, minlength=self._classes**2)

    def value(self, sums: Tensor) -> Tensor:
        return sums.sum()

    def meter(self) -> _CounterMeter:
        # A learner takes one meter after the other, each for some of the devices.
        meter = _CounterMeter(self)
        self._meters.append(meter)
        return meter

    def counts(self) -> NDArray[np.int64]:
        """Return the counts of all models: [models, classes × classes]."""
        return np.concatenate([meter.counts for meter in self._meters])


class _CounterMeter:
    def __init__(self, metric: _Counter) -> None:
        self._metric = metric
        self.counts = np.zeros((0, 0), dtype=np.int64)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        own = np.stack([self._metric.sums(one, targets).numpy() for one in outputs])
        self.counts = self.counts + own if self.counts.size else own

    def values(self) -> Tensor:
        return torch.zeros(len(self.counts), dtype=torch.float64)


def confusion(plan: Plan, models: dict[str, Tensor], max_products: int) -> dict[str, Any] | None:
    """Return the confusion matrices of devices, as `device.js` reads them.

    Args:
        plan: The plan of a run.
        models: Its final models by the names of their parts.
        max_products: Parameters × test samples × devices at most.

    Returns:
        The names of the classes, the devices, and their counts, packed; None if the targets are no
        labels, or it would take too long.
    """
    data = plan.task.data
    learner = plan.task.learner
    if data.classes is None or data.classes > _MAX_CLASSES or data.y_test.ndim != 1:
        return None
    if plan.device != "cpu":
        return None
    samples = min(len(data.x_test), plan.measure.test or _MAX_SAMPLES, _MAX_SAMPLES)
    fitting = max_products // max(1, learner.parameters * samples)
    count = min(plan.task.devices, _MAX_DEVICES, fitting)
    if count < 1:
        return None
    devices = pack.evenly(plan.task.devices, count)
    dtype: torch.dtype = getattr(torch, plan.dtype)
    worker = plan.task.worker(devices, plan.seed, dtype, torch.device("cpu"), samples)
    chosen = {name: part[torch.from_numpy(devices)] for name, part in models.items()}
    w = learner.stack(chosen)
    buffers = {name: chosen[name] for name in worker.buffers}
    counter = _Counter(data.classes)
    with torch.no_grad():
        worker.scores(w, [counter], buffers)
    counts = counter.counts()
    if counts.shape != (len(devices), data.classes**2):
        return None  # outputs that are no scores of the classes
    return {
        "names": class_names(plan),
        "devices": devices.tolist(),
        "samples": samples,
        "counts": pack.text(counts.astype("<u2").tobytes()),
    }


def products(plan: Plan) -> int:
    """Return parameters × test samples × devices of a run, as far as `confusion` takes them.

    Args:
        plan: The plan of a run.
    """
    samples = min(len(plan.task.data.x_test), plan.measure.test or _MAX_SAMPLES, _MAX_SAMPLES)
    return plan.task.learner.parameters * samples * min(plan.task.devices, _MAX_DEVICES)


def class_names(plan: Plan) -> list[str]:
    """Return the names of the classes of a run's data, or their numbers.

    Args:
        plan: The plan of a run whose targets are labels.
    """
    data = plan.task.data
    if data.labels:
        return list(data.labels)
    return [str(k) for k in range(data.classes or 0)]
