"""What is recorded of one value per device, where there are too many devices for all values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer._core.columns import MAX_DEVICE_COLUMNS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Spread:
    """Mean, smallest and largest of one value per device, without the values.

    Those of several groups of devices can be merged. The mean does not depend on the groups, since
    sums are exact.

    Args:
        count: Number of values.
        sums: Numbers whose sum is exactly the sum of the values.
        smallest: The smallest value; NaN if one is NaN.
        largest: The largest value; NaN if one is NaN.
        not_finite: The first device whose value is not finite; None if all are.
        nan: The first device whose value is NaN; None if none is.

    Example:
        >>> spread = Spread.of(np.array([0.1, 0.2, 0.6]))
        >>> len(spread), spread.mean(), spread.max()
        (3, 0.3, 0.6)
    """

    count: int
    sums: tuple[float, ...]
    smallest: float
    largest: float
    not_finite: int | None = None
    nan: int | None = None

    @classmethod
    def of(cls, values: FloatArray, devices: IntArray | None = None) -> Spread:
        """Return what is kept of some values.

        Args:
            values: One value per device, at least one.
            devices: The numbers of the devices, ascending; None: 0, 1, 2, …
        """
        if devices is None:
            devices = np.arange(len(values))
        wrong = devices[~np.isfinite(values)]
        nan = devices[np.isnan(values)]
        return cls(
            len(values),
            _exact_sum(values),
            float(values.min()),
            float(values.max()),
            int(wrong[0]) if len(wrong) else None,
            int(nan[0]) if len(nan) else None,
        )

    @classmethod
    def merged(cls, spreads: Sequence[Spread]) -> Spread:
        """Return what is kept of the values of several groups.

        Args:
            spreads: What is kept of each group, at least one.
        """
        sums: list[float] = []
        for spread in spreads:
            sums += spread.sums
        wrong = [spread.not_finite for spread in spreads if spread.not_finite is not None]
        nan = [spread.nan for spread in spreads if spread.nan is not None]
        return cls(
            sum(spread.count for spread in spreads),
            tuple(sums),
            float(np.min([spread.smallest for spread in spreads])),
            float(np.max([spread.largest for spread in spreads])),
            min(wrong, default=None),
            min(nan, default=None),
        )

    def __len__(self) -> int:
        return self.count

    def mean(self) -> float:
        """Return the mean, rounded once."""
        if self.not_finite is not None:
            return float(np.sum(self.sums))
        return math.fsum(self.sums) / self.count

    def min(self) -> float:
        """Return the smallest value."""
        return self.smallest

    def max(self) -> float:
        """Return the largest value."""
        return self.largest


Values = FloatArray | Spread
"""One value per device, or what is kept of them."""


def mean(values: Values) -> float:
    """Return the mean over the devices; of many, it does not depend on the order of the sums.

    Args:
        values: One value per device, or what is kept of them.
    """
    if isinstance(values, np.ndarray) and len(values) > MAX_DEVICE_COLUMNS:
        values = Spread.of(values)
    return float(values.mean())


def first_not_finite(values: Values) -> int | None:
    """Return the position of the first value that is not finite; None if all are.

    Args:
        values: One value per device, or what is kept of them.
    """
    if not isinstance(values, Spread):
        values = Spread.of(values)
    return values.not_finite


def first_nan(values: Values) -> int | None:
    """Return the position of the first value that is NaN; None if there is none.

    Args:
        values: One value per device, or what is kept of them.
    """
    if not isinstance(values, Spread):
        values = Spread.of(values)
    return values.nan


def _exact_sum(values: FloatArray) -> tuple[float, ...]:
    """Return numbers whose sum is exactly that of the values, the largest first."""
    if not np.isfinite(values).all():
        return (float(values.sum()),)
    items = values.tolist()
    sums: list[float] = []
    while True:
        rest = math.fsum([*items, *(-x for x in sums)])
        if rest == 0:
            return tuple(sums)
        sums.append(rest)
