"""Divide the text of a log into columns.

Columns are separated by tabs, semicolons or commas, if every line has the same number of them;
otherwise by spaces, tabs and commas, which may be mixed. Values may be in double quotes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gossamer.errors import DataError
from gossamer.network import limits
from gossamer.network.base import FloatArray, IntArray
from gossamer.network.traces import progress, text
from gossamer.network.traces.text import SHOWN

_SAMPLE = 65536  # bytes of the beginning that decide on the separator
_FIRST = 100  # rows that are compared with a pattern before all others
_SAMPLE_ROWS = 1000  # rows that show whether a column has numbers
_FEWEST = 3  # columns of any log
_MAX_COLUMNS = 1000
_BLOCK = 4 * 2**20  # bytes that are parsed at once, and the longest line
_QUOTED_OR_SPACES = re.compile(rb'"[^"\n]*"|[ \t,]+')
_SPACE_BEFORE_QUOTE = re.compile(rb'(?m)(^|[,;\t])[ \t]+(?=")')


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a log.

    Args:
        cells: The values as text, without spaces around them.
    """

    cells: pa.StringArray

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def numbers(self) -> FloatArray | None:
        """The values as finite numbers, or None if some are not."""
        try:
            numbers: FloatArray = pc.cast(self.cells, pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return None
        if not np.isfinite(numbers).all():
            return None
        return numbers

    @cached_property
    def encoded(self) -> tuple[list[str], IntArray]:
        """The distinct values, and the index in them of every value."""
        encoded = pc.dictionary_encode(self.cells)
        index = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return encoded.dictionary.to_pylist(), index

    @property
    def is_empty(self) -> bool:
        """True if no row has a value."""
        return bool(pc.max(pc.binary_length(self.cells)).as_py() == 0)

    def matches(self, pattern: str) -> bool:
        """True if all values match a regular expression.

        Args:
            pattern: The regular expression, in the syntax of RE2.
        """
        begin = pc.match_substring_regex(self.cells.slice(0, _FIRST), pattern)
        if not pc.all(begin).as_py():  # most columns that do not match differ at once
            return False
        return self.first_not(pattern) is None

    @cached_property
    def mostly_numbers(self) -> bool:
        """True if at least half of the first values are numbers."""
        begin = self.cells.slice(0, _SAMPLE_ROWS)
        is_number = pc.match_substring_regex(begin, r"^[+-]?\d+([.,]\d*)?([eE][+-]?\d+)?$")
        return bool(pc.mean(is_number).as_py() >= 0.5)

    def first_not(self, pattern: str) -> int | None:
        """Return the row of the first value that does not match, or None if all do.

        Args:
            pattern: The regular expression, in the syntax of RE2.
        """
        matching = pc.match_substring_regex(self.cells, pattern)
        row = pc.index(matching, False).as_py()
        return None if row < 0 else row

    def without(self, rows: int) -> Column:
        """Return the column without its first rows.

        Args:
            rows: Number of rows.
        """
        return Column(self.cells.slice(rows))


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a log.

    Args:
        path: The log.
        columns: Its columns, of the same length.
        data: The text, one row per line that is not empty.
        comment: The comment directly before the first row.
        skipped: Number of rows of the text before the first row of the columns.
    """

    path: Path
    columns: tuple[Column, ...]
    data: bytes
    comment: str = ""
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.columns[0])

    def row(self, k: int) -> list[str]:
        """Return the values of a row.

        Args:
            k: Number of the row, from 0.
        """
        return [column.cells[k].as_py() for column in self.columns]

    def without_header(self) -> Table:
        """Return the table without its first row."""
        columns = tuple(column.without(1) for column in self.columns)
        return Table(self.path, columns, self.data, self.comment, self.skipped + 1)

    def only(self, columns: list[int]) -> Table:
        """Return the table with some of its columns.

        Args:
            columns: Numbers of the columns, from 0.
        """
        kept = tuple(self.columns[k] for k in columns)
        return Table(self.path, kept, self.data, self.comment, self.skipped)

    def joined(self, first: int, second: int, columns: list[int]) -> Table:
        """Return the table with two columns as one, separated by T, before some others.

        Args:
            first: Number of the first column.
            second: Number of the second column.
            columns: Numbers of the columns that follow.
        """
        cells = [self.columns[first].cells, self.columns[second].cells]
        one = Column(pc.binary_join_element_wise(*cells, "T"))
        rest = self.only(columns).columns
        return Table(self.path, (one, *rest), self.data, self.comment, self.skipped)

    def error(self, row: int, reason: str) -> DataError:
        """Return an error about a row.

        Args:
            row: Number of the row, from 0.
            reason: What is wrong with it.
        """
        number, _line = next(islice(_rows(self.data), row + self.skipped, None))
        return DataError(f"{self.path}, line {number}: {reason}")


def read_table(path: Path) -> Table:
    """Read the columns of a log.

    Args:
        path: The log.

    Returns:
        The table, with the header, if there is one, as the first row.

    Raises:
        DataError: If the file cannot be read, or its lines have different numbers of columns.
    """
    data = text.read_text(path)
    return parse_table(path, text.without_comments(data), text.last_comment(data))


def parse_table(path: Path, data: bytes, comment: str = "") -> Table:
    """Divide a text into columns.

    Args:
        path: The log, for messages.
        data: The text, without comments.
        comment: The comment directly before the first row.

    Returns:
        The table.

    Raises:
        DataError: If the lines have different numbers of columns.
    """
    separator = _separator(data)
    if separator == " ":
        data = _single_spaces(text.join_dates(data))
    elif b'"' in data:
        data = _SPACE_BEFORE_QUOTE.sub(rb"\1", data)
    first = next(_rows(data), None)
    if first is None:
        raise DataError(f"{path} has no lines with devices; give at least one")
    _check_quotes(path, data)
    try:
        count = len(next(csv.reader([first[1].decode()], delimiter=separator)))
    except csv.Error as error:
        raise DataError(f"{path}, line {first[0]}: this is not a line of values") from error
    if count > _MAX_COLUMNS:
        raise DataError(f"{path} has {count:,} columns; a log may have {_MAX_COLUMNS:,}")
    return Table(path, _columns(path, data, separator, count), data, comment)


def _separator(data: bytes) -> str:
    """Return the separator of the columns; a space for any mix of spaces, tabs and commas."""
    sample = data[:_SAMPLE]
    if len(data) > _SAMPLE:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    lines = []
    for _number, line in _rows(sample):
        lines.append(re.sub(rb'"[^"]*"', b"", line))
    for separator in (b"\t", b";", b","):
        counts = {line.count(separator) for line in lines}
        if len(counts) == 1 and min(counts) >= _FEWEST - 1:
            return separator.decode()
    return " "


def _single_spaces(data: bytes) -> bytes:
    """Return a text with one space between the values of a line, and none around them."""
    if b'"' in data:
        data = _QUOTED_OR_SPACES.sub(_space_for_spaces, data)
    else:
        data = data.replace(b",", b" ").replace(b"\t", b" ")
        while b"  " in data:
            data = data.replace(b"  ", b" ")
    return data.replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" ")


def _check_quotes(path: Path, data: bytes) -> None:
    """Refuse a line in which a quote is opened and not closed: it would hide lines after it."""
    if b'"' not in data:
        return
    for number, line in _rows(data):
        if line.count(b'"') % 2:
            raise DataError(f"{path}, line {number}: a quote is not closed")


def _space_for_spaces(found: re.Match[bytes]) -> bytes:
    word = found[0]
    if word.startswith(b'"'):
        return word
    return b" "


def _rows(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of every line that is not empty."""
    begin = 0
    number = 1
    while begin < len(data):
        end = data.find(b"\n", begin)
        if end < 0:
            end = len(data)
        if end > begin:
            yield number, data[begin:end]
        begin = end + 1
        number += 1


def _columns(path: Path, data: bytes, separator: str, count: int) -> tuple[Column, ...]:
    """Parse the lines of a text in blocks."""
    names = [str(k) for k in range(count)]
    wrong: list[Any] = []
    try:
        reader = _open(data, separator, names, wrong)
        batches = []
        rows = 0
        for batch in reader:
            batches.append(batch)
            rows += len(batch)
            if rows > limits.MAX_LINKS:
                raise DataError(f"{path} has more than {limits.MAX_LINKS:,} lines")
            progress.report(path, min(len(data), len(batches) * _BLOCK), len(data))
        table = pa.Table.from_batches(batches, reader.schema)
    except pa.ArrowInvalid as error:
        raise _refused(path, data, wrong, error) from None
    progress.report(path, len(data), len(data))
    columns = []
    for name in names:
        cells = pc.utf8_trim_whitespace(table.column(name)).combine_chunks()
        columns.append(Column(cells))
    return tuple(columns)


def _open(data: bytes, separator: str, names: list[str], wrong: list[Any]) -> Any:
    """Return pyarrow's reader of the blocks of a text; `wrong` receives the first wrong row."""

    def refuse(row: Any) -> str:
        wrong.append(row)
        return "error"

    quote: str | bool = False
    if b'"' in data:
        quote = '"'
    return pyarrow.csv.open_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=_BLOCK, column_names=names
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=separator, quote_char=quote, invalid_row_handler=refuse
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    )


def _refused(path: Path, data: bytes, wrong: list[Any], error: Exception) -> DataError:
    """Return the error of a text that pyarrow refuses."""
    if wrong:
        row = wrong[0]
        text = row.text.encode().strip()
        number = next((k for k, line in _rows(data) if line.strip() == text), 1)
        shown = row.text.strip()[:SHOWN]
        return DataError(
            f"{path}, line {number}: expected {row.expected_columns} values as in the first line, "
            f"not {row.actual_columns} in {shown!r}"
        )
    reason = str(error).splitlines()[0][:SHOWN]
    return DataError(f"{path} is not a table of values: {reason}")
