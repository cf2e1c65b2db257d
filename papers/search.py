"""Search of the settings of a method, until the best is inside of what was tried.

Every setting is an axis: an ordered list of values. The search tries some values of the first axis,
the learning rate, then moves from the best point to its best neighbour (one step along one axis),
and ends at a point that is better than all its neighbours. So a tuned setting has been compared
with smaller and larger values, unless the axis itself ends there.

A search is a function of the scores that are known. It returns the points whose scores it needs
next, so that a sweep can run those of many searches at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gossamer as gs

Point = tuple[int, ...]  # the index of the value on each axis
Score = tuple[float, ...]  # smaller is better

# The first values of the learning rate that are tried are this many steps apart.
_STRIDE = 2


@dataclass(frozen=True)
class Axis:
    """The values of one setting, in order.

    Attributes:
        name: Argument of the method.
        values: The values.
        start: Index of the first value to try.
        closed_below: True if the first value gives a method that is compared itself, such as p = 1.
        closed_above: True if no value beyond the last would differ from it.
    """

    name: str
    values: tuple[Any, ...]
    start: int
    closed_below: bool = False
    closed_above: bool = False


def rates(middle: float, steps: int = 8) -> Axis:
    """Return learning rates, each twice the one before.

    Args:
        middle: The rate in the middle, where the search starts.
        steps: Number of rates on either side of it.

    Returns:
        The axis `eta`.

    Example:
        >>> rates(0.04, 1).values
        (0.02, 0.04, 0.08)
    """
    values = [float(f"{middle * 2.0**k:.3g}") for k in range(-steps, steps + 1)]
    return Axis("eta", tuple(values), steps)


@dataclass(frozen=True)
class Family:
    """A method as a function of its settings.

    Attributes:
        name: Its name in tables.
        make: A function of the settings, by name.
        axes: The settings; the first is the learning rate.
    """

    name: str
    make: Callable[..., gs.Algorithm]
    axes: tuple[Axis, ...]

    def values(self, point: Point) -> dict[str, Any]:
        """Return the settings of a point by name."""
        return {axis.name: axis.values[i] for axis, i in zip(self.axes, point, strict=True)}

    def at(self, point: Point) -> gs.Algorithm:
        """Return the method with the settings of a point."""
        return self.make(**self.values(point))

    def text(self, point: Point) -> str:
        """Return the settings of a point as one word per setting."""
        return " ".join(f"{name}={value}" for name, value in self.values(point).items())

    def point(self, text: str) -> Point | None:
        """Return the point that `text` describes; None if no point does."""
        words = dict(word.split("=", 1) for word in text.split())
        if list(words) != [axis.name for axis in self.axes]:
            return None
        found = []
        for axis in self.axes:
            values = [str(value) for value in axis.values]
            if words[axis.name] not in values:
                return None
            found.append(values.index(words[axis.name]))
        return tuple(found)

    def first_points(self) -> list[Point]:
        """Return the points that a search tries first: several rates, all else at its start."""
        rest = tuple(axis.start for axis in self.axes[1:])
        centre = self.axes[0].start
        last = len(self.axes[0].values) - 1
        indices = [centre, centre - _STRIDE, centre + _STRIDE, centre + 2 * _STRIDE]
        return [(i, *rest) for i in indices if 0 <= i <= last]

    def neighbours(self, point: Point) -> Iterator[Point]:
        """Yield the points that differ from a point by one step along one axis."""
        for k, axis in enumerate(self.axes):
            for i in (point[k] - 1, point[k] + 1):
                if 0 <= i < len(axis.values):
                    yield (*point[:k], i, *point[k + 1 :])

    def at_edge(self, point: Point) -> list[str]:
        """Return the names of the axes that end at a point, of those with a choice."""
        found = []
        for axis, i in zip(self.axes, point, strict=True):
            at_first = i == 0 and not axis.closed_below
            at_last = i == len(axis.values) - 1 and not axis.closed_above
            if len(axis.values) > 1 and (at_first or at_last):
                found.append(axis.name)
        return found


@dataclass(frozen=True)
class Found:
    """The state of a search.

    Attributes:
        best: The best point so far.
        missing: The points whose scores are needed to go on; empty if the search has ended.
        ranked: All points that were tried, the best first; empty until the search has ended.
    """

    best: Point
    missing: tuple[Point, ...] = ()
    ranked: tuple[Point, ...] = ()


def search(family: Family, score: Callable[[Point], Score | None]) -> Found:
    """Go on with a search as far as the known scores allow.

    Args:
        family: The method.
        score: A function that returns the score of a point, or None if it is not known yet.

    Returns:
        The best point, and what is missing.

    Example:
        >>> family = Family("D-PSGD", gs.DPSGD, (rates(0.04),))
        >>> distance = lambda point: (abs(family.values(point)["eta"] - 0.3),)
        >>> family.values(search(family, distance).best)
        {'eta': 0.32}
    """
    scores: dict[Point, Score] = {}
    wanted = family.first_points()
    best = wanted[0]
    while wanted:
        missing = []
        for point in wanted:
            value = score(point)
            if value is None:
                missing.append(point)
            else:
                scores[point] = value
        if missing:
            return Found(best, tuple(missing))
        best = min(scores, key=lambda point: scores[point])
        wanted = [point for point in family.neighbours(best) if point not in scores]
    return Found(best, ranked=tuple(sorted(scores, key=lambda point: scores[point])))
