"""What `tune` searches: the methods, and for each of them what it leaves open.

A method is added by one line in `RECIPES`. The settings of a recipe are points of a low-discrepancy sequence, so that any
number of them covers its ranges evenly; nothing about them is random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gossamer.algorithms import DPSGD, WPM, Algorithm, Matched, SwarmSGD, Switch
from gossamer.algorithms.recipes import (
    gain_control,
    gain_quasi_global,
    gain_tracking,
    koloskova,
    quasi_global,
    tracking,
)

_NAMES = {"eta": "η", "beta": "β"}


@dataclass(frozen=True)
class Log:
    """A number from `low` to `high`, evenly by its logarithm, to three digits.

    >>> Log(0.001, 1).at(0.5)
    0.0316
    """

    low: float
    high: float

    def at(self, u: float) -> float:
        return float(f"{self.low * (self.high / self.low) ** u:.3g}")


@dataclass(frozen=True)
class Choice:
    """One of a few values.

    >>> Choice((3, 5, 9, 15)).at(0.5)
    9
    """

    values: tuple[Any, ...]

    def at(self, u: float) -> Any:
        return self.values[int(u * len(self.values))]


Range = Log | Choice


@dataclass(frozen=True)
class Candidate:
    """A method with all its settings. `edges`: those at an end of their range, beyond which a better one may lie."""

    recipe: str
    settings: tuple[tuple[str, Any], ...]
    algorithm: Algorithm
    edges: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The method and its settings in a line.

        >>> BASELINE.candidate(0).label
        'D-PSGD η=0.0447'
        """
        return " ".join([self.recipe, *(f"{name_of(key)}={value}" for key, value in self.settings)])


@dataclass(frozen=True)
class Recipe:
    """A method by name, made from values within these ranges."""

    name: str
    make: Callable[..., Algorithm]
    ranges: dict[str, Range]

    def candidate(self, number: int) -> Candidate:
        """The setting of this number; number 0 is the middle of every range."""
        place = dict(zip(self.ranges, point(number, len(self.ranges)), strict=True))
        values = {key: range_.at(place[key]) for key, range_ in self.ranges.items()}
        edges = (
            key
            for key, range_ in self.ranges.items()
            if isinstance(range_, Log) and not 0.05 < place[key] < 0.95
        )
        return Candidate(self.name, tuple(values.items()), self.make(**values), tuple(edges))


def point(number: int, dimensions: int) -> list[float]:
    """A point of [0, 1)^d: Kronecker's sequence by powers of the generalised golden ratio, the root of x^(d+1) = x + 1.

    M. Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018. In one dimension it is the golden ratio.

    >>> [round(point(number, 1)[0], 3) for number in range(4)]
    [0.5, 0.118, 0.736, 0.354]
    """
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    return [(0.5 + number * ratio ** -(axis + 1)) % 1 for axis in range(dimensions)]


def name_of(setting: str) -> str:
    return _NAMES.get(setting, setting)


RATE = Log(0.002, 1.0)
P = Choice((3, 5, 9, 15))
BETA = Choice((0.9, 0.8))
FLOOR, GAIN, PAIRS = Choice((0.01, 0.001)), Choice((1.05, 1.1)), Choice(("matching", "one"))

# The yardstick: always in the search, tuned by itself, always carried to the confirmation.
BASELINE = Recipe("D-PSGD", lambda eta: DPSGD(eta), {"eta": RATE})

RECIPES: tuple[Recipe, ...] = (
    BASELINE,
    Recipe(
        "WPM matched",
        lambda eta, p, floor: WPM(p, eta, Matched(floor)),
        {"eta": RATE, "p": P, "floor": FLOOR},
    ),
    Recipe("WPM robust", lambda eta, p: WPM.robust(p, eta), {"eta": RATE, "p": P}),
    Recipe("WPM falling", lambda eta, p: WPM.robust(Switch(p, 20), eta), {"eta": RATE, "p": P}),
    Recipe("Gain control", gain_control, {"eta": RATE, "gain": GAIN}),
    Recipe("QG", quasi_global, {"eta": RATE, "beta": BETA}),
    Recipe("QG, gain", gain_quasi_global, {"eta": RATE}),
    Recipe("Tracking", tracking, {"eta": RATE}),
    Recipe("Tracking, gain", gain_tracking, {"eta": RATE}),
    Recipe(
        "WPM QG falling",
        lambda eta, beta, p: quasi_global(eta, beta, Switch(p, 20)),
        {"eta": RATE, "beta": BETA, "p": P},
    ),
    Recipe(
        "WPM tracking falling", lambda eta, p: tracking(eta, Switch(p, 20)), {"eta": RATE, "p": P}
    ),
    Recipe("Local steps", koloskova, {"eta": RATE, "local_steps": Choice((2, 4, 8))}),
    Recipe(
        "SwarmSGD", lambda eta, pairs: SwarmSGD(eta, pairs=pairs), {"eta": RATE, "pairs": PAIRS}
    ),
)
