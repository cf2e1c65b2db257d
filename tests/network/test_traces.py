"""Networks from logs: against plain loops, and errors that name file and line."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.errors import DataError, InputError
from gossamer.network import ContactTrace, PositionTrace
from gossamer.network.recorded import Recorded
from gossamer.network.traces import positions
from gossamer.network.traces import text as log_text

with_files = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "trace.txt"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def pairs(network: Recorded, t: int) -> list[list[int]]:
    return network.links(t).pairs.tolist()


def all_pairs(network: Recorded) -> list[list[list[int]]]:
    return [pairs(network, t) for t in range(network.rounds or 0)]


def lines(rows: Iterable[tuple[object, ...]]) -> str:
    return "".join(" ".join(map(str, row)) + "\n" for row in rows)


# Contacts


def test_contacts(write: Callable[[str], Path]) -> None:
    trace = ContactTrace(
        write("# a comment\n0 1 0\n\n0.5, 2, 1  # and one here\n1.0\t0 1\n1.9,1,0\n4 0 2\n")
    )
    assert (trace.devices, trace.rounds, trace.names) == (3, 5, ("0", "1", "2"))
    assert all_pairs(trace) == [[[0, 1], [1, 2]], [[0, 1]], [], [], [[0, 2]]]


def test_lines_in_any_order_and_rounds_of_any_length(write: Callable[[str], Path]) -> None:
    trace = ContactTrace(write("0.3 0 1\n0.1 1 2\n0.0 0 2\n"), devices=5, seconds_per_round=0.1)
    assert trace.devices == 5
    # 0.3 / 0.1 is a little under 3 in floating point; the contact is in round 3 nevertheless.
    assert all_pairs(trace) == [[[0, 2]], [[1, 2]], [], [[0, 1]]]


def test_named_devices_are_numbered_in_sorted_order(write: Callable[[str], Path]) -> None:
    trace = ContactTrace(write("0 robot-9 robot-10\n1 anna robot-9\n"))
    assert trace.names == ("anna", "robot-10", "robot-9")
    assert all_pairs(trace) == [[[1, 2]], [[0, 2]]]


def test_clock_times_with_a_start(write: Callable[[str], Path]) -> None:
    trace = ContactTrace(
        write("1700000000 0 1\n1700000065 0 1\n"), start=1_700_000_000, seconds_per_round=60
    )
    assert (trace.rounds, pairs(trace, 1)) == (2, [[0, 1]])


@given(
    quarters=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 6), st.integers(0, 6)),
        min_size=1,
        max_size=60,
    ),
    seconds=st.sampled_from([1.0, 2.5, 40.0]),
)
@with_files
def test_contacts_against_a_plain_loop(
    tmp_path: Path, quarters: list[tuple[int, int, int]], seconds: float
) -> None:
    contacts = [(quarter / 4, a, b) for quarter, a, b in quarters if a != b] or [(0.0, 0, 1)]
    path = tmp_path / "trace.txt"
    path.write_text(lines(contacts))
    trace = ContactTrace(
        path, devices=7, seconds_per_round=seconds, start=0, columns=("time", "a", "b")
    )
    assert trace.rounds == math.floor(max(contacts)[0] / seconds) + 1
    for t in range(trace.rounds):
        wanted = set()
        for time, a, b in contacts:
            if math.floor(time / seconds) == t:
                wanted.add((min(a, b), max(a, b)))
        assert pairs(trace, t) == sorted(map(list, wanted))


def test_symmetric(write: Callable[[str], Path]) -> None:
    both = "0 a b\n0 b a\n1 b a\n1.5 a b\n"
    assert ContactTrace(write(both), symmetric="require") != ContactTrace(write(both))
    with pytest.raises(
        DataError, match=r"the contact c b of round 0 is not listed the other way round"
    ):
        ContactTrace(write("0 a b\n0 b a\n0 c b\n1 b c\n"), symmetric="require")


# Intervals


def test_intervals(write: Callable[[str], Path]) -> None:
    trace = ContactTrace(
        write(
            "0.5 CONN 0 1 up\n1 conn 2 1 UP\n2.0 CONN 1 0 down\n2 CONN 1 2 down\n"
            "2 CONN 0 1 up\n4.2 CONN 0 2 up\n"
        ),
        start=0,
    )
    # 0-1 is up in [0.5, 2) and from 2 to the end; 1-2 in [1, 2), which ends when round 2 begins;
    # 0-2 from 4.2.
    assert all_pairs(trace) == [
        [[0, 1]],
        [[0, 1], [1, 2]],
        [[0, 1]],
        [[0, 1]],
        [[0, 1], [0, 2]],
    ]


def test_a_trace_that_ends_when_a_round_begins_does_not_have_that_round(
    write: Callable[[str], Path],
) -> None:
    assert ContactTrace(write("0 CONN a b up\n3 CONN a b down\n")).rounds == 3


def test_a_contact_of_length_zero_is_a_link(write: Callable[[str], Path]) -> None:
    assert pairs(ContactTrace(write("2 CONN a b up\n2 CONN a b down\n")), 0) == [[0, 1]]


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([(0, 1), (0, 2), (1, 2), (3, 0)])),
        min_size=1,
        max_size=40,
    ),
    seconds=st.sampled_from([1.0, 2.0, 7.0]),
)
@with_files
def test_intervals_against_a_plain_loop(tmp_path: Path, steps: list, seconds: float) -> None:
    now = 0.0
    up: dict[Any, Any] = {}
    contacts = []
    lines = []
    for wait, pair in steps:  # each step begins or ends a contact, in quarters of a second
        now += wait / 4
        if pair in up:
            contacts.append((pair, up.pop(pair), now))
            event = "down"
        else:
            up[pair] = now
            event = "up"
        lines.append(f"{now} CONN {pair[0]} {pair[1]} {event}\n")
    for pair, begin in up.items():  # not ended: until the last time of the log
        contacts.append((pair, begin, now))
    path = tmp_path / "trace.txt"
    path.write_text("".join(lines))
    trace = ContactTrace(path, devices=4, seconds_per_round=seconds, start=0)
    for t in range(trace.rounds or 0):
        low = t * seconds
        high = low + seconds
        wanted = set()
        for pair, begin, end in contacts:
            overlaps = begin < high and end > low
            if overlaps or low <= begin < high:
                wanted.add(tuple(sorted(pair)))
        assert pairs(trace, t) == sorted(map(list, wanted))


# Positions


def test_positions(write: Callable[[str], Path]) -> None:
    trace = PositionTrace(write("0 a 0 0\n4 a 8 0\n1,b,4,0\n3,b,4,3\n"), radius=2.0)
    assert (trace.names, trace.rounds) == (("a", "b"), 5)
    np.testing.assert_allclose(trace.positions(2), [[4, 0], [4, 1.5]])
    for t in range(5):
        assert trace.links(t).active.tolist() == [True, 1 <= t <= 3]
    assert all_pairs(trace) == [[], [[0, 1]], [[0, 1]], [], []]


@given(
    halves=st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 4), st.integers(-9, 9), st.integers(-9, 9)),
        min_size=1,
        max_size=40,
        unique_by=lambda fix: fix[:2],
    )
)
@with_files
def test_positions_against_numpy_interp(
    tmp_path: Path, halves: list[tuple[int, int, int, int]]
) -> None:
    fixes = [(half / 2, who, x, y) for half, who, x, y in halves]
    path = tmp_path / "trace.txt"
    path.write_text(lines(fixes))
    trace = PositionTrace(path, radius=6.0, devices=5, start=0)
    for t in range(trace.rounds or 0):
        wanted = np.full((5, 2), np.nan)
        for who in range(5):
            own = sorted(fix for fix in fixes if fix[1] == who)
            if own and own[0][0] <= t <= own[-1][0]:
                times, _, x, y = np.transpose(own)
                wanted[who] = np.interp(t, times, x), np.interp(t, times, y)
        np.testing.assert_allclose(trace.positions(t), wanted, atol=1e-12)
        links = trace.links(t)
        assert np.array_equal(links.active, ~np.isnan(wanted[:, 0]))
        for i in range(5):
            for j in range(i + 1, 5):
                distance = math.dist(wanted[i], wanted[j])
                if not abs(distance - 6.0) < 1e-9:  # otherwise rounding decides
                    assert ([i, j] in links.pairs.tolist()) == (distance <= 6.0)


def haversine(one: tuple[float, float], other: tuple[float, float]) -> float:
    lat, lon = map(math.radians, one)
    lat2, lon2 = map(math.radians, other)
    h = (
        math.sin((lat2 - lat) / 2) ** 2
        + math.cos(lat) * math.cos(lat2) * math.sin((lon2 - lon) / 2) ** 2
    )
    return 2 * positions.EARTH_RADIUS * math.asin(math.sqrt(h))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((48.2, 16.37), (48.2009, 16.3712)),
        ((0, 179.9999), (0, -179.9999)),
        ((89.9999, 0), (89.9999, 180)),
        ((0, 0), (0, 180)),
    ],
)
def test_geographic_radius_is_metres(
    one: tuple, other: tuple, write: Callable[[str], Path]
) -> None:
    path = write(f"0 a {one[0]} {one[1]}\n0 b {other[0]} {other[1]}\n")
    distance = haversine(one, other)
    assert pairs(PositionTrace(path, radius=distance * 1.001, geographic=True), 0) == [[0, 1]]
    assert pairs(PositionTrace(path, radius=distance * 0.999, geographic=True), 0) == []


def test_geographic_positions_move_the_shorter_way(write: Callable[[str], Path]) -> None:
    trace = PositionTrace(write("0 a 0 179\n2 a 0 -179\n1 b 0 180\n"), radius=10.0, geographic=True)
    assert pairs(trace, 1) == [[0, 1]]


# Beyond the end


def test_beyond(write: Callable[[str], Path]) -> None:
    path = write("0 0 1\n2 1 2\n")
    with pytest.raises(InputError, match=r"round = 3 is not accepted: give a round from 0 to 2"):
        ContactTrace(path).links(3)
    repeat = ContactTrace(path, beyond="repeat")
    empty = ContactTrace(path, beyond="empty")
    for t in range(6):
        assert repeat.links(t + 3) == repeat.links(t)
    assert (repeat.period, repeat.rounds, repeat.recorded) == (3, None, 3)
    assert len(empty.links(3)) == 0
    for trace in (repeat, empty):
        with pytest.raises(InputError):
            trace.links(-1)


# Errors


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("0 0 1\nhello\n", 2, "expected 3 values as in the first line, not 1 in 'hello'"),
        ("0 0 1\n\n# x\n1 2\n", 4, "expected 3 values as in the first line"),
        ("now 0 1\n", 1, "'now' is not a number of seconds or a date"),
        ("0 0 1\nnow 0 1\n", 2, "'now' is not a finite number"),
        ("0 0 1\nnan 0 1\n", 2, "not a finite number"),
        ("inf 0 1\n", 1, "'inf' is not a number"),
        ("2010-12-06 a b\n2010-02-30 a b\n", 2, "'2010-02-30' is not a number of seconds or"),
        ("2010-12-06T01:02Z a b\n2010-12-06T01:02 a b\n", 2, "differs in its zone"),
        ("06/12/2010,a,b\n", 1, "'06/12/2010' is not a number of seconds or a date"),
        ("0 0 1\n1300000000 0 1\n", 1, "neither all unix times nor all seconds"),
        ("0 0 1\n0 3 3\n", 2, "device 3 is linked to itself"),
        ("0 7 007\n", 1, "device 7 is linked to itself"),
        ("0 0 -1\n", 1, "device -1 is negative"),
        ("0 a b\n1 a NA\n", 2, "device 'NA' is a missing value"),
        ("0,a,b\n1,a,\n", 2, "device '' is a missing value"),
        ("0 a b\n1 a 1.5\n", 2, "device 1.5 is a fraction"),
        ("time a b duration\n0 x y -1\n", 2, "the duration -1 is negative"),
        ("time a b duration\n0 x y z\n", 2, "the duration 'z' is not a finite number"),
        ("begin end a b\n5 9 x y\n5 4 x y\n", 3, "ends before it begins"),
        ("0 CONN 0 1 down\n", 1, "`down` without an `up`"),
        ("0 CONN 0 1 up\n1 CONN 1 0 up\n", 2, "up already"),
        ("5 CONN 0 1 up\n1 CONN 1 0 down\n", 2, "this `down` is before its `up`"),
        ("0 CONN 0 1 sideways\n", 1, "expected `up` or `down`"),
        ("0 CONN 0 1 up\n1 0 1\n", 2, "expected 5 values as in the first line"),
        ("0 CONN 0 1 up\n1 CALL 0 1 down\n", 2, "expected lines `t CONN a b up|down`"),
        ("a contact +0 +5 1\n", 1, "expected `a contact BEGIN END FROM TO`"),
    ],
)
def test_bad_contacts_name_file_and_line(
    text: str, line: int, reason: str, write: Callable[[str], Path]
) -> None:
    path = write(text)
    with pytest.raises(DataError) as caught:
        ContactTrace(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("0 a 1\n", 1, "expected lines `t device x y`"),
        ("0 a 1 x\n", 1, "the position 'x' is not a finite number"),
        ("0 a 1 inf\n", 1, "not a finite number"),
        ("0 a 1 1\n0 a 91 0\n", 2, "latitude"),
        ("0 a 1 181\n", 1, "longitude"),
    ],
)
def test_bad_positions_name_file_and_line(
    text: str, line: int, reason: str, write: Callable[[str], Path]
) -> None:
    path = write(text)
    with pytest.raises(DataError) as caught:
        PositionTrace(path, radius=1.0, geographic=True)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert reason in str(caught.value)


def test_more_devices_than_the_argument_allows(write: Callable[[str], Path]) -> None:
    with pytest.raises(
        InputError, match=r"devices = 5 is not accepted: give 3, the number of devices that"
    ):
        ContactTrace(write("0 0 1\n1 5 1\n"), devices=5)
    with pytest.raises(
        InputError, match=r"devices = 7 is not accepted: give 2, the number of devices that"
    ):
        ContactTrace(write("0 anna bob\n"), devices=7)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.txt"
    with pytest.raises(DataError, match="cannot be read"):
        ContactTrace(path)
    with pytest.raises(DataError, match="cannot be read"):
        ContactTrace(tmp_path)
    path.write_text("# nothing\n")
    with pytest.raises(DataError, match="has no lines with devices"):
        ContactTrace(path)
    for text in (",,\n,,\n", "time,a,b\n", "\n"):
        path.write_text(text)
        with pytest.raises(DataError, match="has no lines with devices"):
            ContactTrace(path)
    path.write_bytes(b"0 0 1\n0 0 \xff\n")
    with pytest.raises(DataError, match="not UTF-8"):
        ContactTrace(path)
    path.write_bytes(b"0 0 1\n\x00")
    with pytest.raises(DataError, match="not text"):
        ContactTrace(path)
    path.write_bytes(b"\x1f\x8b nonsense")
    with pytest.raises(DataError, match="cannot be read"):
        ContactTrace(path)
    path.write_bytes(gzip.compress(b"0 0 1\n")[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        ContactTrace(path)
    path.write_bytes(gzip.compress(b"0 0 1\n"))
    monkeypatch.setattr(log_text, "MAX_BYTES", 5)
    with pytest.raises(DataError, match="a trace may have 5"):
        ContactTrace(path)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("beyond", {"beyond": "loop"}),
        ("format", {"format": "xml"}),
        ("symmetric", {"symmetric": "no"}),
        ("symmetric", {"symmetric": "require"}),
        ("devices", {"devices": -1}),
        ("seconds_per_round", {"seconds_per_round": 0}),
        ("start", {"start": math.nan}),
        ("start", {"start": "yesterday"}),
        ("start", {"start": "2010-12-06"}),
        ("start", {"start": 5}),
        ("columns", {"columns": ("time", "a", "b")}),
        ("columns", {"columns": ("time", "a", "b", "-", "wrong")}),
        ("columns", {"columns": ("time", "a", "-", "-", "-")}),
        ("columns", {"columns": {"time": "t"}}),
        ("columns", {"columns": "time a b"}),
        ("absent", {"absent": "asleep"}),
        ("seen_within", {"seen_within": -1}),
        ("skip_empty", {"skip_empty": 1}),
    ],
)
def test_bad_options(field: str, options: dict, write: Callable[[str], Path]) -> None:
    with pytest.raises(InputError) as caught:
        ContactTrace(write("0 CONN 0 1 up\n"), **options)
    assert caught.value.field == field


def test_the_format_can_be_set(write: Callable[[str], Path]) -> None:
    with pytest.raises(DataError, match="expected lines `t a b`"):
        ContactTrace(write("0 CONN 0 1 up\n"), format="contacts")
    with pytest.raises(DataError, match="expected lines `t CONN a b"):
        ContactTrace(write("0 0 1\n"), format="intervals")


@given(text=st.text(alphabet="01 2-,#.\nCONupdwe\t", max_size=60))
@with_files
def test_any_text_is_read_or_refused_clearly(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    for make in (ContactTrace, lambda path: PositionTrace(path, radius=1.0)):
        try:
            trace = make(path)
        except (DataError, InputError):
            continue
        trace.links(0)
        trace.links(trace.recorded - 1)
