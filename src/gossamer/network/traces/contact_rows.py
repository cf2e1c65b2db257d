"""Make contacts of the rows of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gossamer.network.base import BoolArray, FloatArray, IntArray
from gossamer.network.traces import plan, text, times
from gossamer.network.traces.groups import read_groups
from gossamer.network.traces.header import LEFT_OUT, Layout
from gossamer.network.traces.ids import read_ids
from gossamer.network.traces.layouts import CONN, contact_layout
from gossamer.network.traces.logs import ContactLog
from gossamer.network.traces.table import Table, parse_table
from gossamer.network.traces.text import SHOWN


def contacts_of(path: Path, columns: Sequence[str] | Mapping[str, str], format: str) -> ContactLog:
    """Read a log of contacts; see `read_contacts`.

    Args:
        path: The log.
        columns: What the columns are; empty to recognise them.
        format: One of `FORMATS`.
    """
    data = text.read_text(path)
    comment = text.last_comment(data)
    data = text.without_comments(data)
    listed_once = False
    if plan.is_plan(data) and not columns:
        columns = plan.COLUMNS
        data = plan.contacts_of_plan(path, data)
        listed_once = True
    table = parse_table(path, data, comment)
    if format == "intervals" and not columns:
        _require_events(table)
        columns = CONN
    table, layout = contact_layout(table, columns)
    if format == "contacts" and "event" in layout.roles:
        shown = " ".join(table.row(0))[:SHOWN]
        raise table.error(0, f"expected lines `t a b`, not {shown!r}")
    return _log(table, layout, listed_once)


def _require_events(table: Table) -> None:
    if len(table.columns) != len(CONN):
        shown = " ".join(table.row(0))[:SHOWN]
        raise table.error(0, f"expected lines `t CONN a b up|down`, not {shown!r}")


def _log(table: Table, layout: Layout, listed_once: bool) -> ContactLog:
    """Return the contacts of a table."""
    roles = layout.roles
    is_event = "event" in roles
    rises = np.zeros(0, dtype=bool)
    if is_event:
        rises = _events(table, layout)
    columns = [roles[name] for name in ("time", "begin", "end") if name in roles]
    read = times.read_times(table, columns, layout.milliseconds)
    begin = read.columns[0]
    end = read.columns[-1]
    if "duration" in roles:
        end = begin + times.read_durations(table, roles["duration"], read.per_second)
    names, (a, b) = read_ids(table, (roles["a"], roles["b"]))
    _check_rows(table, names, a, b, begin, end)
    groups, differing = read_groups(table, (a, b), len(names), layout.groups)
    left_out = [name for name in layout.left_out if name != LEFT_OUT]
    notes = [read.note] if read.note else []
    if left_out + differing:
        notes.append(f"not used: {', '.join(left_out + differing)}"[:SHOWN])
    if is_event:
        rows, end = _paired(table, a * len(names) + b, b * len(names) + a, begin, rises)
        a = a[rows]
        b = b[rows]
        begin = begin[rows]
    return ContactLog(
        names, a, b, begin, end, read.absolute, groups, tuple(notes), listed_once or is_event
    )


def _events(table: Table, layout: Layout) -> BoolArray:
    """Return True for every `up` and False for every `down` of a log of events."""
    for k, name in enumerate(CONN):
        # The ONE simulator has other events too, such as messages.
        if name == LEFT_OUT and len(table.columns) == len(CONN) and _is_one(layout):
            row = table.columns[k].first_not("(?i)^CONN$")
            if row is not None:
                shown = " ".join(table.row(row))[:SHOWN]
                raise table.error(row, f"expected lines `t CONN a b up|down`, not {shown!r}")
    column = table.columns[layout.roles["event"]]
    row = column.first_not("(?i)^(up|down)$")
    if row is not None:
        shown = column.cells[row].as_py()[:SHOWN]
        raise table.error(row, f"expected `up` or `down`, not {shown!r}")
    words, index = column.encoded
    is_up = np.array([word.lower() == "up" for word in words])
    rises: BoolArray = is_up[index]
    return rises


def _is_one(layout: Layout) -> bool:
    """True if the columns are those of the ONE simulator."""
    return layout.roles == {"time": 0, "a": 2, "b": 3, "event": 4}


def _check_rows(
    table: Table,
    names: tuple[str, ...],
    a: IntArray,
    b: IntArray,
    begin: FloatArray,
    end: FloatArray,
) -> None:
    """Refuse contacts of a device with itself, and contacts that end before they begin."""
    same = np.flatnonzero(a == b)
    if len(same):
        row = int(same[0])
        raise table.error(row, f"device {names[a[row]]} is linked to itself")
    wrong = np.flatnonzero(end < begin)
    if len(wrong):
        row = int(wrong[0])
        raise table.error(row, "the contact ends before it begins")


def _paired(
    table: Table, code: IntArray, reverse: IntArray, time: FloatArray, rises: BoolArray
) -> tuple[IntArray, FloatArray]:
    """Return the row of each `up`, and the time of the `down` that follows it.

    A contact without a `down` lasts until the last time of the log.
    """
    pair = np.minimum(code, reverse)
    order = np.argsort(pair, kind="stable")  # the events of a pair in the order of the log
    same = pair[order][1:] == pair[order][:-1]
    up = rises[order]
    begins_pair = np.concatenate([[True], ~same])
    follows = np.concatenate([[False], up[:-1]]) & ~begins_pair  # an `up` is before
    wrong = order[up & follows]
    if len(wrong):
        raise table.error(int(wrong.min()), "this contact is up already; expected its `down` first")
    wrong = order[~up & ~follows]
    if len(wrong):
        raise table.error(int(wrong.min()), "`down` without an `up` before it")
    ends = np.full(len(order), time.max())
    has_down = np.concatenate([same & up[:-1], [False]])
    ends[has_down] = time[order][1:][has_down[:-1]]
    backwards = np.flatnonzero(ends < time[order])
    if len(backwards):
        row = int(order[backwards[0] + 1])
        raise table.error(row, "this `down` is before its `up`")
    rows = order[up]
    in_log = np.argsort(rows)
    return rows[in_log], ends[up][in_log]
