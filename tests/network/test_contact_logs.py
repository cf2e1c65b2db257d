"""Logs of contacts as people have them: every dialect and format, and what is not clear."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.logs import as_tuples, made

from gossamer.errors import DataError, InputError
from gossamer.network import ContactTrace, read_contacts
from gossamer.network.traces import progress, table

with_files = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
UNIX = 1_291_597_340  # 6 December 2010, 01:02:20 UTC

# Every dialect: contacts as (begin, length, a, b) with whole seconds, written in many ways.

NAMES = {
    "numbers": ["3", "17", "204", "5", "1098", "40"],
    "words": ["robot-9", "robot-10", "anna", "Zoë", "b_2", "x"],
    "mixed": ["3", "anna", "17", "x", "204", "Zoë"],
}


def iso(zone: timezone, separator: str) -> Callable[[int], str]:
    def write(seconds: int) -> str:
        moment = datetime.fromtimestamp(UNIX + seconds, UTC).astimezone(zone)
        text = moment.isoformat(separator)
        return text.replace("+00:00", "Z")

    return write


# How a time is written, and the seconds of time 0.
CLOCKS: dict[str, tuple[Callable[[int], str], int]] = {
    "relative": (str, 0),
    "fraction": (lambda seconds: f"{seconds}.0", 0),
    "seconds": (lambda seconds: str(UNIX + seconds), UNIX),
    "milliseconds": (lambda seconds: str((UNIX + seconds) * 1000), UNIX),
    "utc": (iso(UTC, "T"), UNIX),
    "zone": (iso(timezone(timedelta(hours=5, minutes=30)), " "), UNIX),
}
LAYOUTS = {
    "events": ["time", "a", "b"],
    "durations": ["timestamp", "id1", "id2", "duration"],
    "begin": ["begin", "end", "source", "target"],
    "end": ["i", "j", "start", "stop"],
    "classes": ["t", "i", "j", "Ci", "Cj"],
    "updown": ["time", "-", "a", "b", "event"],
}


@dataclass(frozen=True)
class Dialect:
    layout: str
    separator: str
    header: bool
    mark: bool
    ends: str
    packed: bool
    quotes: bool
    clock: str
    ids: str


dialects = st.builds(
    Dialect,
    layout=st.sampled_from(list(LAYOUTS)),
    separator=st.sampled_from([" ", "\t", ",", ";", ", ", "   "]),
    header=st.booleans(),
    mark=st.booleans(),
    ends=st.sampled_from(["\n", "\r\n"]),
    packed=st.booleans(),
    quotes=st.booleans(),
    clock=st.sampled_from(list(CLOCKS)),
    ids=st.sampled_from(list(NAMES)),
)
contacts = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 50), st.integers(0, 5), st.integers(0, 5)).filter(
        lambda contact: contact[2] != contact[3]
    ),
    min_size=1,
    max_size=25,
).map(sorted)


def rows_of(dialect: Dialect, log: list[tuple[int, int, int, int]]) -> list[list[str]]:
    """Return the cells of every line."""
    write, _ = CLOCKS[dialect.clock]
    unit = 1
    if dialect.clock == "milliseconds":
        unit = 1000
    names = NAMES[dialect.ids]
    rows = []
    for begin, length, i, j in log:
        time = write(begin)
        end = write(begin + length)
        a = names[i]
        b = names[j]
        cells = {
            "events": [time, a, b],
            "durations": [time, a, b, str(length * unit)],
            "begin": [time, end, a, b],
            "end": [a, b, time, end],
            "classes": [time, a, b, f"class-{a}", f"class-{b}"],
        }
        if dialect.layout == "updown":  # one after the other, so that every `down` follows its `up`
            rows.append([time, "CONN", a, b, "up"])
            rows.append([end, "CONN", b, a, "down"])
        else:
            rows.append(cells[dialect.layout])
    return rows


def write_log(path: Path, dialect: Dialect, log: list[tuple[int, int, int, int]]) -> None:
    rows = rows_of(dialect, log)
    if dialect.header and dialect.layout != "updown":
        rows.insert(0, LAYOUTS[dialect.layout])
    quote = ""
    if dialect.quotes:
        quote = '"'
    text = ""
    for cells in rows:
        text += quote + (quote + dialect.separator + quote).join(cells) + quote + dialect.ends
    data = text.encode()
    if dialect.mark:
        data = codecs.BOM_UTF8 + data
    if dialect.packed:
        data = gzip.compress(data, 1)
    path.unlink(missing_ok=True)  # faster than to overwrite it
    path.write_bytes(data)


def naive(dialect: Dialect, log: list[tuple[int, int, int, int]]) -> list[tuple]:
    """Return begin, end and names of the contacts by definition."""
    _, zero = CLOCKS[dialect.clock]
    names = NAMES[dialect.ids]
    result = []
    for begin, length, i, j in log:
        if dialect.layout in ("events", "classes"):
            length = 0
        result.append((zero + begin, zero + begin + length, names[i], names[j]))
    return result


def may_be_unclear(dialect: Dialect) -> bool:
    """True for small numbers without a header in four columns."""
    is_relative = dialect.clock in ("relative", "fraction")
    return is_relative and not dialect.header and dialect.layout in ("durations", "begin", "end")


def refusal(path: Path) -> str:
    """Return the message of a log that is refused; empty if it is accepted."""
    try:
        read_contacts(path)
    except (DataError, InputError) as error:
        return str(error)
    return ""


@given(dialect=dialects, log=contacts)
@with_files
def test_every_dialect_reads_back(
    tmp_path: Path, dialect: Dialect, log: list[tuple[int, int, int, int]]
) -> None:
    path = tmp_path / "contacts.log"
    write_log(path, dialect, log)
    columns: list[str] = []
    if may_be_unclear(dialect) and refusal(path):
        assert "not clear" in refusal(path)
        assert "columns = [" in refusal(path)
        columns = LAYOUTS[dialect.layout]
    read = read_contacts(path, columns)
    assert as_tuples(read) == naive(dialect, log)
    assert read.absolute == (CLOCKS[dialect.clock][1] != 0)
    used = set()
    for _, _, a, b in naive(dialect, log):
        used |= {a, b}
    key: Callable[[str], object] = str
    if dialect.ids == "numbers" or all(map(str.isdecimal, used)):
        key = int
    assert read.names == tuple(sorted(used, key=key))
    groups: dict[str, tuple[str, ...]] = {}
    if dialect.layout == "classes":
        groups = {"class": tuple(f"class-{name}" for name in read.names)}
    assert read.groups == groups


def test_columns_by_the_names_of_the_header(tmp_path: Path) -> None:
    path = tmp_path / "contacts.csv"
    path.write_text("Tag,Peer,When,RSSI\nann,ben,5,-70\n")
    with pytest.raises(DataError, match=r"'Tag, Peer, When, RSSI' are not clear; say what"):
        read_contacts(path)
    log = read_contacts(path, {"time": "When", "a": "Tag", "b": "Peer"})
    assert as_tuples(log) == [(5.0, 5.0, "ann", "ben")]
    assert as_tuples(read_contacts(path, ("a", "b", "t", "-"))) == as_tuples(log)
    trace = ContactTrace(path, columns={"time": "When", "a": "Tag", "b": "Peer"})
    assert hash(trace) == hash(ContactTrace(path, columns=("a", "b", "t", "-")))
    with pytest.raises(InputError, match="names of the header, which are Tag, Peer, When, RSSI"):
        read_contacts(path, {"time": "when", "a": "Tag", "b": "Peer"})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("#t i j\n0 1 2\n", [(0, 0, "1", "2")]),
        ("% sym unweighted\n1 2 1082040961\n", [(1082040961, 1082040961, "1", "2")]),
        (",time,a,b\n0,5,x,y\n", [(5, 5, "x", "y")]),  # the index of a data frame
        ("0 dev#1 dev#2  # a comment\n", [(0, 0, "dev#1", "dev#2")]),
        ("2010-12-06 01:02:20 +0100 a b\n", [(UNIX - 3600, UNIX - 3600, "a", "b")]),
        ("Date,Time,Tag 1,Tag 2\n2010-12-06,01:02:20,a,b\n", [(UNIX, UNIX, "a", "b")]),
        ("contact_start,contact_end,a,b\n1,2,x,y\n", [(1, 2, "x", "y")]),
        ("0,x,y,\n1,x,y,\n", [(0, 0, "x", "y"), (1, 1, "x", "y")]),  # a comma at the end
        ("2010/12/06 01:02:20;a;b\n", [(UNIX, UNIX, "a", "b")]),
        ("from,to,a,b\n08:00:00,25:10:00,bus 1,stop\n", [(28800, 90600, "bus 1", "stop")]),
        ("t_ms,u,v\n1500,x,y\n", [(1.5, 1.5, "x", "y")]),
        ("time,person1,person2,duration\n0,x,y,00:05:00\n", [(0, 300, "x", "y")]),
        ("ann ben 5\ncas ann 2\n", [(5, 5, "ann", "ben"), (2, 2, "cas", "ann")]),
        ("0 a b up\n3 b a down\n5 a b up\n9 c a up\n", [(0, 3, "a", "b"), (5, 9, "a", "b")]),
        (
            "s 1\na contact +0 +60 1 2 1e5\na range +0 +9 1 2 1\na contact +0 +9 2 2 1\n",
            [(0, 60, "1", "2")],
        ),
        (
            "a contact 2010/12/06-01:02:20 2010/12/06-01:03:20 sat gs 100\n",
            [(UNIX, UNIX + 60, "sat", "gs")],
        ),
    ],
)
def test_formats_by_example(tmp_path: Path, text: str, wanted: list[tuple]) -> None:
    path = tmp_path / "contacts.txt"
    path.write_text(text)
    assert as_tuples(read_contacts(path))[: len(wanted)] == wanted


def test_utf_16_as_windows_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "contacts.txt"
    path.write_bytes("0\tZoë\tann\r\n".encode("utf-16"))
    assert as_tuples(read_contacts(path)) == [(0, 0, "Zoë", "ann")]


@pytest.mark.parametrize(
    "text",
    [
        "582 364 0\n168 472 2797\n168 912 3304\n",  # a b time
        "3 1 8\n1 2 9\n2 3 7\n",  # a time b
        "1 1300000000 2\n",
        "20 1300000001 1300000002\n",  # large numbers of devices
        "0 1 2 10\n",
        "1291597340 2000000001 2000000002 60\n",
        "1 2 3 4 5\n",
        "0 a b X Y\n5 b a X X\n",  # b is of X and of Y
        "foo,bar,baz\n1,2,3\n",
        "time,timestamp,a,b\n1,2,x,y\n",
        "1 2 1 1082008561\n",  # a b weight time
        "1 8 121 121 1 0\n",  # a b begin end number gap
        "0 a b c d e f\n",
    ],
)
def test_what_is_not_clear_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "contacts.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=r"not clear.* columns = \["):
        read_contacts(path)


def test_long_logs_of_edges_with_the_time_last(tmp_path: Path) -> None:
    path = tmp_path / "email.txt"
    path.write_text(made(lambda k: f"{k * 7 % 20} {(k * 7 + 1 + k % 5) % 20} {k}", 200))
    log = read_contacts(path)
    assert len(log.names) == 20
    assert log.begin.tolist() == list(range(200))


# Large files


def test_progress_of_a_large_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "contacts.txt"
    path.write_text(made(lambda k: f"{k} {k % 7} {k % 7 + 1}", 5000))
    monkeypatch.setattr(progress, "SMALL", 1000)
    monkeypatch.setattr(table, "_BLOCK", 16384)
    seen: list[tuple[Path, int, int]] = []
    with progress.reporting(lambda *report: seen.append(report)):
        assert len(read_contacts(path)) == 5000
    done = [part for _, part, _ in seen]
    assert len(seen) > 3
    assert done == sorted(done)
    assert seen[-1] == (path, path.stat().st_size, path.stat().st_size)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "contacts.txt"
    path.write_text(made(lambda k: f"{k} {k % 7} {k % 7 + 1}", 50))
    monkeypatch.setattr("gossamer.network.limits.MAX_LINKS", 20)
    with pytest.raises(DataError, match="more than 20 lines"):
        read_contacts(path)
    monkeypatch.undo()
    monkeypatch.setattr("gossamer.network.limits.MAX_DEVICES", 5)
    with pytest.raises(DataError, match="more than 5 devices"):
        read_contacts(path)
    monkeypatch.undo()
    path.write_text(" ".join(["5"] * 1001) + "\n")
    with pytest.raises(DataError, match="1,001 columns"):
        read_contacts(path)
