"""The settings that `tune` tries for each registered method.

They are points of a low-discrepancy sequence, so that any number of them covers the ranges evenly.
Nothing about them is random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gossamer.algorithms import METHODS, Algorithm, Method
from gossamer.algorithms.local_step import LocalStep
from gossamer.algorithms.registry import ADAM_RATE, RATE, LogRange, Range

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
        fixed: What the study sets for all methods, by name: see `fixed_settings`.
    """

    method: Method
    settings: tuple[tuple[str, Any], ...]
    algorithm: Algorithm
    edges: tuple[str, ...] = ()
    fixed: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """The method and its settings in one line.

        Example:
            >>> candidate(BASELINE, 0).label
            'D-PSGD η=0.0447'
        """
        local_step = LocalStep(**dict(self.fixed)).label(LocalStep().optimizer)
        words = [f"{self.method.label} {local_step}".strip()]
        for name, value in self.settings:
            words.append(f"{symbol(name)}={value}")
        return " ".join(words)


def fixed_settings(algorithm: Algorithm) -> dict[str, Any]:
    """Return what a method sets of its local step: it holds for every method that is tried.

    Args:
        algorithm: The method of the study to tune.

    Example:
        >>> from gossamer.algorithms import DPSGD, Adam
        >>> fixed_settings(DPSGD(optimizer=Adam(), eta=0.5))
        {'optimizer': Adam(beta1=0.9, beta2=0.999, eps=1e-08)}
    """
    default = type(algorithm)
    found = {}
    for field in fields(LocalStep):
        value = getattr(algorithm, field.name)
        if value != getattr(default, field.name):
            found[field.name] = value
    return found


def candidate(method: Method, number: int, fixed: Mapping[str, Any] | None = None) -> Candidate:
    """Return the setting of a method with this number; number 0 is the middle of every range.

    Args:
        method: A method with settings to search.
        number: 0, 1, 2, …: the place in the sequence.
        fixed: Settings that are the same for all methods.

    Raises:
        InputError: If the method does not accept the fixed settings.
    """
    fixed = fixed or {}
    settings: dict[str, Any] = {}
    edges = []
    for (name, values), u in zip(method.tune.items(), point(number, len(method.tune)), strict=True):
        if name in fixed:
            continue
        if name == "eta":
            values = _rates(values, fixed)
        settings[name] = values.at(u)
        if isinstance(values, LogRange) and not _EDGE < u < 1 - _EDGE:
            edges.append(name)
    algorithm = method.make(**settings, **fixed)
    return Candidate(method, tuple(settings.items()), algorithm, tuple(edges), tuple(fixed.items()))


def _rates(values: Range, fixed: Mapping[str, Any]) -> Range:
    """Return the learning rates to search: those of a fixed optimiser, or the method's own."""
    if "optimizer" not in fixed:
        return values
    if fixed["optimizer"].adaptive:
        return ADAM_RATE
    return RATE


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
