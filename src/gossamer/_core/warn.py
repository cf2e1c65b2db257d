"""Warnings that name the line of the user's own code."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn_user(sentence: str, category: type[Warning]) -> None:
    """Warn, and attribute the warning to the nearest caller outside of gossamer.

    Python 3.12 has `skip_file_prefixes` for this.

    Args:
        sentence: What looks like a mistake.
        category: The class of the warning.

    Example:
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_user("no links", UserWarning)
        >>> str(caught[0].message)
        'no links'
    """
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_own(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    warnings.warn(sentence, category, stacklevel=level)


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE
