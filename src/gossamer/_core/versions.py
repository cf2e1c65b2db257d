"""Versions of installed packages."""

from __future__ import annotations

import importlib.metadata
from functools import cache

from gossamer import __version__


@cache  # parsing the metadata takes milliseconds, and every run records its versions
def version(package: str) -> str:
    """Return the version of an installed package.

    The version of gossamer itself is that of the source code: the metadata of an editable
    installation is as old as the installation.

    Args:
        package: Name of the package, as pip knows it.

    Example:
        >>> import gossamer
        >>> version("gossamer") == gossamer.__version__
        True
    """
    if package == "gossamer":
        return __version__
    return importlib.metadata.version(package)
