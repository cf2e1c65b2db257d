"""From measurements to results: rounds to a target, summaries, and means with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gossamer.engines import Measure


def rounds_to(
    rounds: Sequence[int], values: Sequence[float], target: float, rising: bool = True
) -> int | None:
    """The first measured round at which the value has reached the target, or None.

    >>> rounds_to([0, 10, 20], [0.1, 0.7, 0.9], 0.8)
    20
    """
    reached = np.asarray(values) >= target if rising else np.asarray(values) <= target
    return int(rounds[int(np.argmax(reached))]) if reached.any() else None


def summarise(table: dict[str, Any], measure: Measure) -> dict[str, Any]:
    """The result of a run in short, from its measurements."""
    last = {name: table[name][-1] for name in table if not name.startswith("device_")}
    summary: dict[str, Any] = {name: _number(value) for name, value in last.items()}
    for name, targets, rising in (
        ("accuracy", measure.accuracy_targets, True),
        ("loss", measure.loss_targets, False),
    ):
        summary[f"rounds_to_{name}"] = {
            f"{target:g}": rounds_to(table["round"], table[name], target, rising)
            for target in targets
        }
        for unit, column in (("bytes", "bytes"), ("seconds", "simulated_seconds")):
            if column in table:
                summary[f"{unit}_to_{name}"] = {
                    key: None
                    if t is None
                    else _number(table[column][list(table["round"]).index(t)])
                    for key, t in summary[f"rounds_to_{name}"].items()
                }
    return summary


def _number(value: Any) -> int | float | None:
    """A plain number for JSON; what could not be measured (NaN), or is too large to be, is null."""
    number = value.item() if isinstance(value, np.generic) else value
    return number if isinstance(number, int) or math.isfinite(number) else None


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95 % interval by Student's t (None: a single value has none)."""

    mean: float
    half: float | None
    count: int

    def format(self, digits: int = 2, scale: float = 1.0) -> str:
        text = f"{self.mean * scale:.{digits}f}"
        return text if self.half is None else f"{text} ± {self.half * scale:.{digits}f}"


def interval(values: Sequence[float]) -> Interval:
    """The mean of a few independent values with its 95 % interval.

    >>> interval([1.0, 2.0, 3.0]).format()
    '2.00 ± 2.48'
    """
    array = np.asarray(values, dtype=float)
    n = len(array)
    if n < 2:
        return Interval(float(array.mean()), None, n)
    from scipy.special import stdtrit

    return Interval(
        float(array.mean()), float(stdtrit(n - 1, 0.975) * array.std(ddof=1) / math.sqrt(n)), n
    )
