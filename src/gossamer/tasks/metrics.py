"""The metrics of a study, and their meters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gossamer._core.registry import kinds
from gossamer.errors import InputError, nearest
from gossamer.tasks.class_metrics import Accuracy, Perplexity
from gossamer.tasks.data import Data
from gossamer.tasks.metric import Metric
from gossamer.tasks.number_metrics import RMSE


def default_metrics(data: Data) -> tuple[Metric, ...]:
    """Return the metrics of a study that names none.

    That is the accuracy for classes and labels, the perplexity for sequences of tokens, and the
    root mean squared error for numbers.

    Args:
        data: The data of the study.

    Example:
        >>> from gossamer import Digits
        >>> default_metrics(Digits().load())
        (Accuracy(ignore_index=-100),)
    """
    if data.y.is_floating_point():
        return (RMSE(),)
    tokens = data.y.dtype == data.x.dtype == torch.int64 and data.y.dim() > 1
    if tokens:
        return (Perplexity(),)
    return (Accuracy(),)


def as_metrics(given: Any, field: str = "metrics") -> tuple[Metric, ...]:
    """Return metrics from metrics and their kinds.

    Args:
        given: A list of metrics; the kind alone stands for a metric with its defaults.
        field: Name of the argument, for the message.

    Raises:
        InputError: If one is not known, or two have the same name.

    Example:
        >>> from gossamer import TopKAccuracy
        >>> as_metrics(["mae", TopKAccuracy(3)])
        (MAE(unit=''), TopKAccuracy(k=3, ignore_index=-100))
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(field, given, 'a list of metrics, such as ("accuracy", TopKAccuracy(5))')
    metrics = []
    names = {"loss"}
    for one in given:
        metric = _as_metric(one, field)
        metric.column.check()
        if metric.name in names:
            accepted = "metrics with different names; the loss is always measured"
            raise InputError(field, metric.name, accepted)
        names.add(metric.name)
        metrics.append(metric)
    return tuple(metrics)


def _as_metric(given: Any, field: str) -> Metric:
    if isinstance(given, Metric):
        return given
    known = kinds("metric")
    if isinstance(given, str) and given in known:
        metric: Metric = known[given]()
        return metric
    if callable(given):
        name = getattr(given, "__name__", "function")
        accepted = f'FunctionMetric({name}, "{name}", better="lower"), or "higher"'
        raise InputError(field, name, accepted)
    accepted = f"a metric, or one of {', '.join(map(repr, known))}"
    raise InputError(field, given, accepted + nearest(str(given), known))


class Meters:
    """The meters of several metrics, by the names of the metrics.

    Args:
        metrics: The metrics.
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._meters = {metric.name: metric.meter() for metric in metrics}

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch to all of them.

        Args:
            outputs: [devices, batch, …].
            targets: [batch, …].
        """
        for meter in self._meters.values():
            meter.add(outputs, targets)

    def values(self, like: Tensor) -> dict[str, Tensor]:
        """Return the values of all devices by metric.

        Args:
            like: The models, whose type the values get.
        """
        return {name: meter.values().to(like) for name, meter in self._meters.items()}
