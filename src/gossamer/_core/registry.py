"""The registry of parts: every class that a spec can name registers itself in its own file.

The name is the `kind` of a TOML table. Specs, the documentation and `gossamer methods` read it. The
arguments of a registered class are checked against its type hints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gossamer._core.arguments import checked
from gossamer._core.parts import PARTS as PARTS

Part = TypeVar("Part", bound=type)


def register(section: str, kind: str) -> Callable[[Part], Part]:
    """Register a class as a kind of a section of specs.

    Args:
        section: The section that names it, such as "network" or "split".
        kind: Its name in specs: lower-case words joined by hyphens.

    Returns:
        A class decorator that returns the class, whose arguments are checked from then on.

    Raises:
        ValueError: Another class has this name.

    Example:
        >>> from dataclasses import dataclass
        >>> @register("example", "my-part")
        ... @dataclass(frozen=True)
        ... class MyPart:
        ...     size: int = 3
        >>> kinds("example")["my-part"] is MyPart
        True
        >>> del PARTS["example"]
    """

    def add(part: Part) -> Part:
        known = PARTS.setdefault(section, {})
        before = known.get(kind)
        # A module that is loaded again registers its classes again.
        if before is not None and before.__qualname__ != part.__qualname__:
            raise ValueError(f"{section} has a kind {kind!r} already: {before.__qualname__}")
        known[kind] = part
        return checked(part)

    return add


def kinds(section: str) -> Mapping[str, type]:
    """Return the classes of a section by kind, in the order in which they were registered.

    Args:
        section: Such as "network"; an unknown one has no kinds.
    """
    return PARTS.get(section, {})


def sections() -> list[str]:
    """Return the names of all sections."""
    return list(PARTS)


def kind_of(section: str, part: Any) -> str | None:
    """Return the kind of a part, or None if its class is not registered in this section.

    Args:
        section: Such as "network".
        part: An object.
    """
    for kind, registered in kinds(section).items():
        if type(part) is registered:
            return kind
    return None
