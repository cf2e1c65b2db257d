"""The transport between real devices, on eclipse-zenoh: direct links only, alive or not, and proved by certificates.

Every device is a zenoh peer. Peers do not pass on what they hear, and none dials a stranger that a neighbour told it of: so
whom a device hears is whom it has a link to. It finds them by multicast on a local network, or dials given endpoints.

    gossamer/RUN/alive/I            a liveliness token: device I is there, and ready to hear
    gossamer/RUN/from/I/to/J        what device I says to device J

Access rules on every device tie these keys to the names in the certificates: only I may say that I is alive, only I may speak
as I, and only J hears what is for J. What does not fit is thrown away by zenoh before it comes here.

A neighbour is a device with a token and with a link that is up: a link goes when its lease has run out, a token sometimes much
later. And a queue of zenoh's that is full is a trap: the put waits under a lock that holds up all other links, and when it
gives up, so does its link, for minutes. So none is ever full: messages go in chunks, each neighbour has its own sender, and
a sender has no more under way than zenoh's queue for that link holds, until the other side says what came. A packet is a
chunk, and with it (as zenoh's "attachment") 16 bytes, four little-endian numbers:

    sequence    counts the packets with a chunk, from 1; in a packet without one, the last
    heard       sequence of the last chunk that came the other way
    offset      where in its message the chunk begins
    size        bytes of the whole message; 0: no chunk, only `heard`
"""

from __future__ import annotations

import json
import re
import secrets
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.engines.peer import keys
from gossamer.errors import DataError, GossamerError, InputError, MissingExtra

if TYPE_CHECKING:
    import zenoh

_HEADER = struct.Struct("<4I")
_BATCH, _BATCHES = 32_768, 16  # bytes that zenoh sends at once, which must arrive within the lease; and its longest queue
_CHUNK = 220_000  # seven batches: while one chunk is answered, the next is under way
_ROOM = 14  # batches that may be under way; the rest is for answers
_ANSWER = 4  # batches after which an answer is due
_STUCK = 20.0  # seconds without an answer, though the link is alive, after which a message is given up
_DIGITS = 8  # of a session's id in zenoh, hexadecimal: the last are the device's number
_RUN = re.compile(r"[a-z0-9-]{1,64}")
_KEY = re.compile(r"/(?:alive|from)/(0|[1-9][0-9]{0,8})(?:/to/[0-9]+)?")


