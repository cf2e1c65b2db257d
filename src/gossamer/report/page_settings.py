"""The settings of a page: those in which its methods and runs differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gossamer.report.page_tables import Cell, Table, cell, heading
from gossamer.results.run import Run
from gossamer.results.settings import differing_settings, value_text
from gossamer.results.tables import Method

_MAX_SETTINGS = 24  # settings by which a page can select and group runs
_IGNORED = ("name", "device", "threads")
Value = int | float | str | bool | None


def settings_table(methods: Sequence[Method]) -> Table | None:
    """Return the settings in which methods differ, a row per method.

    Args:
        methods: The methods of the page.

    Returns:
        The table; None if there is nothing in which they differ.
    """
    found = _differing([method.runs[0] for method in methods])
    if not found:
        return None
    columns = [heading("method", number=False)]
    columns += [heading(name, number=False) for name in found]
    rows = []
    for k, method in enumerate(methods):
        cells: list[Cell] = [cell(method.label, method.label)]
        for values in found.values():
            text = "" if values[k] is None else value_text(values[k])
            cells.append(cell(text, values[k]))
        rows.append(cells)
    return {"columns": columns, "rows": rows}


def run_settings(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the settings in which runs differ, by which a reader can select and group them.

    Args:
        runs: The runs of the page, method by method.

    Returns:
        Dictionaries with "name" and "values", one value per run.
    """
    found = _differing(runs)
    return [{"name": name, "values": values} for name, values in found.items()]


def _differing(runs: Sequence[Run]) -> dict[str, list[Value]]:
    """Return the first settings in which runs differ, as values that fit into JSON."""
    differing = differing_settings([run.spec for run in runs])
    found: dict[str, list[Value]] = {}
    for name, values in differing.items():
        if name not in _IGNORED and len(found) < _MAX_SETTINGS:
            found[name] = [_plain(value) for value in values]
    return found


def _plain(value: Any) -> Value:
    """Return a setting as JSON can hold it; long texts are cut."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return value_text(value)
