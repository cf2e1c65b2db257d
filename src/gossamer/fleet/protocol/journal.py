"""The journal of a device: after a crash, no exchange that it has acknowledged is lost.

    kept        checkpoint: the state after the last round, and the exchanges that are applied or
                pending on each link; replaced atomically after every round
    promised    write-ahead log: the exchanges of the current round, each on disk before the
                neighbour gets its ack (READY); obsolete once the round is over

The log is overwritten from its start in every round, which takes a third of the time of a file that
grows anew. Entries left behind the new ones have an earlier round, so `read` ignores them. The
names of the files are part of the format: a device can resume with a newer version of gossamer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from gossamer._core.files import os_errors, write_atomically
from gossamer.algorithms import State
from gossamer.errors import DataError
from gossamer.fleet.protocol.messages import ExchangeId
from gossamer.fleet.protocol.records import read_records, write_record

CHECKPOINT_FILE = "kept"
LOG_FILE = "promised"
_STATE = "state/"  # prefix of the names of state tensors


@dataclass(frozen=True, eq=False)
class Transfer:
    """What one exchange moves over one link, to this end of it: weight·(other^[p] − own^[p]).

    The vectors are kept as they were sent. The difference of their powers could overflow or
    underflow any dtype.

    Args:
        neighbour: The device at the other end.
        exchange: The exchange.
        weight: Weight of the link.
        p: Power of the mean.
        own: The vector sent.
        other: The vector received.
        confirmed: True if the neighbour has applied the exchange, so it is due here.
        checksums: CRC-32 of own and other, where known.
    """

    neighbour: int
    exchange: ExchangeId
    weight: float
    p: float
    own: Tensor
    other: Tensor
    confirmed: bool = False
    checksums: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a device resumes from.

    Args:
        round: The next round.
        state: State of the algorithm.
        applied: The last exchanges applied, by neighbour.
        pending: Transfers in doubt, or confirmed and not yet applied.
    """

    round: int
    state: State
    applied: dict[int, tuple[ExchangeId, ...]] = field(default_factory=dict)
    pending: tuple[Transfer, ...] = ()


class Journal:
    """The journal in a folder. Methods that write return when the data is on disk.

    Args:
        folder: The folder; created if missing.
        sync: False to return when the data is with the operating system: it then survives a killed
            process, but not a power failure.

    Raises:
        DataError: If the folder cannot be created.

    Example:
        >>> import torch
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     journal = Journal(Path(folder))
        ...     journal.write_checkpoint(Checkpoint(3, {"w": torch.zeros(1, 2)}))
        ...     journal.log([Transfer(7, (3, 0), 0.5, 1.0, torch.zeros(2), torch.ones(2))])
        ...     checkpoint = Journal(Path(folder)).read()
        >>> checkpoint.round, checkpoint.pending[0].neighbour
        (3, 7)
    """

    def __init__(self, folder: Path, sync: bool = True) -> None:
        self._sync = sync
        self._checkpoint = folder / CHECKPOINT_FILE
        self._log = folder / LOG_FILE
        self._last: ExchangeId | None = None  # the exchange whose own vector is in the log
        self._log_end = 0  # of this round's entries, in bytes
        with os_errors("make", folder):
            folder.mkdir(parents=True, exist_ok=True)

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, with the exchanges logged since as pending; None if there is none.

        Raises:
            DataError: If the checkpoint is damaged.
        """
        if not self._checkpoint.exists():
            return None
        records = list(read_records(self._checkpoint))
        if len(records) != 1:
            raise DataError(
                f"{self._checkpoint} is damaged: give the device an empty folder,"
                " and it starts as a new one"
            )
        header, tensors = records[0]
        state = {}
        for name, x in tensors.items():
            if name.startswith(_STATE):
                state[name.removeprefix(_STATE)] = x
        applied = {}
        for j, exchanges in header["applied"].items():
            applied[int(j)] = tuple((t, part) for t, part in exchanges)
        pending = _transfers(header, tensors)
        for entry, more in read_records(self._log):
            if entry["round"] < header["round"]:
                break  # left from an earlier round
            tensors |= more
            pending += _transfers(entry, tensors)
        return Checkpoint(header["round"], state, applied, tuple(pending))

    def log_own(self, exchange: ExchangeId, own: Tensor, checksum: int) -> None:
        """Log the own vector of an exchange early, while the others' are in transit.

        Without this the first `log` of the exchange writes it.

        Args:
            exchange: The exchange.
            own: The vector sent.
            checksum: Its CRC-32.
        """
        name = _own_name(exchange)
        self._append(exchange, {"flows": []}, {name: own}, {name: checksum})

    def log(self, transfers: Sequence[Transfer]) -> None:
        """Log transfers of one exchange: they are pending if the device crashes in this round.

        Args:
            transfers: At least one, all of the same exchange.
        """
        exchange = transfers[0].exchange
        header, tensors, checksums = _described(transfers)
        if exchange == self._last:
            del tensors[_own_name(exchange)]
        self._append(exchange, header, tensors, checksums)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint; the log becomes obsolete.

        Args:
            checkpoint: The new checkpoint.
        """
        header, tensors, checksums = _described(checkpoint.pending)
        header |= {"round": checkpoint.round, "applied": checkpoint.applied}
        for name, x in checkpoint.state.items():
            tensors[_STATE + name] = x

        def write(file: BinaryIO) -> None:
            write_record(file, header, tensors, checksums)

        write_atomically(self._checkpoint, write, sync=self._sync, sync_folder=self._sync)
        self._last = None
        self._log_end = 0

    def _append(
        self,
        exchange: ExchangeId,
        header: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        checksums: Mapping[str, int],
    ) -> None:
        with os_errors("write", self._log), open(self._log, "r+b", opener=_open_or_create) as file:
            file.seek(self._log_end)
            write_record(file, {**header, "round": exchange[0]}, tensors, checksums)
            file.flush()
            if self._sync:
                os.fsync(file.fileno())
            self._log_end = file.tell()
        self._last = exchange


def _described(
    transfers: Sequence[Transfer],
) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, int]]:
    """Return transfers as a header, tensors and known checksums of tensors.

    The own vector of an exchange is there once, for all links.
    """
    flows = []
    tensors: dict[str, Tensor] = {}
    checksums: dict[str, int] = {}
    for transfer in transfers:
        own = _own_name(transfer.exchange)
        other = _other_name(transfer.neighbour, transfer.exchange)
        tensors[own] = transfer.own
        tensors[other] = transfer.other
        if transfer.checksums is not None:
            checksums[own], checksums[other] = transfer.checksums
        flows.append(
            [
                transfer.neighbour,
                transfer.exchange,
                transfer.weight,
                transfer.p,
                transfer.confirmed,
            ]
        )
    return {"flows": flows}, tensors, checksums


def _transfers(header: dict[str, Any], tensors: dict[str, Tensor]) -> list[Transfer]:
    transfers = []
    for neighbour, (t, part), weight, p, confirmed in header["flows"]:
        exchange = (t, part)
        own = tensors[_own_name(exchange)]
        other = tensors[_other_name(neighbour, exchange)]
        transfers.append(Transfer(neighbour, exchange, weight, p, own, other, confirmed))
    return transfers


def _own_name(exchange: ExchangeId) -> str:
    return f"own/{exchange[0]}/{exchange[1]}"


def _other_name(neighbour: int, exchange: ExchangeId) -> str:
    return f"other/{exchange[0]}/{exchange[1]}/{neighbour}"


def _open_or_create(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o666)
