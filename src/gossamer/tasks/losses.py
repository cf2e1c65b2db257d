"""Losses: how far the outputs of a model are from the targets.

A loss is a frozen dataclass that a spec can name, or any function of (outputs, targets). Its value
over a batch is a sum of terms divided by their number, so that a batch and the same samples in
several parts have the same mean.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.data import IGNORED, Data
from gossamer.tasks.stacking import run_stacked

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""Function of (outputs, targets) that returns one value per sample, or their mean."""

Terms = tuple[Tensor, Tensor]
"""The sum of the terms of a loss, and their number."""


class Loss(ABC):
    """The loss of the outputs of one model. Subclasses are frozen dataclasses.

    Example:
        >>> SquaredError()(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0]))
        tensor(1.)
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over a batch.

        Args:
            outputs: The outputs of one model [batch, …].
            targets: The targets [batch, …].

        Returns:
            A scalar; 0 if every target is ignored.
        """
        total, count = self.terms(outputs, targets)
        return total / count.clamp_min(1)

    @abstractmethod
    def terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        """Return the sum of the terms over a batch, and their number, as scalars.

        Args:
            outputs: The outputs of one model [batch, …].
            targets: The targets [batch, …].
        """

    def stacked_terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        """Return the terms of a stack of models, one value per device each.

        Args:
            outputs: The outputs [devices, batch, …].
            targets: The targets [devices, batch, …].
        """
        found: Terms = run_stacked(self.terms, outputs.contiguous(), targets)
        return found

    def misfit(self, outputs: torch.Size, targets: torch.Size, classes: int | None) -> str:
        """Return which outputs the loss needs instead, or "" if these fit.

        Args:
            outputs: Shape of the outputs of one model.
            targets: Shape of the targets.
            classes: Number of classes of labels; None for other targets.
        """
        return ""

    def check_targets(  # noqa: B027 - most losses accept every target
        self, field: str, targets: Tensor, outputs: torch.Size
    ) -> None:
        """Raise an error if a target cannot be used with outputs of a shape.

        Args:
            field: Name of the targets in the message.
            targets: All targets.
            outputs: Shape of the outputs of some of them.

        Raises:
            InputError: If there is such a target.
        """


