"""Tables in a terminal, in the style of all commands."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from gossamer.results.tables import Comparison, Method
from gossamer.results.text import fitting, joined_headings, rows_of


def titled_table(title: str) -> Table:
    """Return an empty table for a terminal, in the style of all tables of the commands.

    Args:
        title: The line above the table.
    """
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
    )


def terminal_table(methods: Sequence[Method], title: str, width: int = 0) -> Table:
    """Return the table of a comparison for a terminal.

    Args:
        methods: The methods, one per row.
        title: The line above the table.
        width: The columns of the terminal; what has no room is left out, such as the best device.
            0: everything is shown.

    Returns:
        A table that `rich.console.Console` prints.
    """
    columns = Comparison(methods).columns()
    if width:
        columns = fitting(columns, width)
    table = titled_table(title)
    for k, heading in enumerate(joined_headings(columns)):
        if k == 0:
            table.add_column(heading, no_wrap=True)
        else:
            table.add_column(heading, justify="right")
    for cells in rows_of(columns):
        table.add_row(*cells)
    return table
