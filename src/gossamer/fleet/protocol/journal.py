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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from gossamer._core.disk import SYSTEM_DISK, Disk
from gossamer._core.files import PRIVATE_MODE, os_errors, write_atomically
from gossamer.algorithms import State
from gossamer.errors import DataError
from gossamer.fleet.protocol.alone import Span
from gossamer.fleet.protocol.messages import ExchangeId
from gossamer.fleet.protocol.records import Record, read_records, write_record

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
        numbers: The last number used on each link, in meetings of two.
        shared: The round after the last one in which another device was as well.
        alone: The rounds since in which the device has sent a vector; see `protocol.alone`.
        ran_alone: Number of rounds since that the device has run.
        begun: False if the device has surely not begun the next round, nor sent a vector in it.
    """

    round: int
    state: State
    applied: dict[int, tuple[ExchangeId, ...]] = field(default_factory=dict)
    pending: tuple[Transfer, ...] = ()
    numbers: dict[int, int] = field(default_factory=dict)
    shared: int = 0
    alone: tuple[Span, ...] = ()
    ran_alone: int = 0
    begun: bool = True


class Journal:
    """The journal in a folder. Methods that write return when the data is on disk.

    Args:
        folder: The folder; created if missing.
        sync: False to return when the data is with the operating system: it then survives a killed
            process, but not a power failure.
        disk: Where the folder is.
        study: The digest of the study; "": a checkpoint of any study is read.

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

    def __init__(
        self, folder: Path, sync: bool = True, disk: Disk = SYSTEM_DISK, study: str = ""
    ) -> None:
        self._study = study
        self._sync = sync
        self._disk = disk
        self._checkpoint = folder / CHECKPOINT_FILE
        self._log = folder / LOG_FILE
        self._round = 0  # the round of the checkpoint
        self._last: ExchangeId | None = None  # the exchange whose own vector is in the log
        self._log_end = 0  # size of this round's entries, in bytes
        with os_errors("make", folder):
            disk.make_folder(folder)

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, with the exchanges logged since as pending; None if there is none.

        Raises:
            DataError: If the checkpoint is damaged, or of another study.
        """
        found = self._read_checkpoint()
        if found is None:
            return None
        header, tensors = found
        written_by = header.get("study", "")  # versions before 0.3 wrote none
        if self._study and written_by and written_by != self._study:
            raise DataError(
                f"{self._checkpoint} is of another model or method than this study:"
                " give the device an empty folder, and it starts as a new one;"
                " or move the fleet by `gossamer fleet upgrade`, and it keeps its model"
            )
        state = {}
        for name, x in tensors.items():
            if name.startswith(_STATE):
                state[name.removeprefix(_STATE)] = x
        applied = {}
        for j, exchanges in header["applied"].items():
            applied[int(j)] = tuple((t, part) for t, part in exchanges)
        pending = _transfers(header, tensors)
        numbers = _numbers(header)
        round: int = header["round"]
        # Versions before 0.3 wrote none of these: then the device does not go back, and counts as
        # having run all rounds.
        shared: int = header.get("shared", round)
        ran_alone: int = header.get("ran_alone", max(0, round - shared))
        begun: bool = header.get("begun", True)
        for entry, more in read_records(self._log, self._disk):
            if entry["round"] != header["round"]:
                break  # left from another round
            tensors |= more
            pending += _transfers(entry, tensors)
            numbers |= _numbers(entry)
            if "began" in entry:
                round = entry["began"]
                begun = True
        alone = tuple((first, end) for first, end in header.get("alone", ()))
        return Checkpoint(
            round, state, applied, tuple(pending), numbers, shared, alone, ran_alone, begun
        )

    def written_by(self) -> tuple[str, int] | None:
        """Return the digest of the study of the checkpoint, and its round; None if there is none.

        Raises:
            DataError: If the checkpoint is damaged.
        """
        found = self._read_checkpoint()
        if found is None:
            return None
        header, _ = found
        return header.get("study", ""), header["round"]

    def _read_checkpoint(self) -> Record | None:
        if not self._disk.exists(self._checkpoint):
            return None
        records = list(read_records(self._checkpoint, self._disk))
        if len(records) != 1:
            raise DataError(
                f"{self._checkpoint} is damaged: give the device an empty folder,"
                " and it starts as a new one"
            )
        return records[0]

    def log_round(self, t: int) -> None:
        """Log that the device takes part in another round than that of the checkpoint.

        Args:
            t: The round.
        """
        self._append(None, {"flows": [], "began": t}, {}, {})

    def log_own(
        self, exchange: ExchangeId, own: Tensor, checksum: int, partner: int | None = None
    ) -> None:
        """Log the own vector of an exchange early, while the others' are in transit.

        Without this the first `log` of the exchange writes it. In a meeting of two it comes before
        the vector is sent: the number of the meeting is then never used again.

        Args:
            exchange: The exchange.
            own: The vector sent.
            checksum: Its CRC-32.
            partner: The other device of a meeting of two.
        """
        name = _own_name(exchange)
        header: dict[str, Any] = {"flows": []}
        if partner is not None:
            header["numbers"] = {partner: exchange[0]}
        self._append(exchange, header, {name: own}, {name: checksum})

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
        header |= {
            "round": checkpoint.round,
            "applied": checkpoint.applied,
            "numbers": checkpoint.numbers,
            "shared": checkpoint.shared,
            "alone": checkpoint.alone,
            "ran_alone": checkpoint.ran_alone,
            "begun": checkpoint.begun,
            "study": self._study,
        }
        for name, x in checkpoint.state.items():
            tensors[_STATE + name] = x

        def write(file: BinaryIO) -> None:
            write_record(file, header, tensors, checksums)

        write_atomically(
            self._checkpoint,
            write,
            mode=PRIVATE_MODE,
            sync=self._sync,
            sync_folder=self._sync,
            disk=self._disk,
        )
        self._round = checkpoint.round
        self._last = None
        self._log_end = 0

    def _append(
        self,
        exchange: ExchangeId | None,
        header: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        checksums: Mapping[str, int],
    ) -> None:
        disk = self._disk
        new = not disk.exists(self._log)
        with os_errors("write", self._log), disk.update(self._log, PRIVATE_MODE) as file:
            file.seek(self._log_end)
            write_record(file, {**header, "round": self._round}, tensors, checksums)
            file.flush()
            if self._sync:
                disk.sync(file)
                if new:  # else a power failure may lose the file with all that is in it
                    disk.sync_folder(self._log.parent)
            self._log_end = file.tell()
        self._last = exchange


def _described(
    transfers: Sequence[Transfer],
) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, int]]:
    """Return transfers as a header, tensors and known checksums of tensors.

    The own vector of an exchange is there once, for all links. Meetings of two are numbered by
    link, so the same number may stand for another vector on another link.
    """
    flows = []
    tensors: dict[str, Tensor] = {}
    checksums: dict[str, int] = {}
    for transfer in transfers:
        own = _own_name(transfer.exchange)
        if tensors.get(own, transfer.own) is not transfer.own:
            own = _own_name(transfer.exchange, transfer.neighbour)
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
        own = tensors.get(_own_name(exchange, neighbour))
        if own is None:
            own = tensors[_own_name(exchange)]
        other = tensors[_other_name(neighbour, exchange)]
        transfers.append(Transfer(neighbour, exchange, weight, p, own, other, confirmed))
    return transfers


def _numbers(header: dict[str, Any]) -> dict[int, int]:
    return {int(j): number for j, number in header.get("numbers", {}).items()}


def _own_name(exchange: ExchangeId, neighbour: int | None = None) -> str:
    name = f"own/{exchange[0]}/{exchange[1]}"
    return name if neighbour is None else f"{name}/{neighbour}"


def _other_name(neighbour: int, exchange: ExchangeId) -> str:
    return f"other/{exchange[0]}/{exchange[1]}/{neighbour}"
