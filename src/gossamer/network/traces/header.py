"""Tell what the columns of a log are from their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gossamer.errors import DataError, InputError
from gossamer.network.traces.table import Table

LEFT_OUT = "-"  # the name of a column that is not used
_DIGIT = re.compile(r"[+-]?(\.?\d|(nan|inf)$)", re.ASCII | re.IGNORECASE)
_DATE = r"^\d{4}[-/]\d\d[-/]\d\d$"
_TIME_OF_DAY = r"^\d\d:\d\d(:\d\d([.,]\d{1,9})?)?$"
_UNIT = re.compile(r"_(s|sec|secs|seconds|ms|msec|millis|milliseconds|utc|unix)$")
_MILLISECONDS = re.compile(r"_?(ms|msec|millis|milliseconds)$")


def words(text: str) -> frozenset[str]:
    """Return the words of a text.

    Args:
        text: The text.
    """
    return frozenset(text.split())


_TIMES = words(
    """time t timestamp ts date datetime date_time time_stamp when unixtime unix_time unix epoch
    clock sim_time simtime seconds"""
)
_BEGINS = words(
    """begin start begins starts begin_time start_time time_begin time_start t_begin t_start
    tbegin tstart begintime starttime t0 start_timestamp begin_timestamp departure departure_time
    aos"""
)
_ENDS = words(
    """end stop finish ends stops end_time stop_time time_end time_stop t_end t_stop tend tstop
    endtime stoptime end_timestamp stop_timestamp arrival arrival_time until los"""
)
_DURATIONS = words("duration dur length contact_duration duration_time")
_EVENTS = words("event state status action updown up_down conn")
ROLES = {"time": _TIMES, "begin": _BEGINS, "end": _ENDS, "duration": _DURATIONS, "event": _EVENTS}

_ROLE_ENDINGS = {
    "begin": ("_begin", "_start", "_begin_time", "_start_time"),
    "end": ("_end", "_stop", "_end_time", "_stop_time"),
    "duration": ("_duration",),
}

# Names of the two devices of a contact. Others are recognised by their endings, such as id1, id2.
_PAIRS = (
    ("a", "b"),
    ("i", "j"),
    ("u", "v"),
    ("source", "target"),
    ("src", "dst"),
    ("source", "destination"),
    ("sender", "receiver"),
    ("sender", "recipient"),
    ("ego", "alter"),
    ("node", "neighbour"),
    ("node", "neighbor"),
    ("node", "peer"),
    ("device", "peer"),
    ("id", "peer"),
    ("from", "to"),
)
_ENDINGS = (("1", "2"), ("_a", "_b"), ("_i", "_j"), ("i", "j"), ("_from", "_to"), ("a", "b"))
_DEVICE_STEMS = words(
    """id ids node person people user device tag student patient name agent host vertex badge
    participant member individual phone robot car vehicle satellite station sensor mote uid
    device_id node_id user_id person_id tag_id badge_id actor animal"""
)


@dataclass(frozen=True)
class Layout:
    """What the columns of a log are.

    Attributes:
        roles: Number of the column of each role: time, begin, end, duration, a, b, event.
        groups: Two columns, of the first and the second device, of each further property.
        left_out: Names of the columns that are not used.
        milliseconds: True if the names say that times are in milliseconds.
    """

    roles: dict[str, int]
    groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    milliseconds: bool = False


def has_header(table: Table) -> bool:
    """True if the first row has names of columns: none begins with a digit or is a number.

    Args:
        table: The log. Every other row has a time, so that a row without one has names.
    """
    return not any(_DIGIT.match(word) for word in table.row(0))


def split_header(table: Table, named: bool) -> tuple[Table, list[str]]:
    """Return a log without its header, and the header.

    Args:
        table: The log.
        named: True if the user says what the columns are. Otherwise columns without any value are
            dropped, and a column of dates and one of times of day become one.

    Returns:
        The log, and a name per column; empty if it has no header.

    Raises:
        DataError: If nothing but the header is left.
    """
    names: list[str] = []
    if not named:
        table = table.only([k for k, column in enumerate(table.columns) if not column.is_empty])
    if table.columns and has_header(table):
        names = table.row(0)
        table = table.without_header()
    if not table.columns or not len(table):
        raise DataError(f"{table.path} has no lines with devices; give at least one")
    if names and not named:
        table, names = _joined_date(table, names)
    return table, names


def _joined_date(table: Table, names: list[str]) -> tuple[Table, list[str]]:
    """Join a column `date` and a column `time` with the time of day."""
    plain = [plain_name(name) for name in names]
    if plain.count("date") != 1 or plain.count("time") != 1:
        return table, names
    date = plain.index("date")
    time = plain.index("time")
    if not table.columns[date].matches(_DATE) or not table.columns[time].matches(_TIME_OF_DAY):
        return table, names
    kept = [k for k in range(len(names)) if k not in (date, time)]
    return table.joined(date, time, kept), ["date_time"] + [names[k] for k in kept]


def plain_name(name: str) -> str:
    """Return the name of a column in lower case, with _ for all that is no letter or digit.

    Args:
        name: The name as the log has it.

    Example:
        >>> plain_name("Start time [ms]")
        'start_time_ms'
    """
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def given_names(table: Table, names: Sequence[str], given: object) -> list[str]:
    """Return the names of the columns of a log as the user gives them.

    Args:
        table: The log.
        names: Its header; empty if it has none.
        given: The argument `columns`: a name per column, or the column of each role.

    Returns:
        A name per column; `LEFT_OUT` for those that are not used.

    Raises:
        InputError: If the names do not fit the log.
    """
    if isinstance(given, Mapping):
        return _names_of_roles(names, given)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError("columns", given, 'a list of names such as ["time", "a", "b"]')
    for name in given:
        if not isinstance(name, str):
            raise InputError("columns", given, 'a list of names such as ["time", "a", "b"]')
    if len(given) != len(table.columns):
        shown = " ".join(table.row(0))[:60]
        accepted = (
            f"{len(table.columns)} names, one per column of {table.path}, whose first line is "
            f'{shown!r}; "{LEFT_OUT}" leaves a column out'
        )
        raise InputError("columns", given, accepted)
    return [name or LEFT_OUT for name in given]


def _names_of_roles(names: Sequence[str], given: Mapping[str, str]) -> list[str]:
    """Return a name per column from a table such as {time = "When", a = "Tag", b = "Peer"}."""
    if not names:
        raise InputError("columns", given, "a list with a name per column: the log has no header")
    result = [LEFT_OUT] * len(names)
    for role, name in given.items():
        if name not in names:
            raise InputError("columns", given, f"names of the header, which are {', '.join(names)}")
        result[names.index(name)] = role
    return result


def layout_of_names(names: Sequence[str]) -> Layout:
    """Tell what the columns of a log of contacts are from their names.

    Args:
        names: The name of each column.

    Returns:
        The layout; roles that no name fits are missing.
    """
    plain = [plain_name(name) for name in names]
    roles: dict[str, int] = {}
    for k, name in enumerate(plain):
        role = _role(name)
        if role in roles:
            return Layout({})  # two columns of one role: which one counts is not clear
        if role:
            roles[role] = k
    free = [k for k in range(len(names)) if plain[k] and k not in roles.values()]
    pairs = _pairs(plain, free)
    devices = _device_pair(pairs, free, roles)
    used = set(roles.values())
    if devices is not None:
        roles["a"], roles["b"] = devices
        used |= set(devices)
    groups: dict[str, tuple[int, int]] = {}
    for stem, pair in pairs.items():
        if used.isdisjoint(pair):
            groups[_group_name(stem)] = pair
            used |= set(pair)
    _times_of_pairs(roles, groups)
    left_out = tuple(names[k] for k in range(len(names)) if plain[k] and k not in used)
    milliseconds = any(_MILLISECONDS.search(plain[k]) for r, k in roles.items() if r in ROLES)
    return Layout(roles, groups, left_out, milliseconds)


def _role(name: str) -> str | None:
    """Return the role of a column with this name; None if there is none."""
    for role, known in ROLES.items():
        if name in known or _UNIT.sub("", name) in known:
            return role
    for role, endings in _ROLE_ENDINGS.items():
        if name.endswith(endings):
            return role
    return None


def _pairs(names: Sequence[str], free: Sequence[int]) -> dict[str, tuple[int, int]]:
    """Return pairs of columns by what their names have in common."""
    found: dict[str, tuple[int, int]] = {}
    where = {names[k]: k for k in free}
    for first, second in _PAIRS:
        if first in where and second in where:
            found[f"{first} {second}"] = (where[first], where[second])
    paired = {k for pair in found.values() for k in pair}
    for k in free:
        for first, second in _ENDINGS:
            stem = names[k].removesuffix(first)
            partner = where.get(stem + second)
            if stem != names[k] and partner is not None and paired.isdisjoint((k, partner)):
                found[stem.strip("_")] = (k, partner)
                paired |= {k, partner}
    return found


def _device_pair(
    pairs: Mapping[str, tuple[int, int]], free: Sequence[int], roles: Mapping[str, int]
) -> tuple[int, int] | None:
    """Return the two columns of the devices, or None if that is not clear."""
    for stem, pair in pairs.items():
        if " " in stem or stem in _DEVICE_STEMS:
            return pair
    others = [pair for stem, pair in pairs.items() if stem not in _TIMES]
    if len(others) == 1:
        return others[0]
    if len(free) == 2 and roles:
        return free[0], free[1]
    return None


def _group_name(stem: str) -> str:
    if stem == "c":
        return "class"  # Ci and Cj, as in the files of SocioPatterns
    return stem


def _times_of_pairs(roles: dict[str, int], groups: dict[str, tuple[int, int]]) -> None:
    """Take a pair such as `from` and `to`, or `t1` and `t2`, as times if there are no others."""
    if "time" in roles or "begin" in roles or "a" not in roles:
        return
    for stem in list(groups):
        if stem == "from to" or stem in _TIMES:
            roles["begin"], roles["end"] = groups.pop(stem)
            return
