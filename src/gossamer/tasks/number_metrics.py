"""Metrics of predicted numbers: mean absolute error, root mean squared error, R²."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._core.columns import Column, column_of
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.metric import FIELD, BuiltIn


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
        >>> round(float(metric.value(sums)), 6)
        1.414214
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
