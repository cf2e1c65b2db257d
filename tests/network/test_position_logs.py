"""Logs of positions: columns with names, GPX files and folders."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from gossamer.errors import DataError, InputError
from gossamer.network import PositionTrace, read_positions
from gossamer.network.traces.gpx import read_tracks

GPX = """<?xml version="1.0" encoding="UTF-8"?>
<gpx version="1.1" creator="test" xmlns="http://www.topografix.com/GPX/1/1">
  <metadata><name>a day</name><time>2010-12-05T00:00:00Z</time></metadata>
  <wpt lat="1" lon="2"><name>no track</name></wpt>
  {tracks}
</gpx>
"""
POINT = (
    '<trkpt lat="{lat}" lon="{lon}"><ele>9</ele><time>2010-12-06T01:{minute:02}:20Z</time></trkpt>'
)
UNIX = 1_291_597_340  # 6 December 2010, 01:02:20 UTC


def track(name: str, latitude: float, minutes: range) -> str:
    points = ""
    for minute in minutes:
        points += POINT.format(lat=latitude, lon=16.37 + minute / 1e5, minute=minute)
    title = ""
    if name:
        title = f"<name>{name}</name>"
    return f"<trk>{title}<trkseg>{points}</trkseg></trk>"


def test_a_gpx_file_has_a_device_per_track(tmp_path: Path) -> None:
    path = tmp_path / "walks.gpx"
    tracks = track("ben", 48.2, range(2, 9)) + track("", 48.2001, range(2, 5)) + "<trk></trk>"
    path.write_text(GPX.format(tracks=tracks + track("ben", 48.3, range(2, 9))))
    trace = PositionTrace(path, radius=50.0, seconds_per_round=60)
    assert trace.names == ("ben", "ben (2)", "track 2")
    assert trace.geographic
    assert trace.describe() == (
        "3 devices, 17 fixes, 6 Dec 2010 01:02:20 to 01:08:20 UTC",
        "7 rounds of 60 s, links up to 50 m",
    )
    np.testing.assert_allclose(trace.positions(1)[0], [48.2, 16.37003])
    assert trace.links(2).pairs.tolist() == [[0, 2]]
    assert trace.links(3).active_mask.tolist() == [True, True, False]


def test_a_folder_has_a_device_per_file(tmp_path: Path) -> None:
    both = track("one", 48.2, range(2, 4)) + track("two", 48.2, range(5, 7))
    (tmp_path / "anna.gpx").write_text(GPX.format(tracks=both))
    packed = gzip.compress(GPX.format(tracks=track("one", 48.2, range(2, 9))).encode())
    (tmp_path / "ben.GPX.gz").write_bytes(packed)
    (tmp_path / "notes.txt").write_text("not a track")
    log = read_positions(tmp_path)
    assert log.names == ("anna", "ben")
    assert np.bincount(log.device).tolist() == [4, 7]
    assert log.time.min() == UNIX
    assert log.absolute


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<gpx><trk><trkseg><trkpt lat='91' lon='0'/></trkseg></trk></gpx>", "lat '91' is not"),
        ("<gpx><trk><trkseg><trkpt lat='1'/></trkseg></trk></gpx>", "lon '' is not a number"),
        ("<gpx><trk><trkpt lat='1' lon='2'/></trk></gpx>", "a track point has no time"),
        (
            "<gpx><trk><trkpt lat='1' lon='2'><time>noon</time></trkpt></trk></gpx>",
            "the time 'noon' is not a date",
        ),
        (
            "<gpx><trkpt lat='1' lon='2'><time>2010-12-06</time></trkpt></gpx>",
            "a track point is in no track",
        ),
        ("<gpx><trk></gpx>", "this is not XML"),
        ("<html></html>", "expected a <gpx> file, not <html>"),
        ("<gpx></gpx>", "has no track points"),
        ("", "this is not XML"),
        (
            '<!DOCTYPE gpx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><gpx>&b;</gpx>',
            "a document type is not accepted",
        ),
    ],
)
def test_gpx_that_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "walk.gpx"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_tracks(path)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_gpx_has_no_columns_and_a_folder_needs_gpx(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 0 GPX files"):
        read_positions(tmp_path)
    with pytest.raises(InputError, match=r"columns = .* is not accepted: give none"):
        read_positions(tmp_path, ["time", "device", "x", "y"])


@pytest.mark.parametrize(
    ("text", "geographic"),
    [
        (
            "id,timestamp,lat,lon,speed\nann,1291597340,48.2,16.3,7\nben,1291597400,48.3,16.4,8\n",
            True,
        ),
        (
            "Latitude;Longitude;Time;Device\n"
            "48.2;16.3;1291597340000;ann\n48.3;16.4;1291597400000;ben\n",
            True,
        ),
        ("ann,2010-12-06 01:02:20,48.2,16.3\nben,2010-12-06 01:03:20,48.3,16.4\n", False),
        (
            "Date,Time,Name,X,Y\n2010-12-06,01:02:20,ann,48.2,16.3\n"
            "2010-12-06,01:03:20,ben,48.3,16.4\n",
            False,
        ),
        ("#time device x y\n1291597340 ann 48.2 16.3\n1291597400 ben 48.3 16.4\n", False),
        ("2010-12-06 01:02:20 ann 48.2 16.3\n2010-12-06 01:03:20 ben 48.3 16.4\n", False),
    ],
)
def test_columns_of_positions(tmp_path: Path, text: str, geographic: bool) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text(text)
    log = read_positions(path)
    assert log.names == ("ann", "ben")
    assert log.time.tolist() == [UNIX, UNIX + 60]
    assert log.position.tolist() == [[48.2, 16.3], [48.3, 16.4]]
    assert log.geographic == geographic
    trace = PositionTrace(path, radius=9.0)
    assert trace.geographic == geographic
    assert (trace.round_seconds, trace.start_time) == (300, UNIX)


def test_positions_that_are_not_clear(tmp_path: Path) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text("0 ann 1 2 3\n")
    with pytest.raises(DataError, match="expected lines `t device x y`"):
        read_positions(path)
    assert read_positions(path, ["time", "device", "x", "y", "-"]).position.tolist() == [[1, 2]]
    with pytest.raises(InputError, match="columns = "):
        read_positions(path, ["time", "device", "x", "z", "-"])
    path.write_text("time,timestamp,id,x,y\n0,0,ann,1,2\n")
    with pytest.raises(DataError, match="not clear"):
        read_positions(path)
    path.write_text("when,who,how,much\n0,ann,1,2\n")
    with pytest.raises(DataError, match="'when, who, how, much' are not clear"):
        read_positions(path)
    path.write_text("1,2008-02-02 15:36:08,116.51,39.92\n")  # longitude first
    with pytest.raises(DataError, match=r"latitude 116\.51 or longitude 39\.92 is out of range"):
        read_positions(path, geographic=True)
    log = read_positions(path, ["device", "time", "longitude", "latitude"])
    assert log.position.tolist() == [[39.92, 116.51]]


def test_start_and_fixes_before_it(tmp_path: Path) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text("0 a 0 0\n20 a 10 0\n")
    trace = PositionTrace(path, radius=1.0, start=10)
    assert trace.rounds == 11
    np.testing.assert_allclose(trace.positions(0), [[5, 0]])


def test_absent_devices_and_long_gaps(tmp_path: Path) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text("0 a 0 0\n2 a 0 0\n9 a 0 0\n0 b 0 0\n10 b 0 0\n")
    trace = PositionTrace(path, radius=1.0, max_gap=7.5)
    seen = np.array([trace.links(t).active_mask for t in range(11)])
    assert np.flatnonzero(seen[:, 0]).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert np.flatnonzero(seen[:, 1]).tolist() == [0, 10]
    alone = PositionTrace(path, radius=1.0, max_gap=5, absent="alone")
    assert alone.links(5).active is None
    assert [len(alone.links(t)) for t in range(11)] == [1] + [0] * 10
    with pytest.raises(InputError, match="max_gap"):
        PositionTrace(path, radius=1.0, max_gap=-1)
