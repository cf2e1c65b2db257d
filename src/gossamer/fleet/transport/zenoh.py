"""The transport between real devices, on eclipse-zenoh: direct, authenticated links.

Every device is a zenoh peer. Peers do not forward messages and do not dial peers that a neighbour
reports, so a device receives only from those to which it has a link. It finds them by multicast on
a local network, or dials given endpoints.

    gossamer/RUN/alive/I            liveliness token: device I is present and ready to receive
    gossamer/RUN/from/I/to/J/S      messages from device I to device J, in J's session S only
    gossamer/RUN/status/I           status of device I, for observers

Access rules on every device tie these keys to the names in the certificates: only I may declare
that I is alive, only I may send as I, and only J receives what is for J. zenoh drops everything
else before it arrives here.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from gossamer._core import checks
from gossamer.errors import InputError, MissingExtra, Unavailable
from gossamer.fleet.notices import Notices
from gossamer.fleet.transport.channel import HEADER, Channel
from gossamer.fleet.transport.configuration import (
    DEVICE_DIGITS,
    STATUS_BYTES,
    LinkSettings,
    configuration,
)
from gossamer.fleet.transport.descriptors import (
    end_connection,
    listening_sockets,
    parse_address,
)
from gossamer.fleet.transport.gate import Gate
from gossamer.fleet.transport.inbox import Inbox
from gossamer.fleet.transport.links import Link, LinkTable
from gossamer.fleet.transport.sessions import Sessions

if TYPE_CHECKING:
    import zenoh

_MAX_THREADS = 32
_MANY_STRANGERS = 20  # connections without a certificate until there is a notice
_TWIN_LEASES = 5  # duration of two sessions of a name after which it is no restart
_HANDSHAKE_LEASES = 4  # timeout of a handshake; that of zenoh is half as long
_NO_GATE = (
    "this system cannot keep connections without a certificate away from the transport, as Linux"
    " 5.7 and newer can: somebody who opens ten a second keeps other devices from linking"
)


class Zenoh:
    """The `Transport` of a device on a real network.

    `counts` has the numbers of messages (and bytes) sent and received, `dropped` from a full queue
    on the way out, `lost` with a link, dropped by `overflow` on the way in, and of packets
    `refused`.

    Args:
        device: Number of this device.
        settings: Settings of its links.
        notices: Where refused sessions are noted.

    Raises:
        MissingExtra: If zenoh is not installed.
        InputError: If there is no such device.
        DataError: If the certificate of the device cannot be used.
        Unavailable: If the device cannot listen on its endpoints.

    Example:
        with closing(Zenoh(0, settings)) as transport:
            transport.send(1, b"hello")
    """

    def __init__(self, device: int, settings: LinkSettings, notices: Notices | None = None) -> None:
        try:
            import zenoh
        except ImportError:
            raise MissingExtra("peer", "the runtime for devices") from None
        checks.whole("device", device, 0, len(settings.names) - 1)
        self.device = device
        self.settings = settings
        self._root = f"gossamer/{settings.run}"
        self._notices = notices or Notices()
        self._numbers = {name: other for other, name in enumerate(settings.names)}
        self._sessions = Sessions(settings.names, settings.observer, settings.refused)
        self._inbox = Inbox(settings.largest, settings.incoming)
        self._table = LinkTable(self._set_alive)
        self._publishers: dict[int, _Publishers] = {}  # used by the thread of that channel only
        self._channels: dict[int, Channel] = {}
        self._tokens: dict[str, int] = {}  # key of a liveliness token: device
        for other, name in enumerate(settings.names):
            if other != device and name not in settings.refused:
                put = partial(self._put, other)
                self._channels[other] = Channel(put, settings.largest, settings.outgoing)
                self._tokens[f"{self._root}/alive/{other}"] = other
        # A lost link blocks a receiving thread until TCP gives up, for up to ten seconds. With
        # zenoh's default of one thread a device would receive nothing else meanwhile.
        threads = min(_MAX_THREADS, 1 + len(settings.names))
        os.environ.setdefault("ZENOH_RUNTIME", f"(rx: (worker_threads: {threads}))")
        try:
            self._session = zenoh.open(
                zenoh.Config.from_json5(json.dumps(configuration(device, settings)))
            )
        except zenoh.ZError as error:
            raise Unavailable(
                f"device {device} cannot listen on {', '.join(settings.listen)}: {reason(error)}"
            ) from None
        self._strangers = 0  # number of strangers in the last notice
        self._gates = tuple(_open_gates(settings))
        if not (self._gates or settings.insecure):
            self._notices.add("no gate", None, _NO_GATE)
        self._declared = tuple(self._declare())

    def _declare(self) -> Iterator[object]:
        """Declare the subscribers, and last the token: a peer that sees it can be received.

        Callbacks run in zenoh's own threads and return soon; a queue in between would be unbounded.
        """
        import zenoh

        def callback(function: Callable[[Any], None]) -> Any:
            return zenoh.handlers.Callback(function, indirect=False)

        session = self._session
        liveliness = session.liveliness()
        for other in self._channels:
            # One key each: one with * would be matched with everything that anybody declares.
            key = f"{self._root}/from/{other}/to/{self.device}/{session.zid()}"
            yield session.declare_subscriber(key, callback(partial(self._on_packet, other)))
        yield session.info.declare_link_events_listener(callback(self._on_link), history=True)
        yield liveliness.declare_subscriber(
            f"{self._root}/alive/*", callback(self._on_token), history=True
        )
        yield liveliness.declare_token(f"{self._root}/alive/{self.device}")

    @property
    def counts(self) -> Counter[str]:
        """Counts of messages, bytes and packets so far."""
        total = Counter(self._inbox.counts)
        for channel in self._channels.values():
            total.update(channel.counts)
        return total

    def neighbours(self) -> frozenset[int]:
        """Return the devices to which a link is alive now."""
        self._table.prune(self._existing_links)
        self._sessions.prune(self._existing_links())
        return frozenset(other for other, channel in self._channels.items() if channel.alive)

    def send(self, to: int, message: bytes) -> None:
        """Queue a message and return without waiting. Delivery is not guaranteed.

        Args:
            to: Number of the receiving device.
            message: 1 to `settings.largest` bytes.

        Raises:
            InputError: If there is no such device or the message has a wrong size.
        """
        if to not in self._channels:
            raise InputError("to", to, f"another device, from 0 to {len(self.settings.names) - 1}")
        if not 1 <= len(message) <= self.settings.largest:
            raise InputError(
                "message", f"{len(message)} bytes", f"1 to {self.settings.largest} bytes"
            )
        self._channels[to].send(message)

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        """Return the next message and its sender, or None after a timeout.

        Args:
            timeout: Longest time to wait, in seconds.
        """
        return self._inbox.get(timeout)

    def note_problems(self) -> None:
        """Add notices of identities that are in use twice, and of strangers."""
        for name in self._sessions.twins(_TWIN_LEASES * self.settings.lease):
            if name != self.settings.observer:
                self._note_twin(name)
        strangers = sum(gate.counts["strangers"] for gate in self._gates)
        if strangers >= self._strangers + _MANY_STRANGERS:
            sentence = f"{strangers} connections without a certificate were refused so far"
            self._notices.add("strangers", None, sentence)
            self._strangers = strangers

    def _note_twin(self, name: str) -> None:
        sentence = f"two devices run with the certificate of {name}: stop one of them"
        self._notices.add("twin", self._numbers[name], sentence)

    def publish_status(self, status: bytes) -> None:
        """Send the status of this device to all observers; lost where it would have to wait.

        Args:
            status: 1 to `STATUS_BYTES` bytes.

        Raises:
            InputError: If the status has a wrong size.
        """
        import zenoh

        if not 1 <= len(status) <= STATUS_BYTES:
            raise InputError("status", f"{len(status)} bytes", f"1 to {STATUS_BYTES} bytes")
        # The background queue is separate, so status cannot fill the queue of the channels.
        self._session.put(
            f"{self._root}/status/{self.device}",
            status,
            congestion_control=zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.BACKGROUND,
        )

    def close(self) -> None:
        """Close all links. Queued messages have the time of a lease to be sent."""
        until = time.monotonic() + self.settings.lease
        for channel in self._channels.values():
            channel.close(until)
        close_session(self._session)
        for gate in self._gates:
            gate.close()

    def _put(self, to: int, chunk: bytes, header: bytes) -> None:
        import zenoh

        link = self._table.in_use(to)
        publishers = self._publishers.get(to)
        with suppress(zenoh.ZError):  # then the packet is lost
            if link and (publishers is None or publishers.session != link.session):
                key = f"{self._root}/from/{self.device}/to/{to}"
                publishers = _Publishers(self._session, key, link.session)
                self._publishers[to] = publishers
            if publishers is not None:
                publisher = publishers.chunks if chunk else publishers.acks
                publisher.put(chunk, attachment=header)

    def _on_token(self, sample: zenoh.Sample) -> None:
        import zenoh

        other = self._tokens.get(str(sample.key_expr))
        if other is not None:
            self._table.set_token(other, sample.kind == zenoh.SampleKind.PUT)

    def _on_link(self, event: zenoh.LinkEvent) -> None:
        import zenoh

        session = str(event.link.zid)
        name = event.link.auth_identifier
        if self.settings.insecure:
            other = int(session[-DEVICE_DIGITS:], 16)
        else:
            other = self._numbers.get(name or "", -1)
        link = Link(other, session, (event.link.src, event.link.dst))
        present = event.kind == zenoh.SampleKind.PUT
        if not self.settings.insecure and not self._accepts(name, link, present):
            return
        if other in self._channels:
            self._table.set_link(link, present)

    def _accepts(self, name: str | None, link: Link, present: bool) -> bool:
        """Note that a link appeared or vanished; end a new one that is refused."""
        if not present:
            self._sessions.remove(name, link)
            return True
        here = parse_address(link.ends[0])
        there = parse_address(link.ends[1])
        refusal = self._sessions.add(name, link)
        if refusal is None:
            if name == self.settings.names[self.device]:
                self._note_twin(name)
            if there is not None:
                for gate in self._gates:
                    gate.note_link(there)
            return True
        if here is not None and there is not None:
            end_connection(here, there)
        about = self._numbers.get(name or "")
        if name == self.settings.observer:
            about = len(self.settings.names)
        sentence = f"a session of {name or 'no name'} is refused: {refusal}"
        self._notices.add(refusal, about, sentence)
        return False

    def _on_packet(self, other: int, sample: zenoh.Sample) -> None:
        header = sample.attachment
        if header is None or len(header) != HEADER.size:
            self._inbox.refuse()
            return
        fields = HEADER.unpack(header.to_bytes())
        message = self._channels[other].on_packet(sample.payload.to_bytes(), *fields)
        if message is not None:
            self._inbox.put(other, message)

    def _existing_links(self) -> Iterator[tuple[str, tuple[str, str]]]:
        for link in self._session.info.links():
            yield str(link.zid), (link.src, link.dst)

    def _set_alive(self, device: int, alive: bool, new_link: bool) -> None:
        self._channels[device].set_alive(alive, new_link)


def _open_gates(settings: LinkSettings) -> Iterator[Gate]:
    """Yield a gate for each listener of zenoh, where this system can have one."""
    if settings.insecure:
        return
    known = []
    for endpoint in settings.connect:
        known.append(endpoint.rpartition(":")[0].strip("[]"))
    ports = {int(endpoint.rpartition(":")[2]) for endpoint in settings.listen}
    for port in sorted(ports):
        for listener in listening_sockets(port):
            with closing(listener), suppress(OSError):
                yield Gate(listener, tuple(known), _HANDSHAKE_LEASES * settings.lease)


class _Publishers:
    """The publishers to one neighbour's session.

    They are declared, so that a put need not be matched with what others declare.
    """

    def __init__(self, own: zenoh.Session, key: str, session: str) -> None:
        from zenoh import CongestionControl, Priority

        self.session = session
        self.chunks = own.declare_publisher(
            f"{key}/{session}", congestion_control=CongestionControl.BLOCK, express=True
        )
        self.acks = own.declare_publisher(
            f"{key}/{session}",
            congestion_control=CongestionControl.DROP,
            priority=Priority.INTERACTIVE_HIGH,
            express=True,
        )


def reason(error: Exception) -> str:
    """Return the message of an error of zenoh without the position in zenoh's own source.

    Args:
        error: The error.
    """
    return str(error).split(" at /")[0]


def close_session(session: zenoh.Session) -> None:
    """Close a session; a link that does not respond is given up by zenoh itself.

    Args:
        session: The session.
    """
    import zenoh

    with suppress(zenoh.ZError):
        session.close()
