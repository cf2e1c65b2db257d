"""Read CSV and Parquet files as columns. Sizes are checked before memory is taken."""

from __future__ import annotations

import gzip
import re
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer._core.files import os_errors
from gossamer._core.memory import available_memory
from gossamer.errors import DataError

if TYPE_CHECKING:
    import pyarrow

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
"""How the names of files end that can be read."""

MAX_BYTES = 64 << 30
"""Largest table that is read, unpacked."""

_DELIMITERS = (",", ";", "\t")
_HEAD = 1 << 16  # bytes that are looked at to find delimiter and header
_COPIES = 4  # copies of a table in memory at once: text, columns, samples
_VALUE_BYTES = 8  # memory per value of a Parquet column
_DECIMAL_COMMA = re.compile(r"(^|;)-?\d+,\d+(;|$)", re.MULTILINE)
_MAX_CHARACTERS = 160  # length to which the message of another package is cut


def files_in(path: Path) -> list[Path]:
    """Return the tables in a folder, or the one file.

    Args:
        path: A folder, or a file.

    Raises:
        DataError: If there is none.

    Example:
        >>> files_in(Path("nowhere"))
        Traceback (most recent call last):
        gossamer.errors.DataError: there is no file or folder nowhere
    """
    accepted = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    if path.is_dir():
        with os_errors("read", path):
            found = [file for file in sorted(path.iterdir()) if _is_table(file)]
        if not found:
            raise DataError(f"{path} holds no table: no name in it ends in {accepted}")
        return found
    if not path.is_file():
        raise DataError(f"there is no file or folder {path}")
    if not _is_table(path):
        raise DataError(f"{path} is not a table: give a file that ends in {accepted}, or a folder")
    return [path]


def stem(path: Path) -> str:
    """Return a file's name without its ending.

    Args:
        path: The file.

    Example:
        >>> stem(Path("robots/robot 3.csv.gz"))
        'robot 3'
    """
    name = path.name
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def read_table(path: Path, whole_lines: bool = False) -> pyarrow.Table:
    """Read a CSV or Parquet file.

    A CSV file has a header. Its values are separated by commas, semicolons or tabs; between
    semicolons a number may have a decimal comma.

    Args:
        path: The file.
        whole_lines: Leave out a last line of a CSV file without its end: it is being written.

    Returns:
        Its columns, with types as found.

    Raises:
        DataError: If it is missing, damaged, too large, empty or has no header.
    """
    read = partial(_read_csv, whole_lines=whole_lines)
    if path.name.endswith(".parquet"):
        read = partial(_read_parquet)
    table = read(path)
    _check_text(path, table)
    if table.num_rows == 0:
        raise DataError(f"{path} has no rows")
    return table


def _check_text(path: Path, table: pyarrow.Table) -> None:
    """Refuse names and values that are not UTF-8, which would raise errors later."""
    import pyarrow

    try:
        table.validate(full=True)
        _ = table.column_names
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged, or its text is not UTF-8: {error}") from None


def _is_table(path: Path) -> bool:
    return path.name.endswith(ENDINGS) and not path.name.startswith(".") and path.is_file()


def _limit() -> int:
    """Return how many bytes a table may take."""
    free = available_memory()
    if free is None:
        return MAX_BYTES
    return min(MAX_BYTES, free // _COPIES)


def check_size(path: Path, size: int) -> None:
    """Refuse a table that does not fit into memory.

    Args:
        path: Its file or folder.
        size: How many bytes it takes.

    Raises:
        DataError: If it is too large.
    """
    limit = _limit()
    if size > limit:
        raise DataError(
            f"{path} takes {size / 2**20:,.0f} MiB, more than the {limit / 2**20:,.0f} MiB that "
            "can be read here"
        )


def _read_parquet(path: Path) -> pyarrow.Table:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            metadata = file.metadata
            check_size(path, metadata.num_rows * metadata.num_columns * _VALUE_BYTES)
            return file.read()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged or not Parquet: {_first_line(error)}") from None


def _read_csv(path: Path, whole_lines: bool) -> pyarrow.Table:
    import pyarrow
    from pyarrow import csv

    content = _content(path)
    if whole_lines:
        content = content[: content.rfind(b"\n") + 1]
    try:
        head = content[:_HEAD].decode("utf-8-sig", errors="ignore")
        delimiter = _delimiter(path, head)
        point = "."
        if delimiter == ";" and _DECIMAL_COMMA.search(head):
            point = ","
        return csv.read_csv(
            pyarrow.BufferReader(content),
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(decimal_point=point),
        )
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} is not a CSV file: {_first_line(error)}") from None


def _content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked."""
    limit = _limit()
    with os_errors("read", path):
        check_size(path, path.stat().st_size)
        if path.suffix != ".gz":
            return path.read_bytes()
        try:
            with gzip.open(path) as stream:
                content = stream.read(limit + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{path} is damaged: {error}") from None
    check_size(path, len(content))
    return content


def _delimiter(path: Path, head: str) -> str:
    """Return what separates the values; refuse a file without a header."""
    lines = head.splitlines()
    if not lines or not lines[0].strip():
        raise DataError(f"{path} is empty: its first line must name the columns")
    header = lines[0]
    delimiter = max(_DELIMITERS, key=header.count)
    names = [name.strip().strip('"') for name in header.split(delimiter)]
    if all(map(_is_number, names)):
        raise DataError(
            f"{path} has no header: its first line is {header[:40]!r}, but must name the columns"
        )
    if len(set(names)) < len(names):
        raise DataError(f"{path} names two columns alike, in the header {header[:80]!r}")
    return delimiter


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _first_line(error: Exception) -> str:
    text = (str(error) or type(error).__name__).splitlines()[0]
    if len(text) > _MAX_CHARACTERS:
        return text[:_MAX_CHARACTERS] + "…"
    return text
