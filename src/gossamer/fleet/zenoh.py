"""The transport between real devices, on eclipse-zenoh: direct links only, alive or not, and proved by certificates.

Every device is a zenoh peer. Peers do not pass on what they hear, and none dials a stranger that a neighbour told it of: so
whom a device hears is whom it has a link to. It finds them by multicast on a local network, or dials given endpoints.

    gossamer/RUN/alive/I            a liveliness token: device I is there, and ready to hear
    gossamer/RUN/from/I/to/J/S      what device I says to device J, in J's session S alone
    gossamer/RUN/status/I           what device I says of itself, to an observer if there is one

Access rules on every device tie these keys to the names in the certificates: only I may say that I is alive, only I may speak
as I, and only J hears what is for J. What does not fit is thrown away by zenoh before it comes here.

A neighbour is a device with a token and with a link that is up: a link goes when its lease has run out, a token sometimes much
later.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gossamer._core import checks
from gossamer.errors import GossamerError, InputError, MissingExtra
from gossamer.fleet.access import DIGITS, STATUS_BYTES, Settings, access, configuration
from gossamer.fleet.line import HEADER, Line

if TYPE_CHECKING:
    import zenoh

__all__ = ["Settings", "Zenoh", "access", "configuration"]

_MOST_THREADS = 32


class Zenoh:
    """A device's links on a real network: its `Transport`.

    `counts` has how many messages were sent and received (and their bytes), were dropped from a full queue on their way out,
    were lost with a link, overflowed on their way in, and how many packets were refused.

        with closing(Zenoh(0, settings)) as transport:
            transport.send(1, b"hello")
    """

    def __init__(self, device: int, settings: Settings) -> None:
        try:
            import zenoh
        except ImportError:
            raise MissingExtra("peer", "the runtime for devices") from None
        checks.whole("device", device, 0, len(settings.names) - 1)
        self.device, self.settings = device, settings
        self._counts = Counter({"received": 0, "bytes received": 0, "overflow": 0, "refused": 0})
        self._arrived = threading.Condition()
        self._inbox: deque[tuple[int, bytes | bytearray]] = deque()
        self._numbers = {name: other for other, name in enumerate(settings.names)}
        self._root = f"gossamer/{settings.run}"
        self._keys = {
            f"{self._root}/alive/{other}": other
            for other in range(len(settings.names))
            if other != device
        }
        self._changing = threading.Lock()  # the next four
        self._tokens: set[int] = set()
        self._links: dict[_Link, None] = {}  # in the order in which they came
        self._used: dict[int, _Link | None] = {}  # by which another is reached
        self._alive: set[int] = set()
        self._lines = {
            other: Line(partial(self._put, other), settings.largest, settings.outgoing)
            for other in range(len(settings.names))
            if other != device
        }
        # A link that is lost holds up a thread that receives until TCP gives up on it, for up to ten seconds: with one thread,
        # as zenoh has it, a device would hear nobody else for as long.
        threads = min(_MOST_THREADS, 1 + len(settings.names))
        os.environ.setdefault("ZENOH_RUNTIME", f"(rx: (worker_threads: {threads}))")
        try:
            self._session = zenoh.open(
                zenoh.Config.from_json5(json.dumps(configuration(device, settings)))
            )
        except zenoh.ZError as error:
            why = str(error).split(" at /")[0]  # where in zenoh's own source is of no use here
            raise GossamerError(
                f"device {device} cannot listen on {', '.join(settings.listen)}: {why}"
            ) from None
        self._voices: dict[int, _Voice] = {}  # each of the thread that speaks to that device
        # Called in zenoh's own thread, and soon done: a queue in between would have no bound. The token comes last: whoever
        # sees it can be heard.
        tokens, own, here = self._session.liveliness(), zenoh.handlers.Callback, self._session.zid()
        self._declared = (
            *(
                # One for each: a key with a * would have to be looked for in all that anybody declares.
                self._session.declare_subscriber(
                    f"{self._root}/from/{other}/to/{device}/{here}",
                    own(partial(self._heard, other), indirect=False),
                )
                for other in self._lines
            ),
            self._session.info.declare_link_events_listener(
                own(self._link, indirect=False), history=True
            ),
            tokens.declare_subscriber(
                f"{self._root}/alive/*", own(self._token, indirect=False), history=True
            ),
            tokens.declare_token(f"{self._root}/alive/{device}"),
        )

    @property
    def counts(self) -> Counter[str]:
        """What happened so far."""
        total = Counter(self._counts)
        for line in self._lines.values():
            total.update(line.counts)
        return total

    def neighbours(self) -> frozenset[int]:
        """Those to whom there is a link that is alive now."""
        self._forget_links()
        return frozenset(other for other, line in self._lines.items() if line.alive)

    def _forget_links(self) -> None:
        """While links come and go fast, zenoh does not tell of every one that ends: forget those that it no longer has."""
        with self._changing:
            known = list(self._links)
        there = {(str(link.zid), (link.src, link.dst)) for link in self._session.info.links()}
        with self._changing:
            for link in known:
                if (link.session, link.ends) not in there and link in self._links:
                    del self._links[link]
                    self._changed(link.device)

    def send(self, to: int, message: bytes) -> None:
        """Hand over a message. It returns at once, and what was sent may be lost."""
        if to not in self._lines:
            raise InputError("to", to, f"another device, from 0 to {len(self.settings.names) - 1}")
        if not 1 <= len(message) <= self.settings.largest:
            raise InputError(
                "message", f"{len(message)} bytes", f"1 to {self.settings.largest} bytes"
            )
        self._lines[to].send(message)

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        """The next message and the device it is from; None if none came in so many seconds."""
        with self._arrived:
            return (
                self._inbox.popleft()
                if self._arrived.wait_for(lambda: self._inbox, timeout)
                else None
            )

    def tell(self, status: bytes) -> None:
        """Say something of this device to the observers that are there: lost where it cannot go at once."""
        import zenoh

        if not 1 <= len(status) <= STATUS_BYTES:
            raise InputError("status", f"{len(status)} bytes", f"1 to {STATUS_BYTES} bytes")
        # In a queue of its own: what others count on in theirs is as if this were not there.
        drop, background = zenoh.CongestionControl.DROP, zenoh.Priority.BACKGROUND
        self._session.put(
            f"{self._root}/status/{self.device}",
            status,
            congestion_control=drop,
            priority=background,
        )

    def close(self) -> None:
        """Leave. What waits to be sent has a lease's time to go."""
        import zenoh

        until = time.monotonic() + self.settings.lease
        for line in self._lines.values():
            line.close(until)
        with suppress(zenoh.ZError):  # a link that does not answer; the session has given up on it
            self._session.close()

    def _put(self, to: int, chunk: bytes, header: bytes) -> None:
        import zenoh

        link, voice = self._used.get(to), self._voices.get(to)
        with suppress(zenoh.ZError):  # lost, then
            if link and (voice is None or voice.session != link.session):
                voice = _Voice(
                    self._session, f"{self._root}/from/{self.device}/to/{to}", link.session
                )
                self._voices[to] = voice
            if voice is not None:
                (voice.chunks if chunk else voice.answers).put(chunk, attachment=header)

    def _token(self, sample: zenoh.Sample) -> None:
        import zenoh

        other = self._keys.get(str(sample.key_expr))
        if other is not None:
            with self._changing:
                (self._tokens.add if sample.kind == zenoh.SampleKind.PUT else self._tokens.discard)(
                    other
                )
                self._changed(other)

    def _link(self, event: zenoh.LinkEvent) -> None:
        import zenoh

        link = event.link
        session = str(link.zid)
        other = (
            int(session[-DIGITS:], 16)
            if self.settings.insecure
            else self._numbers.get(link.auth_identifier or "")
        )
        if other in self._lines:
            with self._changing:
                this = _Link(other, session, (link.src, link.dst))
                if event.kind == zenoh.SampleKind.PUT:
                    self._links[this] = None
                else:
                    self._links.pop(this, None)
                self._changed(other)

    def _changed(self, other: int) -> None:
        links, used = [link for link in self._links if link.device == other], self._used.get(other)
        self._used[other] = _chosen(links, used)
        new_link, alive = self._used[other] != used, bool(links) and other in self._tokens
        if new_link or (other in self._alive) != alive:
            (self._alive.add if alive else self._alive.discard)(other)
            self._lines[other].set_alive(alive, new_link)

    def _heard(self, other: int, sample: zenoh.Sample) -> None:
        header = sample.attachment
        if header is None or len(header) != HEADER.size:
            with self._arrived:
                self._counts["refused"] += 1
            return
        message = self._lines[other].heard(
            sample.payload.to_bytes(), *HEADER.unpack(header.to_bytes())
        )
        if message is not None:
            self._came(other, message)

    def _came(self, other: int, message: bytearray) -> None:
        with self._arrived:
            # Bounded for each sender: a flood from one does not push out what others say.
            own = [entry for entry in self._inbox if entry[0] == other]
            room = (
                2 * self.settings.largest - len(message) - sum(len(waiting) for _, waiting in own)
            )
            while own and (room < 0 or len(own) >= self.settings.incoming):
                self._inbox.remove(own[0])
                room += len(own.pop(0)[1])
                self._counts["overflow"] += 1
            self._inbox.append((other, message))
            self._counts.update({"received": 1, "bytes received": len(message)})
            self._arrived.notify()


class _Link(NamedTuple):
    device: int
    session: str  # zenoh's name for it
    ends: tuple[str, str]


def _chosen(links: list[_Link], used: _Link | None) -> _Link | None:
    """By which of a neighbour's links it is spoken to. They are in the order in which they were seen to come.

    Of several sessions the one in use, as long as it is there: who has the certificate, too, does not come between. Of its
    links the last: it may be seen to come before the one whose place it takes is seen to go.
    """
    same = [link for link in links if used and link.session == used.session]
    first = [link for link in links if link.session == links[0].session]
    return next(reversed(same or first), None)


class _Voice:
    """How to speak to a neighbour in a session of its: declared, so that what else is declared by anyone costs nothing here."""

    def __init__(self, own: zenoh.Session, key: str, session: str) -> None:
        from zenoh import CongestionControl, Priority

        self.session, key = session, f"{key}/{session}"
        self.chunks = own.declare_publisher(
            key, congestion_control=CongestionControl.BLOCK, express=True
        )
        self.answers = own.declare_publisher(
            key,
            congestion_control=CongestionControl.DROP,
            priority=Priority.INTERACTIVE_HIGH,
            express=True,
        )
