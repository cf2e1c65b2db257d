"""Exchange vectors with the neighbours so that the mean stays exact, whatever messages are lost.

If a device used whatever arrived, i might use j's vector while j never received i's: the weights
would not be doubly stochastic, and the mean would drift. So every exchange is a two-phase commit on
each link:

1. The neighbours are those whose link is alive now; their number is the degree announced.
2. MODEL goes to each: degree, vector, and the exchanges applied on this link. The receiver writes
   it to its journal together with the vector that it sent itself, and *then* acknowledges with
   READY: the exchange now survives a crash.
3. All wait for MODEL and READY of all neighbours, or for the deadline. Later messages change
   nothing.
4. A link with both is committed, with a weight that both ends know. The weight of any other link
   goes to the device itself: the weights stay symmetric and doubly stochastic without
   renormalisation.
5. With MODEL but without READY the exchange is in doubt: the neighbour may have committed it. It is
   pending until a message of a later round lists the exchanges that the neighbour has applied; then
   its transfer is applied late, or dropped.

Why both ends always agree: a device that has committed has a READY, so the other end has the
exchange in its journal and applies it, at the latest when it receives that list. If neither has
committed, each learns so from the other. An exchange is listed as applied only once it is on disk
together with the state that it is applied to. A device that was killed in a round does not join
that round again, so a device has one vector per exchange. A device whose clock was ahead may go
back to a round that it has not been in: see `alone`.

Until a device knows that an exchange is applied, it has acknowledged no later MODEL of that
neighbour, so the neighbour has applied no later exchange: a short list of the last ones suffices,
and the number of pending transfers is bounded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

import torch
from torch import Tensor

from gossamer.algorithms import State
from gossamer.fleet.protocol.alone import AloneRounds
from gossamer.fleet.protocol.journal import Checkpoint, Journal, Transfer
from gossamer.fleet.protocol.ledger import Exchanged, Ledger
from gossamer.fleet.protocol.mailbox import Mailbox
from gossamer.fleet.protocol.messages import ExchangeId, Kind, Message
from gossamer.fleet.protocol.wire import Expected
from gossamer.fleet.transport.base import Transport
from gossamer.network.weights import PeerWeight

_SCAN_SECONDS = 0.2  # period of searching for new neighbours


class Edges:
    """One device's ends of its links. `counts` has the numbers of messages and exchanges so far.

    Args:
        transport: The device's links.
        journal: Its journal.
        expected: The messages to accept.
        clock: Returns the time in seconds; deadlines are by this clock.

    Example:
        shapes = exchange_shapes(algorithm, w0)
        expected = Expected(run, frozenset(Kind), shapes, torch.float32, 1e6)
        edges = Edges(transport, Journal(folder), expected)
        state = edges.start(lambda: algorithm.first_state(w0))
        for t in range(edges.round, rounds):
            edges.begin(t)
            mix = PeerMix(edges, algorithm.weights, t, seed, deadline)
            state = algorithm.next_state(state, grad, mix, t)
            edges.finish(t, state)
            edges.send_models(algorithm.models(state)[0])
        edges.leave()
    """

    def __init__(
        self,
        transport: Transport,
        journal: Journal,
        expected: Expected,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.device = transport.device
        self.round = 0  # the next round to take part in
        self.counts: Counter[str] = Counter()
        self._alone = AloneRounds()
        self._sent = False  # True if a vector was sent in this round
        self._shared = False  # True if another device is in this round as well
        self._in_journal = False  # True if the journal says that `self.round` may have begun
        self._transport = transport
        self._journal = journal
        self._dtype = expected.dtype
        self._clock = clock
        self._ledger = Ledger(self.counts)
        self._mailbox = Mailbox(transport, expected, self._ledger, self.counts, clock)

    # -- from start to end of a device -------------------------------------------------------------

    def start(self, new: Callable[[], State], round: int = 0) -> State:
        """Return the state to resume from; `self.round` is the first round to take part in.

        Args:
            new: Returns the initial state, if the journal is empty.
            round: The earliest round to take part in.
        """
        checkpoint = self._journal.read()
        if checkpoint is None:
            checkpoint = Checkpoint(0, new())
        else:
            self._alone = alone_rounds(checkpoint)
            next_round = checkpoint.round
            if checkpoint.begun:
                # It may have been killed in that very round, after it had sent its vector.
                next_round += 1
            checkpoint = replace(
                checkpoint,
                round=next_round,
                shared=self._alone.shared,
                alone=tuple(self._alone.spans),
                ran_alone=self._alone.ran,
            )
        self._journal.write_checkpoint(replace(checkpoint, begun=False))
        self._in_journal = False
        self.round = max(round, checkpoint.round)
        self._ledger.restore(checkpoint)
        return checkpoint.state

    def next_round(self, shown: int) -> int:
        """Return the next round to take part in.

        Args:
            shown: The round that the clock shows.
        """
        return self._alone.next_round(self.round, shown)

    def begin(self, t: int) -> None:
        """Begin round t; it is in the journal before a vector is sent.

        Args:
            t: The round: that after the last one, or a later one if rounds were missed, or an
                earlier one by `next_round`.
        """
        if t != self.round or not self._in_journal:
            self._journal.log_round(t)
            self._in_journal = True
        if t < self.round:
            self._mailbox.go_back(t)
            self._alone.go_back(t)
        self.round = t

    def skip(self, t: int) -> None:
        """Note that the device takes no part in round t on purpose.

        Args:
            t: The round.
        """
        if t > self.round:
            self._alone.ran += 1
        self.round = t

    @property
    def alone(self) -> AloneRounds:
        """The rounds since another device was in one as well."""
        return self._alone

    def finish(self, t: int, state: State) -> None:
        """End round t: write its state to disk, with the exchanges applied to it.

        Args:
            t: The round.
            state: State of the algorithm after the round.
        """
        self._ledger.finish_round()
        self._alone.add(t, self._sent, self._shared)
        self._sent = False
        self._shared = False
        self._in_journal = True
        self.round = t + 1
        ledger = self._ledger
        alone = self._alone
        self._journal.write_checkpoint(
            Checkpoint(
                self.round,
                state,
                ledger.applied,
                ledger.pending,
                ledger.numbers,
                alone.shared,
                tuple(alone.spans),
                alone.ran,
            )
        )

    def request_model(self, until: float) -> Tensor | None:
        """Ask all neighbours for a model to start from.

        Args:
            until: When to give up, by the clock.

        Returns:
            The first model received, or None.
        """
        exchange = (self.round, 0)
        asked: set[int] = set()
        mailbox = self._mailbox
        mailbox.offered = None
        while mailbox.offered is None and (left := until - self._clock()) > 0:
            new = self.neighbours(self.round) - asked
            for j in sorted(new):
                mailbox.send(j, mailbox.message(Kind.ASK, exchange))
            asked |= new
            data = self._transport.receive(min(left, _SCAN_SECONDS))
            if data is not None:
                mailbox.accept(exchange, *data)
        mailbox.drop_early()
        return mailbox.offered

    def send_models(self, model: Tensor) -> None:
        """Send a model to the devices that have asked for one in this round.

        Args:
            model: The model of this device.
        """
        vector = model.detach().to("cpu", self._dtype)
        for j in sorted(self._mailbox.asked):
            self._mailbox.send(j, self._mailbox.message(Kind.START, (self.round, 0), vector=vector))
        self._mailbox.asked.clear()

    def leave(self) -> None:
        """Tell the neighbours that this device leaves, so that they can settle what is in doubt."""
        # Not of a later round, to which this device may return: it settles all before its own.
        bye = self._mailbox.message(Kind.BYE, (self._alone.shared, 0))
        self._mailbox.send_to_each(self._transport.neighbours(), bye)

    def watch_refused(self, on_refused: Callable[[int, str], None]) -> None:
        """Call a function with (sender, reason) for every message that is refused.

        Args:
            on_refused: The function.
        """
        self._mailbox.on_refused = on_refused

    @property
    def committed_with(self) -> frozenset[int]:
        """Neighbours with whom an exchange was committed in the current round."""
        return self._ledger.committed_with

    @property
    def pending(self) -> tuple[Transfer, ...]:
        """Transfers in doubt, or confirmed and not yet applied."""
        return self._ledger.pending

    # -- exchanges ---------------------------------------------------------------------------------

    def neighbours(self, t: int) -> frozenset[int]:
        """Return the neighbours in round t: their link is alive now and they are not ignored.

        Args:
            t: The round.
        """
        return self._mailbox.neighbours(t)

    def exchange(
        self,
        exchange: ExchangeId,
        x: Tensor,
        until: float,
        weight: PeerWeight,
        p: float = 1.0,
        partners: frozenset[int] | None = None,
    ) -> Exchanged:
        """Exchange x with the neighbours.

        Args:
            exchange: Round and part of this exchange.
            x: The vector to send.
            until: The deadline, by the clock.
            weight: Weight of a link from the neighbour's number and the degrees of both ends.
            p: Power of the mean that the vectors are for.
            partners: The neighbours to exchange with; None: all.

        Returns:
            The transfers committed, and those of the same part of earlier rounds confirmed since.
        """
        if partners is None:
            partners = self.neighbours(exchange[0])
        degree = len(partners)
        own = x.detach().to("cpu", self._dtype, copy=True)
        received: dict[int, Transfer] = {}
        acked: set[int] = set()
        refused: set[int] = set()
        if partners and self._clock() < until:
            self._sent = True
            model = self._mailbox.message(Kind.MODEL, exchange, degree=degree, vector=own)
            self._mailbox.send_to_each(partners, model)
            self._journal.log_own(exchange, own, model.checksum)  # while the others' are in transit
            for arrived in self._mailbox.arrivals(exchange, until):
                self._shared = True
                models = []
                for (j, kind), message in arrived.items():
                    if kind == Kind.READY and j in partners and message.checksum == model.checksum:
                        acked.add(j)
                    elif kind == Kind.MODEL and j in partners and j not in received:
                        if self._mailbox.is_refused(message, own):
                            refused.add(j)
                        else:
                            models.append(message)
                    else:
                        self.counts["unexpected"] += 1
                transfers = []
                for m in models:
                    share = weight(m.sender, degree, m.degree)
                    transfers.append(make_transfer(model, m, share, p))
                self._log_and_acknowledge(transfers)
                for transfer in transfers:
                    received[transfer.neighbour] = transfer
                if partners - refused <= received.keys() & acked:
                    break
        return self._ledger.commit(exchange, received, acked, degree)

    def agree_on_pair(
        self, exchange: ExchangeId, neighbours: frozenset[int], named: int, until: float
    ) -> bool:
        """Tell all neighbours whom this device proposes to; return True if that one proposes back.

        A lost message makes no pair.

        Args:
            exchange: Round and part of this exchange.
            neighbours: All neighbours.
            named: The neighbour that this device proposes to.
            until: The deadline, by the clock.
        """
        yes = torch.tensor([1.0], dtype=self._dtype)
        no = torch.tensor([0.0], dtype=self._dtype)
        self._send_vote(exchange, neighbours & {named}, yes, len(neighbours))
        self._send_vote(exchange, neighbours - {named}, no, len(neighbours))
        for arrived in self._mailbox.arrivals(exchange, until):
            self._shared = True
            if vote := arrived.get((named, Kind.MODEL)):
                return vote.vector is not None and torch.equal(vote.vector, yes)
        return False

    def _send_vote(
        self, exchange: ExchangeId, devices: Collection[int], vote: Tensor, degree: int
    ) -> None:
        self._sent = True
        message = self._mailbox.message(Kind.MODEL, exchange, degree=degree, vector=vote)
        self._mailbox.send_to_each(devices, message)

    def _log_and_acknowledge(self, transfers: list[Transfer]) -> None:
        """Write transfers of one exchange to the journal, and then acknowledge their models."""
        if not transfers:
            return
        self._journal.log(transfers)
        for transfer in transfers:
            assert transfer.checksums is not None
            ready = self._mailbox.message(
                Kind.READY, transfer.exchange, checksum=transfer.checksums[1]
            )
            self._mailbox.send(transfer.neighbour, ready)


def alone_rounds(checkpoint: Checkpoint) -> AloneRounds:
    """Return what a checkpoint has of the rounds that a device was in alone.

    Args:
        checkpoint: The checkpoint.
    """
    alone = AloneRounds(checkpoint.shared, list(checkpoint.alone), checkpoint.ran_alone)
    t = checkpoint.round
    if checkpoint.begun and t >= 0:  # it may have sent a vector in this round
        shared = any(transfer.exchange[0] >= t for transfer in checkpoint.pending)
        alone.add(t, sent=True, shared=shared)
    return alone


def make_transfer(sent: Message, received: Message, weight: float, p: float) -> Transfer:
    """Return what an exchange moves over one link.

    Args:
        sent: The own MODEL.
        received: The neighbour's MODEL.
        weight: Weight of the link.
        p: Power of the mean.
    """
    assert sent.vector is not None
    assert received.vector is not None
    return Transfer(
        received.sender,
        (received.round, received.part),
        weight,
        p,
        sent.vector,
        received.vector,
        checksums=(sent.checksum, received.checksum),
    )
