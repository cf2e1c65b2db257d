"""Make fixes of the rows of a log of positions, or of GPX tracks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gossamer.errors import DataError, InputError
from gossamer.network.base import FloatArray
from gossamer.network.traces import gpx, header, times
from gossamer.network.traces.header import LEFT_OUT
from gossamer.network.traces.ids import in_order, read_ids
from gossamer.network.traces.logs import PositionLog
from gossamer.network.traces.table import Table, read_table
from gossamer.network.traces.text import SHOWN

_NAMES = {
    "time": header.ROLES["time"],
    "device": header.words(
        """device id name node vehicle taxi user tag track car robot bus phone person animal
        mac imei uid device_id node_id vehicle_id taxi_id user_id track_id tag_id bus_id individual
        driver trip individual_local_identifier tag_local_identifier"""
    ),
    "x": header.words("x east easting pos_x x_m position_x"),
    "y": header.words("y north northing pos_y y_m position_y"),
    "latitude": header.words("latitude lat gps_lat location_lat position_lat"),
    "longitude": header.words("longitude lon lng long gps_lon location_long position_long"),
}
_ADVICE = 'columns = ["time", "device", "x", "y"] or ["time", "device", "latitude", "longitude"]'


def positions_of(
    path: Path, columns: Sequence[str] | Mapping[str, str], geographic: bool
) -> PositionLog:
    """Read a log of positions; see `read_positions`.

    Args:
        path: The log.
        columns: What the columns are; empty to recognise them.
        geographic: True if x and y are latitude and longitude.
    """
    if gpx.is_gpx(path):
        if columns:
            raise InputError("columns", columns, f"none: {path} is GPX")
        return _of_tracks(gpx.read_tracks(path))
    table = read_table(path)
    table, names = header.split_header(table, bool(columns))
    roles, left_out = _roles(table, names, columns)
    return _of_table(table, roles, left_out, geographic)


def _of_tracks(tracks: list[gpx.Track]) -> PositionLog:
    names = in_order([track.name for track in tracks])
    number = {name: k for k, name in enumerate(names)}
    device = []
    time = []
    position = []
    for track in tracks:
        device.append(np.full(len(track.time), number[track.name]))
        time.append(np.array(track.time))
        position.append(np.stack([np.array(track.latitude), np.array(track.longitude)], axis=1))
    return PositionLog(
        names,
        np.concatenate(device),
        np.concatenate(time),
        np.concatenate(position),
        absolute=True,
        geographic=True,
    )


def _roles(
    table: Table, names: Sequence[str], columns: Sequence[str] | Mapping[str, str]
) -> tuple[dict[str, int], list[str]]:
    """Return the column of each role, and the names of those that are not used."""
    if columns:
        given = header.given_names(table, names, columns)
        roles, left_out = _roles_of_names(given)
        if not _is_complete(roles) or [name for name in left_out if name != LEFT_OUT]:
            raise InputError("columns", columns, f"names such as {_ADVICE}")
        return roles, []
    if names:
        roles, left_out = _roles_of_names(names)
        if not _is_complete(roles):
            shown = ", ".join(names)[:SHOWN]
            raise DataError(f"{table.path}: the columns {shown!r} are not clear; set {_ADVICE}")
        return roles, left_out
    if table.comment:
        words = table.comment.replace(",", " ").split()
        roles, left_out = _roles_of_names(words)
        if len(words) == len(table.columns) and _is_complete(roles):
            return roles, left_out
    return _roles_of_values(table), []


def _roles_of_names(names: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    roles: dict[str, int] = {}
    left_out = []
    for k, name in enumerate(names):
        role = None
        for one, known in _NAMES.items():
            if header.plain_name(name) in known:
                role = one
        if role in roles:
            return {}, []  # two columns of one role
        if role is not None:
            roles[role] = k
        elif header.plain_name(name):
            left_out.append(name)
    return roles, left_out


def _is_complete(roles: Mapping[str, int]) -> bool:
    if "time" not in roles or "device" not in roles:
        return False
    has_degrees = "latitude" in roles and "longitude" in roles
    return has_degrees or ("x" in roles and "y" in roles)


def _roles_of_values(table: Table) -> dict[str, int]:
    """Return the roles of `time device x y`, or `device time x y` if only that is possible."""
    if len(table.columns) != 4:
        shown = " ".join(table.row(0))[:SHOWN]
        raise table.error(
            0, f"expected lines `t device x y`, not {shown!r}; or say what it is with {_ADVICE}"
        )
    first, second = (table.columns[k] for k in (0, 1))
    if times.is_date(second) and not times.is_date(first):
        return {"device": 0, "time": 1, "x": 2, "y": 3}
    return {"time": 0, "device": 1, "x": 2, "y": 3}


def _of_table(
    table: Table, roles: Mapping[str, int], left_out: list[str], geographic: bool
) -> PositionLog:
    has_degrees = "latitude" in roles
    keys = ("x", "y")
    if has_degrees:
        keys = ("latitude", "longitude")
    first, second = (_coordinates(table, roles[key]) for key in keys)
    if has_degrees or geographic:
        wrong = np.flatnonzero((np.abs(first) > 90) | (np.abs(second) > 180))
        if len(wrong):
            row = int(wrong[0])
            raise table.error(
                row,
                f"latitude {first[row]:g} or longitude {second[row]:g} is out of range; give -90 "
                "to 90 and -180 to 180 degrees, or name the columns in their order with columns",
            )
    read = times.read_times(table, [roles["time"]])
    names, (device,) = read_ids(table, [roles["device"]])
    notes = [read.note] if read.note else []
    if left_out:
        notes.append(f"not used: {', '.join(left_out)}"[:SHOWN])
    position = np.stack([first, second], axis=1)
    return PositionLog(
        names, device, read.columns[0], position, read.absolute, has_degrees, tuple(notes)
    )


def _coordinates(table: Table, column: int) -> FloatArray:
    """Return a column of finite numbers."""
    cells = table.columns[column]
    if cells.numbers is None:
        row = times.first_not_number(cells)
        shown = cells.cells[row].as_py()[:SHOWN]
        raise table.error(row, f"the position {shown!r} is not a finite number")
    return cells.numbers
