"""The order in which runs and methods are listed and drawn.

`gossamer compare` writes the file comparison.json into its folder: what it runs, in the order of
the spec. Runs of a folder without that file are in natural order of their names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gossamer._core.files import os_errors, write_atomically

COMPARISON = "comparison.json"
_MAX_BYTES = 4_000_000  # largest size of the file


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison, whether it has begun or not.

    Attributes:
        folder: The name of its folder in the folder of the comparison.
        method: The method's label.
        seed: The seed.
        rounds: Number of rounds.
    """

    folder: str
    method: str
    seed: int
    rounds: int


def write_comparison(folder: Path, runs: Sequence[PlannedRun]) -> None:
    """Write what a comparison runs, unless the folder says so already; it is created if missing.

    Args:
        folder: The folder of the comparison.
        runs: Its runs, method by method in the order of the spec.

    Raises:
        DataError: The file cannot be written.
    """
    if read_comparison(folder) == list(runs):
        return
    with os_errors("make the folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
    listed = [asdict(run) for run in runs]
    write_atomically(folder / COMPARISON, json.dumps({"runs": listed}, indent=1).encode())


def read_comparison(folder: Path) -> list[PlannedRun]:
    """Return what a comparison runs, in the order of its spec.

    Args:
        folder: Any folder.

    Returns:
        The runs; empty if the folder has no comparison.json, or one that cannot be read.
    """
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        with (folder / COMPARISON).open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
        return [_planned(entry) for entry in content["runs"]]
    return []


def _planned(entry: dict[str, Any]) -> PlannedRun:
    folder = str(entry["folder"])
    if Path(folder).name != folder:  # a name, not a path that leads elsewhere
        raise ValueError(folder)
    return PlannedRun(folder, str(entry["method"]), int(entry["seed"]), int(entry["rounds"]))


def in_order(folders: Sequence[Path]) -> list[Path]:
    """Return run folders in the order in which they are listed and drawn.

    Args:
        folders: Run folders.

    Returns:
        The runs of a comparison in the order of its spec, all others in natural order.
    """
    ordered = sorted(folders, key=natural)
    for parent in {folder.parent for folder in folders}:
        position = {run.folder: k for k, run in enumerate(read_comparison(parent))}
        places = []
        for place, folder in enumerate(ordered):
            if folder.parent == parent and folder.name in position:
                places.append(place)
        planned = sorted((ordered[k] for k in places), key=lambda run: position[run.name])
        for place, folder in zip(places, planned, strict=True):
            ordered[place] = folder
    return ordered


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
