"""Rounds of contact logs: published logs, devices that are away, empty rounds, long gaps."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.errors import InputError
from gossamer.network import ContactTrace

with_files = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# Published files


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "Contacts_Hospital",
            (
                "75 devices, 32,424 contacts, 6 Dec 2010 01:02 to 10 Dec 01:34 UTC; groups: class",
                "1,159 rounds of 300 s, 29 % of them empty",
            ),
        ),
        (
            "Primary_School",
            (
                "242 devices, 125,773 contacts, 1 Oct 2009 08:40 to 2 Oct 17:08 UTC; groups: class",
                "390 rounds of 300 s, 47 % of them empty",
            ),
        ),
        (
            "thiers_2012",
            (
                "180 devices, 45,047 contacts, 19 Nov 2012 05:36 to 27 Nov 16:14 UTC; "
                "groups: class",
                "2,432 rounds of 300 s, 63 % of them empty",
            ),
        ),
    ],
)
def test_published_logs(outside: Path, tmp_path: Path, name: str, lines: tuple[str, str]) -> None:
    path = outside / "traces" / f"{name}.csv"
    trace = ContactTrace(path)
    assert trace.describe() == lines
    rows = np.loadtxt(path, dtype=str)
    a, b = np.sort(rows[:, 1:3].astype(int)).T
    people = np.unique([a, b])
    assert trace.names == tuple(map(str, people))
    classes = dict(rows[:, [1, 3]].tolist()) | dict(rows[:, [2, 4]].tolist())
    assert trace.groups == {"class": tuple(map(classes.get, trace.names))}
    time = rows[:, 0].astype(int)
    round_of = (time - time[0]) // 300
    pairs = np.stack([np.searchsorted(people, a), np.searchsorted(people, b)], axis=1)
    for t in range(0, trace.recorded, 97):
        met = np.unique(pairs[round_of == t], axis=0)
        assert met.tolist() == trace.links(t).pairs.tolist()
    # The same contacts without the classes, and only the rounds in which somebody meets.
    three = tmp_path / "three.txt"
    np.savetxt(three, rows[:, :3], fmt="%s")
    short = ContactTrace(three, skip_empty=True)
    assert short.names == trace.names
    busy = np.unique(round_of)
    assert short.rounds == len(busy)
    for k in range(0, len(busy), 97):
        assert short.links(k) == trace.links(int(busy[k]))


# Rounds, and devices that are away


@given(
    log=st.lists(
        st.tuples(st.integers(0, 90), st.integers(0, 30), st.integers(0, 4), st.integers(5, 7)),
        min_size=1,
        max_size=12,
    ),
    margin=st.integers(0, 25),
    skip=st.booleans(),
    seconds=st.sampled_from([1, 4, 10]),
)
@with_files
def test_absent_devices_and_empty_rounds(
    tmp_path: Path, log: list[tuple[int, int, int, int]], margin: int, skip: bool, seconds: int
) -> None:
    path = tmp_path / "contacts.csv"
    text = "begin,end,a,b\n"
    for begin, length, a, b in log:
        text += f"{begin},{begin + length},{a},{b}\n"
    path.unlink(missing_ok=True)  # faster than to overwrite it
    path.write_text(text)
    trace = ContactTrace(
        path,
        devices=8,
        seconds_per_round=seconds,
        absent="away",
        seen_within=margin,
        skip_empty=skip,
        beyond="empty",
    )
    start = min(log)[0]
    rounds: dict[int, set[tuple[int, int]]] = {}
    for begin, length, a, b in log:
        first = (begin - start) // seconds
        last = max(first, -(-(begin + length - start) // seconds) - 1)
        for t in range(first, last + 1):
            rounds.setdefault(t, set()).add((a, b))
    real = list(range(max(rounds) + 1))
    if skip:
        real = sorted(rounds)
    assert trace.recorded == len(real)
    for k, t in enumerate(real):
        seen: set[int] = set()
        for other, pairs in rounds.items():
            if abs(other - t) <= margin // seconds:
                seen = seen.union(*pairs)
        links = trace.links(k)
        assert links.pairs.tolist() == sorted(map(list, rounds.get(t, ())))
        assert np.flatnonzero(links.active_mask).tolist() == sorted(seen)
    assert not trace.links(trace.recorded).active_mask.any()


def test_long_gaps_and_long_contacts_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "contacts.csv"
    year = 31_000_000
    path.write_text(f"begin,end,a,b\n0,{3 * year},a,b\n0,1,b,c\n{2 * year},{2 * year + 5},c,d\n")
    trace = ContactTrace(path)
    assert trace.rounds == 3 * year
    assert trace.links(2 * year + 3).pairs.tolist() == [[0, 1], [2, 3]]
    assert trace.links(year).pairs.tolist() == [[0, 1]]
    path.write_text(f"0 a b\n{3 * year} a b\n")
    assert ContactTrace(path, skip_empty=True).rounds == 2
    path.write_text("0 a b\n400000000 a b\n")
    with pytest.raises(InputError, match=r"seconds_per_round = None is not accepted: give at le"):
        ContactTrace(path)


@pytest.mark.parametrize(
    "start", ["2010-12-07T00:00:00+01:00", 1291676400, datetime(2010, 12, 6, 23)]
)
def test_start_as_a_date_or_a_number(tmp_path: Path, start: float | str | datetime) -> None:
    path = tmp_path / "contacts.csv"
    path.write_text("2010-12-06T12:00Z,a,b\n2010-12-06T23:07Z,b,c\n")
    trace = ContactTrace(path, start=start)
    assert trace.links(1).pairs.tolist() == [[1, 2]]
    assert trace.rounds == 2
    assert "1 contact before start left out" in trace.describe()[0]


def test_start_outside_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "contacts.csv"
    path.write_text("begin,end,a,b\n2010-12-06T12:00Z,2010-12-06T13:00Z,a,b\n")
    for start in (0, "2011-01-01", "2010-12-06T13:00Z"):
        with pytest.raises(InputError, match=r"start = .* is not accepted"):
            ContactTrace(path, start=start)
