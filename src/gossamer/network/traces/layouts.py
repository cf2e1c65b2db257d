"""Tell what the columns of a log of contacts are, from a header or from the values.

Without a header, layouts are recognised in which the values make sense: times are numbers, dates
or times of day of one kind, devices are no fractions, and no contact ends before it begins. If
several layouts make sense, the log is refused, except that three columns of numbers are `time a b`
unless only the last one is in the order of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gossamer.errors import DataError, InputError
from gossamer.network.base import FloatArray
from gossamer.network.traces import header, times
from gossamer.network.traces.clock import MIN_UNIX
from gossamer.network.traces.groups import one_value_each
from gossamer.network.traces.header import LEFT_OUT, Layout
from gossamer.network.traces.table import Table
from gossamer.network.traces.text import SHOWN
from gossamer.network.traces.times import ISO, TIME_OF_DAY, is_unix

_CLEAR_ROWS = 100  # rows from which the order and the devices of three columns are no accident
_SAMPLE = 10_000  # rows that are looked at for the devices that two columns have in common
_FRACTION = r"^[+-]?\d*\.\d*[1-9]\d*$"

CONN = ("time", LEFT_OUT, "a", "b", "event")  # the ONE simulator
# Layouts of logs without a header, by their number of columns.
_LAYOUTS: dict[int, tuple[tuple[str, ...], ...]] = {
    3: (("time", "a", "b"), ("a", "b", "time")),
    4: (
        ("time", "a", "b", "duration"),
        ("time", "a", "b", "event"),
        ("begin", "end", "a", "b"),
        ("a", "b", "begin", "end"),
    ),
    5: (("time", "a", "b", "class_a", "class_b"),),
    6: (("begin", "end", "a", "b", "class_a", "class_b"),),
}


def contact_layout(
    table: Table, columns: Sequence[str] | Mapping[str, str]
) -> tuple[Table, Layout]:
    """Tell what the columns of a log of contacts are.

    Args:
        table: The log, with its header.
        columns: A name per column, or the column of each role; empty to recognise them.

    Returns:
        The log without its header, and the layout.

    Raises:
        DataError: If that is not clear.
        InputError: If `columns` do not fit the log.
    """
    table, names = header.split_header(table, bool(columns))
    if columns:
        return table, _given_layout(table, names, columns)
    if names:
        layout = header.layout_of_names(names)
        if _is_complete(layout):
            return table, layout
        shown = ", ".join(names)[:SHOWN]
        raise DataError(f"{table.path}: the columns {shown!r} are not clear; {_advice(table)}")
    if table.comment:
        words = table.comment.replace(",", " ").split()
        layout = header.layout_of_names(words)
        if len(words) == len(table.columns) and _is_complete(layout):
            return table, layout
    return table, _layout_of_values(table)


def _given_layout(
    table: Table, names: Sequence[str], columns: Sequence[str] | Mapping[str, str]
) -> Layout:
    given = header.given_names(table, names, columns)
    layout = header.layout_of_names(given)
    unknown = [name for name in layout.left_out if name != LEFT_OUT]
    if unknown or not _is_complete(layout):
        accepted = (
            "a and b, and one of time, begin and end, or begin and duration; then class_a and "
            f'class_b for what else is known of the devices, and "{LEFT_OUT}" for other columns'
        )
        raise InputError("columns", columns, accepted)
    return layout


def _is_complete(layout: Layout) -> bool:
    """True if the layout has two devices, and times that go together."""
    roles = layout.roles
    if "a" not in roles or "b" not in roles:
        return False
    if "time" in roles and "begin" in roles:
        return False
    if "event" in roles and ("end" in roles or "duration" in roles):
        return False
    if "end" in roles and "duration" in roles:
        return False
    return "time" in roles or "begin" in roles


def _layout_of_values(table: Table) -> Layout:
    """Tell what the columns of a log without a header are."""
    count = len(table.columns)
    if count == len(CONN) and table.row(0)[1].upper() == "CONN":
        return _layout(CONN)
    fitting = []
    for names in _LAYOUTS.get(count, ()):
        if _fits(table, _layout(names)):
            fitting.append(names)
    dated = [names for names in fitting if _has_dates(table, _layout(names))]
    if count == 3:
        return _layout(_of_three(table, fitting, dated))
    if dated:
        fitting = dated
    fitting = [names for names in fitting if not _names_dates(table, _layout(names))]
    if len(fitting) == 1 and (dated or not _begins_with_numbers(table, fitting[0])):
        return _layout(fitting[0])
    shown = " ".join(table.row(0))[:SHOWN]
    raise DataError(
        f"{table.path}: the {count} columns of {shown!r} are not clear; {_advice(table)}"
    )


def _begins_with_numbers(table: Table, names: tuple[str, ...]) -> bool:
    """True if devices come first and have numbers, which may as well be times."""
    first, second = table.columns[:2]
    return names[0] == "a" and (first.mostly_numbers or second.mostly_numbers)


def _advice(table: Table) -> str:
    names = ["time", "a", "b"] + [LEFT_OUT] * (len(table.columns) - 3)
    shown = ", ".join(f'"{name}"' for name in names)
    return f"say what they are, such as columns = [{shown}]"


def _of_three(
    table: Table, fitting: list[tuple[str, ...]], dated: list[tuple[str, ...]]
) -> tuple[str, ...]:
    """Choose between `time a b` and `a b time`."""
    time_first, time_last = _LAYOUTS[3]
    first, second, last = table.columns
    if time_last not in fitting:
        return time_first  # if it does not fit either, the reader finds the wrong line
    are_words = not first.mostly_numbers and not second.mostly_numbers
    if are_words and not times.is_date(first):
        return time_last
    if first.numbers is None and dated != [time_last]:
        return time_first
    if times.is_date(second) and len(dated) < 2:
        raise _unclear_time(table)
    chosen = time_first
    if dated == [time_last]:
        chosen = time_last
    elif not dated and not _is_sorted(first.numbers):
        if _is_sorted(second.numbers):
            raise _unclear_time(table)
        if _is_sorted(last.numbers):
            if len(table) < _CLEAR_ROWS:
                raise _unclear_time(table)
            chosen = time_last
    # Nearly every device is the first one of some contacts and the second one of others.
    if len(table) >= _CLEAR_ROWS:
        common = {time_first: _common(table, 1, 2), time_last: _common(table, 0, 1)}
        if common.pop(chosen) < 0.1 and max(common.values()) > 0.5:
            raise _unclear_time(table)
    return chosen


def _unclear_time(table: Table) -> DataError:
    shown = " ".join(table.row(0))[:SHOWN]
    return DataError(
        f"{table.path}: it is not clear which column of {shown!r} is the time; say so with "
        'columns = ["time", "a", "b"] or columns = ["a", "b", "time"]'
    )


def _layout(names: Sequence[str]) -> Layout:
    return header.layout_of_names(names)


def _fits(table: Table, layout: Layout) -> bool:
    """True if the values of all columns make sense in a layout."""
    roles = layout.roles
    a = table.columns[roles["a"]]
    b = table.columns[roles["b"]]
    for column in (a, b):
        for pattern in (ISO, TIME_OF_DAY, _FRACTION):
            if column.matches(pattern):
                return False
        if not _are_whole(column.numbers):
            return False
    if not _times_fit(table, layout):
        return False
    for pair in layout.groups.values():
        if any(table.columns[k].mostly_numbers for k in pair) and len(table) < _CLEAR_ROWS:
            return False
        if not one_value_each(table, (roles["a"], roles["b"]), pair):
            return False
    if "event" in roles:
        return table.columns[roles["event"]].matches("(?i)^(up|down)$")
    return True


def _are_whole(numbers: FloatArray | None) -> bool:
    """True if devices may have these numbers, or have other names."""
    if numbers is None:
        return True
    return bool((numbers >= 0).all()) and bool((numbers % 1 == 0).all())


def _times_fit(table: Table, layout: Layout) -> bool:
    """True if the times of a layout are of one kind and in order."""
    roles = layout.roles
    columns = [table.columns[roles[name]] for name in ("time", "begin", "end") if name in roles]
    numbers = [column.numbers for column in columns if column.numbers is not None]
    if not numbers:
        return all(column.matches(ISO) for column in columns) or all(
            column.matches(TIME_OF_DAY) for column in columns
        )
    if len(numbers) < len(columns):
        return False
    together = np.concatenate(numbers)
    if not is_unix(together) and np.abs(together).max() >= MIN_UNIX:
        return False
    if len(numbers) == 2 and (numbers[1] < numbers[0]).any():
        return False
    if "duration" in roles:
        return _are_durations(table.columns[roles["duration"]].numbers)
    return True


def _are_durations(numbers: FloatArray | None) -> bool:
    return numbers is not None and bool((numbers >= 0).all()) and bool(numbers.max() < MIN_UNIX)


def _has_dates(table: Table, layout: Layout) -> bool:
    """True if the times of a layout are dates: unix times or text."""
    roles = layout.roles
    numbers = []
    for name in ("time", "begin", "end"):
        if name in roles:
            numbers.append(table.columns[roles[name]].numbers)
    return all(column is None or is_unix(column) for column in numbers)


def _names_dates(table: Table, layout: Layout) -> bool:
    """True if devices of a layout would have unix times as their names."""
    return any(is_unix(table.columns[layout.roles[name]].numbers) for name in ("a", "b"))


def _is_sorted(numbers: FloatArray | None) -> bool:
    return numbers is not None and bool((np.diff(numbers) >= 0).all())


def _common(table: Table, first: int, second: int) -> float:
    """Return the share of the devices of one column that are in the other one too."""
    names = set(table.columns[first].cells.slice(0, _SAMPLE).to_pylist())
    others = set(table.columns[second].cells.slice(0, _SAMPLE).to_pylist())
    return len(names & others) / min(len(names), len(others))
