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


def rows_of(columns: Sequence[TableColumn]) -> list[list[str]]:
    """Return the cells of a table row by row.

    Args:
        columns: The columns of a table.
    """
    cells = [column.cells for column in columns]
    return list(map(list, zip(*cells, strict=True)))


def joined_headings(columns: Sequence[TableColumn]) -> list[str]:
    """Return the headings of all columns with line breaks, aligned at their last lines.

    Args:
        columns: The columns of a table.
    """
    return ["\n".join(lines) for lines in zip(*heading_rows(columns), strict=True)]


def heading_rows(columns: Sequence[TableColumn]) -> list[list[str]]:
    """Return the headings of a table line by line, aligned at their last lines.

    Args:
        columns: The columns of a table.
    """
    height = max(len(column.lines) for column in columns)
    aligned = []
    for column in columns:
        missing = height - len(column.lines)
        aligned.append([""] * missing + list(column.lines))
    return list(map(list, zip(*aligned, strict=True)))


def fitting(columns: Sequence[TableColumn], width: int) -> list[TableColumn]:
    """Return the columns that fit a width; those that matter least are left out first.

    Args:
        columns: The columns of a table.
        width: The characters of a line.
    """
    kept = list(columns)
    while _width(kept) > width:
        # Of equal ranks, the last column.
        least = max(reversed(kept), key=lambda column: column.rank)
        if least.rank == ALWAYS:
            break
        kept.remove(least)
    return kept


def _width(columns: Sequence[TableColumn]) -> int:
    """Return the characters of a line, with a gap before and after every column."""
    return sum(column.width + _GAP for column in columns) + _GAP


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
    rule = ["─" * column.width for column in columns]
    for parts in [*heading_rows(columns), rule, *rows_of(columns)]:
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
