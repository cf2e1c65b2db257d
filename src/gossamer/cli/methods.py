"""Print what is registered: methods, networks, splits, models and every other part of a spec."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from gossamer._core import registry
from gossamer.algorithms import METHODS
from gossamer.cli.show import open_console, print_json
from gossamer.errors import InputError, nearest
from gossamer.study.spec import KINDS

# The names on the command line and the sections of a spec.
_SECTIONS = {
    "networks": "network",
    "faults": "faults",
    "splits": "split",
    "models": "model",
    "losses": "loss",
    "metrics": "metric",
    "optimizers": "optimizer",
    "data": "data",
    "mirrors": "mirror",
    "steps": "step",
    "directions": "direction",
    "weights": "weights",
    "compressors": "compress",
    "guards": "rule",
    "schedules": "schedule",
    "engines": "engine",
}
LISTS = ("methods", *_SECTIONS)


def methods(what: str, as_json: bool = False) -> None:
    """Print the registered methods, or the kinds of another section.

    Args:
        what: One of `LISTS`.
        as_json: Whether to print JSON.

    Raises:
        InputError: `what` is not a list that exists.
    """
    if what not in LISTS:
        raise InputError("list", what, f"one of {', '.join(LISTS)}{nearest(what, LISTS)}")
    rows = _methods() if what == "methods" else _kinds(_SECTIONS[what])
    if as_json:
        print_json({what: rows})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console = open_console()
    console.print(table, highlight=False)


def _methods() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for method in METHODS.values():
        rows.append(
            {
                "kind": method.name,
                "Python": method.make.__name__,
                "paper": method.paper,
                "needs": method.needs,
                "without rounds": method.without_rounds,
            }
        )
    return rows


def _kinds(section: str) -> list[dict[str, Any]]:
    assert section in KINDS  # importing specs has registered the parts of every package
    rows = []
    for kind, part in registry.kinds(section).items():
        summary = (part.__doc__ or "").partition("\n")[0]
        rows.append({"kind": kind, "Python": part.__name__, "description": summary})
    return rows
