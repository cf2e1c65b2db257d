"""Read TOML text and files; resolve the paths that a spec names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gossamer.errors import DataError
from gossamer.study.spec.sections import OWN_CODE, PATH_KEYS, SpecError, Table


def read(path: Path) -> Table:
    """Read the tables of a TOML file.

    Args:
        path: The spec. Relative paths in it are resolved against its folder.

    Returns:
        The tables, with absolute paths.

    Raises:
        SpecError: If there is no such file, or it is not TOML.
        DataError: If the file cannot be read.
    """
    try:
        with path.open("rb") as file:  # a byte-order mark at its beginning is no part of it
            table = tomllib.loads(file.read().decode("utf-8-sig"))
    except FileNotFoundError:
        raise SpecError(
            f"there is no spec {path}; `gossamer new {path}` writes one to start from"
        ) from None
    except (ValueError, RecursionError) as error:  # a number of too many digits among them
        raise SpecError(f"{path} is not TOML: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    try:
        resolved: Table = resolve_paths(path.absolute().parent, table)
    except RecursionError as error:
        raise SpecError(f"{path} is not TOML: {error}") from None
    return resolved


def parse(text: str) -> Table:
    """Read the tables of a TOML text.

    Args:
        text: A spec's text. Paths in it stay as they are.

    Returns:
        The tables.

    Example:
        >>> parse('rounds = 9')
        {'rounds': 9}
    """
    return tomllib.loads(text)


def resolve_paths(folder: Path, value: Any) -> Any:
    """Return tables with every relative path resolved against a folder.

    Args:
        folder: The folder.
        value: A table, or any value in one.
    """
    if isinstance(value, list):
        return [resolve_paths(folder, item) for item in value]
    if not isinstance(value, dict):
        return value
    resolved = {}
    for key, item in value.items():
        if key in PATH_KEYS and isinstance(item, str):
            resolved[key] = absolute_path(folder, item)
        else:
            resolved[key] = resolve_paths(folder, item)
    if resolved.get("kind") == OWN_CODE and "object" in resolved:
        resolved.setdefault("path", str(folder))
    return resolved


def absolute_path(folder: Path, path: str | Path) -> str:
    """Return a path resolved against a folder, with `~` expanded.

    Args:
        folder: The folder.
        path: A relative or absolute path.
    """
    try:
        return str(folder / Path(path).expanduser())
    except RuntimeError:  # `~name` of a user that this machine does not have: kept as written
        return str(folder / path)
