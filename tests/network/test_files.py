"""Files of links: what is saved is read back, and damaged files are refused."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.errors import DataError, InputError
from gossamer.network import (
    Callback,
    Churn,
    Full,
    Links,
    Network,
    Random,
    Ring,
    Sequence,
    files,
    save,
)

GOOD = {
    "format": "gossamer.links",
    "version": "1",
    "devices": "4",
    "rounds": "3",
    "directed": "false",
}


def write(
    path: Path,
    rows: list[tuple[int, int, int]],
    kind: pa.DataType | None = None,
    weights: list[float] | None = None,
    **about: str | None,
) -> Path:
    """Write a file with valid metadata, except for what `about` replaces."""
    metadata = {}
    for key, value in {**GOOD, **about}.items():
        if value is not None:
            metadata[key] = value
    columns = []
    for i in range(3):
        columns.append(pa.array([row[i] for row in rows], type=kind or pa.int32()))
    names = ["round", "a", "b"]
    if weights is not None:
        columns.append(pa.array(weights))
        names.append("weight")
    pq.write_table(pa.table(columns, names=names).replace_schema_metadata(metadata), path)
    return path


@given(
    rounds=st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=10),
            st.none() | st.lists(st.booleans(), min_size=6, max_size=6),
        ),
        min_size=1,
        max_size=6,
    ),
    directed=st.booleans(),
)
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_links_read_back_equal(tmp_path: Path, rounds: list, directed: bool) -> None:
    given_links = []
    for pairs, active in rounds:
        links = Links.of(6, pairs, directed)
        if active is not None:
            mask = np.array(active)
            links = links.keep(mask[links.a] & mask[links.b], mask)
        given_links.append(links)
    network = Callback(6, lambda t: given_links[t], directed)
    save(network, tmp_path / "links.parquet", len(rounds))
    back = Sequence(tmp_path / "links.parquet")
    assert list(back) == given_links
    assert (back.devices, back.rounds, back.directed) == (6, len(rounds), directed)


def test_several_batches_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_ROWS_PER_BATCH", 50)
    network = Random(20, 0.2) & Churn(0.2, 0.3)
    save(network, tmp_path / "links.parquet", 40)
    assert pq.ParquetFile(tmp_path / "links.parquet").metadata.num_row_groups > 5
    assert list(Sequence(tmp_path / "links.parquet")) == [network.links(t) for t in range(40)]


def test_beyond(tmp_path: Path) -> None:
    path = tmp_path / "links.parquet"
    save(Random(9, 0.3), path, 4)
    with pytest.raises(InputError, match=r"round = 4 .* from 0 to 3"):
        Sequence(path).links(4)
    repeat = Sequence(path, beyond="repeat")
    assert repeat.links(7) == repeat.links(3)
    assert len(Sequence(path, beyond="empty").links(4)) == 0
    with pytest.raises(InputError) as caught:
        Sequence(path, beyond="again")
    assert caught.value.field == "beyond"


def test_a_file_from_another_writer_is_read(tmp_path: Path) -> None:
    sequence = Sequence(write(tmp_path / "x", [(0, 0, 1), (0, 2, 2), (2, 1, 3)], kind=pa.int64()))
    assert sequence.links(0).pairs.tolist() == [[0, 1]]
    assert sequence.links(0).active.tolist() == [True, True, False, True]
    assert len(sequence.links(1)) == 0
    assert sequence.links(2).active is None


def test_weights_are_read(tmp_path: Path) -> None:
    rows = [(0, 0, 1), (0, 2, 2), (1, 1, 3), (2, 0, 2), (2, 2, 3)]
    weights = [0.25, 0.0, math.nan, 0.5, 0.5]
    sequence = Sequence(write(tmp_path / "x", rows, weights=weights))
    assert sequence.weighted
    assert sequence.schedule is None
    assert sequence.links(0).weight.tolist() == [0.25]
    assert sequence.links(0).active.tolist() == [True, True, False, True]
    assert sequence.links(1).weight is None
    assert sequence.links(2).weight.tolist() == [0.5, 0.5]
    assert not Sequence(write(tmp_path / "y", rows)).weighted


TWO = [(0, 0, 1), (0, 0, 2)]


@pytest.mark.parametrize(
    ("reason", "make"),
    [
        ("not a number from 0 to 1", lambda path: write(path, TWO, weights=[0.5, -0.1])),
        ("not a number from 0 to 1", lambda path: write(path, TWO, weights=[0.5, math.inf])),
        ("more than 1 in sum", lambda path: write(path, TWO, weights=[0.6, 0.6])),
        ("links of round 0 have no weight", lambda path: write(path, TWO, weights=[0.5, math.nan])),
        ("64-bit floating-point", lambda path: write(path, TWO, weights=[1, 0])),
        ("a value is missing", lambda path: write(path, TWO, weights=[0.5, None])),
        ("format", lambda path: write(path, [], format="other")),
        ("version 1", lambda path: write(path, [], version="2")),
        ("format", lambda path: pq.write_table(pa.table({"round": [1], "a": [0], "b": [1]}), path)),
        ("out of range", lambda path: write(path, [], devices="0")),
        ("out of range", lambda path: write(path, [], devices="-3")),
        ("out of range", lambda path: write(path, [], devices="99999999999")),
        ("out of range", lambda path: write(path, [], rounds="many")),
        ("out of range", lambda path: write(path, [], rounds=None)),
        ("out of range", lambda path: write(path, [], directed="maybe")),
        ("columns round, a, b", lambda path: write(path, [(0, 0, 1)], kind=pa.float64())),
        ("a row or a value is missing", lambda path: write(path, [(0, 0, None)])),
        ("device 4 is out of range", lambda path: write(path, [(0, 0, 4)])),
        ("device -1 is out of range", lambda path: write(path, [(0, -1, 2)])),
        ("round 3 is out of range", lambda path: write(path, [(3, 0, 1)])),
        ("asymmetric: the link 2 1 of round 0", lambda path: write(path, [(0, 0, 1), (0, 2, 1)])),
        ("row 1 is out of order or a repeat", lambda path: write(path, [(0, 0, 1), (0, 0, 1)])),
        ("row 2 is out of order", lambda path: write(path, [(0, 0, 1), (1, 0, 2), (0, 0, 3)])),
        ("away has a link", lambda path: write(path, [(0, 0, 1), (0, 1, 1)])),
        ("away has a link", lambda path: write(path, [(0, 0, 0), (0, 0, 1)])),
        ("broken or truncated", lambda path: path.write_bytes(b"PAR1 no")),
        ("broken or truncated", lambda path: path.write_bytes(b"")),
        ("broken or truncated", lambda path: path.mkdir()),
        ("does not exist", lambda path: None),
    ],
)
def test_unusable_files_are_refused(
    reason: str, make: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "links.parquet"
    make(path)
    with pytest.raises(DataError) as caught:
        Sequence(path)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_many_rows_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "links.parquet"
    save(Full(5), path, 3)
    monkeypatch.setattr("gossamer.network.limits.MAX_LINKS", 29)
    with pytest.raises(DataError, match="number of rows"):
        Sequence(path)
    with pytest.raises(InputError, match="fewer: one file may have"):
        save(Full(5), path, 3)


@given(cut=st.floats(0, 1), flip=st.integers(0, 255), data=st.data())
@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_broken_files_are_refused_or_read_the_same(
    tmp_path: Path, cut: float, flip: int, data: st.DataObject
) -> None:
    good = tmp_path / "good"
    broken = tmp_path / "broken"
    if not good.exists():
        save(Random(12, 0.4), good, 20)
    content = bytearray(good.read_bytes())
    position = int(cut * (len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:position]
    else:
        content[position] ^= flip
    broken.write_bytes(content)
    try:
        back = Sequence(broken)
    except DataError:
        return
    # A changed byte may have no meaning (such as the name of the writer), or change the metadata to
    # another valid value. The checksums of the pages guarantee that the links are never wrong.
    rounds = min(back.recorded, 20)
    for t in range(rounds):
        assert back.links(t).pairs.tolist() == Random(12, 0.4).links(t).pairs.tolist()


def test_writing_is_atomic(tmp_path: Path) -> None:
    path = tmp_path / "links.parquet"
    save(Ring(5), path, 3)
    before = path.read_bytes()

    def interrupt(t: int) -> list[tuple[int, int]]:
        if t == 2:
            raise KeyboardInterrupt
        return [(0, 1)]

    with pytest.raises(KeyboardInterrupt):
        save(Callback(5, interrupt), path, 3)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["links.parquet"]


@pytest.mark.parametrize(
    ("network", "rounds"),
    [(Ring(5), 0), (Ring(5), 2.5), (Ring(5), 10**9)],
    ids=["none", "half", "too many"],
)
def test_rounds_refused(network: Network, rounds: int, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        save(network, tmp_path / "x", rounds)
    assert caught.value.field == "rounds"
    assert not os.listdir(tmp_path)


def test_more_rounds_than_the_network_has_are_refused(tmp_path: Path) -> None:
    save(Ring(5), tmp_path / "x", 3)
    with pytest.raises(InputError, match="at most 3"):
        save(Sequence(tmp_path / "x"), tmp_path / "y", 4)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot write"):
        save(Ring(5), tmp_path / "no" / "x", 3)
