"""Which exchanges are applied, committed and in doubt on the links of one device."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from gossamer.fleet.protocol.journal import Checkpoint, Transfer
from gossamer.fleet.protocol.messages import ExchangeId, Message

# Exchanges listed for each neighbour. Those of one round suffice, unless crash follows crash.
_MAX_APPLIED = 16
_MAX_PENDING = 64  # transfers in doubt that are kept for neighbours that may never return


class Exchanged(NamedTuple):
    """The result of an exchange: transfers committed now, and earlier ones confirmed since."""

    committed: list[Transfer]
    late: list[Transfer]


class Ledger:
    """The exchanges of one device.

    Args:
        counts: Incremented for every exchange by its outcome.

    Attributes:
        numbers: The last number used on each link, in meetings of two.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.numbers: dict[int, int] = {}
        self._counts = counts
        # On disk, so neighbours may be informed.
        self._applied: dict[int, tuple[ExchangeId, ...]] = {}
        self._committed: list[tuple[int, ExchangeId]] = []  # committed in this round
        self._pending: list[Transfer] = []

    @property
    def pending(self) -> tuple[Transfer, ...]:
        """Transfers in doubt, or confirmed and not yet applied."""
        return tuple(self._pending)

    @property
    def committed_with(self) -> frozenset[int]:
        """Neighbours with whom an exchange was committed in the current round."""
        return frozenset(neighbour for neighbour, _ in self._committed)

    @property
    def applied(self) -> dict[int, tuple[ExchangeId, ...]]:
        """The last exchanges applied and on disk, by neighbour."""
        return self._applied

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint.

        Args:
            checkpoint: The checkpoint.
        """
        self.numbers = dict(checkpoint.numbers)
        self._applied = dict(checkpoint.applied)
        self._pending = list(checkpoint.pending)

    def commit(
        self, exchange: ExchangeId, received: dict[int, Transfer], acked: set[int], neighbours: int
    ) -> Exchanged:
        """Decide an exchange whose deadline has come or which is complete.

        Args:
            exchange: The exchange.
            received: The transfer of each neighbour whose vector is here.
            acked: Neighbours that have acknowledged the own vector.
            neighbours: Number of neighbours asked.
        """
        committed = [received[j] for j in sorted(received.keys() & acked)]
        in_doubt = [received[j] for j in sorted(received.keys() - acked)]
        late = []
        still_pending = []
        for transfer in self._pending:
            if transfer.confirmed and transfer.exchange[1] == exchange[1]:
                late.append(transfer)
            else:
                still_pending.append(transfer)
        self._pending = still_pending + in_doubt
        for transfer in committed:
            self._committed.append((transfer.neighbour, exchange))
        self._counts["committed"] += len(committed)
        self._counts["in doubt"] += len(in_doubt)
        self._counts["failed"] += neighbours - len(received)
        return Exchanged(committed, late)

    def settle(self, message: Message) -> None:
        """Settle transfers in doubt with the sender, which lists the exchanges it has applied.

        Args:
            message: A message of a later round. One that carries no list settles nothing.
        """
        if not message.kind.has_applied:
            return
        for transfer in list(self._pending):
            in_doubt = transfer.neighbour == message.sender and not transfer.confirmed
            if not in_doubt or transfer.exchange[0] >= message.round:
                continue
            self._pending.remove(transfer)
            if transfer.exchange in message.applied:
                self._counts["settled"] += 1
                self._pending.append(replace(transfer, confirmed=True))
            else:
                self._counts["dropped"] += 1

    def finish_round(self) -> None:
        """Note that the exchanges of the round are applied, and forget the oldest in doubt."""
        for neighbour, exchange in self._committed:
            applied = {*self._applied.get(neighbour, ()), exchange}
            self._applied[neighbour] = tuple(sorted(applied))[-_MAX_APPLIED:]
        self._committed = []
        self._counts["forgotten"] += max(0, len(self._pending) - _MAX_PENDING)
        self._pending = self._pending[-_MAX_PENDING:]
