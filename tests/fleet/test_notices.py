"""What a device says of its certificate, its clock and its neighbours, and what a status shows."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gossamer.fleet import keys
from gossamer.fleet.notices import KINDS, Notices
from gossamer.fleet.status import parse_status
from gossamer.fleet.watch import ClockWatch, note_certificate

pytest.importorskip("cryptography", reason="needs the extra gossamer[peer]")


class Clock:
    def __init__(self) -> None:
        self.wall = 1e9
        self.passed = 0.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds


def test_a_notice_is_counted_each_time_and_printed_once_a_minute() -> None:
    printed: list[str] = []
    notices = Notices(printed.append)
    for _ in range(5):
        notices.add("twin", 3, "n3 runs twice")
        notices.add("twin", 2, "n2 runs twice")
    assert printed == ["n3 runs twice", "n2 runs twice"]
    assert notices.entries() == [
        {"kind": "twin", "device": 3, "count": 5},
        {"kind": "twin", "device": 2, "count": 5},
    ]


def test_a_clock_that_jumps_is_noticed_and_one_that_is_adjusted_is_not() -> None:
    clock = Clock()
    printed: list[str] = []
    watch = ClockWatch(Notices(printed.append), clock)
    for _ in range(100):
        clock.sleep(2)
        clock.wall += 0.01
        watch.look()
    assert printed == []
    clock.wall += 3600
    watch.look()
    watch.look()
    assert printed == ["the clock has jumped forward by 3600.0 s"]


@pytest.mark.parametrize(("days", "words"), [(100, ""), (10, "expires on"), (-1, "expired on")])
def test_a_certificate_that_ends_is_noticed(tmp_path: Path, days: int, words: str) -> None:
    keys.make_authority(tmp_path / "authority", "fleet", days=200)
    keys.make_certificate(tmp_path / "n0", tmp_path / "authority", "n0", days=100)
    printed: list[str] = []
    notices = Notices(printed.append)
    note_certificate(tmp_path / "n0", notices, datetime.now(UTC) + timedelta(days=100 - days))
    assert bool(notices.entries()) == bool(words)
    assert all(words in sentence for sentence in printed)
    note_certificate(tmp_path / "n0", notices)
    assert notices.entries() == [], "a renewed certificate ends the notice"
    shutil.rmtree(tmp_path / "n0")
    note_certificate(tmp_path / "n0", notices)
    assert {entry["kind"] for entry in notices.entries()} == {"certificate"}


def test_a_status_has_known_notices_only() -> None:
    def parsed(notices: object) -> object:
        data = {"doing": "running", "time": 5, "notices": notices}
        return parse_status(json.dumps(data).encode(), devices=3, now=7.0)

    good = parsed([{"kind": kind, "device": None, "count": 1} for kind in KINDS])
    assert [notice.kind for notice in good.notices] == list(KINDS)  # type: ignore[attr-defined]
    for bad in (
        [{"kind": "\x1b[31mred", "device": 1, "count": 1}],
        [{"kind": "twin", "device": -1, "count": 1}],
        [{"kind": "twin", "device": 1, "count": "many"}],
        [{"kind": "twin", "device": 1, "count": 1}] * 200,
    ):
        assert parsed(bad).doing == "unreadable"  # type: ignore[attr-defined]
