"""Measure the models of a simulator: all of its devices, or a sample of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer._core import weight_bins
from gossamer.engines.plan import Plan, Record
from gossamer.engines.shard import Shard
from gossamer.engines.shard_mean import mean_of_shards
from gossamer.mirror import IdentityMap, MirrorMap
from gossamer.network.base import BoolArray, IntArray
from gossamer.tasks import Metric, Worker
from gossamer.tasks.learner import Buffers, Scores

# Elements of models whose difference from the mean is in memory: 16 MB in float32.
_ELEMENTS_AT_ONCE = 1 << 22
# The smallest number: torch sums a single long row in another order.
_ROWS_AT_ONCE = 4


@dataclass(frozen=True, eq=False)
class Measuring:
    """Measures the devices of one process.

    Args:
        plan: What is run.
        worker: Scores the models of the devices.
        devices: Numbers of the devices.
        shard: The shard that they are; None: all devices of the network.
    """

    plan: Plan
    worker: Worker
    devices: IntArray
    shard: Shard | None

    def record(self, t: int, w: Tensor, active: BoolArray | None) -> Record:
        """Return a measurement, without messages, bytes and simulated seconds.

        Args:
            t: Number of rounds done.
            w: The models that are measured, one per device.
            active: Mask of the devices of the network whose models are merged; None: all.
        """
        scores = self._scores(w)
        mean = self._mean(w, IdentityMap())
        distance = distances(w, mean)
        power_mean = mean
        power_distance = distance
        mirror = self.plan.algorithm.mirror_at(t)
        if mirror.power != 1:
            power_mean = self._mean(w, mirror)
            power_distance = distances(w, power_mean)
        merged = self._score_merged(w, IdentityMap(), mean, active)
        merged_power = {}
        if self.plan.measures_power_mean:
            merged_power = merged
            if mirror.power != 1:
                merged_power = self._score_merged(w, mirror, power_mean, active)
        return Record(
            round=t,
            loss=_float64(scores.loss),
            metrics={name: _float64(values) for name, values in scores.metrics.items()},
            distance=_float64(distance),
            power_distance=_float64(power_distance),
            messages=0,
            bytes=0,
            merged=merged,
            merged_power=merged_power,
            devices=self._sample,
            weights=self._histogram(w),
        )

    # -- scores -----------------------------------------------------------------------------------

    @cached_property
    def _sample(self) -> IntArray | None:
        """Numbers of the devices here whose models are scored; None: all."""
        sample = self.plan.measured_devices
        if sample is None:
            return None
        return np.intersect1d(sample, self.devices)

    def _scores(self, w: Tensor) -> Scores:
        metrics = self.plan.metrics
        if self._sample is None:
            return self.worker.scores(w, metrics)
        if not len(self._sample):
            return _no_scores(w, metrics)
        rows = torch.from_numpy(np.searchsorted(self.devices, self._sample)).to(w.device)
        buffers = {name: b[rows] for name, b in self.worker.buffers.items()}
        return self.worker.scores(w[rows], metrics, buffers)

    def _histogram(self, w: Tensor) -> IntArray:
        rows = weight_bins.sampled(self.devices, self.plan.task.devices, w.shape[1])
        if len(rows) == len(w):
            return weight_bins.histogram(w)
        return weight_bins.histogram(w[torch.from_numpy(rows).to(w.device)])

    # -- the merged model -------------------------------------------------------------------------

    def _score_merged(
        self, w: Tensor, mirror: MirrorMap, mean: Tensor, active: BoolArray | None
    ) -> dict[str, float]:
        """Return loss and metrics of the mean of the active devices' models.

        All shards take part in the mean; only the one that has device 0 scores it.

        Args:
            w: The models.
            mirror: The mirror map of the mean.
            mean: The mean of all models.
            active: Mask of the devices whose models are merged; None: all.
        """
        if not self.plan.measure.merged:
            return {}
        if active is not None:
            mean = self._mean(w, mirror, active)
        buffers = self._merged_buffers(active)
        if self.devices[0] != 0:
            return {}
        scores = self.worker.scores(mean[None].contiguous(), self.plan.metrics, buffers)
        values = {"loss": float(scores.loss)}
        for name, value in scores.metrics.items():
            values[name] = float(value)
        return values

    def _merged_buffers(self, active: BoolArray | None) -> Buffers:
        """Return the mean of floating-point buffers, and the first device's of all others."""
        merged = {}
        for name, b in self.worker.buffers.items():
            merged[name] = b[:1]
            if b.is_floating_point():
                merged[name] = self._mean(b.reshape(len(b), -1), IdentityMap(), active).view(
                    b[:1].shape
                )
        return merged

    def _mean(self, w: Tensor, mirror: MirrorMap, active: BoolArray | None = None) -> Tensor:
        """Return the mean of all devices' models, or the active ones', in a mirror map's dual."""
        rows = w
        if active is not None:
            rows = w[torch.from_numpy(active[self.devices]).to(w.device)]
        if self.shard is None:
            return mirror.mean(rows)
        count = self.plan.task.devices
        if active is not None:
            count = int(active.sum())
        return mean_of_shards(rows, mirror, self.shard, count)


def distances(w: Tensor, mean: Tensor) -> Tensor:
    """Return ‖w_i − mean‖ of every row, for some rows at a time.

    Args:
        w: The models [devices, parameters].
        mean: One model.

    Example:
        >>> distances(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.zeros(2))
        tensor([5., 0.])
    """
    rows = max(_ROWS_AT_ONCE, _ELEMENTS_AT_ONCE // max(1, w.shape[1]))
    result = w.new_empty(len(w))
    parts = math.ceil(len(w) / rows)
    for part, out in zip(w.tensor_split(parts), result.tensor_split(parts), strict=True):
        out.copy_((part - mean).norm(dim=1))
    return result


def _no_scores(w: Tensor, metrics: Sequence[Metric]) -> Scores:
    """Return the scores of no model: a shard need not have any of the sample."""
    empty = w.new_empty(0)
    return Scores(empty, {metric.name: empty for metric in metrics})


def _float64(x: Tensor) -> NDArray[np.float64]:
    return x.double().cpu().numpy()
