"""A device's own disk: what it needs so that a crash at any moment loses nothing that a neighbour counts on.

    kept        the state after the last round, and the exchanges that are applied or pending on each link: together,
                written anew every round, whole or not at all
    promised    exchanges of the round that is under way, one after the other, each on disk before the neighbour is told so
                (READY); empty again when the round is over

Both are made of records: lengths, a checksum, a header in JSON with checksums of the tensors, and their numbers as they are in
memory. Nothing is ever unpickled. What is promised is written over what was promised in the round before: that takes a third of
the time that a file takes which grows anew. What may be left behind it is of an earlier round, and so `read` knows it.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gossamer._core.files import os_errors, remove_partial_files, write_atomically
from gossamer.algorithms import State
from gossamer.errors import DataError

Exchange = tuple[int, int]  # its round, and which part of the round it is

_MARK = b"GSMJ"
_LENGTHS, _CHECKSUM = (
    struct.Struct("<4sIQ"),
    struct.Struct("<I"),
)  # mark, of header, of tensors; CRC-32 of these and the header
_FRAME = _LENGTHS.size + _CHECKSUM.size
_TYPES = (
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in _TYPES}  # that a state may have


@dataclass(frozen=True, eq=False)
class Flow:
    """What one exchange moves over one link, to this end of it: weight·(other^[p] − own^[p]), of the vectors as they were sent.

    The vectors are kept, not the difference of their powers, which may be too small or too large for any type.
    `settled`: the neighbour has applied it, so it is owed here.
    """

    neighbour: int
    exchange: Exchange
    weight: float
    p: float
    own: Tensor
    other: Tensor
    settled: bool = False
    checksums: tuple[int, int] | None = (
        None  # CRC-32 of own and other, where known: they cost more than a copy
    )


@dataclass(frozen=True, eq=False)
class Kept:
    """All that a device goes on from: the next round, its state, the exchanges it has applied by neighbour, and the pending."""

    round: int
    state: State
    applied: dict[int, tuple[Exchange, ...]] = field(default_factory=dict)
    pending: tuple[Flow, ...] = ()


class Journal:
    """The journal in a folder. `write` and `promise` return when it is on disk.

    Without `sync` they return when it is with the operating system: that outlives a process that is killed, and costs a disk
    nothing, but it does not outlive the power.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder))
    ...     journal.write(Kept(3, {"w": torch.zeros(1, 2)}))
    ...     journal.promise([Flow(7, (3, 0), 0.5, 1.0, torch.zeros(2), torch.ones(2))])
    ...     kept = Journal(Path(folder)).read()
    >>> kept.round, kept.pending[0].neighbour
    (3, 7)
    """

    def __init__(self, folder: Path, sync: bool = True) -> None:
        self._sync, self._kept, self._promised = sync, folder / "kept", folder / "promised"
        self._last: Exchange | None = None  # whose own vector is in `promised` already
        self._end = 0  # of what was promised in this round
        with os_errors("make", folder):
            folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(folder)

    def read(self) -> Kept | None:
        """What was kept, with what has been promised since; None if nothing was."""
        if not self._kept.exists():
            return None
        records = list(_records(self._kept))
        if len(records) != 1:
            raise DataError(
                f"{self._kept} is damaged: give the device an empty folder, and it starts as a new one"
            )
        header, tensors = records[0]
        state = {
            name.removeprefix("state/"): x
            for name, x in tensors.items()
            if name.startswith("state/")
        }
        applied = {
            int(j): tuple((t, k) for t, k in exchanges)
            for j, exchanges in header["applied"].items()
        }
        pending = _flows(header, tensors)
        for promised, more in _records(self._promised):
            if promised["round"] < header["round"]:
                break  # left from before
            tensors |= more
            pending += _flows(promised, tensors)
        return Kept(header["round"], state, applied, tuple(pending))

    def sent(self, exchange: Exchange, own: Tensor, checksum: int) -> None:
        """Add the own vector of an exchange, while others' are on their way: else the first `promise` of the exchange does."""
        name = _own(exchange)
        self._add(exchange, {"flows": []}, {name: own}, {name: checksum})

    def promise(self, flows: Sequence[Flow]) -> None:
        """Add flows of one exchange to what is pending, should there be a crash before the round is over."""
        exchange = flows[0].exchange
        header, tensors, known = _described(flows)
        if exchange == self._last:
            del tensors[_own(exchange)]
        self._add(exchange, header, tensors, known)

    def _add(
        self,
        exchange: Exchange,
        header: dict[str, Any],
        tensors: dict[str, Tensor],
        known: dict[str, int],
    ) -> None:
        with (
            os_errors("write", self._promised),
            open(self._promised, "r+b", opener=_opened) as file,
        ):
            file.seek(self._end)
            _write(file, header | {"round": exchange[0]}, tensors, known)
            file.flush()
            if self._sync:
                os.fsync(file.fileno())
            self._end = file.tell()
        self._last = exchange

    def write(self, kept: Kept) -> None:
        """Replace everything."""
        header, tensors, known = _described(kept.pending)
        header |= {"round": kept.round, "applied": kept.applied}
        tensors |= {f"state/{name}": x for name, x in kept.state.items()}
        write_atomically(
            self._kept,
            lambda file: _write(file, header, tensors, known),
            sync=self._sync,
            sync_folder=self._sync,
        )
        self._last, self._end = None, 0


