"""The order in which runs are listed and drawn."""

from __future__ import annotations

import re
from pathlib import Path


def natural(path: Path) -> list[tuple[int, int, str]]:
    """To sort by: numbers by their size.

    >>> [path.name for path in sorted(map(Path, ("wpm-p-15", "wpm-p-3")), key=natural)]
    ['wpm-p-3', 'wpm-p-15']
    """
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", str(path))
        if part
    ]
