"""The registry of methods.

A method registers itself in its own file. Its name is its kind in specs, its name in
`gossamer tune --methods`, and the name of its documentation page; its label is its name in tables.

    @method("my-method", label="My method", paper="Me, 2026")
    @dataclass(frozen=True)
    class MyMethod(Algorithm): ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from gossamer._core.arguments import checked
from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm

AnyMethod = TypeVar("AnyMethod", bound=type[Algorithm])

# A value beyond a range is at least and at most so many times as large as the last one that was
# tried; two values that differ by less than the last factor are not told apart by a search.
_MIN_GAP = 2.0
_MAX_GAP = 4.0
_CLOSE = 1.4


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


@dataclass(frozen=True)
class LogRange:
    """The numbers from `low` to `high`, uniform in their logarithm, to three digits.

    Example:
        >>> LogRange(0.001, 1).at(0.5)
        0.0316
    """

    low: float
    high: float

    def at(self, u: float) -> float:
        """Return the value at a point u of [0, 1)."""
        return _three_digits(self.low * (self.high / self.low) ** u)

    def beyond(self, tried: Sequence[float]) -> tuple[float, float]:
        """Return a value below and one above all that were tried, one typical gap away.

        Args:
            tried: Values, which may lie outside of the range.
        """
        gap = (self.high / self.low) ** (1 / len(set(tried)))
        gap = min(max(gap, _MIN_GAP), _MAX_GAP)
        return _three_digits(min(tried) / gap), _three_digits(max(tried) * gap)

    def between(self, low: float, high: float) -> float | None:
        """Return the geometric mean of two values, or None if they are close already."""
        if high / low < _CLOSE:
            return None
        return _three_digits(math.sqrt(low * high))


@dataclass(frozen=True)
class Choice:
    """One of a few values. At least three numbers in ascending order are a scale with two ends.

    Example:
        >>> Choice((3, 5, 9, 15)).at(0.5)
        9
    """

    values: tuple[Any, ...]

    def at(self, u: float) -> Any:
        """Return the value at a point u of [0, 1)."""
        return self.values[int(u * len(self.values))]

    def beyond(self, tried: Sequence[Any]) -> tuple[float, float] | None:
        """Return a number below and one above all that were tried, or None if there is no scale.

        Args:
            tried: Values, which may be others than those of the choice.
        """
        if not self._is_scale:
            return None
        values = sorted({*self.values, *tried})
        below = [value for value in values if value < min(tried)]
        above = [value for value in values if value > max(tried)]
        if not below:
            below = [self._rounded(values[0] * values[0] / values[1], math.floor)]
        if not above:
            above = [self._rounded(values[-1] * values[-1] / values[-2], math.ceil)]
        return below[-1], above[0]

    def between(self, low: Any, high: Any) -> None:
        """Return None: only the values of the choice are tried."""

    def _rounded(self, value: float, to_whole: Callable[[float], int]) -> float:
        if all(isinstance(each, int) for each in self.values):
            return to_whole(value)
        return _three_digits(value)

    @property
    def _is_scale(self) -> bool:
        numbers = [value for value in self.values if isinstance(value, int | float)]
        return len(numbers) == len(self.values) >= 3 and numbers == sorted(numbers)


Range = LogRange | Choice

# The learning rates that `tune` tries, and those for steps of Adam, whose length is the rate.
RATE = LogRange(0.002, 1.0)
ADAM_RATE = LogRange(0.0002, 0.1)


@dataclass(frozen=True)
class Method:
    """A registered method.

    Attributes:
        name: Its name in specs, commands and the documentation.
        make: Its class. Every argument has a default.
        label: Its name in tables and legends.
        paper: Where it comes from.
        needs: What it needs of a network, in words. `Algorithm.check` enforces it.
        exact: True if it converges to the optimum at a constant rate with full gradients, however
            much the devices' data differ.
        tune: The settings that `tune` searches, by argument. Empty: `tune` leaves the method out.
        baseline: True if `tune` compares with it. The first such method that the network allows is
            the baseline of a search.
    """

    name: str
    make: type[Algorithm]
    label: str
    paper: str
    needs: str = "symmetric links"
    exact: bool = False
    tune: Mapping[str, Range] = field(default_factory=dict)
    baseline: bool = False

    @property
    def central(self) -> bool:
        """True if it averages over all devices whatever the links, as by a server."""
        return self.make().weights.sums == "nothing"

    @property
    def without_rounds(self) -> str:
        """How the events engine runs it; see `Algorithm.without_rounds`."""
        return self.make().without_rounds

    @property
    def file(self) -> str:
        """The file in `algorithms` that defines it."""
        return self.make.__module__.rpartition(".")[2] + ".py"


METHODS: dict[str, Method] = {}


@checked
def method(
    name: str,
    *,
    label: str,
    paper: str,
    needs: str = "symmetric links",
    exact: bool = False,
    tune: Mapping[str, Range] | None = None,
    baseline: bool = False,
) -> Callable[[AnyMethod], AnyMethod]:
    """Register a class as a method.

    Args:
        name: Lower-case words joined by hyphens.
        label: See `Method`, as the arguments below.
        paper: See `Method`.
        needs: See `Method`.
        exact: See `Method`.
        tune: See `Method`. None: the learning rate, if the class has a field `eta`.
        baseline: See `Method`.

    Returns:
        A class decorator that sets the class's `label` and returns the class.
    """

    def add(algorithm: AnyMethod) -> AnyMethod:
        if "label" not in vars(algorithm):  # a label that names a setting too is the class's own
            shown: Any = property(lambda self: self.labelled(label))
            algorithm.label = shown  # type: ignore[method-assign]
        ranges = _rate_of(algorithm) if tune is None else tune
        METHODS[name] = Method(name, algorithm, label, paper, needs, exact, ranges, baseline)
        return register("algorithm", name)(algorithm)

    return add


def _rate_of(algorithm: type[Algorithm]) -> dict[str, Range]:
    """Return the range of the learning rate of a class, by its own optimiser; empty if none."""
    names = {each.name for each in fields(algorithm)}
    if "eta" not in names:
        return {}
    return {"eta": ADAM_RATE if algorithm.optimizer.adaptive else RATE}
