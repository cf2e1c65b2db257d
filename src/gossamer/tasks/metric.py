"""The interface of a metric, and the meters that add up its sums batch by batch.

A metric turns the outputs of one device's model on a batch of test samples into a few sums. The
sums of all batches give its value, which is that of the whole test set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor
from torch.func import vmap

from gossamer._core.columns import Better, Column
from gossamer.tasks.data import Data

FIELD = "measure.metrics"
"""Name of the field in messages about a metric that fails in a run."""


class Meter(Protocol):
    """The values of one metric, from the outputs of all devices on one batch after the other."""

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch.

        Args:
            outputs: [devices, batch, …].
            targets: [batch, …], the same for all devices.
        """

    def values(self) -> Tensor:
        """Return one value per device, in float64."""


class Metric(ABC):
    """A metric. Every built-in one is a frozen dataclass with a kind in specs.

    A class of one's own implements `column`, `sums` and `value`. For a plain function, use
    `FunctionMetric`.
    """

    built_in = False
    """True if it is known to run on all outputs; others are tried before a long run."""

    @property
    @abstractmethod
    def column(self) -> Column:
        """Name, direction and unit of the metric."""

    @property
    def name(self) -> str:
        """Name of the metric, and of its column in metrics.parquet."""
        return self.column.name

    @property
    def better(self) -> Better:
        """Whether "higher" or "lower" values are better."""
        return self.column.better

    @abstractmethod
    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return sums over a batch of one device: [sums].

        Args:
            outputs: Outputs of the model [batch, …].
            targets: Their targets [batch, …].
        """

    @abstractmethod
    def value(self, sums: Tensor) -> Tensor:
        """Return the value as a tensor without axes.

        Args:
            sums: The sums over all batches, in float64.
        """

    def check(self, data: Data) -> None:  # noqa: B027 - fits all data unless overridden
        """Refuse data that the metric does not fit.

        Args:
            data: The data of the study.

        Raises:
            InputError: If it does not fit.
        """

    def meter(self) -> Meter:
        """Return what adds up the batches of one measurement."""
        return LoopMeter(self)


class LoopMeter:
    """Adds the sums of one device after the other: `Metric.sums` may do anything."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._total: Tensor | None = None

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        rows = []
        for own in outputs:
            rows.append(self._metric.sums(own, targets).double())
        self._add(torch.stack(rows))

    def _add(self, sums: Tensor) -> None:
        self._total = sums if self._total is None else self._total + sums

    def values(self) -> Tensor:
        assert self._total is not None
        values = []
        for sums in self._total:
            values.append(torch.as_tensor(self._metric.value(sums), dtype=torch.float64))
        return torch.stack(values)


class StackedMeter(LoopMeter):
    """Adds the sums of all devices at once."""

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        self._add(vmap(self._metric.sums, in_dims=(0, None))(outputs, targets).double())

    def values(self) -> Tensor:
        assert self._total is not None
        values: Tensor = vmap(self._metric.value)(self._total)
        return values


class BuiltIn(Metric):
    """A metric whose sums torch computes for all devices at once."""

    built_in = True

    def meter(self) -> Meter:
        return StackedMeter(self)