@dataclass(frozen=True)
class Settings:
    """All that a device's links need. `names` has the name in each device's certificate, by its number.

    `certificates` is the device's folder as `keys.make_certificate` makes it; `insecure` does without: plain TCP, for a bench.
    Endpoints are `host:port`. Of two devices it is enough that one dials the other; that both do does no harm.

        Settings(run="a1", names=("n0", "n1"), certificates=Path("n0"), connect=("10.0.0.2:7447",))
    """

    run: str
    names: tuple[str, ...]
    certificates: Path | None = None
    insecure: bool = False
    listen: tuple[str, ...] = ("0.0.0.0:7447",)
    connect: tuple[str, ...] = ()
    multicast: bool = True  # find neighbours on the local network
    interface: str = "auto"  # for multicast; "auto": all that are up at the start, and no others later
    lease: float = 1.0  # seconds of silence after which a link is dead
    largest: int = 64 << 20  # bytes of a message
    outgoing: int = 4  # messages that wait for a neighbour; the oldest goes when there are more
    incoming: int = 8  # messages of a neighbour that wait to be received; the same

    def __post_init__(self) -> None:
        if not _RUN.fullmatch(self.run):
            raise InputError("run", self.run, "1 to 64 of a-z, 0-9 and '-'")
        if len(self.names) < 2 or len(set(self.names)) != len(self.names):
            raise InputError("names", self.names, "two different names or more")
        if self.certificates is None and not self.insecure:
            raise InputError("certificates", None, "the folder of the device's certificate, or insecure = true on a bench")
        if not self.listen:
            raise InputError("listen", self.listen, "at least one host:port")
        for field in ("listen", "connect"):
            for endpoint in getattr(self, field):
                if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}", endpoint):
                    raise InputError(field, endpoint, "host:port, such as 10.0.0.2:7447")
        if not 0.2 <= self.lease <= 60:
            raise InputError("lease", self.lease, "seconds from 0.2 to 60")
        if not 1 <= self.largest < 1 << 32:
            raise InputError("largest", self.largest, "a whole number of bytes from 1 to 2^32 - 1")
        for field in ("outgoing", "incoming"):
            if not 1 <= getattr(self, field) <= 1000:
                raise InputError(field, getattr(self, field), "a whole number from 1 to 1000")


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
        if not 0 <= device < len(settings.names):
            raise InputError("device", device, f"a whole number from 0 to {len(settings.names) - 1}")
        self.device, self.settings = device, settings
        self.counts: Counter[str] = Counter()
        self._arrived = threading.Condition()
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._numbers = {name: other for other, name in enumerate(settings.names)}
        self._root = f"gossamer/{settings.run}"
        self._changing = threading.Lock()  # the next three
        self._tokens: set[int] = set()
        self._links: Counter[tuple[int, str]] = Counter()  # by device and zenoh's id of its session
        self._sessions: dict[int, frozenset[str]] = {}  # with which a neighbour is linked
        self._lines = {
            other: _Line(partial(self._put, other), settings, self.counts)
            for other in range(len(settings.names))
            if other != device
        }
        try:
            self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(device, settings))))
        except zenoh.ZError as error:
            raise GossamerError(f"device {device} cannot listen on {', '.join(settings.listen)}: {error}") from None
        self._block = zenoh.CongestionControl.BLOCK
        # Called in zenoh's own thread, and soon done: a queue in between would have no bound. The token comes last: whoever
        # sees it can be heard.
        tokens, own = self._session.liveliness(), zenoh.handlers.Callback
        self._declared = (
            self._session.declare_subscriber(f"{self._root}/from/*/to/{device}", own(self._heard, indirect=False)),
            self._session.info.declare_link_events_listener(own(self._link, indirect=False), history=True),
            tokens.declare_subscriber(f"{self._root}/alive/*", own(self._token, indirect=False), history=True),
            tokens.declare_token(f"{self._root}/alive/{device}"),
        )

    def neighbours(self) -> frozenset[int]:
        """Those to whom there is a link that is alive now."""
        return frozenset(other for other, line in self._lines.items() if line.alive)

    def send(self, to: int, message: bytes) -> None:
        """Hand over a message. It returns at once, and what was sent may be lost."""
        if to not in self._lines:
            raise InputError("to", to, f"another device, from 0 to {len(self.settings.names) - 1}")
        if not 1 <= len(message) <= self.settings.largest:
            raise InputError("message", f"{len(message)} bytes", f"1 to {self.settings.largest} bytes")
        self._lines[to].send(message)

    def receive(self, timeout: float) -> tuple[int, bytes] | None:
        """The next message and the device it is from; None if none came in so many seconds."""
        with self._arrived:
            return self._inbox.popleft() if self._arrived.wait_for(lambda: self._inbox, timeout) else None

    def close(self) -> None:
        """Leave. What waits to be sent has a lease's time to go."""
        import zenoh

        until = time.monotonic() + self.settings.lease
        for line in self._lines.values():
            line.close(until)
        with suppress(zenoh.ZError):  # a link that does not answer; the session has given up on it
            self._session.close()

    def _put(self, to: int, chunk: bytes, header: bytes) -> None:
        key = f"{self._root}/from/{self.device}/to/{to}"
        self._session.put(key, chunk, attachment=header, congestion_control=self._block, express=True)

    def _from(self, sample: zenoh.Sample) -> int | None:
        """Whom a key names, if that is another device."""
        found = _KEY.fullmatch(str(sample.key_expr).removeprefix(self._root))
        return int(found[1]) if found and int(found[1]) in self._lines else None

    def _token(self, sample: zenoh.Sample) -> None:
        import zenoh

        other = self._from(sample)
        if other is not None:
            with self._changing:
                (self._tokens.add if sample.kind == zenoh.SampleKind.PUT else self._tokens.discard)(other)
                self._changed(other)

    def _link(self, event: zenoh.LinkEvent) -> None:
        import zenoh

        name, session = event.link.auth_identifier, str(event.link.zid)
        other = int(session[-_DIGITS:], 16) if self.settings.insecure else self._numbers.get(name or "")
        if other in self._lines:
            with self._changing:
                self._links[other, session] += 1 if event.kind == zenoh.SampleKind.PUT else -1
                self._links += Counter()  # forgets those that are 0
                self._changed(other)

    def _changed(self, other: int) -> None:
        sessions = frozenset(session for device, session in self._links if device == other and device in self._tokens)
        if sessions != self._sessions.get(other, frozenset()):
            self._sessions[other] = sessions
            self._lines[other].set_alive(bool(sessions))

    def _heard(self, sample: zenoh.Sample) -> None:
        other, header = self._from(sample), sample.attachment
        if other is None or header is None or len(header) != _HEADER.size:
            self.counts["refused"] += 1
            return
        message = self._lines[other].heard(sample.payload.to_bytes(), *_HEADER.unpack(header.to_bytes()))
        if message is None:
            return
        with self._arrived:
            # Bounded for each sender: a flood from one does not push out what others say.
            own = [place for place, (sender, _) in enumerate(self._inbox) if sender == other]
            if len(own) >= self.settings.incoming:
                del self._inbox[own[0]]
                self.counts["overflow"] += 1
            self._inbox.append((other, message))
            self.counts["received"] += 1
            self.counts["bytes received"] += len(message)
            self._arrived.notify()


