"""The built-in metrics, and the metrics of a study."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gossamer._core import checks
from gossamer._core.columns import Column, column_of
from gossamer._core.registry import kinds, register
from gossamer.errors import InputError, nearest
from gossamer.tasks.data import IGNORED, Data
from gossamer.tasks.losses import CrossEntropy
from gossamer.tasks.metric import FIELD, BuiltIn, Metric

_LAYOUT = CrossEntropy()  # knows which axis of outputs is that of the classes


# -- classes --------------------------------------------------------------------------------------


class _OfClasses(BuiltIn):
    """A metric of predicted classes."""

    def check(self, data: Data) -> None:
        if data.y.is_floating_point():
            accepted = 'a metric of numbers, such as "rmse" or "mae": the targets are not classes'
            raise InputError(FIELD, self.name, accepted)


class _OfOneClass(_OfClasses):
    """A metric that needs one class per target, not several labels that are true or false."""

    def check(self, data: Data) -> None:
        super().check(data)
        if data.y.dtype == torch.bool:
            accepted = '"accuracy", "macro-f1" or "iou": a sample may have several labels'
            raise InputError(FIELD, self.name, accepted)


def classes_last(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return outputs with the axis of the classes as the last.

    Args:
        outputs: [batch, classes, …] or [batch, …, classes], as for `CrossEntropy`.
        targets: Classes [batch, …].

    Raises:
        InputError: If there is no axis of classes.
    """
    axis = _LAYOUT.class_dim(outputs.shape, targets.shape)
    if axis:
        return outputs.movedim(axis, -1)
    accepted = (
        f"outputs of shape [batch, classes, …] for targets of shape {list(targets.shape)}; "
        f"the model has outputs of shape {list(outputs.shape)}"
    )
    raise InputError(FIELD, "a metric of classes", accepted)


def _is_binary(outputs: Tensor, targets: Tensor) -> bool:
    """True if an output is that of one label: its sign says whether a sample has it."""
    return outputs.shape == targets.shape or outputs.shape == (*targets.shape, 1)