def _described(flows: Sequence[Flow]) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, int]]:
    """Flows as what goes into a header, tensors (the own vector of an exchange once, for all links), and known checksums."""
    tensors: dict[str, Tensor] = {}
    known: dict[str, int] = {}
    for flow in flows:
        names = _own(flow.exchange), _other(flow.neighbour, flow.exchange)
        tensors |= zip(names, (flow.own, flow.other), strict=True)
        known |= zip(names, flow.checksums or (), strict=False)
    return (
        {"flows": [[f.neighbour, f.exchange, f.weight, f.p, f.settled] for f in flows]},
        tensors,
        known,
    )


def _flows(header: dict[str, Any], tensors: dict[str, Tensor]) -> list[Flow]:
    return [
        Flow(j, (t, k), weight, p, tensors[_own((t, k))], tensors[_other(j, (t, k))], settled)
        for j, (t, k), weight, p, settled in header["flows"]
    ]


def _own(exchange: Exchange) -> str:
    return f"own/{exchange[0]}/{exchange[1]}"


def _other(neighbour: int, exchange: Exchange) -> str:
    return f"other/{exchange[0]}/{exchange[1]}/{neighbour}"


def _write(
    file: BinaryIO,
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    known: dict[str, int],
) -> None:
    """Write a record."""
    contents = {name: _bytes(x) for name, x in tensors.items()}
    described = [
        [
            name,
            str(x.dtype).removeprefix("torch."),
            list(x.shape),
            known[name] if name in known else zlib.crc32(contents[name]),
        ]
        for name, x in tensors.items()
    ]
    words = json.dumps(header | {"tensors": described}).encode()
    lengths = _LENGTHS.pack(_MARK, len(words), sum(map(len, contents.values())))
    file.write(lengths + _CHECKSUM.pack(zlib.crc32(words, zlib.crc32(lengths))) + words)
    for content in contents.values():
        file.write(content)


def _records(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
    """The records of a file, up to one that a crash cut short: nobody was told of that one."""
    if not path.exists():
        return
    with os_errors("read", path):
        data = memoryview(path.read_bytes())
    while len(data) >= _FRAME:
        mark, header, size = _LENGTHS.unpack_from(data)
        words, content = (
            data[_FRAME : _FRAME + header],
            data[_FRAME + header : _FRAME + header + size],
        )
        checksum = zlib.crc32(words, zlib.crc32(data[: _LENGTHS.size]))
        if (
            mark != _MARK
            or len(content) != size
            or checksum != _CHECKSUM.unpack_from(data, _LENGTHS.size)[0]
        ):
            return
        told, tensors = json.loads(bytes(words)), {}
        for name, kind, shape, expected in told["tensors"]:
            dtype = _DTYPES.get(kind)
            room = (
                math.prod(shape) * dtype.itemsize
                if dtype and all(length >= 0 for length in shape)
                else -1
            )
            if (
                not 0 <= room <= len(content) or zlib.crc32(content[:room]) != expected
            ):  # before memory is taken for it
                return
            tensors[name] = torch.empty(shape, dtype=dtype)
            _bytes(tensors[name])[:], content = content[:room], content[room:]
        yield told, tensors
        data = data[_FRAME + header + size :]


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o666)


def _bytes(x: Tensor) -> memoryview:
    """A tensor's numbers as they are in memory; without a copy where they lie in order."""
    return x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