class _Line:
    """All about one neighbour: what waits to go there, what is under way, what is coming; and the thread that sends."""

    def __init__(self, put: Callable[[bytes, bytes], None], settings: Settings, counts: Counter[str]) -> None:
        self.alive = False
        self._put, self._settings, self._counts = put, settings, counts
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._waiting: deque[bytes] = deque()
        self._sent = self._heard = 0  # sequence of the last chunk that was sent, and that came
        self._cut()

    def _cut(self) -> None:
        """Forget what is on its way, both ways."""
        self._message, self._offset = b"", 0  # being sent, and how much of it was
        self._under_way: deque[tuple[int, int]] = deque()  # chunks without an answer yet: sequence, batches
        self._parts: list[bytes] = []  # of a message that is coming
        self._size = self._come = 0
        self._owed = 0  # batches that came since the last answer

    def send(self, message: bytes) -> None:
        with self._changed:
            if not self.alive:
                self._counts["lost"] += 1
                return
            if len(self._waiting) >= self._settings.outgoing:
                self._waiting.popleft()
                self._counts["dropped"] += 1
            self._waiting.append(message)
            self._changed.notify_all()

    def set_alive(self, alive: bool) -> None:
        """The link came or went; what was on it is lost, also when it came without having been seen to go."""
        with self._changed:
            self._counts["lost"] += len(self._waiting) + bool(self._message)
            self._waiting.clear()
            self._cut()
            self.alive = alive and not self._closed
            if self.alive and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="gossamer-link", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def heard(self, chunk: bytes, sequence: int, heard: int, offset: int, size: int) -> bytes | None:
        """Take a packet; a message, if this completes one."""
        with self._changed:
            while self._under_way and self._under_way[0][0] <= heard <= self._sent:
                self._under_way.popleft()
                self._changed.notify_all()
            if size == 0:
                return None
            follows = (sequence, offset, size) == (self._heard + 1, self._come, self._size)
            self._heard = sequence
            self._owed += _batches(chunk)
            if self._owed >= _ANSWER:
                self._changed.notify_all()
            if offset == 0:
                self._parts, self._come, self._size = [], 0, size
            if not chunk or offset + len(chunk) > size or size > self._settings.largest or (offset and not follows):
                self._parts, self._come, self._size = [], 0, 0
                self._counts["refused"] += 1
                return None
            self._parts.append(chunk)
            self._come += len(chunk)
            if self._come < size:
                return None
            message = b"".join(self._parts)
            self._parts, self._come, self._size = [], 0, 0
            return message

    def close(self, until: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._message and not self._waiting, max(0.0, until - time.monotonic()))
            self._closed, self.alive = True, False
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while packet := self._next():
            self._put(*packet)

    def _next(self) -> tuple[bytes, bytes] | None:
        """The next packet, as soon as there is one that may go; None at the end."""
        with self._changed:
            stuck = time.monotonic() + _STUCK
            while not self._closed:
                if not self._message and self._waiting:
                    self._message = self._waiting.popleft()
                chunk = self._message[self._offset : self._offset + _CHUNK]  # of a small message all: no copy
                if chunk and sum(batches for _, batches in self._under_way) + _batches(chunk) <= _ROOM:
                    return chunk, self._went(chunk)
                if self._owed >= _ANSWER:
                    return b"", self._header(0, 0)
                if chunk and time.monotonic() > stuck:
                    self._counts["lost"] += 1
                    self._cut()
                else:
                    self._changed.wait(_STUCK if chunk else None)
            return None

    def _went(self, chunk: bytes) -> bytes:
        """Note that a chunk goes; its header."""
        offset, size = self._offset, len(self._message)
        self._sent += 1
        self._under_way.append((self._sent, _batches(chunk)))
        self._offset += len(chunk)
        if self._offset == size:
            self._counts["sent"] += 1
            self._counts["bytes sent"] += size
            self._message, self._offset = b"", 0
            self._changed.notify_all()  # `close` may wait for this
        return self._header(offset, size)

    def _header(self, offset: int, size: int) -> bytes:
        self._owed = 0
        return _HEADER.pack(self._sent, self._heard, offset, size)


