"""The journal: whatever a crash truncates, the exchanges that were acknowledged are on disk."""

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
from gossamer.fleet.protocol.journal import CHECKPOINT_FILE, LOG_FILE, Checkpoint, Journal, Transfer
from gossamer.fleet.protocol.records import CHECKSUM, LENGTHS, MARK


def transfer(
    neighbour: int,
    exchange: tuple[int, int],
    confirmed: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Transfer:
    """Return a transfer. All of an exchange have the same own vector."""
    own = torch.tensor([exchange[0] + 0.5, exchange[1]], dtype=dtype)
    other = torch.tensor([neighbour, 1e-3], dtype=dtype)
    return Transfer(neighbour, exchange, 1 / 3, 2.5, own, other, confirmed)


def comparable(checkpoint: Checkpoint | None) -> object:
    """Return all contents of a checkpoint as plain values."""
    assert checkpoint is not None
    state = {name: values(x) for name, x in checkpoint.state.items()}
    pending = []
    for t in checkpoint.pending:
        fields = (t.neighbour, t.exchange, t.weight, t.p, t.confirmed)
        pending.append((fields, values(t.own), values(t.other)))
    return checkpoint.round, state, checkpoint.applied, pending


def values(x: Tensor) -> tuple[torch.dtype, object]:
    return x.dtype, x.tolist()


CHECKPOINT = Checkpoint(
    7,
    {"w": torch.tensor([[0.1, 1e-30]]), "z": torch.tensor([[1e-90]], dtype=torch.float64)},
    {3: ((1, 0), (6, 1)), 12: ()},
    (
        transfer(3, (5, 0)),
        transfer(4, (5, 0)),
        transfer(3, (5, 1), confirmed=True),
        transfer(9, (2, 0), dtype=torch.bfloat16),
    ),
)


def test_a_checkpoint_is_read_back(tmp_path: Path) -> None:
    assert Journal(tmp_path).read() is None
    Journal(tmp_path).write_checkpoint(CHECKPOINT)
    assert comparable(Journal(tmp_path).read()) == comparable(CHECKPOINT)


def test_logged_transfers_are_pending(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write_checkpoint(CHECKPOINT)
    logged = [transfer(1, (7, 0)), transfer(2, (7, 0)), transfer(4, (7, 0)), transfer(1, (7, 1))]
    journal.log(logged[:2])
    journal.log(logged[2:3])
    journal.log(logged[3:])
    pending = (*CHECKPOINT.pending, *logged)
    expected = Checkpoint(7, CHECKPOINT.state, CHECKPOINT.applied, pending)
    assert comparable(Journal(tmp_path).read()) == comparable(expected)
    after = Checkpoint(8, CHECKPOINT.state)
    journal.write_checkpoint(after)
    assert comparable(Journal(tmp_path).read()) == comparable(after)


def test_a_log_entry_truncated_anywhere(tmp_path: Path) -> None:
    """The entries before it are read; the truncated one, which was not acknowledged, is not."""
    journal = Journal(tmp_path)
    log = tmp_path / LOG_FILE
    journal.write_checkpoint(CHECKPOINT)
    journal.log([transfer(1, (7, 0))])
    first = log.read_bytes()
    journal.log([transfer(2, (7, 0))])
    both = log.read_bytes()
    assert both.startswith(first)
    for size in range(len(first), len(both)):
        log.write_bytes(both[:size])
        checkpoint = Journal(tmp_path).read()
        assert checkpoint is not None
        logged = checkpoint.pending[len(CHECKPOINT.pending) :]
        assert [t.neighbour for t in logged] == [1]


class Cut(BaseException):
    """The process is killed at this point."""


@pytest.mark.parametrize("name", ["fsync", "replace", "open"])
def test_a_checkpoint_is_replaced_atomically(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before any step, all of the old is read, with its log, or all of the new."""
    new = Checkpoint(8, {"w": torch.ones(1, 2)}, {3: ((7, 0),)})
    real = getattr(os, name)
    seen = set()
    for calls in range(4):
        journal = Journal(tmp_path / str(calls))
        journal.write_checkpoint(CHECKPOINT)
        journal.log([transfer(1, (7, 0))])
        old = comparable(journal.read())
        left = calls

        def cut(*args, **kwargs):  # type: ignore[no-untyped-def]
            nonlocal left
            left -= 1
            if left < 0:
                raise Cut
            return real(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, cut)
            try:
                journal.write_checkpoint(new)
            except Cut:
                seen.add("cut")
        read = comparable(Journal(tmp_path / str(calls)).read())
        assert read in (old, comparable(new))
        seen.add("old" if read == old else "new")
    assert seen == {"cut", "old", "new"}


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_detected(
    place: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    Journal(folder).write_checkpoint(CHECKPOINT)
    file = folder / CHECKPOINT_FILE
    data = bytearray(file.read_bytes())
    data[place % len(data)] ^= 1 << bit
    file.write_bytes(data)
    with pytest.raises(DataError, match="is damaged"):
        Journal(folder).read()


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot make"):
        Journal(tmp_path / "file")
    journal = Journal(tmp_path / "folder")
    (tmp_path / "folder").rmdir()
    with pytest.raises(DataError, match="cannot write"):
        journal.write_checkpoint(CHECKPOINT)
    with pytest.raises(DataError, match="cannot write"):
        journal.log([transfer(1, (7, 0))])


def test_tensors_that_share_memory(tmp_path: Path) -> None:
    w = torch.arange(4.0).view(2, 2)
    Journal(tmp_path).write_checkpoint(Checkpoint(0, {"w": w, "same": w, "transposed": w.T}))
    checkpoint = Journal(tmp_path).read()
    assert checkpoint is not None
    assert checkpoint.state["transposed"].tolist() == w.T.tolist()


def test_log_entries_of_an_earlier_round_are_ignored(tmp_path: Path) -> None:
    """Entries overwrite those of the round before; a whole old entry may remain behind them."""
    journal = Journal(tmp_path)
    journal.write_checkpoint(Checkpoint(10, {}))
    journal.log([transfer(1, (10, 0))])
    journal.log([transfer(2, (10, 0))])
    journal.write_checkpoint(Checkpoint(11, {}))
    assert comparable(journal.read()) == comparable(Checkpoint(11, {}))
    journal.log([transfer(3, (11, 0))])
    expected = Checkpoint(11, {}, {}, (transfer(3, (11, 0)),))
    assert comparable(Journal(tmp_path).read()) == comparable(expected)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("float32", [1 << 40]), ("float32", [-1]), ("load", [2]), ("Tensor", [2]), ("nothing", [2])],
)
def test_a_header_that_announces_missing_tensors(
    dtype: str, shape: list[int], tmp_path: Path
) -> None:
    """With valid checksums: no memory is allocated, and the file is reported as damaged."""
    journal = Journal(tmp_path)
    journal.write_checkpoint(Checkpoint(1, {"w": torch.zeros(2)}))
    tensors = [["state/w", dtype, shape, 0]]
    header = {"flows": [], "round": 1, "applied": {}, "tensors": tensors}
    text = json.dumps(header).encode()
    lengths = LENGTHS.pack(MARK, len(text), 8)
    checksum = CHECKSUM.pack(zlib.crc32(text, zlib.crc32(lengths)))
    (tmp_path / CHECKPOINT_FILE).write_bytes(lengths + checksum + text + bytes(8))
    with pytest.raises(DataError, match="is damaged"):
        journal.read()


# -- meetings of two -------------------------------------------------------------------------------


def test_numbers_of_meetings_survive_a_crash(tmp_path: Path) -> None:
    """The number is on disk with the own vector, before anything is received."""
    journal = Journal(tmp_path)
    journal.write_checkpoint(Checkpoint(3, {}, numbers={1: 7, 2: 8}))
    journal.log_own((9, 0), torch.ones(2), zlib.crc32(torch.ones(2).numpy().tobytes()), partner=1)
    checkpoint = Journal(tmp_path).read()
    assert checkpoint is not None
    assert checkpoint.numbers == {1: 9, 2: 8}
    assert checkpoint.round == 3


def test_links_may_use_the_same_number_for_different_vectors(tmp_path: Path) -> None:
    transfers = []
    for j in (1, 2, 3):
        own = torch.full((2,), float(j))
        transfers.append(Transfer(j, (5, 0), 0.5, 1.0, own, 10 * own))
    journal = Journal(tmp_path)
    journal.write_checkpoint(Checkpoint(4, {}, pending=tuple(transfers[:2])))
    journal.log(transfers[2:])
    checkpoint = Journal(tmp_path).read()
    assert checkpoint is not None
    found = {transfer.neighbour: transfer for transfer in checkpoint.pending}
    for transfer in transfers:
        assert torch.equal(found[transfer.neighbour].own, transfer.own)
        assert torch.equal(found[transfer.neighbour].other, transfer.other)
