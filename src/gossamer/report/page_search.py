"""What a page shows of a search by `gossamer tune`: all settings that were tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gossamer._core.columns import ENDINGS, Column, Target
from gossamer.report import pack
from gossamer.report.page_tables import Cell, cell, heading
from gossamer.results.search import Search, Tried
from gossamer.results.settings import value_text

_UNITS = {
    "rounds": ("rounds", 1.0, 0),
    "bytes": ("MB", 1e-6, 2),
    "seconds": ("simulated s", 1.0, 1),
    "joules": ("J", 1.0, 1),
}


def search_content(search: Search, known: Sequence[Column]) -> dict[str, Any]:
    """Return the settings that a search tried, for a table and for parallel coordinates.

    Args:
        search: The search.
        known: The metrics of its runs.

    Returns:
        "table" as `page_tables` has tables; the other keys are those of a page's content that
        `parallel.js` reads, with one run and one row of results per setting.
    """
    metric = _metric(search.column, known)
    columns = [
        heading("method", number=False),
        *[heading(name) for name in _names(search)],
        heading("rounds", about="of the longest runs with these settings"),
        heading("seeds"),
        heading(search.column.replace("_", " "), metric.printed_unit, "mean at the end"),
    ]
    label, factor, digits = _UNITS[search.unit]
    if search.target:
        target = Target.parse(search.target)
        columns.append(heading(f"{label} to {target.text}"))
    rows = []
    for tried in search.tried:
        row: list[Cell] = [cell(tried.method, tried.label)]
        for name in _names(search):
            row.append(_setting_cell(tried, name))
        row.append(cell(f"{tried.rounds:,}", tried.rounds))
        row.append(cell(str(tried.seeds), tried.seeds))
        row.append(_last_cell(tried, metric))
        if search.target:
            taken = tried.to_target
            shown = cell("–")
            if taken is not None:
                shown = cell(f"{taken * factor:,.{digits}f}", pack.drawn_number(taken * factor))
            row.append(shown)
        rows.append(row)
    return {"table": {"columns": columns, "rows": rows}, **_parallel(search, metric)}


def _parallel(search: Search, metric: Column) -> dict[str, Any]:
    """Return the settings as `parallel.js` reads them."""
    settings: list[dict[str, Any]] = [
        {"name": "method", "values": [tried.method for tried in search.tried]}
    ]
    settings.append({"name": "rounds", "values": [tried.rounds for tried in search.tried]})
    for name in _names(search):
        values = [_plain(tried.settings.get(name)) for tried in search.tried]
        settings.append({"name": name, "values": values})
    rows = []
    for tried in search.tried:
        rows.append([cell(tried.label, tried.label), _last_cell(tried, metric)])
    return {
        "metrics": [
            {
                "name": search.column,
                "unit": metric.printed_unit,
                "scale": metric.scale,
                "rising": metric.rising,
            }
        ],
        "settings": settings,
        "runs": [{"name": tried.label, "label": tried.label} for tried in search.tried],
        "results": {"columns": [heading("settings"), heading(search.column)], "rows": rows},
    }


def _metric(column: str, known: Sequence[Column]) -> Column:
    """Return the metric that a column of the measurements is of."""
    for metric in known:
        if column in [metric.name + ending for ending in ENDINGS]:
            return metric
    return Column(column, "lower")


def _names(search: Search) -> list[str]:
    """Return the names of the settings, those that most methods have first."""
    counts: Counter[str] = Counter()
    for tried in search.tried:
        counts.update(list(tried.settings))
    return [name for name, _ in counts.most_common()]


def _setting_cell(tried: Tried, name: str) -> Cell:
    value = tried.settings.get(name)
    if value is None:
        return cell("")
    return cell(value_text(value), _plain(value))


def _plain(value: Any) -> Any:
    """Return a setting as JSON holds it; a schedule is a text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value_text(value)


def _last_cell(tried: Tried, metric: Column) -> Cell:
    if tried.last is None:
        return cell("diverged")
    return cell(metric.text(tried.last, None), pack.drawn_number(tried.last * metric.scale))