def _batches(chunk: bytes) -> int:
    return 1 + len(chunk) // _BATCH


def configuration(device: int, settings: Settings) -> dict[str, Any]:
    """zenoh's own configuration for a device."""
    protocol = "tcp" if settings.insecure else "tls"
    lease = round(1000 * settings.lease)  # zenoh counts in milliseconds
    link: dict[str, Any] = {
        "protocols": [protocol],
        "tx": {
            "lease": lease,
            "keep_alive": 4,
            "batch_size": _BATCH,
            # Never waited for by those who keep to the above: for a neighbour that floods and hears nothing. In microseconds.
            "queue": {"size": {"data": _BATCHES}, "congestion_control": {"block": {"wait_before_close": 100_000}}},
        },
        "rx": {"max_message_size": _CHUNK + _BATCH},
    }
    whole: dict[str, Any] = {
        "mode": "peer",
        "id": f"{secrets.randbits(60) | 1 << 60:x}{device:0{_DIGITS}x}",
        "listen": {"endpoints": [f"{protocol}/{endpoint}" for endpoint in settings.listen]},
        "connect": {
            "endpoints": [f"{protocol}/{endpoint}" for endpoint in settings.connect],
            "timeout_ms": -1,  # for ever, in the background: 0 would be one attempt
            "exit_on_failure": False,
            "retry": {"period_init_ms": lease // 4, "period_max_ms": lease, "period_increase_factor": 2},
        },
        "open": {"return_conditions": {"connect_scouted": False, "declares": False}},
        "scouting": {
            "multicast": {
                "enabled": settings.multicast,
                "interface": settings.interface,
                "autoconnect": ["peer"],
                "autoconnect_strategy": {"peer": {"to_peer": "greater-zid"}},  # one side dials, not both
            },
            "gossip": {"enabled": False, "autoconnect": []},  # a neighbour's neighbour is none
        },
        "transport": {
            "link": link,
            "unicast": {"open_timeout": 2 * lease, "accept_timeout": 2 * lease},
            "shared_memory": {"enabled": False},
        },
    }
    if settings.certificates is not None and not settings.insecure:
        if wrong := keys.check_folder(settings.certificates, settings.names[device]):
            raise DataError(wrong)
        key, certificate = (str(settings.certificates / file) for file in (keys.KEY, keys.CERTIFICATE))
        link["tls"] = {
            "root_ca_certificate": str(settings.certificates / keys.AUTHORITY_CERTIFICATE),
            "enable_mtls": True,
            "listen_private_key": key,
            "listen_certificate": certificate,
            "connect_private_key": key,
            "connect_certificate": certificate,
            "verify_name_on_connect": False,  # addresses change; who it is, the access rules ask of the certificate
            "close_link_on_expiration": True,
        }
        whole["access_control"] = access(device, settings)
    return whole


def access(device: int, settings: Settings) -> dict[str, Any]:
    """zenoh's access rules for a device: what each other may say to it, and hear from it. All else is denied."""
    root = f"gossamer/{settings.run}"
    rules: dict[str, dict[str, Any]] = {}

    def allow(name: str, flow: str, key: str, *messages: str) -> str:
        rules[name] = {"id": name, "permission": "allow", "flows": [flow], "messages": messages, "key_exprs": [f"{root}/{key}"]}
        return name

    asking = ("declare_liveliness_subscriber", "liveliness_query")
    to_all = [
        allow("is alive", "egress", f"alive/{device}", "liveliness_token"),
        allow("listens", "egress", f"from/*/to/{device}", "declare_subscriber"),
        allow("asks", "egress", "alive/*", *asking),
        allow("is asked", "ingress", "alive/*", *asking),
    ]
    others = {other: name for other, name in enumerate(settings.names) if other != device}
    policies = [
        {
            "subjects": [name],
            "rules": [
                *to_all,
                allow(f"{name} is alive", "ingress", f"alive/{other}", "liveliness_token"),
                allow(f"{name} listens", "ingress", f"from/*/to/{other}", "declare_subscriber"),
                allow(f"{name} speaks", "ingress", f"from/{other}/to/{device}", "put"),
                allow(f"{name} hears", "egress", f"from/{device}/to/{other}", "put"),
            ],
        }
        for other, name in others.items()
    ]
    subjects = [{"id": name, "cert_common_names": [name]} for name in others.values()]
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": list(rules.values()),
        "subjects": subjects,
        "policies": policies,
    }
