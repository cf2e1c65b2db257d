"""Damaged logs of contacts and positions: read as far as they are clear, or refused."""

from __future__ import annotations

import contextlib
import gzip
import random
import re
from pathlib import Path

import numpy as np
import pytest
from support.logs import as_tuples, made

from gossamer.errors import DataError, InputError
from gossamer.network import ContactLog, ContactTrace, read_contacts, read_positions

UNIX = 1_291_597_340  # 6 December 2010, 01:02:20 UTC

HONEST = [
    made(lambda k: f"{UNIX + 20 * k}\t{k % 5 + 100}\t{k % 3 + 200}", 9),
    made(lambda k: f"{UNIX + 20 * k}\t{k % 5}\tx{k % 3}\tMED\tNUR", 9),
    "time,id1,id2\n" + made(lambda k: f"2010-12-06T01:{k + 10}:00Z,a{k % 4},b{k % 3}", 9),
    "begin;end;a;b\n" + made(lambda k: f"{UNIX + k};{UNIX + 2 * k};a{k % 4};b{k % 3}", 9),
    made(lambda k: f"{k} CONN {k % 3} {k % 3 + 4} {('up', 'down')[k // 3]}", 6),
    '"t","i","j","duration"\n' + made(lambda k: f'"{k}","{k % 3}","y{k}","{9 * k}"', 9),
    made(lambda k: f"a contact +{k} +{k + 60} {k % 3} {k % 3 + 5} 1e5", 9),
]


def damaged(draw: random.Random, lines: list[bytes]) -> list[bytes]:
    """Return lines of which a few are damaged; the damaged ones differ from all that were given."""
    lines = list(lines)
    for _ in range(draw.randint(1, 3)):
        k = draw.randrange(len(lines))
        line = bytearray(lines[k])
        kind = draw.randrange(7)
        if kind == 0 and line:
            line[draw.randrange(len(line))] = draw.choice(b'0159 ,;\t."#-xZ:\0\xff\n\r')
        elif kind == 1:
            line.insert(draw.randint(0, len(line)), draw.choice(b'0159 ,;\t."#-xZ:eE+\xc3'))
        elif kind == 2 and line:
            del line[draw.randrange(len(line))]
        elif kind == 3:
            line = line[: draw.randint(0, len(line))]
        else:
            cells = re.split(rb"([\t,; ]+)", bytes(line))
            i = 2 * draw.randrange((len(cells) + 1) // 2)
            j = 2 * draw.randrange((len(cells) + 1) // 2)
            if kind == 4:
                cells[i], cells[j] = cells[j], cells[i]
            elif kind == 5:
                cells[i] = draw.choice(
                    [b"", b"NA", b"-1", b"1e400", b"0.5", b"2010", b"5000000000"]
                )
            else:
                del cells[i : i + 2]
            line = bytearray(b"".join(cells))
        lines[k] = bytes(line)
    return lines


def by_column(draw: random.Random, lines: list[bytes]) -> list[bytes]:
    """Return lines without one of their columns, or with two of them exchanged."""
    width = draw.randrange(5)
    other = draw.randrange(5)
    changed = []
    for line in lines:
        cells = re.split(rb"[\t,; ]+", line)
        if width == other and width < len(cells):
            del cells[width]
        elif max(width, other) < len(cells):
            cells[width], cells[other] = cells[other], cells[width]
        changed.append(b" ".join(cells))
    return changed


def check_rounds(path: Path) -> None:
    """Check that a log that is accepted makes a network, or the rounds are too many."""
    try:
        trace = ContactTrace(path)
    except InputError as error:
        if error.field != "seconds_per_round":
            raise
        return
    assert len(trace.describe()) == 2
    assert len(trace.links(0)) + len(trace.links(trace.recorded - 1)) > 0


def check_sensible(data: bytes, log: ContactLog) -> None:
    """Check what holds for every log that is accepted."""
    assert (log.begin <= log.end).all()
    assert np.isfinite(log.end - log.begin).all()
    assert (log.a != log.b).all()
    assert np.array_equal(np.unique(np.concatenate([log.a, log.b])), np.arange(len(log.names)))
    assert len(set(log.names)) == len(log.names)
    assert len(log) <= len(data.splitlines())
    text = data.decode("utf-8", "replace").replace('"', "")
    for name in log.names:
        assert name in text


def undamaged(before: bytes, after: bytes, known: dict[bytes, tuple]) -> set[tuple]:
    """Return the contacts of the lines that are still as they were."""
    if before.splitlines()[0] not in known and not after.startswith(before.splitlines()[0]):
        return set()  # another header
    return {known[line] for line in after.splitlines() if line in known}


@pytest.mark.no_cover
def test_damaged_logs_are_read_or_refused(tmp_path: Path) -> None:
    """Read 2,000 damaged logs: a line that is not damaged is read as before, or all is refused."""
    draw = random.Random(7)
    path = tmp_path / "contacts.txt"
    known = []
    for text in HONEST:
        path.write_text(text, newline="")
        lines = text.encode().splitlines()
        contacts = as_tuples(read_contacts(path))
        if "CONN" in text:  # a contact has two lines
            contacts = []
        lines = lines[len(lines) - len(contacts) :]
        known.append(dict(zip(lines, contacts, strict=True)))
    accepted = 0
    for k in range(2000):
        before = HONEST[k % len(HONEST)].encode()
        data = b"\n".join(damaged(draw, before.splitlines()))
        wanted = undamaged(before, data, known[k % len(HONEST)])
        if draw.random() < 0.2:
            data = b"\n".join(by_column(draw, before.splitlines()))
            wanted = set()
        path.unlink()  # faster than to overwrite it
        packed = data
        if draw.random() < 0.1:
            packed = gzip.compress(data, 1)[: draw.choice([None, -1, -9, 20])]
        path.write_bytes(packed)
        log: ContactLog | None = None
        with contextlib.suppress(DataError, InputError):
            log = read_contacts(path)
        if log is not None:
            accepted += 1
            check_sensible(data, log)
            assert wanted <= set(as_tuples(log)), data
            if accepted % 10 == 0:
                check_rounds(path)
    assert 200 < accepted < 1800


@pytest.mark.no_cover
def test_damaged_positions_are_read_or_refused(tmp_path: Path) -> None:
    draw = random.Random(7)
    honest = [
        b"<gpx><trk><name>a</name><trkseg><trkpt lat='1' lon='2'><time>2010-12-06T01:02:20Z</time>"
        b"</trkpt><trkpt lat='3' lon='4'><time>2010-12-06T01:03:20Z</time></trkpt></trkseg></trk>"
        b"<trk><trkpt lat='1' lon='2'><time>2010-12-06</time></trkpt></trk></gpx>",
        b"time,id,lat,lon\n2010-12-06T01:02Z,ann,1,2\n2010-12-06T01:03Z,ben,3,4\n",
        b"1291597340 ann 48.2 16.3\n1291597400 ben 48.3 16.4\n",
    ]
    accepted = 0
    for k in range(1500):
        data = bytearray(honest[k % 3])
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(data))
            change = draw.choice([b"", b"<", b"&", b"9", b" ", b",", b"\n", b"\xff", b"x", b"-"])
            data[at : at + draw.randint(0, 2)] = change
        path = tmp_path / ("fixes.gpx", "fixes.csv")[min(k % 3, 1)]
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        with contextlib.suppress(DataError, InputError):
            log = read_positions(path)
            accepted += 1
            assert np.isfinite(log.position).all()
            assert np.isfinite(log.time).all()
            assert np.array_equal(np.unique(log.device), np.arange(len(log.names)))
    assert 100 < accepted < 1400
