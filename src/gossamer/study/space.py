"""The settings that `tune` tries for each registered method.

They are points of a low-discrepancy sequence, so that any number of them covers the ranges evenly.
Nothing about them is random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gossamer.algorithms import METHODS, Algorithm, Method
from gossamer.algorithms.registry import LogRange

_SYMBOLS = {"eta": "η", "beta": "β"}
# A number this close to an end of its range, as a share of the range, is at its edge.
_EDGE = 0.05

# The reference: always searched, tuned by itself, and always confirmed.
BASELINE = METHODS["d-psgd"]


def searched() -> list[Method]:
    """Return the methods that have settings to search, the baseline first."""
    others = [method for method in METHODS.values() if method.tune and method is not BASELINE]
    return [BASELINE, *others]


@dataclass(frozen=True)
class Candidate:
    """A method with all its settings.

    Attributes:
        method: The registered method.
        settings: Its settings by name, in order.
        algorithm: The method with these settings.
        edges: The settings at an end of their range, beyond which a better value may lie.
    """

    method: Method
    settings: tuple[tuple[str, Any], ...]
    algorithm: Algorithm
    edges: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The method and its settings in one line.

        Example:
            >>> candidate(BASELINE, 0).label
            'D-PSGD η=0.0447'
        """
        words = [self.method.label]
        for name, value in self.settings:
            words.append(f"{symbol(name)}={value}")
        return " ".join(words)


def candidate(method: Method, number: int) -> Candidate:
    """Return the setting of a method with this number; number 0 is the middle of every range.

    Args:
        method: A method with settings to search.
        number: 0, 1, 2, …: the place in the sequence.
    """
    settings: dict[str, Any] = {}
    edges = []
    for (name, values), u in zip(method.tune.items(), point(number, len(method.tune)), strict=True):
        settings[name] = values.at(u)
        if isinstance(values, LogRange) and not _EDGE < u < 1 - _EDGE:
            edges.append(name)
    return Candidate(method, tuple(settings.items()), method.make(**settings), tuple(edges))


def point(number: int, dimensions: int) -> list[float]:
    """Return a point of [0, 1)^d of Kronecker's sequence.

    Its steps are powers of the generalised golden ratio, the root of x^(d+1) = x + 1 (M. Roberts,
    "The unreasonable effectiveness of quasirandom sequences", 2018). In one dimension it is the
    golden ratio.

    Args:
        number: The place in the sequence.
        dimensions: d.

    Example:
        >>> [round(point(number, 1)[0], 3) for number in range(4)]
        [0.5, 0.118, 0.736, 0.354]
    """
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    return [(0.5 + number * ratio ** -(axis + 1)) % 1 for axis in range(dimensions)]


def symbol(setting: str) -> str:
    """Return the symbol of a setting in tables, or its name.

    Args:
        setting: Such as "eta".
    """
    return _SYMBOLS.get(setting, setting)
