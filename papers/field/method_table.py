"""The table on the page of a method: what it needs on a ring, beside D-PSGD on the same ring."""

from __future__ import annotations

from gossamer._core import checks
from gossamer.algorithms import METHODS
from gossamer.study import interval
from papers.families import ALWAYS
from papers.field.cells import SPLIT_NAMES
from papers.field.compare import mean_cost
from papers.field.tables import (
    heading,
    joined,
    markdown_row,
    percent,
    results,
    ring,
    rounds_text,
)

_BASELINE = "d-psgd"


def method_table(name: str) -> str:
    """Return the results of a method with 20 devices, to the last target of each task.

    Args:
        name: A name of METHODS.

    Raises:
        InputError: If there is no such method.
    """
    checks.one_of("method", name, METHODS)
    measured = results()
    titles = ["task", "data", "links", "settings", "rounds", "MB", "accuracy at the end"]
    if name != _BASELINE:
        titles.append("rounds of D-PSGD")
    lines = heading(*titles)
    for task in measured.tasks:
        for split in ("iid", "one label"):
            cell = ring(measured, task, split, name)
            if cell is None:
                continue
            runs = list(measured.runs[cell, name].values())
            sent = mean_cost(measured, cell, name, "megabytes", "last")
            accuracy = interval([100 * float(run["accuracy"]) for run in runs])
            row = [
                f"{task}, to {percent(cell, 'last')} %",
                SPLIT_NAMES[split],
                cell.network,
                runs[0]["setting"].replace(str(ALWAYS), "all"),
                rounds_text(mean_cost(measured, cell, name, "rounds", "last")),
                f"{sent.mean:.3g}" if sent else "–",
                f"{accuracy.format(1)} %",
            ]
            if name != _BASELINE:
                row.append(rounds_text(mean_cost(measured, cell, _BASELINE, "rounds", "last")))
            lines.append(markdown_row(row))
    return joined(lines)
