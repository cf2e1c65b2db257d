"""Metrics of predicted classes: accuracy, top-k accuracy, macro F1, IoU, perplexity."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._core import checks
from gossamer._core.columns import Column, column_of
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.data import IGNORED, Data
from gossamer.tasks.losses import CrossEntropy
from gossamer.tasks.metric import FIELD, BuiltIn

_LAYOUT = CrossEntropy()  # knows which axis of outputs is that of the classes


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
