"""Tables of text: columns with headings of several lines, fitted to a width."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_GAP = 2  # characters between two columns
ALWAYS = 0  # the rank of a column that is never left out


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        lines: The lines of the heading.
        cells: One text per row.
        rank: 0 if it is always shown; else the larger, the sooner it is left out for lack of room.
    """

    lines: tuple[str, ...]
    cells: tuple[str, ...]
    rank: int = ALWAYS

    @property
    def width(self) -> int:
        """The number of characters of the widest line."""
        return max(map(len, (*self.lines, *self.cells)))


def joined_headings(columns: Sequence[TableColumn]) -> list[str]:
    """Return the headings of all columns with line breaks, aligned at their last lines.

    Args:
        columns: The columns of a table.
    """
    height = max(len(column.lines) for column in columns)
    headings = []
    for column in columns:
        missing = height - len(column.lines)
        headings.append("\n" * missing + "\n".join(column.lines))
    return headings


def fitting(columns: Sequence[TableColumn], width: int) -> list[TableColumn]:
    """Return the columns that fit a width; those that matter least are left out first.

    Args:
        columns: The columns of a table.
        width: The characters of a line.
    """
    kept = list(columns)
    while sum(column.width + _GAP for column in kept) + _GAP > width:
        least = max(column.rank for column in kept)
        if least == ALWAYS:
            break
        index = max(k for k, column in enumerate(kept) if column.rank == least)
        kept.pop(index)
    return kept


def text_table(columns: Sequence[TableColumn], title: str = "", left: int = 1) -> str:
    """Return a table as plain text.

    In a terminal it is as wide as that at most; elsewhere all columns are shown.

    Args:
        columns: The columns.
        title: A line above the table; "" for none.
        left: How many of the first columns are flush left; the others are flush right.

    Example:
        >>> columns = [TableColumn(("method",), ("A", "B")), TableColumn(("loss",), ("1.5", "12"))]
        >>> print(text_table(columns))
        method  loss
        ──────  ────
        A        1.5
        B         12
    """
    if sys.stdout is not None and sys.stdout.isatty():
        columns = fitting(columns, shutil.get_terminal_size().columns)
    lines = []
    if title:
        lines += [title, ""]
    headings = [heading.split("\n") for heading in joined_headings(columns)]
    for parts in zip(*headings, strict=True):
        lines.append(_line(parts, columns, left))
    lines.append(_line(["─" * column.width for column in columns], columns, left))
    for parts in zip(*[column.cells for column in columns], strict=True):
        lines.append(_line(parts, columns, left))
    return "\n".join(lines)


def _line(parts: Sequence[str], columns: Sequence[TableColumn], left: int) -> str:
    """Return one line of a table."""
    cells = []
    for k, (part, column) in enumerate(zip(parts, columns, strict=True)):
        if k < left:
            cells.append(part.ljust(column.width))
        else:
            cells.append(part.rjust(column.width))
    return (" " * _GAP).join(cells).rstrip()
