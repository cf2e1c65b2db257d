"""What carries messages between devices: one small interface, and an in-memory network behind it for tests."""

from __future__ import annotations

import heapq
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from gossamer import draws


class Transport(Protocol):
    """A device's links. It may be called from several threads; `receive` from one."""

    @property
    def device(self) -> int:
        """The number of the device that this is."""

    def neighbours(self) -> frozenset[int]:
        """Those to whom there is a link that is alive now."""

    def send(self, to: int, message: bytes) -> None:
        """Hand over a message. It returns soon, and what was sent may be lost."""

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        """The next message and the device it is from, for which the transport vouches; None if none came in so many seconds.

        What waits to be received is bounded.
        """

    def close(self) -> None: ...


@dataclass(frozen=True)
class Faults:
    """What happens to a message on its way, by a draw that is named after it: the link, the way, and its number there.

    `drop`, `duplicate`, `delay` are probabilities; a delayed message takes `by` seconds more. `jitter` seconds, drawn from 0
    up, are added to every message: those that are sent soon after each other change places. Nothing arrives over a link in
    `one_way` (from, to).
    """

    seed: int = 0
    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    by: float = 0.0
    jitter: float = 0.0
    one_way: frozenset[tuple[int, int]] = frozenset()

    def delays(self, sender: int, to: int, number: int) -> list[float]:
        """How much later than usual each copy of a message arrives; none if it is lost."""

        def drawn(what: str, copy: int = 0) -> float:
            return float(draws.uniform(self.seed, f"memory/{what}", sender, to, number, copy))

        def happens(what: str, probability: float, copy: int = 0) -> bool:
            return probability > 0 and drawn(what, copy) < probability

        if (sender, to) in self.one_way or happens("drop", self.drop):
            return []
        copies = range(1 + happens("duplicate", self.duplicate))
        jitter = [self.jitter * drawn("jitter", copy) if self.jitter else 0.0 for copy in copies]
        return [jitter[copy] + self.by * happens("delay", self.delay, copy) for copy in copies]


class Memory:
    """A network in this process, for tests: a device is a thread with an `endpoint`, and time passes only while all wait.

    `latency` is how long a message takes, in seconds; `queue` how many of one sender may wait to be received.

    So a second takes no time, and what comes out does not depend on how the threads are scheduled. All endpoints are to be
    there before the first is used; a thread that ends closes its own. Between its calls here, a thread must not wait for
    another. `now()` is the time, for whoever takes a clock.

    >>> network = Memory()
    >>> network.link([(0, 1)])
    >>> a, b = network.endpoint(0), network.endpoint(1)
    >>> a.send(1, b"hello"), a.close(), b.receive(timeout=5), b.receive(timeout=5), network.now()
    (None, None, (0, b'hello'), None, 5.001)
    """

    def __init__(
        self, faults: Faults | None = None, latency: float = 0.001, queue: int = 64
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.faults, self.latency, self.queue = faults or Faults(), latency, queue
        self.lock = threading.RLock()
        self._now, self._links = 0.0, frozenset[tuple[int, int]]()
        self._events: list[tuple[float, int, int, int, int, Callable[[], None]]] = []
        self._endpoints: dict[int, Endpoint] = {}
        self._sent: Counter[tuple[int, int]] = Counter()

    def now(self) -> float:
        return self._now

    def link(self, pairs: Iterable[tuple[int, int]]) -> None:
        """These links are alive from now on, and no others. What is under way over one that is cut is lost."""
        self._links = frozenset((min(a, b), max(a, b)) for a, b in pairs)

    def linked(self, a: int, b: int) -> bool:
        return (min(a, b), max(a, b)) in self._links

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Have something done at a time, before any message arrives then: links that are cut or healed."""
        with self.lock:
            heapq.heappush(self._events, (when, -1, -1, self._number(-1, -1), 0, do))

    def endpoint(self, device: int) -> Endpoint:
        """A device's end; a new one takes the place of one that was there, as after a crash."""
        with self.lock:
            self._endpoints[device] = Endpoint(self, device)
            return self._endpoints[device]

    def _number(self, sender: int, to: int) -> int:
        self._sent[sender, to] += 1
        return self._sent[sender, to]

    def _send(self, sender: int, to: int, message: bytes) -> None:
        number = self._number(sender, to)
        if self.linked(sender, to):
            for copy, later in enumerate(self.faults.delays(sender, to, number)):
                event = self._now + self.latency + later, sender, to, number, copy
                heapq.heappush(self._events, (*event, lambda: self._deliver(sender, to, message)))

    def _deliver(self, sender: int, to: int, message: bytes) -> None:
        if self.linked(sender, to) and to in self._endpoints:
            inbox = self._endpoints[to].inbox
            if sum(waiting == sender for waiting, _ in inbox) < self.queue:
                inbox.append((sender, message))
            else:
                self.counts["overflow"] += 1

    def _closed(self, endpoint: Endpoint) -> None:
        if self._endpoints.get(endpoint.device) is endpoint:
            del self._endpoints[endpoint.device]
            self._pass_time()

    def _pass_time(self) -> None:
        """Let time pass until somebody has something to do, if all wait."""
        while self._endpoints and all(e.waits_until is not None for e in self._endpoints.values()):
            times = [e.waits_until for e in self._endpoints.values() if e.waits_until is not None]
            self._now = max(self._now, min([*times, *(event[0] for event in self._events[:1])]))
            while self._events and self._events[0][0] <= self._now:
                heapq.heappop(self._events)[-1]()
            for e in self._endpoints.values():
                e.wake()


@dataclass(eq=False)
class Endpoint:
    """A device's end of a `Memory` network: its `Transport`."""

    network: Memory
    device: int
    inbox: deque[tuple[int, bytes | bytearray]] = field(default_factory=deque)
    waits_until: float | None = None
    _for_message: bool = False

    def __post_init__(self) -> None:
        self._woken = threading.Condition(self.network.lock)

    def neighbours(self) -> frozenset[int]:
        with self.network.lock:
            return frozenset(
                b if a == self.device else a
                for a, b in self.network._links
                if self.device in (a, b)
            )

    def send(self, to: int, message: bytes) -> None:
        with self.network.lock:
            self.network._send(self.device, to, message)

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        with self.network.lock:
            if not self.inbox:
                self._wait(self.network.now() + timeout, for_message=True)
            return self.inbox.popleft() if self.inbox else None

    def sleep_until(self, when: float) -> None:
        """Do nothing until a time; what arrives waits."""
        with self.network.lock:
            self._wait(when, for_message=False)

    def close(self) -> None:
        with self.network.lock:
            self.network._closed(self)

    def _wait(self, until: float, for_message: bool) -> None:
        if until <= self.network.now():
            return
        self.waits_until, self._for_message = until, for_message
        self.network._pass_time()
        while self.waits_until is not None:
            self._woken.wait()

    def wake(self) -> None:
        """Go on, if that is what was waited for."""
        if self.waits_until is not None and (
            self.waits_until <= self.network.now() or (self._for_message and self.inbox)
        ):
            self.waits_until = None
            self._woken.notify()
