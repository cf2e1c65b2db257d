"""Own losses and metrics in a spec: functions of (outputs, targets)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gossamer._core.columns import Better, Column
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.study.code.base import Code
from gossamer.tasks import Data, FunctionMetric, Metric
from gossamer.tasks.losses import FunctionLoss, Loss, Terms
from gossamer.tasks.metric import Meter


@dataclass(frozen=True)
class _OfOutputs(Code):
    """A function of (outputs, targets), or an object or a class of gossamer in its place."""

    def _positional(self) -> tuple[None, ...]:
        if isinstance(self._value, type):
            return ()
        return (None, None)  # outputs and targets

    def _function(self, kind: type) -> Any:
        """Return an object of a kind, or else a function of (outputs, targets)."""
        made = self._value
        if isinstance(made, type):
            made = self._called()
        elif self.arguments:
            made = partial(made, **self.arguments)
        if not isinstance(made, kind) and not callable(made):
            raise self._refused(made)
        return made


@register("python", "loss")
@dataclass(frozen=True)
class LossCode(_OfOutputs, Loss):
    """A function of (outputs, targets), a `Loss`, or a class that makes one of them.

    Args:
        object: "module:name", such as "my_model:loss".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function, after outputs and targets, or of the class.
        sources: Digests of the files, which have to be these; filled in if it is empty.
    """

    section = "model.loss"
    accepted = "a function of (outputs, targets), or a loss of gossamer"

    def _make(self) -> Loss:
        made = self._function(Loss)
        if isinstance(made, Loss):
            return made
        return FunctionLoss(made)

    def terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        with self._running() as loss:
            found: Terms = loss.terms(outputs, targets)
            return found

    def stacked_terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        with self._running() as loss:
            found: Terms = loss.stacked_terms(outputs, targets)
            return found

    def misfit(self, outputs: torch.Size, targets: torch.Size, classes: int | None) -> str:
        return str(self.made.misfit(outputs, targets, classes))

    def check_targets(self, field: str, targets: Tensor, outputs: torch.Size) -> None:
        self.made.check_targets(field, targets, outputs)


@register("python", "metric")
@dataclass(frozen=True)
class MetricCode(_OfOutputs, Metric):
    """A function of (outputs, targets), a `Metric`, or a class that makes one.

    Args:
        object: "module:name", such as "my_metrics:largest_error".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function, after outputs and targets, or of the class.
        sources: Digests of the files, which have to be these; filled in if it is empty.
        name: Name of the metric of a function. Default: that of the function, with hyphens.
        better: Whether "higher" or "lower" values of a function are better. It is required.
        unit: Unit of a function's values, for tables.
        share: A function's values are shares from 0 to 1, which are printed in per cent.
    """

    name: str = ""
    better: Better = ""  # type: ignore[assignment]  # a metric of gossamer has its own
    unit: str = ""
    share: bool = False

    section = "measure.metrics"
    accepted = "a function of (outputs, targets), or a metric of gossamer"

    def _make(self) -> Metric:
        made = self._function(Metric)
        if isinstance(made, Metric):
            self._take_over(made.column)
            return made
        if not self.name:
            self._set("name", self.object.rpartition(":")[2].rpartition(".")[2].replace("_", "-"))
        function = self.guarded(made)
        return FunctionMetric(function, self.name, self.better, unit=self.unit, share=self.share)

    def _take_over(self, column: Column) -> None:
        """Set name, direction and unit to those of a metric, which has its own."""
        for name, value in asdict(column).items():
            own = getattr(self, name)
            if own and own != value:
                raise InputError(name, own, f"none, or {value!r}, which {self.object} has")
            self._set(name, value)

    @property
    def column(self) -> Column:
        return Column(self.name, self.better, self.share, self.unit)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        with self._running() as metric:
            found: Tensor = metric.sums(outputs, targets)
            return found

    def value(self, sums: Tensor) -> Tensor:
        with self._running() as metric:
            found: Tensor = metric.value(sums)
            return found

    def check(self, data: Data) -> None:
        with self._running() as metric:
            metric.check(data)

    def meter(self) -> Meter:
        return _GuardedMeter(self)


class _GuardedMeter:
    """The meter of an own metric; what it raises becomes one sentence.

    Args:
        code: The metric.
    """

    def __init__(self, code: MetricCode) -> None:
        meter = code.made.meter()
        self.add = code.guarded(meter.add)
        self.values = code.guarded(meter.values)
