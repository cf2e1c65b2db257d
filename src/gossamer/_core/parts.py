"""All classes that a spec can name, by section and kind; see `gossamer._core.registry`."""

from __future__ import annotations

from collections.abc import Callable

_EXAMPLES = 3

PARTS: dict[str, dict[str, type]] = {}


def instance_of_kind(kind: str, fits: Callable[[type], bool]) -> type | None:
    """Return the class that has a kind's name and a property, in any section; None if none has.

    Args:
        kind: Such as "ring".
        fits: True for the classes that are wanted.
    """
    for known in PARTS.values():
        cls = known.get(kind)
        if cls is not None and fits(cls):
            return cls
    return None


def examples_of(name: str, fits: Callable[[type], bool]) -> list[type]:
    """Return a few classes that have a property.

    Args:
        name: The section that is looked at first, if there is one of this name.
        fits: True for the classes that are wanted.

    Returns:
        Classes of the first section in which all have the property; none if there is no such one.
    """
    for section in (name, *PARTS):
        known = PARTS.get(section)
        if known and all(map(fits, known.values())):
            return list(known.values())[:_EXAMPLES]
    return []
