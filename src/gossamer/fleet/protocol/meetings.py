"""Meetings of two devices: exchanges without rounds and without a shared clock.

A meeting is numbered by its link: k is larger than every number that either end has used on this
link. Apart from that it is an exchange of `edges` between two devices, with k in place of the
round: MODEL(k) both ways, READY(k) when the other's vector is in the journal, commit with both,
otherwise in doubt until a message with a larger number lists what the other end has applied.

Why this suffices:

- A device has one vector per number and part. It writes the number to its journal before it sends
  MODEL, so that it never uses it again, not even after a crash.
- A message with number m comes from a device that has decided all its earlier meetings on this
  link: FREE, MODEL and BYE are sent only after the last meeting is on disk, and list it if it was
  applied.
- A round of a device has at most one meeting, and ends with a checkpoint.

Deadlines are by the clock of each device, which counts seconds from any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from gossamer.algorithms import State
from gossamer.fleet.protocol.edges import Edges, make_transfer
from gossamer.fleet.protocol.handshake import Handshake, Meeting
from gossamer.fleet.protocol.journal import Journal, Transfer
from gossamer.fleet.protocol.ledger import Exchanged
from gossamer.fleet.protocol.messages import Kind, Message
from gossamer.fleet.protocol.wire import Expected
from gossamer.fleet.transport.base import Transport

_SCAN_SECONDS = 0.2  # period of checking which links are alive
_MAX_AT_ONCE = 1000  # messages read before the clock is checked, if a neighbour floods
_REPEAT_SECONDS = 1.0  # period of sending FREE, which may have been lost


class Meetings(Edges):
    """One device's ends of its links, for meetings of two.

    Args:
        transport: The device's links.
        journal: Its journal.
        expected: The messages to accept.
        clock: Returns the time in seconds; deadlines are by this clock.

    Example:
        meetings = Meetings(transport, Journal(folder), expected)
        state = meetings.start(lambda: algorithm.first_state(w0))
        for t in range(meetings.round, rounds):
            mix = MeetingMix(meetings, algorithm.weights, time.monotonic, patience, timeout)
            state = algorithm.next_state(state, grad, mix, t)
            meetings.finish(t, state)
            meetings.send_models(algorithm.models(state)[0])
        meetings.leave()
    """

    def __init__(
        self,
        transport: Transport,
        journal: Journal,
        expected: Expected,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(transport, journal, expected, clock)
        self._handshake = Handshake(self.device, {})
        self._meeting: Meeting | None = None  # the meeting of this round
        self._early: dict[int, Message] = {}  # MODEL of the partner, by part

    def start(self, new: Callable[[], State], round: int = 0) -> State:
        state = super().start(new, round)
        self._handshake.numbers = self._ledger.numbers
        return state

    def finish(self, t: int, state: State) -> None:
        super().finish(t, state)
        self._meeting = None
        self._early.clear()

    def request_model(self, until: float) -> Tensor | None:
        """Ask all neighbours for a model to start from.

        Args:
            until: When to give up, by the clock.

        Returns:
            The first model received; None if there is none, or all neighbours are new as well.
        """
        asked: set[int] = set()
        mailbox = self._mailbox
        mailbox.offered = None
        # A neighbour that asked waits for this device to ask too, unless its patience is over.
        for sender, kind in self._receive_all(0):
            if kind == Kind.FREE:
                mailbox.asked.discard(sender)
        while mailbox.offered is None and (left := until - self._clock()) > 0:
            neighbours = self.neighbours(self.round)
            for j in sorted(neighbours - asked):
                mailbox.send(j, mailbox.message(Kind.ASK, (self.round, 0)))
            asked |= neighbours
            self._receive_all(min(left, _SCAN_SECONDS))
            if asked and asked <= mailbox.asked:
                break
        mailbox.asked.clear()
        return mailbox.offered

    def leave(self) -> None:
        for j in sorted(self._transport.neighbours()):
            self._send(Kind.BYE, j)

    # -- meetings ----------------------------------------------------------------------------------

    def find_partner(self, until: float) -> int | None:
        """Wait for a neighbour that is ready for a meeting too. Once per round.

        Args:
            until: When to give up, by the clock.

        Returns:
            The partner, or None.
        """
        self._receive_all(0)
        self._handshake.begin()
        told: set[int] = set()
        tell_again = self._clock() + _REPEAT_SECONDS
        while True:
            neighbours = self.neighbours(self.round)
            if self._clock() >= tell_again:
                told.clear()
                tell_again = self._clock() + _REPEAT_SECONDS
            for j in sorted(neighbours - told):
                self._send(Kind.FREE, j)
            told |= neighbours
            if message := self._handshake.next_message(neighbours):
                kind, (partner, number) = message
                self._send(kind, partner, number)
            left = until - self._clock()
            if self._handshake.agreed is not None or left <= 0:
                break
            self._receive_all(min(left, _SCAN_SECONDS))
        self._meeting = self._handshake.end()
        return self._begin_meeting(told)

    def meet(self, part: int, x: Tensor, until: float, weight: float, p: float = 1.0) -> Exchanged:
        """Exchange x with the partner of this round, if there is one.

        Args:
            part: Number of the exchange in this meeting.
            x: The vector to send.
            until: The deadline, by the clock.
            weight: Weight of the link.
            p: Power of the mean that the vectors are for.

        Returns:
            The transfer committed, and those of the same part of earlier meetings confirmed since.
        """
        if self._meeting is None:
            return self._ledger.commit((0, part), {}, set(), 0)
        partner, number = self._meeting
        exchange = (number, part)
        own = x.detach().to("cpu", self._dtype, copy=True)
        model = self._mailbox.message(Kind.MODEL, exchange, degree=1, vector=own)
        self._journal.log_own(exchange, own, model.checksum, partner)
        self._mailbox.send_to_each([partner], model)
        received: dict[int, Transfer] = {}
        acked: set[int] = set()
        for message in self._messages_of(self._meeting, part, until):
            if message.kind == Kind.MODEL and not received:
                if self._mailbox.is_refused(message, own):
                    break
                received[partner] = make_transfer(model, message, weight, p)
                self._log_and_acknowledge([received[partner]])
            elif message.kind == Kind.READY and message.checksum == model.checksum:
                acked.add(partner)
            if received and acked:
                break
            if message.kind == Kind.BUSY and not received:
                break  # the partner has withdrawn its proposal
        return self._ledger.commit(exchange, received, acked, 1)

    def _begin_meeting(self, told: set[int]) -> int | None:
        """Tell the others that this device is busy now; return the partner."""
        partner = None
        if self._meeting is not None:
            partner, number = self._meeting
            self._ledger.numbers[partner] = number
            self._handshake.last_tried[partner] = self.round
        for j in sorted(told - {partner}):
            self._send(Kind.BUSY, j)
        return partner

    def _messages_of(self, meeting: Meeting, part: int, until: float) -> Iterator[Message]:
        """Yield the partner's messages of an exchange, until its deadline or the link's end."""
        partner, number = meeting
        if part in self._early:
            yield self._early.pop(part)
        while (left := until - self._clock()) > 0:
            if partner not in self.neighbours(self.round):
                return
            data = self._transport.receive(min(left, _SCAN_SECONDS))
            message = self._open(*data) if data is not None else None
            if message is None or message.sender != partner:
                continue
            if message.round > number:
                return  # the partner has ended this meeting
            if message.kind == Kind.BUSY or (message.round, message.part) == (number, part):
                yield message

    # -- messages ----------------------------------------------------------------------------------

    def _receive_all(self, timeout: float) -> list[tuple[int, Kind]]:
        """Read the messages that are there, or wait for the first; return senders and kinds."""
        read = []
        data = self._transport.receive(timeout)
        while data is not None:
            message = self._open(*data)
            if message is not None:
                read.append((message.sender, message.kind))
            if len(read) >= _MAX_AT_ONCE:
                break
            data = self._transport.receive(0)
        return read

    def _open(self, sender: int, data: bytes | bytearray) -> Message | None:
        """Return a message; settle what it decides, and take note of who is free."""
        message = self._mailbox.open(self.round, sender, data)
        if message is None:
            return None
        self._ledger.settle(message)
        self._handshake.note(message)
        its = (sender, message.round)
        in_meeting = its in (self._meeting, self._handshake.agreed)
        if message.kind == Kind.MODEL and in_meeting:
            self._early.setdefault(message.part, message)
        unused = message.round >= self._handshake.next_number(sender)
        if message.kind == Kind.ACCEPT and unused and not in_meeting:
            self._send(Kind.BUSY, sender)  # this device has withdrawn its proposal
        return message

    def _send(self, kind: Kind, to: int, number: int | None = None) -> None:
        if number is None:
            number = self._handshake.next_number(to)
        message = self._mailbox.message(kind, (number, 0))
        if kind.has_applied:
            self._mailbox.send_to_each([to], message)
        else:
            self._mailbox.send(to, message)
