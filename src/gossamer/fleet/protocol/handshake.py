"""Find a partner for a meeting of two, without a clock and without waiting in a circle.

A device that is ready sends FREE to its neighbours, and BUSY once it is not: it has found a
partner, or goes on alone. Of two devices that are free the one with the smaller number proposes,
and the other accepts:

    i → j   FREE          j → i   FREE
    i → j   PROPOSE(k)    where i < j
    j → i   ACCEPT(k)     both send BUSY to all others, and then MODEL(k) to each other

A device has one proposal at a time. Until that is answered it keeps proposals of others waiting.
Since proposals go to larger numbers only, no circle of devices waits for each other: the largest
device that is proposed to has proposed to nobody, and answers at once. FREE is repeated, and a
proposal is repeated with it, since one of them may have been lost. A proposal ends with the search.

Nothing here needs to be reliable. What both ends believe about a meeting decides only whether their
exchange succeeds; that it counts for both or for neither is up to the exchange.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gossamer.fleet.protocol.messages import Kind, Message

# A neighbour that claims a larger number is not met: numbers must fit into a message.
_LARGEST_NUMBER = 1 << 31

Meeting = tuple[int, int]  # the partner, and the number of the meeting on this link


@dataclass
class Handshake:
    """What a device knows of its neighbours that are free.

    Args:
        device: Number of this device.
        numbers: The last number used on each link, kept up to date by the caller.
        last_tried: The round of this device in which it last met each neighbour or tried to.

    Example:
        >>> handshake = Handshake(device=0, numbers={})
        >>> handshake.begin()
        >>> handshake.note(Message(Kind.FREE, bytes(16), sender=1, round=4))
        >>> handshake.next_message({1})
        (<Kind.PROPOSE: 7>, (1, 4))
        >>> handshake.note(Message(Kind.ACCEPT, bytes(16), sender=1, round=4))
        >>> handshake.agreed
        (1, 4)
    """

    device: int
    numbers: Mapping[int, int]
    last_tried: dict[int, int] = field(default_factory=dict)
    agreed: Meeting | None = None
    _searching: bool = False
    _proposed: Meeting | None = None
    _free: dict[int, int] = field(default_factory=dict)  # neighbour: its next number
    _proposals: dict[int, int] = field(default_factory=dict)  # neighbour: the number proposed

    def next_number(self, neighbour: int) -> int:
        """Return the smallest number that was not yet used on a link.

        Args:
            neighbour: The device at the other end.
        """
        return self.numbers.get(neighbour, 0) + 1

    def begin(self) -> None:
        """Begin a search. Proposals from before it were for another search, and are ignored."""
        self._searching = True

    def note(self, message: Message) -> None:
        """Take note of a message, which may come at any time.

        Args:
            message: A message of a neighbour.
        """
        sender = message.sender
        meeting = (sender, message.round)
        if message.kind in (Kind.BUSY, Kind.BYE):
            self._forget(sender)
        elif message.round > _LARGEST_NUMBER:
            return
        elif message.kind == Kind.FREE:
            self._withdraw(sender)  # not accepted: the proposal was lost or is in transit
            self._free[sender] = message.round
        elif message.kind == Kind.PROPOSE:
            if self._searching and sender < self.device:
                self._proposals[sender] = message.round
        elif message.kind in (Kind.ACCEPT, Kind.MODEL) and meeting == self._proposed:
            self._agree(meeting)  # ACCEPT may be lost; then MODEL shows that it was sent

    def next_message(self, neighbours: Collection[int]) -> tuple[Kind, Meeting] | None:
        """Return a proposal or an acceptance that is to be sent now, to the device in it.

        The neighbour that was not met for longest is chosen.

        Args:
            neighbours: The devices to which a link is alive now.
        """
        known = {*self._free, *self._proposals}
        if self._proposed is not None:
            known.add(self._proposed[0])
        for lost in known.difference(neighbours):
            self._forget(lost)
        if self.agreed is not None or self._proposed is not None:
            return None
        candidates = {j for j in self._free if j > self.device}
        for j, number in list(self._proposals.items()):
            if number >= self.next_number(j):
                candidates.add(j)
            else:
                del self._proposals[j]
        if not candidates:
            return None
        chosen = min(candidates, key=lambda j: (self.last_tried.get(j, -1), j))
        if chosen in self._proposals:
            self._agree((chosen, self._proposals[chosen]))
            return Kind.ACCEPT, (chosen, self._proposals[chosen])
        self._proposed = (chosen, max(self.next_number(chosen), self._free[chosen]))
        return Kind.PROPOSE, self._proposed

    def end(self) -> Meeting | None:
        """End the search: withdraw a proposal without an answer; return the meeting, if any."""
        self._searching = False
        self._proposed = None
        self._proposals.clear()
        agreed = self.agreed
        self.agreed = None
        if agreed is not None:
            self._forget(agreed[0])
        return agreed

    def _agree(self, meeting: Meeting) -> None:
        self.agreed = meeting
        self._proposed = None

    def _forget(self, neighbour: int) -> None:
        self._free.pop(neighbour, None)
        self._proposals.pop(neighbour, None)
        self._withdraw(neighbour)

    def _withdraw(self, neighbour: int) -> None:
        if self._proposed is not None and self._proposed[0] == neighbour:
            self._proposed = None
