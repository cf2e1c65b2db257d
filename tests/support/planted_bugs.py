"""Bugs planted in the protocol of devices, each of which the simulation must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gossamer._core.disk import Disk
from gossamer._core.files import PUBLIC_MODE, write_atomically
from gossamer.fleet import files, node
from gossamer.fleet.protocol import journal, records
from gossamer.fleet.protocol.alone import AloneRounds
from gossamer.fleet.protocol.edges import Edges
from gossamer.fleet.protocol.journal import Checkpoint, Journal, Transfer
from gossamer.fleet.protocol.ledger import Exchanged, Ledger
from gossamer.fleet.protocol.mailbox import Mailbox
from gossamer.fleet.protocol.messages import ExchangeId, Kind, Message
from gossamer.network.weights import PeerWeight

Patch = pytest.MonkeyPatch
BUGS: dict[str, Callable[[Patch], None]] = {}


def bug(name: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Register a function that plants a bug.

    Args:
        name: What the bug does.
    """

    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS[name] = plant
        return plant

    return register


@bug("READY is sent before the exchange is written")
def _ready_first(patch: Patch) -> None:
    def log_and_acknowledge(self: Edges, transfers: list[Transfer]) -> None:
        for transfer in transfers:
            assert transfer.checksums is not None
            checksum = transfer.checksums[1]
            ready = self._mailbox.message(Kind.READY, transfer.exchange, checksum=checksum)
            self._mailbox.send(transfer.neighbour, ready)
        if transfers:
            self._journal.log(transfers)

    patch.setattr(Edges, "_log_and_acknowledge", log_and_acknowledge)


@bug("the write-ahead log is not synced")
def _log_not_synced(patch: Patch) -> None:
    append = Journal._append

    def without_sync(self: Journal, *args: Any) -> None:
        synced = self._sync
        self._sync = False
        append(self, *args)
        self._sync = synced

    patch.setattr(Journal, "_append", without_sync)


@bug("a new write-ahead log is not synced in its folder")
def _log_not_in_folder(patch: Patch) -> None:
    append = Journal._append

    def without_folder(self: Journal, *args: Any) -> None:
        disk = self._disk
        self._disk = _WithoutFolderSync(disk)
        try:
            append(self, *args)
        finally:
            self._disk = disk

    patch.setattr(Journal, "_append", without_folder)


