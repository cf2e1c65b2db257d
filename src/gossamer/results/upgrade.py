"""Read what version 0.1 wrote."""

from __future__ import annotations

from typing import Any

from gossamer._core.columns import LOSS, Target, column_of

_UNITS = ("rounds", "bytes", "seconds")


def upgrade_summary(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary with the keys of this version.

    Version 0.1 kept the targets of accuracy and loss apart, as in the example.

    Args:
        summary: What summary.json holds; a summary of this version is returned as it is.

    Example:
        >>> upgrade_summary({"rounds_to_accuracy": {"0.8": 9}, "rounds_to_loss": {"1": None}})
        {'rounds_to': {'accuracy >= 0.8': 9, 'loss <= 1': None}}
    """
    upgraded = dict(summary)
    for unit in _UNITS:
        for column in (column_of("accuracy"), LOSS):
            old = upgraded.pop(f"{unit}_to_{column.name}", None)
            if not isinstance(old, dict):
                continue
            new = upgraded.setdefault(f"{unit}_to", {})
            for target, taken in old.items():
                new[Target.of(column, float(target)).text] = taken
    return upgraded
