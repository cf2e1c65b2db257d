"""What tests compare of folders and of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def names_in(folder: Path | str) -> list[str]:
    """Return the names of what is in a folder, sorted."""
    return sorted(path.name for path in Path(folder).iterdir())


def contents_of(folder: Path | str) -> dict[str, bytes]:
    """Return the contents of the files in a folder, by name."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def times_of(paths: Iterable[Path | str]) -> dict[str, int]:
    """Return when each of some files was last written, in nanoseconds."""
    return {str(path): Path(path).stat().st_mtime_ns for path in paths}


def column(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Return one value of every row."""
    return [row[name] for row in rows]


def attribute(objects: Iterable[Any], name: str) -> list[Any]:
    """Return one attribute of every object."""
    return [getattr(each, name) for each in objects]
