"""A device's disk: whatever a crash cuts short, what a neighbour was told of is there."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gossamer.errors import DataError
from gossamer.fleet.journal import _CHECKSUM, _LENGTHS, _MARK, Flow, Journal, Kept


def flow(
    neighbour: int,
    exchange: tuple[int, int],
    settled: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Flow:
    """As in an exchange: one own vector for all links of it."""
    own = torch.tensor([exchange[0] + 0.5, exchange[1]], dtype=dtype)
    return Flow(
        neighbour, exchange, 1 / 3, 2.5, own, torch.tensor([neighbour, 1e-3], dtype=dtype), settled
    )


def told(x: Kept | None) -> object:
    """All of it, comparable."""
    assert x is not None
    pending = [
        (f.neighbour, f.exchange, f.weight, f.p, _numbers(f.own), _numbers(f.other), f.settled)
        for f in x.pending
    ]
    return x.round, {name: _numbers(t) for name, t in x.state.items()}, x.applied, pending


def _numbers(x: Tensor) -> tuple[torch.dtype, object]:
    return x.dtype, x.tolist()


KEPT = Kept(
    7,
    {"w": torch.tensor([[0.1, 1e-30]]), "z": torch.tensor([[1e-90]], dtype=torch.float64)},
    {3: ((1, 0), (6, 1)), 12: ()},
    (
        flow(3, (5, 0)),
        flow(4, (5, 0)),
        flow(3, (5, 1), settled=True),
        flow(9, (2, 0), dtype=torch.bfloat16),
    ),
)


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    assert Journal(tmp_path).read() is None
    Journal(tmp_path).write(KEPT)
    assert told(Journal(tmp_path).read()) == told(KEPT)


def test_promises_come_on_top(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(KEPT)
    promised = [flow(1, (7, 0)), flow(2, (7, 0)), flow(4, (7, 0)), flow(1, (7, 1))]
    journal.promise(promised[:2])
    journal.promise(promised[2:3])
    journal.promise(promised[3:])
    assert told(Journal(tmp_path).read()) == told(
        Kept(7, KEPT.state, KEPT.applied, (*KEPT.pending, *promised))
    )
    journal.write(Kept(8, KEPT.state))
    assert told(Journal(tmp_path).read()) == told(Kept(8, KEPT.state))


def test_a_promise_cut_short_anywhere(tmp_path: Path) -> None:
    """The power goes at any byte: the promises before are there, and this one, which nobody was told of, is not."""
    journal = Journal(tmp_path)
    journal.write(KEPT)
    journal.promise([flow(1, (7, 0))])
    first = (tmp_path / "promised").read_bytes()
    journal.promise([flow(2, (7, 0))])
    both = (tmp_path / "promised").read_bytes()
    assert both.startswith(first)
    for size in range(len(first), len(both)):
        (tmp_path / "promised").write_bytes(both[:size])
        kept = Journal(tmp_path).read()
        assert kept is not None
        assert [f.neighbour for f in kept.pending[len(KEPT.pending) :]] == [1]


class Cut(BaseException):
    pass


@pytest.mark.parametrize("name", ["fsync", "replace", "open"])
def test_a_write_that_is_cut_off(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before any of its steps: what is read is all of the old, with its promises, or all of the new."""
    new = Kept(8, {"w": torch.ones(1, 2)}, {3: ((7, 0),)})
    real = getattr(os, name)
    seen = set()
    for last in range(4):
        journal = Journal(tmp_path / str(last))
        journal.write(KEPT)
        journal.promise([flow(1, (7, 0))])
        old, left = told(journal.read()), last

        def dying(*args, **kwargs):  # type: ignore[no-untyped-def]
            nonlocal left
            left -= 1
            if left < 0:
                raise Cut
            return real(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, dying)
            try:
                journal.write(new)
            except Cut:
                seen.add("cut")
        read = told(Journal(tmp_path / str(last)).read())
        assert read in (old, told(new))
        seen.add("old" if read == old else "new")
    assert seen == {"cut", "old", "new"}


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_wrong_bit_is_found(
    place: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    Journal(folder).write(KEPT)
    data = bytearray((folder / "kept").read_bytes())
    data[place % len(data)] ^= 1 << bit
    (folder / "kept").write_bytes(data)
    with pytest.raises(DataError, match="is damaged"):
        Journal(folder).read()


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot make"):
        Journal(tmp_path / "file")
    journal = Journal(tmp_path / "folder")
    (tmp_path / "folder").rmdir()
    with pytest.raises(DataError, match="cannot write"):
        journal.write(KEPT)
    with pytest.raises(DataError, match="cannot write"):
        journal.promise([flow(1, (7, 0))])


def test_state_that_shares_memory(tmp_path: Path) -> None:
    w = torch.arange(4.0).view(2, 2)
    Journal(tmp_path).write(Kept(0, {"w": w, "same": w, "turned": w.T}))
    kept = Journal(tmp_path).read()
    assert kept is not None
    assert kept.state["turned"].tolist() == w.T.tolist()


def test_what_is_left_of_an_earlier_round_is_not_read(tmp_path: Path) -> None:
    """Promises are written over those of the round before; of these, a whole record may be left behind the new ones."""
    journal = Journal(tmp_path)
    journal.write(Kept(10, {}))
    journal.promise([flow(1, (10, 0))])
    journal.promise([flow(2, (10, 0))])
    journal.write(Kept(11, {}))
    assert told(journal.read()) == told(Kept(11, {}))
    journal.promise([flow(3, (11, 0))])
    assert told(Journal(tmp_path).read()) == told(Kept(11, {}, {}, (flow(3, (11, 0)),)))


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("float32", [1 << 40]), ("float32", [-1]), ("load", [2]), ("Tensor", [2]), ("nothing", [2])],
)
def test_a_header_that_says_what_is_not_there(kind: str, shape: list[int], tmp_path: Path) -> None:
    """With right checksums, as only who has the disk can write it: no memory is taken for it, and it is said to be damaged."""
    journal = Journal(tmp_path)
    journal.write(Kept(1, {"w": torch.zeros(2)}))
    words = json.dumps(
        {"flows": [], "round": 1, "applied": {}, "tensors": [["state/w", kind, shape, 0]]}
    ).encode()
    lengths = _LENGTHS.pack(_MARK, len(words), 8)
    (tmp_path / "kept").write_bytes(
        lengths + _CHECKSUM.pack(zlib.crc32(words, zlib.crc32(lengths))) + words + bytes(8)
    )
    with pytest.raises(DataError, match="is damaged"):
        journal.read()