def _predicted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the predicted class for each target; the first with the largest output."""
    if _is_binary(outputs, targets):
        return (outputs.reshape(targets.shape) > 0).to(targets.dtype)
    return classes_last(outputs, targets).max(-1).indices


@register("metric", "accuracy")
@dataclass(frozen=True)
class Accuracy(_OfClasses):
    """The share of the targets that are predicted correctly.

    Targets are samples, tokens or pixels. For several labels per sample, each label counts by
    itself.

    Args:
        ignore_index: Targets with this value do not count.

    Example:
        >>> outputs = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
        >>> Accuracy().sums(outputs, torch.tensor([1, 1]))
        tensor([1, 2])
    """

    ignore_index: int = IGNORED

    @property
    def column(self) -> Column:
        return column_of("accuracy")

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        counts = targets != self.ignore_index
        correct = (_predicted(outputs, targets) == targets) & counts
        return torch.stack([correct.sum(), counts.sum()])

    def value(self, sums: Tensor) -> Tensor:
        return sums[0] / sums[1]


@register("metric", "top-k")
@dataclass(frozen=True)
class TopKAccuracy(_OfOneClass):
    """The share of the targets that are among the k classes with the largest outputs.

    Of equal outputs, that of the lower class counts as the larger one.

    Args:
        k: Number of classes.
        ignore_index: Targets with this value do not count.

    Raises:
        InputError: If k is less than 1, or larger than the number of classes.

    Example:
        >>> TopKAccuracy(k=3).name
        'top-3'
    """

    k: int = 5
    ignore_index: int = IGNORED

    def __post_init__(self) -> None:
        checks.whole("k", self.k, 1)

    @property
    def column(self) -> Column:
        return column_of("top-k", {"k": self.k})

    def check(self, data: Data) -> None:
        super().check(data)
        if data.classes is not None:
            self._check_classes(data.classes)

    def _check_classes(self, classes: int) -> None:
        if self.k > classes:
            accepted = f"k from 1 to {classes}, the number of classes"
            raise InputError(FIELD, f"top-k with k = {self.k}", accepted)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores = classes_last(outputs, targets)
        classes = scores.shape[-1]
        self._check_classes(classes)
        counts = targets != self.ignore_index
        own = targets.clamp(0, classes - 1)[..., None]
        own_scores = scores.gather(-1, own)
        lower = torch.arange(classes, device=scores.device) < own
        before = (scores > own_scores) | ((scores == own_scores) & lower)
        among = (before.sum(-1) < self.k) & counts
        return torch.stack([among.sum(), counts.sum()])

    def value(self, sums: Tensor) -> Tensor:
        return sums[0] / sums[1]


class _ByClass(_OfClasses):
    """A mean over the classes, from three counts per class: correct, predicted, true.

    Classes that are neither predicted nor true do not count.
    """

    def _ignored(self) -> int:
        return IGNORED

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        predicted = _predicted(outputs, targets)
        if outputs.shape == targets.shape and targets.dim() > 1:  # labels in columns
            is_predicted = predicted > 0
            is_true = targets > 0
        else:
            classes = 2
            if not _is_binary(outputs, targets):
                classes = classes_last(outputs, targets).shape[-1]
            numbers = torch.arange(classes, device=outputs.device)
            counts = (targets != self._ignored())[..., None]
            is_predicted = (predicted[..., None] == numbers) & counts
            is_true = targets[..., None] == numbers
        both = is_predicted & is_true
        sums = []
        for found in (both, is_predicted, is_true):
            sums.append(found.reshape(-1, found.shape[-1]).sum(0))
        return torch.cat(sums)

    def value(self, sums: Tensor) -> Tensor:
        correct, predicted, true = sums.view(3, -1)
        exists = predicted + true > 0
        scores = self._score(correct, predicted, true)
        total = torch.where(exists, scores, torch.zeros_like(scores)).sum()
        return total / exists.sum()

    @abstractmethod
    def _score(self, correct: Tensor, predicted: Tensor, true: Tensor) -> Tensor:
        """Return the score of each class; anything where a class does not exist."""


@register("metric", "macro-f1")
@dataclass(frozen=True)
class MacroF1(_ByClass):
    """The mean of the classes' F1 scores.

    Args:
        ignore_index: Targets with this value do not count.

    Example:
        >>> outputs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> metric = MacroF1()
        >>> float(metric.value(metric.sums(outputs, torch.tensor([0, 0, 1])).double()))
        1.0
    """

    ignore_index: int = IGNORED

    @property
    def column(self) -> Column:
        return column_of("macro-f1")

    def _ignored(self) -> int:
        return self.ignore_index

    def _score(self, correct: Tensor, predicted: Tensor, true: Tensor) -> Tensor:
        return 2 * correct / (predicted + true)


@register("metric", "iou")
@dataclass(frozen=True)
class IoU(_ByClass):
    """The mean over the classes of intersection over union (the Jaccard index).

    Args:
        ignore_index: Targets with this value do not count.

    Example:
        >>> IoU().better
        'higher'
    """

    ignore_index: int = IGNORED

    @property
    def column(self) -> Column:
        return column_of("iou")

    def _ignored(self) -> int:
        return self.ignore_index

    def _score(self, correct: Tensor, predicted: Tensor, true: Tensor) -> Tensor:
        return correct / (predicted + true - correct)


@register("metric", "perplexity")
@dataclass(frozen=True)
class Perplexity(_OfOneClass):
    """The exponential of the mean cross-entropy of tokens, or of classes.

    Args:
        ignore_index: Targets with this value do not count.

    Example:
        >>> metric = Perplexity()
        >>> sums = metric.sums(torch.zeros(3, 8), torch.tensor([0, 5, 7]))
        >>> round(float(metric.value(sums)), 6)
        8.0
    """

    ignore_index: int = IGNORED

    @property
    def column(self) -> Column:
        return column_of("perplexity")

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores = classes_last(outputs, targets)
        counts = targets != self.ignore_index
        own = targets.clamp(0, scores.shape[-1] - 1)[..., None]
        entropies = (scores.logsumexp(-1) - scores.gather(-1, own).squeeze(-1)).double()
        total = torch.where(counts, entropies, torch.zeros_like(entropies)).sum()
        return torch.stack([total, counts.sum().double()])

    def value(self, sums: Tensor) -> Tensor:
        return (sums[0] / sums[1]).exp()


# -- numbers --------------------------------------------------------------------------------------


class _OfNumbers(BuiltIn):
    """A metric of errors. Targets that are NaN are missing, and do not count."""

    def check(self, data: Data) -> None:
        if data.classes is not None or not data.y.is_floating_point():
            accepted = 'a metric of classes, such as "accuracy": the targets are not numbers'
            raise InputError(FIELD, self.name, accepted)

    def _errors(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the errors in float64, 0 for missing targets, and which are not missing."""
        if outputs.numel() != targets.numel():
            accepted = (
                f"as many outputs as targets, of shape {list(targets.shape)}; the model has "
                f"outputs of shape {list(outputs.shape)}"
            )
            raise InputError(FIELD, self.name, accepted)
        counts = ~targets.isnan()
        errors = outputs.reshape(targets.shape).double() - targets.double()
        return torch.where(counts, errors, torch.zeros_like(errors)), counts


