"""Metrics that are functions of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gossamer._core.arguments import checked
from gossamer._core.columns import Better, Column
from gossamer.errors import GossamerError, InputError
from gossamer.tasks.metric import FIELD, LoopMeter, Meter, Metric


@checked
@dataclass(frozen=True)
class FunctionMetric(Metric):
    """A metric that is a function of one's own.

    Args:
        function: Function of (outputs, targets) of one device, as tensors [samples, …]. It returns
            a number, and is then called with all test samples at once; or a tensor of sums, and
            is then called with one batch after the other. The sums of all batches are added.
        name: Name of the metric, and of its column in metrics.parquet.
        better: Whether "higher" or "lower" values are better.
        combine: Function of the added sums that returns the value. Default: there are two sums, a
            total and a count, and the value is the total divided by the count.
        unit: Unit of the values, for tables.
        share: The values are shares from 0 to 1, which are printed in per cent.

    Raises:
        InputError: If a value is not accepted.

    Example:
        >>> def largest_error(outputs, targets):
        ...     return (outputs.squeeze(1) - targets).abs().max()
        >>> FunctionMetric(largest_error, "largest-error", "lower").column.heading
        'largest-error'
    """

    function: Callable[[Tensor, Tensor], Any]
    name: str = ""
    better: Better = ""  # type: ignore[assignment]  # both must be given; the column checks them
    combine: Callable[[Tensor], Any] | None = None
    unit: str = ""
    share: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError("function", self.function, "a function of (outputs, targets)")
        if self.combine is not None and not callable(self.combine):
            raise InputError("combine", self.combine, "a function of the added sums")
        self.column.check()

    @property
    def column(self) -> Column:
        return Column(self.name, self.better, self.share, self.unit)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return what the function returns, as a tensor in float64: a number or sums.

        Args:
            outputs: Outputs of one device's model.
            targets: Their targets.

        Raises:
            InputError: If the function raises, or returns something else.
        """
        shapes = f"outputs of shape {list(outputs.shape)} and targets of {list(targets.shape)}"
        with self._refusing(f"a function that runs on {shapes}"):
            returned = self.function(outputs, targets)
        try:
            result = torch.as_tensor(returned, dtype=torch.float64, device=outputs.device)
        except (TypeError, ValueError, RuntimeError):
            raise self._wrong(repr(returned)) from None
        if result.dim() > 1 or (self.combine is None and result.dim() == 1 and len(result) != 2):
            raise self._wrong(f"shape {list(result.shape)}")
        return result

    def value(self, sums: Tensor) -> Tensor:
        if self.combine is None:
            return sums[0] / sums[1]
        with self._refusing(f"a combine that runs on {len(sums)} sums"):
            returned = self.combine(sums)
        try:
            return torch.as_tensor(returned, dtype=torch.float64, device=sums.device).reshape(())
        except (TypeError, ValueError, RuntimeError):
            raise self._wrong(f"{returned!r} from combine") from None

    def meter(self) -> Meter:
        return _FunctionMeter(self)

    @contextmanager
    def _refusing(self, accepted: str) -> Iterator[None]:
        """Turn whatever the function raises into one sentence."""
        try:
            yield
        except GossamerError:  # a sentence already
            raise
        except Exception as error:
            first_line = next(iter(str(error).splitlines()), "")
            reason = f"{type(error).__name__}: {first_line}"
            raise InputError(FIELD, self.name, f"{accepted}; it raised {reason}") from error

    def _wrong(self, returned: str) -> InputError:
        accepted = "a function that returns a number, or a total and a count"
        if self.combine is not None:
            accepted = "a function that returns a tensor of sums, which combine makes a number"
        return InputError(FIELD, f"{self.name} returning {returned}", accepted)


class _FunctionMeter(LoopMeter):
    """Adds sums batch by batch, or keeps the outputs for a function that returns a number."""

    def __init__(self, metric: FunctionMetric) -> None:
        super().__init__(metric)
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        if not self._outputs:
            super().add(outputs, targets)
        if self._total is not None and self._total.dim() == 1:
            self._outputs.append(outputs.clone())  # the learner may overwrite them
            self._targets.append(targets)

    def values(self) -> Tensor:
        if not self._outputs:
            return super().values()
        if len(self._outputs) > 1:
            self._total = None
            whole = torch.cat(self._outputs, dim=1)
            super().add(whole, torch.cat(self._targets))
        assert self._total is not None
        return self._total
