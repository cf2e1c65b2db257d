"""An in-memory network with faults and simulated time: the test double of a transport."""

from __future__ import annotations

import heapq
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gossamer import draws


@dataclass(frozen=True)
class Faults:
    """Faults of an in-memory network.

    Every fault is a named draw from the link, the direction and the number of the message on it.

    Args:
        seed: Seed of the draws.
        drop: Probability that a message is lost.
        duplicate: Probability that a message arrives twice.
        delay: Probability that a message is delayed.
        by: Delay of a delayed message, in seconds.
        jitter: Largest extra latency, in seconds; drawn for every message, so messages reorder.
        one_way: Directed links (from, to) on which nothing arrives.
    """

    seed: int = 0
    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    by: float = 0.0
    jitter: float = 0.0
    one_way: frozenset[tuple[int, int]] = frozenset()

    def delays(self, sender: int, to: int, number: int) -> list[float]:
        """Return the extra latency of each copy of a message; an empty list if it is lost.

        Args:
            sender: The sending device.
            to: The receiving device.
            number: Number of the message on this directed link.
        """
        if (sender, to) in self.one_way or self._happens("drop", self.drop, sender, to, number, 0):
            return []
        duplicated = self._happens("duplicate", self.duplicate, sender, to, number, 0)
        delays = []
        for copy in range(1 + duplicated):
            message = (sender, to, number, copy)
            latency = self.jitter * self._draw("jitter", *message) if self.jitter else 0.0
            delays.append(latency + self.by * self._happens("delay", self.delay, *message))
        return delays

    def _draw(self, purpose: str, *message: int) -> float:
        return float(draws.uniform(self.seed, f"memory/{purpose}", *message))

    def _happens(self, purpose: str, probability: float, *message: int) -> bool:
        return probability > 0 and self._draw(purpose, *message) < probability