@register("metric", "mae")
@dataclass(frozen=True)
class MAE(_OfNumbers):
    """The mean absolute error.

    Args:
        unit: Unit of the targets, for tables.

    Example:
        >>> metric = MAE(unit="°C")
        >>> sums = metric.sums(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 4.0]))
        >>> float(metric.value(sums))
        1.0
    """

    unit: str = ""

    @property
    def column(self) -> Column:
        return column_of("mae", {"unit": self.unit})

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors, counts = self._errors(outputs, targets)
        return torch.stack([errors.abs().sum(), counts.sum().double()])

    def value(self, sums: Tensor) -> Tensor:
        return sums[0] / sums[1]


@register("metric", "rmse")
@dataclass(frozen=True)
class RMSE(_OfNumbers):
    """The root of the mean squared error over all values of all targets.

    Args:
        unit: Unit of the targets, for tables.

    Example:
        >>> metric = RMSE()
        >>> sums = metric.sums(torch.tensor([[1.0], [4.0]]), torch.tensor([1.0, 2.0]))
        >>> float(metric.value(sums).square())
        2.0000000000000004
    """

    unit: str = ""

    @property
    def column(self) -> Column:
        return column_of("rmse", {"unit": self.unit})

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors, counts = self._errors(outputs, targets)
        return torch.stack([errors.square().sum(), counts.sum().double()])

    def value(self, sums: Tensor) -> Tensor:
        return (sums[0] / sums[1]).sqrt()


@register("metric", "r2")
@dataclass(frozen=True)
class R2(_OfNumbers):
    """The coefficient of determination R²; of several outputs, the mean.

    1 is perfect, 0 is as good as the mean of the targets. Where all targets are equal it is 1 if
    they are predicted exactly, and 0 if not.

    Example:
        >>> metric = R2()
        >>> sums = metric.sums(torch.tensor([2.0, 2.0]), torch.tensor([1.0, 3.0]))
        >>> float(metric.value(sums))
        0.0
    """

    @property
    def column(self) -> Column:
        return column_of("r2")

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors, counts = self._errors(outputs, targets)
        y = torch.where(counts, targets.double(), torch.zeros_like(errors))
        sums = []
        for terms in (errors.square(), y.square(), y, counts.double()):
            sums.append(terms.reshape(len(targets), -1).sum(0))
        return torch.cat(sums)

    def value(self, sums: Tensor) -> Tensor:
        residual, squares, total, count = sums.view(4, -1)
        mean_part = total.square() / count
        spread = squares - mean_part
        # What rounding leaves of the difference of two equal numbers.
        constant = spread <= 4 * torch.finfo(sums.dtype).eps * squares * count.sqrt()
        perfect = (residual == 0).to(sums.dtype)
        return torch.where(constant, perfect, 1 - residual / spread).mean()


# -- the metrics of a study -----------------------------------------------------------------------


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
