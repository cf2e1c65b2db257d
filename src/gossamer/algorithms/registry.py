"""The registry of methods.

A method registers itself in its own file. Its name is its kind in specs, its name in
`gossamer tune --methods`, and the name of its documentation page; its label is its name in tables.

    @method("my-method", label="My method", paper="Me, 2026", tune={"eta": RATE})
    @dataclass(frozen=True)
    class MyMethod(Algorithm): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gossamer._core.registry import register
from gossamer.algorithms.base import Algorithm

AnyMethod = TypeVar("AnyMethod", bound=type[Algorithm])


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
        return float(f"{self.low * (self.high / self.low) ** u:.3g}")


@dataclass(frozen=True)
class Choice:
    """One of a few values.

    Example:
        >>> Choice((3, 5, 9, 15)).at(0.5)
        9
    """

    values: tuple[Any, ...]

    def at(self, u: float) -> Any:
        """Return the value at a point u of [0, 1)."""
        return self.values[int(u * len(self.values))]


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
    """

    name: str
    make: type[Algorithm]
    label: str
    paper: str
    needs: str = "symmetric links"
    exact: bool = False
    tune: Mapping[str, Range] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The file in `algorithms` that defines it."""
        return self.make.__module__.rpartition(".")[2] + ".py"


METHODS: dict[str, Method] = {}


def method(
    name: str,
    *,
    label: str,
    paper: str,
    needs: str = "symmetric links",
    exact: bool = False,
    tune: Mapping[str, Range] | None = None,
) -> Callable[[AnyMethod], AnyMethod]:
    """Register a class as a method.

    Args:
        name: Lower-case words joined by hyphens.
        label: See `Method`, as the arguments below.
        paper: See `Method`.
        needs: See `Method`.
        exact: See `Method`.
        tune: See `Method`.

    Returns:
        A class decorator that sets the class's `label` and returns the class.
    """

    def add(algorithm: AnyMethod) -> AnyMethod:
        if "label" not in vars(algorithm):  # a label that names a setting too is the class's own
            shown: Any = property(lambda self: self.labelled(label))
            algorithm.label = shown  # type: ignore[method-assign]
        METHODS[name] = Method(name, algorithm, label, paper, needs, exact, tune or {})
        return register("algorithm", name)(algorithm)

    return add