class Memory:
    """A network inside one process, in simulated time.

    Each device is a thread with an `endpoint`. Time advances only while all threads wait, so a
    simulated second takes no real time and results do not depend on thread scheduling. Create all
    endpoints before using the first one. A thread closes its endpoint when it ends, and must not
    wait for another thread between its calls.

    Args:
        faults: Faults of the network; none by default.
        latency: Latency of a message, in seconds.
        queue: Messages of one sender that may wait to be received.

    Example:
        >>> network = Memory()
        >>> network.link([(0, 1)])
        >>> a, b = network.endpoint(0), network.endpoint(1)
        >>> a.send(1, b"hello"), a.close(), b.receive(timeout=5), b.receive(timeout=5)
        (None, None, (0, b'hello'), None)
        >>> network.now()
        5.001
    """

    def __init__(
        self, faults: Faults | None = None, latency: float = 0.001, queue: int = 64
    ) -> None:
        self.faults = faults or Faults()
        self.latency = latency
        self.queue = queue
        self.counts: Counter[str] = Counter()
        self.lock = threading.RLock()
        self._now = 0.0
        self._links: frozenset[tuple[int, int]] = frozenset()
        self._events: list[tuple[float, int, int, int, int, Callable[[], None]]] = []
        self._endpoints: dict[int, Endpoint] = {}
        self._sent: Counter[tuple[int, int]] = Counter()

    def now(self) -> float:
        """Return the simulated time in seconds."""
        return self._now

    def link(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Make exactly these links alive. Messages in flight on a link that is cut are lost.

        Args:
            pairs: The links, as pairs of devices in any order.
        """
        self._links = frozenset((min(a, b), max(a, b)) for a, b in pairs)

    def linked(self, a: int, b: int) -> bool:
        """Return True if the link between two devices is alive."""
        return (min(a, b), max(a, b)) in self._links

    def neighbours(self, device: int) -> frozenset[int]:
        """Return the devices to which a device has a link now."""
        return frozenset(a + b - device for a, b in self._links if device in (a, b))

    def schedule(self, when: float, action: Callable[[], None]) -> None:
        """Run an action at a time, before the messages that arrive at that time.

        Args:
            when: Simulated time in seconds.
            action: What to run, such as a change of links.
        """
        with self.lock:
            heapq.heappush(self._events, (when, -1, -1, self._number(-1, -1), 0, action))

    def endpoint(self, device: int) -> Endpoint:
        """Return a new endpoint of a device. It replaces an earlier one, as after a crash."""
        with self.lock:
            self._endpoints[device] = Endpoint(self, device)
            return self._endpoints[device]

    def transmit(self, sender: int, to: int, message: bytes) -> None:
        """Put a message on a link, subject to the faults of the network."""
        number = self._number(sender, to)
        if self.linked(sender, to):
            for copy, delay in enumerate(self.faults.delays(sender, to, number)):
                order = (self._now + self.latency + delay, sender, to, number, copy)
                heapq.heappush(self._events, (*order, lambda: self._deliver(sender, to, message)))

    def close_endpoint(self, device: int) -> None:
        """Close the current endpoint of a device: the first one, or that of its last restart."""
        with self.lock:
            self.remove(self._endpoints[device])

    def remove(self, endpoint: Endpoint) -> None:
        """Remove an endpoint, unless a newer one has replaced it."""
        if self._endpoints.get(endpoint.device) is endpoint:
            del self._endpoints[endpoint.device]
            self.advance()

    def advance(self) -> None:
        """Advance the time to the next event while every endpoint waits."""
        while self._endpoints and all(e.waits_until is not None for e in self._endpoints.values()):
            times = [e.waits_until for e in self._endpoints.values() if e.waits_until is not None]
            if self._events:
                times.append(self._events[0][0])
            self._now = max(self._now, min(times))
            while self._events and self._events[0][0] <= self._now:
                heapq.heappop(self._events)[-1]()
            for e in self._endpoints.values():
                e.wake()

    def _number(self, sender: int, to: int) -> int:
        self._sent[sender, to] += 1
        return self._sent[sender, to]

    def _deliver(self, sender: int, to: int, message: bytes) -> None:
        if not self.linked(sender, to) or to not in self._endpoints:
            return
        inbox = self._endpoints[to].inbox
        waiting = sum(other == sender for other, _ in inbox)
        if waiting < self.queue:
            inbox.append((sender, message))
        else:
            self.counts["overflow"] += 1


@dataclass(eq=False)
class Endpoint:
    """The `Transport` of one device on a `Memory` network."""

    network: Memory
    device: int
    inbox: deque[tuple[int, bytes | bytearray]] = field(default_factory=deque)
    waits_until: float | None = None
    _for_message: bool = False

    def __post_init__(self) -> None:
        self._woken = threading.Condition(self.network.lock)

    def neighbours(self) -> frozenset[int]:
        with self.network.lock:
            return self.network.neighbours(self.device)

    def send(self, to: int, message: bytes) -> None:
        with self.network.lock:
            self.network.transmit(self.device, to, message)

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        with self.network.lock:
            if not self.inbox:
                self._wait(self.network.now() + timeout, for_message=True)
            return self.inbox.popleft() if self.inbox else None

    def sleep_until(self, when: float) -> None:
        """Sleep until a simulated time. Messages that arrive meanwhile are queued."""
        with self.network.lock:
            self._wait(when, for_message=False)

    def close(self) -> None:
        with self.network.lock:
            self.network.remove(self)

    def wake(self) -> None:
        """Wake the waiting thread if its time has come or the message that it waits for is here."""
        if self.waits_until is None:
            return
        expired = self.waits_until <= self.network.now()
        if expired or (self._for_message and self.inbox):
            self.waits_until = None
            self._woken.notify()

    def _wait(self, until: float, for_message: bool) -> None:
        if until <= self.network.now():
            return
        self.waits_until = until
        self._for_message = for_message
        self.network.advance()
        while self.waits_until is not None:
            self._woken.wait()
