"""Times of a log: seconds, seconds or fractions of them since 1970, ISO dates, times of day.

Numbers are told apart by their size, which is the same for all times of a log:

| all numbers are from … to … | they are |
|---|---|
| 5e8 to 5e9 | unix time in seconds, from 1985 to 2128 |
| 5e11 to 5e12 | unix time in milliseconds |
| 5e14 to 5e15 | unix time in microseconds |
| 5e17 to 5e18 | unix time in nanoseconds |
| below 5e8 | seconds since an unknown moment |

Anything else is refused. Dates are as in ISO 8601, such as 2010-12-06T01:02:20+01:00; a space may
separate the time of day, and / is as good as -. Without a time zone they are UTC. Times of day
such as 08:15:00 are seconds since midnight, and may pass 24:00:00 as in bus timetables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gossamer.network.base import FloatArray
from gossamer.network.traces.clock import EXAMPLE, MIN_UNIX
from gossamer.network.traces.table import Column, Table
from gossamer.network.traces.text import SHOWN

ISO = r"^\d{4}[-/]\d\d[-/]\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?)? ?(Z|UTC|[+-]\d\d(:?\d\d)?)?$"
TIME_OF_DAY = r"^\d{1,4}:[0-5]\d:[0-5]\d$"
_ZONE = r":.*(Z|UTC|[+-]\d\d(:?\d\d)?)$"
_MAX_UNIX = 5e9  # seconds: 11 June 2128
_UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
_ACCEPTED = f"a number of seconds or a date such as {EXAMPLE}"


@dataclass(frozen=True, eq=False)
class Times:
    """The times of a log, in seconds.

    Attributes:
        columns: The values of every column of times.
        absolute: True if they are seconds since 1970 (UTC).
        per_second: Units of the log per second: 1000 if its numbers are milliseconds.
        note: What was assumed, in words; empty if nothing.
    """

    columns: tuple[FloatArray, ...]
    absolute: bool
    per_second: float = 1.0
    note: str = ""


def is_date(column: Column) -> bool:
    """True if all values of a column are dates: ISO dates or unix times.

    Args:
        column: The column.
    """
    return is_unix(column.numbers) or column.matches(ISO)


def is_unix(numbers: FloatArray | None) -> bool:
    """True if all numbers have the size of a unix time, in any of the units.

    Args:
        numbers: The numbers of a column; None if it has others than numbers.
    """
    return numbers is not None and _unix_unit(numbers) is not None


def read_times(table: Table, columns: Sequence[int], milliseconds: bool = False) -> Times:
    """Return the times of some columns, which are of the same kind.

    Args:
        table: The log.
        columns: Numbers of the columns.
        milliseconds: True if the header says that they are milliseconds.

    Returns:
        The times in seconds.

    Raises:
        DataError: If a value is not a time, or times of different kinds are mixed.
    """
    cells = [table.columns[k] for k in columns]
    numbers = [column.numbers for column in cells]
    if all(values is not None for values in numbers):
        return _of_numbers(table, [v for v in numbers if v is not None], milliseconds)
    if all(column.matches(TIME_OF_DAY) for column in cells):
        return Times(tuple(map(_of_day, cells)), absolute=False)
    first = cells[0].cells
    if _converts(first.slice(0, 1), pa.float64()):
        raise _not_a_number(table, cells)
    # Time zones are in all dates or in none.
    has_zone = bool(pc.match_substring_regex(first.slice(0, 1), _ZONE)[0].as_py())
    dates = tuple(_of_dates(table, column, has_zone) for column in cells)
    note = ""
    if not has_zone:
        note = "times without a zone read as UTC"
    return Times(dates, absolute=True, note=note)


def read_durations(table: Table, column: int, per_second: float) -> FloatArray:
    """Return the durations of a column in seconds.

    Args:
        table: The log.
        column: Number of the column.
        per_second: Units per second, if the durations are numbers.

    Raises:
        DataError: If a value is not a duration.
    """
    cells = table.columns[column]
    if cells.numbers is None and cells.matches(TIME_OF_DAY):
        return _of_day(cells)
    if cells.numbers is None:
        row = first_not_number(cells)
        raise table.error(row, f"the duration {cells.cells[row].as_py()!r} is not a finite number")
    negative = np.flatnonzero(cells.numbers < 0)
    if len(negative):
        row = int(negative[0])
        raise table.error(row, f"the duration {cells.cells[row].as_py()} is negative")
    return cells.numbers / per_second


def first_not_number(column: Column) -> int:
    """Return the row of the first value that is not a finite number, in a column that has one.

    Args:
        column: The column.
    """
    return _first_refused(column.cells, pa.float64())


def _of_numbers(table: Table, columns: list[FloatArray], milliseconds: bool) -> Times:
    numbers = np.concatenate(columns)
    unit = _unix_unit(numbers)
    if unit is None and np.abs(numbers).max() >= MIN_UNIX:
        raise _unclear(table, columns, float(numbers.min()), float(numbers.max()))
    absolute = unit is not None
    if unit is None:
        unit = "seconds"
        if milliseconds:
            unit = "milliseconds"
    per_second = _UNITS[unit]
    note = ""
    if unit != "seconds":
        note = f"times in {unit}"
    scaled = tuple(values / per_second for values in columns)
    return Times(scaled, absolute, per_second, note)


def _unclear(table: Table, columns: list[FloatArray], low: float, high: float) -> Exception:
    """Return the error of numbers that are neither all unix times nor all relative times."""
    row = 0
    for values in columns:
        small = np.flatnonzero(np.abs(values) < MIN_UNIX)
        if len(small):
            row = int(small[0])
            break
    return table.error(
        row,
        f"times from {low:.10g} to {high:.10g} are neither all unix times nor all seconds "
        "since the beginning of the log; correct them, or say which columns have the times "
        'with columns = ["time", "a", "b"]',
    )


def _unix_unit(numbers: FloatArray) -> str | None:
    """Return the unit of unix times, or None if the numbers are no such times."""
    low = float(numbers.min())
    high = float(numbers.max())
    for unit, per_second in _UNITS.items():
        if MIN_UNIX * per_second <= low and high <= _MAX_UNIX * per_second:
            return unit
    return None


def _of_day(column: Column) -> FloatArray:
    parts = pc.split_pattern(column.cells, ":")
    flat = pc.cast(pc.list_flatten(parts), pa.int64()).to_numpy(zero_copy_only=False)
    hours, minutes, seconds = flat.reshape(-1, 3).T
    total: FloatArray = hours * 3600.0 + minutes * 60.0 + seconds
    return total


def _of_dates(table: Table, column: Column, has_zone: bool) -> FloatArray:
    """Return ISO dates in seconds since 1970."""
    row = column.first_not(ISO)
    if row is not None:
        raise _not_a_time(table, column, row)
    cells = pc.replace_substring(column.cells, "/", "-")
    cells = pc.replace_substring(cells, ",", ".")
    cells = pc.replace_substring_regex(cells, " ?(UTC|Z)$", "Z")
    cells = pc.replace_substring_regex(cells, r" ([+-]\d\d:?\d*)$", r"\1")
    kind = pa.timestamp("ns")
    if has_zone:
        kind = pa.timestamp("ns", "UTC")
    try:
        moments = pc.cast(cells, kind)
    except pa.ArrowInvalid:
        row = _first_refused(cells, kind)
        if bool(pc.match_substring_regex(column.cells, _ZONE)[row].as_py()) != has_zone:
            shown = column.cells[row].as_py()[:SHOWN]
            reason = "give all times a zone, or none"
            raise table.error(row, f"the time {shown!r} differs in its zone; {reason}") from None
        raise _not_a_time(table, column, row) from None
    since = pc.cast(moments, pa.int64()).to_numpy(zero_copy_only=False)
    seconds: FloatArray = since // 10**9 + (since % 10**9) / 1e9
    return seconds


def _not_a_time(table: Table, column: Column, row: int) -> Exception:
    """Return the error of a value that is no date."""
    shown = column.cells[row].as_py()[:SHOWN]
    return table.error(row, f"the time {shown!r} is not {_ACCEPTED}")


def _not_a_number(table: Table, columns: list[Column]) -> Exception:
    """Return the error of the first value that is no number, where others are."""
    for column in columns:
        if column.numbers is None:
            row = first_not_number(column)
            shown = column.cells[row].as_py()[:SHOWN]
            return table.error(row, f"the time {shown!r} is not a finite number, as others are")
    raise AssertionError("all columns are numbers")


def _first_refused(cells: Any, kind: Any) -> int:
    """Return the row of the first value that cannot be converted, or is not finite."""
    low = 0
    high = len(cells)
    while high - low > 1:
        middle = (low + high) // 2
        if _converts(cells.slice(low, middle - low), kind):
            low = middle
        else:
            high = middle
    return low


def _converts(cells: Any, kind: Any) -> bool:
    try:
        values = pc.cast(cells, kind)
    except pa.ArrowInvalid:
        return False
    return kind != pa.float64() or bool(pc.all(pc.is_finite(values)).as_py())
