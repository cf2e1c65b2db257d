"""The order in which runs and methods are listed and drawn."""

from __future__ import annotations

import re
from pathlib import Path


def natural(path: Path) -> list[tuple[int, int, str]]:
    """Return a sort key that compares the numbers in names by their value.

    Args:
        path: A run folder.

    Example:
        >>> [path.name for path in sorted(map(Path, ("wpm-p-15", "wpm-p-3")), key=natural)]
        ['wpm-p-3', 'wpm-p-15']
    """
    key = []
    for part in re.split(r"(\d+)", str(path)):
        if part.isdigit():
            key.append((0, int(part), ""))
        elif part:
            key.append((1, 0, part))
    return key