@register("loss", "cross-entropy")
@dataclass(frozen=True)
class CrossEntropy(Loss):
    """The cross-entropy of one class per sample, or per position of a sample.

    Outputs are [batch, classes] for labels [batch]. For a class per position, targets are
    [batch, …] and outputs [batch, classes, …], as `torch.nn.CrossEntropyLoss` has them, or
    [batch, …, classes], as transformers return them. If both fit, targets [batch, length] take the
    classes last, and larger ones take torch's layout. The mean is over all positions that are not
    ignored, as in torch; a batch in which all are ignored has the loss 0.

    Args:
        ignore_index: Target of the positions that do not count.
        label_smoothing: Share of a target that is spread evenly over all classes.

    Raises:
        InputError: If label_smoothing is not from 0 to below 1.

    Example:
        >>> outputs = torch.zeros(2, 5, 4)  # two sequences of five tokens, four classes
        >>> targets = torch.tensor([[0, 1, 2, 3, -100], [1, 1, -100, -100, -100]])
        >>> CrossEntropy()(outputs, targets)
        tensor(1.3863)
    """

    ignore_index: int = IGNORED
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        checks.number("label_smoothing", self.label_smoothing, least=0, below=1)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # Torch's own loss takes a quarter of the time of `terms` with its gradient.
        outputs, targets = self._rows(outputs, targets)
        total = self._losses(outputs, targets, "sum")
        return total / (targets != self.ignore_index).sum().clamp_min(1)

    def terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        outputs, targets = self._rows(outputs, targets)
        # F.cross_entropy has no rule of its own under vmap, and is decomposed again in every call.
        counted = targets != self.ignore_index
        own = outputs.gather(1, targets.where(counted, 0)[:, None]).squeeze(1)
        losses = self._smoothed(outputs, own)
        return losses.where(counted, 0.0).sum(), counted.sum()

    def _rows(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs [positions, classes] and targets [positions] of one model."""
        if targets.dim() > 1:
            outputs = outputs.movedim(self.class_dim(outputs.shape, targets.shape), -1)
            outputs = outputs.reshape(-1, outputs.shape[-1])
            targets = targets.reshape(-1)
        return outputs, targets

    def _smoothed(self, outputs: Tensor, own: Tensor) -> Tensor:
        """Return the losses of outputs [positions, classes], given those of the targets."""
        if self.label_smoothing:
            rest = outputs.mean(1)
            own = own + self.label_smoothing * (rest - own)
        return outputs.logsumexp(1) - own

    def stacked_terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        # torch.func's overhead would be larger than the arithmetic.
        if targets.dim() > 2:
            axis = self.class_dim(outputs.shape[1:], targets.shape[1:])
            if axis > 0:
                axis += 1  # the stack adds a leading axis
            rows = outputs.movedim(axis, -1).reshape(-1, outputs.shape[axis])
            losses = self._losses(rows, targets.reshape(-1)).view(len(targets), -1)
        else:
            losses = self._losses(outputs.transpose(1, 2), targets)
        return losses.sum(1), (targets != self.ignore_index).flatten(1).sum(1)

    def _losses(self, outputs: Tensor, targets: Tensor, reduction: str = "none") -> Tensor:
        """Return the loss of every target, or their sum; the classes are axis 1 of the outputs."""
        return F.cross_entropy(
            outputs,
            targets,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=reduction,
        )

    def class_dim(self, outputs: torch.Size, targets: torch.Size) -> int:
        """Return the axis of the classes in outputs of one model, 1 or −1.

        Args:
            outputs: Shape of the outputs.
            targets: Shape of the targets.

        Returns:
            The axis; 0 if the shapes do not fit each other.
        """
        if len(outputs) != len(targets) + 1:
            return 0
        last = outputs[:-1] == targets
        first = outputs[:1] + outputs[2:] == targets
        if last and (len(targets) == 2 or not first):
            return -1
        return int(first)

    def misfit(self, outputs: torch.Size, targets: torch.Size, classes: int | None) -> str:
        if classes is not None:
            if len(outputs) == 2 and outputs[1] >= classes:
                return ""
            return f"outputs of shape [batch, {classes}], one for each class"
        if self.class_dim(outputs, targets):
            return ""
        positions = ", ".join(map(str, targets[1:]))
        return (
            f"outputs of shape [batch, classes, {positions}] or [batch, {positions}, classes]; "
            "targets that are 0 or 1 for every output are given as bool or float"
        )

    def check_targets(self, field: str, targets: Tensor, outputs: torch.Size) -> None:
        classes = outputs[self.class_dim(outputs, outputs[:1] + targets.shape[1:])]
        wrong = (targets < 0) | (targets >= classes)
        wrong &= targets != self.ignore_index
        if wrong.any():
            accepted = (
                f"classes from 0 to {classes - 1}, since the model has {classes} outputs for them; "
                f"the loss ignores {self.ignore_index}"
            )
            raise InputError(field, int(targets[wrong][0]), accepted)


class _Elementwise(Loss):
    """A loss that compares every output with its own target; the mean over all of them."""

    def terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        losses = self.of_elements(outputs.reshape(targets.shape), targets)
        return losses.sum(), _count(losses, losses.numel())

    @abstractmethod
    def of_elements(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every element of outputs in the shape of the targets."""

    def misfit(self, outputs: torch.Size, targets: torch.Size, classes: int | None) -> str:
        return _misfit_of_values(outputs, targets)


@register("loss", "bce")
@dataclass(frozen=True)
class BinaryCrossEntropy(_Elementwise):
    """The cross-entropy of yes or no for every output, such as the labels of a multi-label task.

    Outputs are logits. The mean is over samples and outputs, as in `torch.nn.BCEWithLogitsLoss`.

    Args:
        positive_weight: Factor of the terms whose target is 1.

    Raises:
        InputError: If positive_weight is not above 0.

    Example:
        >>> BinaryCrossEntropy()(torch.zeros(2, 3), torch.tensor([[1.0, 0, 0], [1, 1, 0]]))
        tensor(0.6931)
    """

    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("positive_weight", self.positive_weight)

    def of_elements(self, outputs: Tensor, targets: Tensor) -> Tensor:
        targets = targets.to(outputs.dtype)
        no = F.softplus(outputs) * (1 - targets)
        return no + self.positive_weight * F.softplus(-outputs) * targets


@register("loss", "squared-error")
@dataclass(frozen=True)
class SquaredError(Loss):
    """Half the squared error, summed over the values of a sample and averaged over the samples.

    `torch.nn.MSELoss()` is another loss: it has no factor ½, and averages over the values.

    Example:
        >>> SquaredError()(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]]))
        tensor(2.5000)
    """

    def terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        errors = (outputs.reshape(targets.shape) - targets).square()
        losses = errors.reshape(len(targets), -1).sum(1) / 2
        return losses.sum(), _count(losses, len(targets))

    def misfit(self, outputs: torch.Size, targets: torch.Size, classes: int | None) -> str:
        return _misfit_of_values(outputs, targets)


@register("loss", "absolute-error")
@dataclass(frozen=True)
class AbsoluteError(_Elementwise):
    """The absolute error. The mean is over samples and values, as in `torch.nn.L1Loss`.

    Example:
        >>> AbsoluteError()(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]]))
        tensor(1.5000)
    """

    def of_elements(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).abs()


@register("loss", "huber")
@dataclass(frozen=True)
class Huber(_Elementwise):
    """The Huber loss: half the squared error up to delta, beyond it linear.

    The mean is over samples and values, as in `torch.nn.HuberLoss`.

    Args:
        delta: The error at which the loss becomes linear.

    Raises:
        InputError: If delta is not above 0.

    Example:
        >>> Huber(delta=1.0)(torch.tensor([0.5, 3.0]), torch.tensor([0.0, 0.0]))
        tensor(1.3125)
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("delta", self.delta)

    def of_elements(self, outputs: Tensor, targets: Tensor) -> Tensor:
        error = (outputs - targets).abs()
        square = error.clamp_max(self.delta)  # |e| up to delta, else delta
        return square * (error - square / 2)


@dataclass(frozen=True)
class FunctionLoss(Loss):
    """A loss of the user's own.

    Args:
        function: Function of (outputs, targets) of one model that returns one value per sample, or
            their mean, as the losses of torch do.

    Example:
        >>> loss = FunctionLoss(torch.nn.MSELoss())
        >>> loss(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
        tensor(2.)
    """

    function: LossFunction

    def terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        losses = self.function(outputs, targets)
        count = _count(losses, len(targets))
        if losses.shape == targets.shape[:1]:
            return losses.sum(), count
        if losses.dim() == 0:
            return losses * len(targets), count
        accepted = 'one value per sample, shape [batch] (reduction="none"), or their mean'
        raise InputError("loss", f"shape {list(losses.shape)}", accepted)


def loss_of(loss: Loss | LossFunction | None, data: Data) -> Loss:
    """Return the loss of a model.

    Args:
        loss: A loss, a function of the user's own, or None for the default of the targets: the
            cross-entropy of classes, the binary cross-entropy of yes or no, else half the squared
            error.
        data: The data.

    Raises:
        InputError: If it is neither.

    Example:
        >>> from gossamer import Digits
        >>> loss_of(None, Digits().load())
        CrossEntropy(ignore_index=-100, label_smoothing=0.0)
    """
    if loss is None:
        return _DEFAULTS[data.targets]()
    if isinstance(loss, Loss):
        return loss
    if not callable(loss):
        raise InputError("loss", loss, "a loss, or a function of (outputs, targets)")
    return FunctionLoss(loss)


_DEFAULTS: dict[str, type[Loss]] = {
    "labels": CrossEntropy,
    "tokens": CrossEntropy,
    "multi-label": BinaryCrossEntropy,
    "values": SquaredError,
}


def _count(like: Tensor, number: int) -> Tensor:
    return torch.tensor(number, device=like.device)


def _misfit_of_values(outputs: torch.Size, targets: torch.Size) -> str:
    if outputs[:1] == targets[:1] and math.prod(outputs) == math.prod(targets):
        return ""
    shape = ", ".join(map(str, ["batch", *targets[1:]]))
    return f"as many outputs as a target has values: shape [{shape}]"
