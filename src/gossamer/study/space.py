"""The settings that `tune` tries for each registered method.

They are points of a low-discrepancy sequence, so that any number of them covers the ranges evenly.
Around the best of them the search tries a few more: between a setting and its neighbours, and
beyond the ends of what was tried. Nothing about them is random.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gossamer.algorithms import METHODS, Algorithm, Method
from gossamer.algorithms.local_step import LocalStep
from gossamer.algorithms.registry import ADAM_RATE, RATE, Range
from gossamer.errors import InputError

_SYMBOLS = {"eta": "η", "beta": "β"}


def searched() -> list[Method]:
    """Return the registered methods that have settings to search."""
    return [method for method in METHODS.values() if method.tune]


@dataclass(frozen=True)
class Candidate:
    """A method with all its settings.

    Attributes:
        method: The registered method.
        settings: Its settings by name, in order.
        algorithm: The method with these settings.
        fixed: What the study sets for all methods, by name: see `fixed_settings`.
    """

    method: Method
    settings: tuple[tuple[str, Any], ...]
    algorithm: Algorithm
    fixed: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """The method and its settings in one line.

        Example:
            >>> candidate(METHODS["d-psgd"], 0).label
            'D-PSGD η=0.0447'
        """
        local_step = LocalStep(**dict(self.fixed)).label(LocalStep().optimizer)
        words = [f"{self.method.label} {local_step}".strip()]
        for name, value in self.settings:
            words.append(f"{symbol(name)}={value}")
        return " ".join(words)

    def setting(self, name: str) -> Any:
        """Return the value of a setting.

        Args:
            name: One of the settings.
        """
        return dict(self.settings)[name]

    def replaced(self, name: str, value: Any) -> Candidate | None:
        """Return the candidate with another value of a setting.

        Args:
            name: One of the settings.
            value: Its value.

        Returns:
            A candidate, or None if the method does not accept the value.
        """
        settings = {**dict(self.settings), name: value}
        try:
            return _made(self.method, settings, dict(self.fixed))
        except InputError:
            return None


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
    for (name, values), u in zip(method.tune.items(), point(number, len(method.tune)), strict=True):
        if name not in fixed:
            settings[name] = _range(name, values, fixed).at(u)
    return _made(method, settings, fixed)


def nearby(leader: Candidate, tried: Sequence[Candidate]) -> list[Candidate]:
    """Return settings to try beside one that did well.

    For a value at an end of what was tried of the method, it is the next one beyond; these are the
    first. For others it is the middle between the value and its neighbour on either side, that of
    the better neighbour first.

    Args:
        leader: The setting that did well.
        tried: All settings that were tried, the best first.

    Returns:
        Settings that differ from the leader in one value, and were not tried.

    Example:
        >>> rates = [candidate(METHODS["d-psgd"], number) for number in range(3)]
        >>> [each.label for each in nearby(rates[0], rates)]
        ['D-PSGD η=0.0136', 'D-PSGD η=0.0931']
        >>> [each.label for each in nearby(rates[2], rates)]
        ['D-PSGD η=0.776']
    """
    outer = []
    inner = []
    for name, values, own in _ranges_tried(leader, tried):
        for value in _beyond(leader, name, values, own):
            outer.append(leader.replaced(name, value))
        for value in _middles(leader.setting(name), values, own):
            inner.append(leader.replaced(name, value))
    known = {(each.method.name, each.settings) for each in tried}
    fresh = []
    for each in (*outer, *inner):
        if each is not None and (each.method.name, each.settings) not in known:
            fresh.append(each)
    return fresh


def edges(chosen: Candidate, tried: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the settings at an end of what was tried, beyond which a better value may lie.

    A value beyond which the method accepts none is not at such an end.

    Args:
        chosen: A setting of a method.
        tried: All settings that were tried.
    """
    found = []
    for name, values, own in _ranges_tried(chosen, tried):
        if any(_beyond(chosen, name, values, own)):
            found.append(name)
    return tuple(found)


def _ranges_tried(
    chosen: Candidate, tried: Sequence[Candidate]
) -> Iterator[tuple[str, Range, list[Any]]]:
    """Yield every setting with a scale, its range, and its values that were tried, in order."""
    fixed = dict(chosen.fixed)
    for name, _ in chosen.settings:
        values = _range(name, chosen.method.tune[name], fixed)
        own = [chosen.setting(name)]
        for each in tried:
            if each.method.name == chosen.method.name:
                own.append(each.setting(name))
        if values.beyond(own[:1]) is not None:
            yield name, values, own


def _beyond(chosen: Candidate, name: str, values: Range, own: Sequence[Any]) -> list[Any]:
    """Return accepted values beyond the end of what was tried at which a setting is, if it is."""
    value = chosen.setting(name)
    outer = values.beyond(own)
    found: list[Any] = []
    if outer is None:
        return found
    below, above = outer
    if value == max(own) and chosen.replaced(name, above) is not None:
        found.append(above)
    if value == min(own) and chosen.replaced(name, below) is not None:
        found.append(below)
    return found


def _middles(value: Any, values: Range, own: Sequence[Any]) -> list[Any]:
    """Return the middles between a value and its neighbours, if it has one on either side."""
    below = max((each for each in own if each < value), default=None)
    above = min((each for each in own if each > value), default=None)
    if below is None or above is None:
        return []
    found = []
    for neighbour in sorted((below, above), key=own.index):
        middle = values.between(*sorted((value, neighbour)))
        if middle is not None:
            found.append(middle)
    return found


def _made(method: Method, settings: Mapping[str, Any], fixed: Mapping[str, Any]) -> Candidate:
    algorithm = method.make(**settings, **fixed)
    return Candidate(method, tuple(settings.items()), algorithm, tuple(fixed.items()))


def _range(name: str, values: Range, fixed: Mapping[str, Any]) -> Range:
    """Return the values to search: for a learning rate, those of a fixed optimiser if any."""
    if name != "eta" or "optimizer" not in fixed:
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
