"""Find run folders on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import DataError, InputError
from gossamer.results.order import in_order
from gossamer.results.search import read_search

MAX_DEPTH = 6  # levels of folders that `find_runs` searches
MAX_RUNS = 1000  # run folders that `select_runs` accepts: more are too many for one page


def find_runs(folder: Path) -> list[Path]:
    """Return every run folder at or below a folder.

    The runs of a comparison are in the order of its spec, others in natural order of their names.

    Args:
        folder: Where to search, up to `MAX_DEPTH` levels down. Run folders are not searched.
    """
    found = []
    for path, inner, files in os.walk(folder):
        if "spec.toml" in files:
            found.append(Path(path))
            inner.clear()
        elif len(Path(path).relative_to(folder).parts) >= MAX_DEPTH:
            inner.clear()
    return in_order(found)


def select_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the run folders that the user named.

    Args:
        paths: Run folders, folders with runs directly in them, as `gossamer compare` writes, or
            the folder of a search by `gossamer tune`, which stands for its confirming runs.

    Returns:
        Each run folder once, in the order given; those in one folder in the order of the spec of
        their comparison, or in natural order of their names.

    Raises:
        InputError: No paths are given, or they hold more than `MAX_RUNS` runs.
        DataError: A path is no folder or holds no run.
    """
    if not paths:
        raise InputError("runs", [], "at least one run folder")
    found: dict[Path, Path] = {}
    for path in paths:
        for folder in _runs_in(path):
            found.setdefault(folder.resolve(), folder)
    if len(found) > MAX_RUNS:
        raise InputError("runs", f"{len(found)} of them", f"at most {MAX_RUNS}")
    return list(found.values())


def _runs_in(path: Path) -> list[Path]:
    if (path / "spec.toml").is_file():
        return [path]
    inside = in_order([file.parent for file in path.glob("*/spec.toml")])
    if inside:
        return inside
    search = read_search(path)
    if search is not None and search.runs:
        return list(search.runs)
    if path.is_dir():
        raise DataError(
            f"{path} holds no run: "
            "give a folder that `gossamer run`, `compare` or `tune` has written"
        )
    raise DataError(f"{path} is no folder: give one that `gossamer run` has written")
