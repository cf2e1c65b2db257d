"""Statistics of runs: rounds to a target, summaries, and means with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer._core import checks
from gossamer._core.columns import Target

_CONFIDENCE = 0.975  # quantile of Student's t for a two-sided 95 % interval
# What a target took, by its name in the summary: the column of the metrics.
_COSTS = {"bytes": "bytes", "seconds": "simulated_seconds", "joules": "joules"}


def rounds_to(
    rounds: Sequence[int], values: Sequence[float], target: float, rising: bool = True
) -> float:
    """Return the first measured round at which a value has reached a target.

    Args:
        rounds: The measured rounds.
        values: The value at each of them.
        target: The target.
        rising: True if the target is reached from below, False if from above.

    Returns:
        The round, a whole number; `math.inf` if the target was not reached.

    Example:
        >>> rounds_to([0, 10, 20], [0.1, 0.7, 0.9], 0.8)
        20
        >>> rounds_to([0, 10, 20], [0.1, 0.7, 0.9], 0.95)
        inf
    """
    array = np.asarray(values)
    reached = array >= target if rising else array <= target
    if not reached.any():
        return math.inf
    return int(rounds[int(np.argmax(reached))])


def summarise(table: dict[str, Any], targets: Sequence[str]) -> dict[str, Any]:
    """Return the result of a run in short.

    Args:
        table: The measurements by column.
        targets: Targets such as "accuracy >= 0.9".

    Returns:
        The last value of every column, and rounds, bytes, simulated seconds and joules to each
        target: `rounds_to` for the mean over the devices, `rounds_to_merged` for the merged model.
        A target that was not reached has None, which is null in JSON.
    """
    summary: dict[str, Any] = {}
    for name, values in table.items():
        if not name.startswith("device_"):
            summary[name] = _plain_number(values[-1])
    parsed = [Target.parse(target) for target in targets]
    for ending in ("", "_merged"):
        if f"loss{ending}" not in table:
            continue
        reached = {}
        for target in parsed:
            values = table[target.name + ending]
            t = rounds_to(table["round"], values, target.value, target.rising)
            reached[target.text] = _plain_number(t)
        summary[f"rounds_to{ending}"] = reached
        for unit, column in _COSTS.items():
            if column in table:
                summary[f"{unit}_to{ending}"] = _costs(table, column, reached)
    return summary


def _costs(
    table: dict[str, Any], column: str, reached: dict[str, float | None]
) -> dict[str, int | float | None]:
    """Return the value of a column at the round at which each target was reached."""
    rounds = list(table["round"])
    costs: dict[str, int | float | None] = {}
    for target, t in reached.items():
        costs[target] = None
        if t is not None:
            costs[target] = _plain_number(table[column][rounds.index(t)])
    return costs


def _plain_number(value: Any) -> int | float | None:
    """Return a number for JSON; None if it could not be measured (NaN) or is too large."""
    number: int | float = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, int) or math.isfinite(number):
        return number
    return None


_MAX_DIGITS = 100  # decimal places of a number in a text


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % confidence interval by Student's t.

    Attributes:
        mean: The mean.
        half: The half-width of the interval; None for a single value.
        count: The number of values.
    """

    mean: float
    half: float | None
    count: int

    def format(self, digits: int = 2, scale: float = 1.0) -> str:
        """Return the interval as text.

        Args:
            digits: Decimal places.
            scale: A factor for the mean and the half-width, such as 100 for per cent.

        Example:
            >>> Interval(0.9, 0.02, 5).format(1, 100)
            '90.0 ± 2.0'
        """
        checks.whole("digits", digits, 0, _MAX_DIGITS)
        checks.number("scale", scale)
        text = f"{self.mean * scale:.{digits}f}"
        if self.half is None:
            return text
        return f"{text} ± {self.half * scale:.{digits}f}"


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of independent values with its 95 % interval.

    Args:
        values: One value per seed.

    Example:
        >>> interval([1.0, 2.0, 3.0]).format()
        '2.00 ± 2.48'
    """
    array = np.asarray(values, dtype=float)
    half = None
    if len(array) > 1:
        half = float(half_widths(array))
    return Interval(float(array.mean()), half, len(array))


def paired(values: Mapping[int, float], first: Mapping[int, float]) -> Interval | None:
    """Return the mean difference of paired values with its 95 % interval.

    Args:
        values: Values by seed.
        first: The values that they are compared with, by seed.

    Returns:
        The mean of `values` minus `first` over the seeds that both have; None if they share none.

    Example:
        >>> paired({0: 2.0, 1: 4.0, 2: 9.0}, {0: 1.0, 1: 2.0}).format()
        '1.50 ± 6.35'
    """
    differences = []
    for seed, value in values.items():
        if seed in first:
            differences.append(value - first[seed])
    if not differences:
        return None
    return interval(differences)


@dataclass(frozen=True)
class Reached(Interval):
    """What a target took, over the seeds that reached it.

    Attributes:
        mean: The mean over the seeds that reached the target; `math.inf` if none did.
        half: The half-width of its interval; None unless two seeds reached the target.
        count: The number of seeds that reached the target.
        of: The number of all seeds.
    """

    of: int = 0

    @classmethod
    def over(cls, taken: Sequence[float | None]) -> Reached:
        """Return what a target took over the seeds.

        Args:
            taken: One value per seed; None if it did not reach the target.

        Example:
            >>> Reached.over([10, None, 14]).format(0)
            '2 of 3: 12 ± 25'
        """
        known = [value for value in taken if value is not None]
        if not known:
            return cls(math.inf, None, 0, len(taken))
        mean = interval(known)
        return cls(mean.mean, mean.half, mean.count, len(taken))

    @property
    def by_all(self) -> bool:
        """True if every seed reached the target."""
        return self.count == self.of

    def format(self, digits: int = 2, scale: float = 1.0) -> str:
        """Return the cost as text: with the number of seeds, unless all of them reached the target.

        Args:
            digits: Decimal places.
            scale: A factor for the mean and the half-width.
        """
        if not self.count:
            return "–"
        text = super().format(digits, scale)
        if self.by_all:
            return text
        return f"{self.count} of {self.of}: {text}"


def half_widths(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the half-widths of the 95 % intervals by Student's t along the first axis.

    Args:
        values: At least two independent values per column: [values] or [values, columns].

    Returns:
        One half-width per column.
    """
    from scipy.special import stdtrit

    n = len(values)
    factor = stdtrit(n - 1, _CONFIDENCE)
    widths: NDArray[np.float64] = factor * values.std(0, ddof=1) / math.sqrt(n)
    return widths


def sampling_error(values: NDArray[np.float64], population: int) -> float:
    """Return the half-width of the 95 % interval of a mean that was estimated from a sample.

    The sample is drawn without replacement, so that the interval is narrower by the factor
    √(1 − n/N) of a finite population.

    Args:
        values: The values of the n devices of the sample, at least two.
        population: Number N of all devices.

    Example:
        >>> round(sampling_error(np.array([0.8, 0.9, 1.0]), 1_000_000), 3)
        0.248
        >>> sampling_error(np.array([0.8, 0.9, 1.0]), 3)
        0.0
    """
    return float(half_widths(values)) * math.sqrt(1 - len(values) / population)
