"""A gate in front of zenoh's listener: it keeps connections that fail away from zenoh.

The gate listens where others dial, and zenoh's own listener accepts from this machine only. A
connection passes the gate once it has sent the first bytes of a TLS handshake and `admission` has
room for it; what it carries is then copied both ways. The gate sees encrypted bytes only, and
zenoh still checks every certificate.

Both listen on the same port, which devices find by multicast. Linux then prefers the listener that
is bound to the interface on which a connection arrives: zenoh's is bound to the loopback interface.
Where this is not possible (before Linux 5.7, other systems), there is no gate.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from gossamer.fleet.transport.admission import Admission, Handshake
from gossamer.fleet.transport.descriptors import Address, socket_address

_HELLO = b"\x16\x03"  # a TLS record with a handshake message, of any version of TLS
_HELLO_SECONDS = 2.0  # timeout of the first bytes
_WAITING_PER_ADDRESS = 8  # connections; beyond that the oldest is closed
_MAX_WAITING = 512
_BACKLOG = 1024
_ESTABLISHED = 1  # state of a TCP connection, in `struct tcp_info`
_BUFFER_BYTES = 1 << 17  # two batches of zenoh
_TICK_SECONDS = 0.1  # period of checking the connections that wait
_USER_TIMEOUT_SECONDS = 20.0  # time without a TCP ack until a connection is closed


@dataclass(eq=False)
class _Waiting:
    """A connection that has not passed the gate."""

    connection: socket.socket
    host: str
    arrived: float
    greeted: bool = False  # its first bytes are those of TLS


@dataclass(eq=False)
class _Passed:
    """A connection that has passed the gate, and the one to zenoh."""

    outer: socket.socket
    inner: socket.socket
    handshake: Handshake | None  # None once it has ended
    until: float  # deadline of the handshake


class Gate:
    """Accept connections in place of a listener of zenoh in this process.

    Args:
        inside: Zenoh's listener.
        known: Addresses of devices of the fleet, which are preferred to others.
        handshake_seconds: Longest handshake.

    Raises:
        OSError: If this system cannot have a gate; zenoh then listens as before.
    """

    def __init__(
        self, inside: socket.socket, known: tuple[str, ...], handshake_seconds: float
    ) -> None:
        self.counts = Counter({"strangers": 0})
        self._handshake_seconds = handshake_seconds
        self._admission = Admission(known)
        self._waiting: list[_Waiting] = []  # in the order of arrival
        self._passed: dict[Address, _Passed] = {}  # by the address that zenoh sees
        self._lock = threading.Lock()  # protects `_passed` and `_admission`
        self._listener = _listen_before(inside)
        self._inside = _reachable(inside.getsockname())
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="gossamer-gate", daemon=True)
        self._thread.start()

    def note_link(self, there: Address) -> None:
        """Note that a link is accepted: the handshake of its connection has succeeded.

        Args:
            there: The other end of the link, as zenoh sees it.
        """
        with self._lock:
            passed = self._passed.get(there)
            if passed is not None and passed.handshake is not None:
                self._admission.succeed(passed.handshake)
                passed.handshake = None

    def close(self) -> None:
        """Accept no more, and close all connections."""
        self._closed = True
        self._wake_write.send(b"x")
        self._thread.join()
        self._selector.close()
        for one in (self._listener, self._wake_read, self._wake_write):
            one.close()
        for waiting in self._waiting:
            waiting.connection.close()
        with self._lock:
            passed = list(self._passed.values())
        for connection in passed:
            _shut_down(connection.outer)
            _shut_down(connection.inner)

    # -- in the gate's own thread ------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(_TICK_SECONDS):
                if key.data is not None:
                    key.data()
            now = time.monotonic()
            self._end_late_handshakes(now)
            self._pass_those_that_may(now)

    def _accept(self) -> None:
        with suppress(OSError):  # the connection is gone, or there are too many open files
            connection, address = self._listener.accept()
            connection.setblocking(False)
            host = socket_address(address)[0]
            of_address = [waiting for waiting in self._waiting if waiting.host == host]
            if len(of_address) >= _WAITING_PER_ADDRESS:
                self._refuse(of_address[0])
            elif len(self._waiting) >= _MAX_WAITING:
                self._refuse(self._waiting[0])
            made = _Waiting(connection, host, time.monotonic())
            self._waiting.append(made)
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._greet(made))

    def _greet(self, waiting: _Waiting) -> None:
        """Look at the first bytes of a connection."""
        first = b""
        with suppress(BlockingIOError):
            try:
                first = waiting.connection.recv(len(_HELLO), socket.MSG_PEEK)
            except ConnectionError:
                first = b""
        self._selector.unregister(waiting.connection)
        if first == _HELLO:
            waiting.greeted = True
        else:
            self._refuse(waiting)

    def _refuse(self, waiting: _Waiting) -> None:
        self._waiting.remove(waiting)
        self.counts["strangers"] += 1
        if not waiting.greeted:
            with suppress(KeyError):
                self._selector.unregister(waiting.connection)
        waiting.connection.close()

    def _end_late_handshakes(self, now: float) -> None:
        with self._lock:
            late = []
            for passed in self._passed.values():
                if passed.handshake is not None and now > passed.until:
                    late.append(passed)
        for passed in late:
            _shut_down(passed.outer)
            _shut_down(passed.inner)

    def _pass_those_that_may(self, now: float) -> None:
        for waiting in list(self._waiting):
            if waiting.greeted:
                if _has_ended(waiting.connection):
                    self._refuse(waiting)
                    continue
                with self._lock:
                    handshake = self._admission.begin(waiting.host, now)
                if handshake is not None:
                    self._waiting.remove(waiting)
                    self._pass(waiting.connection, handshake, now)
                    continue
            longest = self._handshake_seconds if waiting.greeted else _HELLO_SECONDS
            if now - waiting.arrived > longest:
                self._refuse(waiting)

    def _pass(self, outer: socket.socket, handshake: Handshake, now: float) -> None:
        """Connect a connection with zenoh, and copy both ways."""
        outer.setblocking(True)
        try:
            inner = socket.create_connection(self._inside, timeout=_HELLO_SECONDS)
        except OSError:
            outer.close()
            with self._lock:
                self._admission.fail(handshake, now)
            return
        inner.settimeout(None)
        passed = _Passed(outer, inner, handshake, now + self._handshake_seconds)
        here = socket_address(inner.getsockname())
        with suppress(OSError):
            for one in (outer, inner):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            milliseconds = round(1000 * _USER_TIMEOUT_SECONDS)
            outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        with self._lock:
            self._passed[here] = passed
        threading.Thread(
            target=self._carry, args=(here, passed), name="gossamer-gate", daemon=True
        ).start()

    # -- in the threads of a connection ------------------------------------------------------------

    def _carry(self, here: Address, passed: _Passed) -> None:
        """Copy both ways until zenoh closes its end."""
        inwards = threading.Thread(
            target=_copy, args=(passed.outer, passed.inner), name="gossamer-gate", daemon=True
        )
        inwards.start()
        _copy(passed.inner, passed.outer)
        for one in (passed.outer, passed.inner):
            _shut_down(one)
        inwards.join()
        with self._lock:
            del self._passed[here]
            if passed.handshake is not None:
                self._admission.fail(passed.handshake, time.monotonic())
                self.counts["strangers"] += 1
        passed.outer.close()
        passed.inner.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy until either end is closed, and then close this direction only."""
    buffer = bytearray(_BUFFER_BYTES)
    view = memoryview(buffer)
    with suppress(OSError):
        while count := source.recv_into(buffer):
            sink.sendall(view[:count])
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _listen_before(inside: socket.socket) -> socket.socket:
    """Return a listener that gets what arrives from other machines in place of another one.

    Raises:
        OSError: If this system cannot have both.
    """
    listener = socket.socket(inside.family, socket.SOCK_STREAM)
    try:
        for one in (inside, listener):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if inside.family == socket.AF_INET6:
            only = inside.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        inside.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        try:
            listener.bind(inside.getsockname())
            listener.listen(_BACKLOG)
        except OSError:
            inside.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"")
            raise
        # With this option set a listener is chosen before the interfaces are compared.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _reachable(address: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """Return an address of this machine at which a listener is reached."""
    host, port = socket_address(address)
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port


def _has_ended(connection: socket.socket) -> bool:
    """Return True if the other end has closed or reset a connection, read or not."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state != _ESTABLISHED


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