class _WithoutFolderSync:
    """A disk that does not sync folders."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync_folder(self, folder: Path) -> None:
        pass


@bug("the list of applied exchanges is forgotten")
def _no_applied_list(patch: Patch) -> None:
    def finish_round(self: Ledger) -> None:
        self._committed = []

    patch.setattr(Ledger, "finish_round", finish_round)


@bug("the list of applied exchanges is not in the checkpoint")
def _applied_not_restored(patch: Patch) -> None:
    read = Journal.read

    def without_applied(self: Journal) -> Checkpoint | None:
        checkpoint = read(self)
        return None if checkpoint is None else replace(checkpoint, applied={})

    patch.setattr(Journal, "read", without_applied)


@bug("off by one in settlement: messages of the same round settle")
def _settles_too_early(patch: Patch) -> None:
    settle = Ledger.settle

    def one_early(self: Ledger, message: Message) -> None:
        settle(self, replace(message, round=message.round + 1))

    patch.setattr(Ledger, "settle", one_early)


@bug("a torn checkpoint is taken as whole")
def _torn_checkpoint(patch: Patch) -> None:
    def in_place(
        path: Path, content: Any, *, mode: int, sync: bool, sync_folder: bool, disk: Disk
    ) -> None:
        with disk.update(path, mode) as file:
            content(file)
            if sync:
                disk.sync(file)
        if sync_folder:
            disk.sync_folder(path.parent)

    def without_checksums(described: list[Any], content: memoryview) -> dict[str, Tensor]:
        tensors = {}
        for name, dtype_name, shape, _ in described:
            x = torch.empty(shape, dtype=records._DTYPES[dtype_name])
            size = x.numel() * x.element_size()
            records._tensor_bytes(x)[:] = content[:size]
            tensors[name] = x
            content = content[size:]
        return tensors

    patch.setattr(journal, "write_atomically", in_place)
    patch.setattr(records, "_read_tensors", without_checksums)


@bug("the checkpoint is renamed before it is synced")
def _renamed_before_sync(patch: Patch) -> None:
    def late(path: Path, content: Any, **options: Any) -> None:
        write_atomically(path, content, **{**options, "sync": False})

    patch.setattr(journal, "write_atomically", late)


@bug("a model is renamed before it is synced")
def _model_renamed_before_sync(patch: Patch) -> None:
    def late(path: Path, content: Any, **options: Any) -> None:
        write_atomically(path, content, **{**options, "sync": False})

    patch.setattr(node, "write_atomically", late)


@bug("the folder is not synced after a checkpoint")
def _folder_not_synced(patch: Patch) -> None:
    def without_folder(path: Path, content: Any, **options: Any) -> None:
        write_atomically(path, content, **{**options, "sync_folder": False})

    patch.setattr(journal, "write_atomically", without_folder)


@bug("a confirmed exchange is applied twice")
def _applied_twice(patch: Patch) -> None:
    settle = Ledger.settle

    def twice(self: Ledger, message: Message) -> None:
        before = self._counts["settled"]
        settle(self, message)
        if self._counts["settled"] > before:
            self._pending.append(self._pending[-1])

    patch.setattr(Ledger, "settle", twice)


@bug("a message of an earlier round is accepted")
def _stale_round(patch: Patch) -> None:
    accept = Mailbox.accept

    def any_round(
        self: Mailbox, exchange: ExchangeId, sender: int, data: bytes | bytearray
    ) -> Message | None:
        message = self.open(exchange[0], sender, data)
        if message is None:
            return None
        if message.kind == Kind.MODEL and (message.round, message.part) < exchange:
            return replace(message, round=exchange[0], part=exchange[1])
        return accept(self, exchange, sender, data)

    patch.setattr(Mailbox, "accept", any_round)


@bug("the weight of a link is from the own degree only")
def _own_degree(patch: Patch) -> None:
    exchange = Edges.exchange

    def own_degree(
        self: Edges,
        number: ExchangeId,
        x: Tensor,
        until: float,
        weight: PeerWeight,
        *more: Any,
    ) -> Exchanged:
        def one_sided(neighbour: int, own: int, other: int) -> float:
            return weight(neighbour, own, own)

        return exchange(self, number, x, until, one_sided, *more)

    patch.setattr(Edges, "exchange", own_degree)


@bug("exchanges in doubt are dropped at a restart")
def _dropped_at_restart(patch: Patch) -> None:
    restore = Ledger.restore

    def without_pending(self: Ledger, checkpoint: Checkpoint) -> None:
        restore(self, replace(checkpoint, pending=()))

    patch.setattr(Ledger, "restore", without_pending)


@bug("the write-ahead log is cut before the checkpoint replaces it")
def _cut_too_early(patch: Patch) -> None:
    write = Journal.write_checkpoint

    def cut_first(self: Journal, checkpoint: Checkpoint) -> None:
        with self._disk.update(self._log, PUBLIC_MODE) as file:
            file.write(bytes(4))
            if self._sync:
                self._disk.sync(file)
        write(self, checkpoint)

    patch.setattr(Journal, "write_checkpoint", cut_first)


@bug("a restarted device takes part in the round in which it was killed")
def _same_round_again(patch: Patch) -> None:
    start = Edges.start

    def again(self: Edges, new: Callable[[], Any], round: int = 0) -> Any:
        read = self._journal.read

        def one_back() -> Checkpoint | None:
            checkpoint = read()
            return None if checkpoint is None else replace(checkpoint, round=checkpoint.round - 1)

        self._journal.read = one_back  # type: ignore[method-assign]
        return start(self, new, 0)

    patch.setattr(Edges, "start", again)


@bug("a round that a wrong clock has shown is run again")
def _round_run_again(patch: Patch) -> None:
    patch.setattr(AloneRounds, "_add_span", lambda self, t: None)


@bug("a device goes back to rounds that it has shared with others")
def _goes_back_too_far(patch: Patch) -> None:
    may_go_back = AloneRounds._may_go_back

    def to_any(self: AloneRounds, t: int, shown: int) -> bool:
        return may_go_back(AloneRounds(0, self.spans), t, shown)

    patch.setattr(AloneRounds, "_may_go_back", to_any)


@bug("a device whose clock is beyond the last round says that it is done")
def _done_by_a_wrong_clock(patch: Patch) -> None:
    patch.setattr(AloneRounds, "missed", lambda self, rounds: 0)


@bug("a vector that the guard refuses is acknowledged")
def _refused_and_acknowledged(patch: Patch) -> None:
    is_refused = Mailbox.is_refused

    def acknowledged(self: Mailbox, message: Message, own: Tensor) -> bool:
        refused = is_refused(self, message, own)
        if refused:
            exchange = (message.round, message.part)
            self.send(message.sender, self.message(Kind.READY, exchange, checksum=message.checksum))
        return refused

    patch.setattr(Mailbox, "is_refused", acknowledged)


@bug("the round after a gap is not in the journal before its vector is sent")
def _gap_not_written(patch: Patch) -> None:
    patch.setattr(Journal, "log_round", lambda self, t: None)


@bug("the number of a meeting is not written before its vector is sent")
def _number_not_written(patch: Patch) -> None:
    patch.setattr(Journal, "log_own", lambda self, *args: None)


@bug("the deadline of an exchange is ignored")
def _no_deadline(patch: Patch) -> None:
    arrivals = Mailbox.arrivals

    def for_ever(self: Mailbox, exchange: ExchangeId, until: float) -> Iterator[Any]:
        return arrivals(self, exchange, until + 1e6)

    patch.setattr(Mailbox, "arrivals", for_ever)


@bug("an error of the disk ends the node with a traceback")
def _no_sentence(patch: Patch) -> None:
    for module in (files, node):
        patch.setattr(module, "os_errors", lambda action, path: nullcontext())
