"""Send and receive the messages of one device, and sort them by exchange."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from gossamer.fleet.protocol.guard import is_too_long
from gossamer.fleet.protocol.ledger import Ledger
from gossamer.fleet.protocol.messages import ExchangeId, Kind, Message
from gossamer.fleet.protocol.wire import Expected, Refused, pack, unpack
from gossamer.fleet.transport.base import Transport

_IGNORED_ROUNDS = 10  # rounds for which the sender of a refused message is ignored

Arrived = dict[tuple[int, Kind], Message]  # messages by sender and kind


class Mailbox:
    """The messages of one device.

    Args:
        transport: The device's links.
        expected: What to accept.
        ledger: Settled with the lists of applied exchanges that messages carry.
        counts: Incremented for every message by what becomes of it.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        transport: Transport,
        expected: Expected,
        ledger: Ledger,
        counts: Counter[str],
        clock: Callable[[], float],
    ) -> None:
        self.asked: set[int] = set()  # devices that want a model to start from
        self.offered: Tensor | None = None  # a model to start from
        # Called with (sender, reason) for every message that is refused.
        self.on_refused: Callable[[int, str], None] = lambda sender, reason: None
        self._transport = transport
        self._expected = expected
        self._ledger = ledger
        self._counts = counts
        self._clock = clock
        # One per sender, so at most the messages of this round and the next.
        self._early: dict[ExchangeId, dict[int, Message]] = {}
        self._ignored_until: dict[int, int] = {}  # device: round

    def neighbours(self, t: int) -> frozenset[int]:
        """Return the neighbours in round t: their link is alive now and they are not ignored.

        Args:
            t: The round.
        """
        alive = self._transport.neighbours()
        return frozenset(j for j in alive if self._ignored_until.get(j, 0) <= t)

    def message(self, kind: Kind, exchange: ExchangeId, **fields: Any) -> Message:
        """Return a message of this device.

        Args:
            kind: Its kind.
            exchange: The exchange that it belongs to.
            **fields: Further fields of `Message`.
        """
        return Message(kind, self._expected.run, self._transport.device, *exchange, **fields)

    def send(self, to: int, message: Message) -> None:
        """Send a message to one device.

        Args:
            to: The receiving device.
            message: The message.
        """
        data = pack(message)
        self._counts["sent"] += 1
        self._counts["bytes sent"] += len(data)
        self._transport.send(to, data)

    def send_to_each(self, devices: Iterable[int], message: Message) -> None:
        """Send a message to several devices, each with the exchanges applied on its link.

        Args:
            devices: The receiving devices.
            message: The message.
        """
        for j in sorted(devices):
            self.send(j, replace(message, applied=self._ledger.applied.get(j, ())))

    def arrivals(self, exchange: ExchangeId, until: float) -> Iterator[Arrived]:
        """Yield the messages of an exchange until its deadline.

        Messages that are there at the same time come together, one per sender and kind, so that the
        caller waits for the disk once.

        Args:
            exchange: The exchange.
            until: The deadline, by the clock.
        """
        early = self._early.pop(exchange, {})
        self._drop_early_before(exchange)
        if early:
            first: Arrived = {}
            for j, message in early.items():
                self._ledger.settle(message)
                first[j, Kind.MODEL] = message
            yield first
        while (left := until - self._clock()) > 0:
            arrived: Arrived = {}
            data = self._transport.receive(left)
            while data is not None:
                accepted = self.accept(exchange, *data)
                if accepted is not None:
                    self._ledger.settle(accepted)
                    arrived.setdefault((accepted.sender, accepted.kind), accepted)
                data = self._transport.receive(0) if self._clock() < until else None
            if arrived:
                yield arrived

    def accept(self, exchange: ExchangeId, sender: int, data: bytes | bytearray) -> Message | None:
        """Return a message of an exchange; store early messages and settle with late ones.

        Args:
            exchange: The current exchange.
            sender: The sender, as authenticated by the transport.
            data: The message.

        Returns:
            The message, or None if it is not of this exchange or is refused.
        """
        message = self.open(exchange[0], sender, data)
        if message is None:
            return None
        its = (message.round, message.part)
        if message.kind == Kind.BYE:
            self._ledger.settle(message)
        elif its == exchange:
            return message
        elif its < exchange:
            self._counts["late"] += 1
            self._ledger.settle(message)
        elif message.kind == Kind.MODEL and message.round <= exchange[0] + 1:
            self._early.setdefault(its, {}).setdefault(sender, message)
        else:
            self._counts["unexpected"] += 1
        return None

    def open(self, t: int, sender: int, data: bytes | bytearray) -> Message | None:
        """Return a message of the exchanges; note requests for models, and models offered.

        Args:
            t: The round of this device.
            sender: The sender, as authenticated by the transport.
            data: The message.

        Returns:
            The message, or None if it is of another kind or is refused.
        """
        if t < self._ignored_until.get(sender, 0):
            self._counts["ignored"] += 1
            return None
        try:
            message = unpack(data, replace(self._expected, sender=sender))
        except Refused as refusal:
            self._counts[f"refused: {refusal.reason}"] += 1
            self.on_refused(sender, refusal.reason)
            self._ignored_until[sender] = t + _IGNORED_ROUNDS
            return None
        self._counts["received"] += 1
        self._counts["bytes received"] += len(data)
        if message.kind == Kind.ASK:
            self.asked.add(sender)
        elif message.kind == Kind.START:
            self.offered = message.vector
        else:
            return message
        return None

    def is_refused(self, message: Message, own: Tensor) -> bool:
        """Return True if the vector of a MODEL is much longer than the own one.

        Args:
            message: The message.
            own: The own vector of the exchange.
        """
        assert message.vector is not None
        if not is_too_long(message.vector, own, self._expected.guard):
            return False
        self._counts["refused: guard"] += 1
        self.on_refused(message.sender, "guard")
        return True

    def go_back(self, t: int) -> None:
        """Forget the messages of later rounds: this device goes back to round t.

        Args:
            t: The round.
        """
        self.drop_early()
        for sender, until in self._ignored_until.items():
            self._ignored_until[sender] = min(until, t + _IGNORED_ROUNDS)

    def drop_early(self) -> None:
        """Forget the early messages."""
        self._early = {}

    def _drop_early_before(self, exchange: ExchangeId) -> None:
        for earlier in list(self._early):
            if earlier <= exchange:
                del self._early[earlier]
