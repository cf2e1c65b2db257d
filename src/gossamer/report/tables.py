"""Results as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from gossamer.study import Comparison, Method


def comparison(methods: Sequence[Method], title: str) -> Table:
    """One row a method: accuracy, loss, rounds (and simulated seconds) to each target, consensus distance, bytes sent."""
    headings, rows = Comparison(methods).table()
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
    )
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="right" if k else "left", no_wrap=not k)
    for row in rows:
        table.add_row(*row)
    return table
