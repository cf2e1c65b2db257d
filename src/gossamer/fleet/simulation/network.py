"""Links that are cut, and messages that are lost, delayed, reordered, duplicated and corrupted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, permutations
from random import Random

from gossamer.fleet.simulation.clock import SimulatedClock
from gossamer.fleet.simulation.scheduler import Process, Scheduler

_WAITING = 64  # messages of one sender that may wait to be received

OnSent = Callable[[int, int, bytes], None]  # called with (sender, receiver, message)


@dataclass(frozen=True)
class NetworkFaults:
    """What happens to messages and links.

    Args:
        latency: Shortest latency of a message, in seconds.
        jitter: Longest extra latency, drawn for every message: so they reorder.
        drop: Probability that a message is lost.
        duplicate: Probability that a message arrives twice.
        delay: Probability that a message is delayed.
        delay_seconds: Longest delay of a delayed message.
        corrupt: Probability that a bit of a message flips.
        lease: Longest time until a device notices that a link came or went.
    """

    latency: float = 0.001
    jitter: float = 0.004
    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    delay_seconds: float = 0.0
    corrupt: float = 0.0
    lease: float = 0.5

    def arrivals(self, random: Random) -> list[float]:
        """Return the latency of each copy of a message that arrives.

        Args:
            random: What is drawn from.
        """
        if random.random() < self.drop:
            return []
        copies = 1
        if random.random() < self.duplicate:
            copies = 2
        arrivals = []
        for _ in range(copies):
            seconds = self.latency + self.jitter * random.random()
            if random.random() < self.delay:
                seconds += self.delay_seconds * random.random()
            arrivals.append(seconds)
        return arrivals


@dataclass(eq=False)
class SimulatedNetwork:
    """The links between all devices.

    A link is up or down; each end notices changes on its own, later. A message reaches the process
    that its sender's network has a session with: not one that was restarted meanwhile.

    Args:
        scheduler: The simulated time.
        devices: Number of devices.
        faults: What happens to messages.
        on_sent: Called for every message that a device sends.
    """

    scheduler: Scheduler
    devices: int
    faults: NetworkFaults
    on_sent: OnSent = lambda sender, to, message: None
    counts: Counter[str] = field(default_factory=Counter)
    down: set[tuple[int, int]] = field(default_factory=set)  # smaller device first
    silent: set[tuple[int, int]] = field(default_factory=set)  # directed: nothing arrives
    _endpoints: dict[int, SimulatedTransport] = field(default_factory=dict)
    _seen: dict[int, set[int]] = field(default_factory=dict)  # the devices that each device sees

    def connected(self, a: int, b: int) -> bool:
        """Return True if a link is up and both ends run."""
        up = (min(a, b), max(a, b)) not in self.down
        return up and a in self._endpoints and b in self._endpoints

    def set_link(self, a: int, b: int, up: bool) -> None:
        """Cut a link, or mend it.

        Args:
            a: One end.
            b: The other.
            up: True to mend it.
        """
        link = (min(a, b), max(a, b))
        if up:
            self.down.discard(link)
        else:
            self.down.add(link)
        self._notice_later(a, b)

    def partition(self, group: set[int]) -> None:
        """Cut all links between a group and the others, and mend the rest.

        Args:
            group: The devices of the group.
        """
        for a, b in combinations(range(self.devices), 2):
            self.set_link(a, b, (a in group) == (b in group))

    def heal(self) -> None:
        """Mend everything; no message is lost from now on."""
        self.faults = NetworkFaults(self.faults.latency, self.faults.jitter)
        self.silent.clear()
        self.partition(set())

    def open(self, device: int, process: Process, clock: SimulatedClock) -> SimulatedTransport:
        """Return the transport of a process that has started.

        Args:
            device: Number of the device.
            process: The process.
            clock: The clock of its machine.
        """
        endpoint = SimulatedTransport(self, device, process, clock)
        self._endpoints[device] = endpoint
        self._seen[device] = set()
        self._notice_all(device)
        return endpoint

    def close(self, device: int) -> None:
        """Close the links of a process that has ended.

        Args:
            device: Number of the device.
        """
        self._endpoints.pop(device, None)
        self._notice_all(device)

    def seen_by(self, device: int) -> frozenset[int]:
        """Return the devices that a device sees now.

        Args:
            device: Its number.
        """
        return frozenset(self._seen[device])

    def transmit(self, sender: int, to: int, message: bytes) -> None:
        """Send a message, subject to the faults.

        Args:
            sender: Number of the sending device.
            to: Number of the receiving device.
            message: The message.
        """
        self.on_sent(sender, to, message)
        self.counts["messages"] += 1
        random = self.scheduler.random
        if to not in self._seen[sender] or not self.connected(sender, to):
            self.counts["lost"] += 1
            return
        arrivals = self.faults.arrivals(random)
        self.counts["lost"] += not arrivals
        self.counts["duplicated"] += max(0, len(arrivals) - 1)
        receiver = self._endpoints[to]
        for seconds in arrivals:
            data = bytearray(message)
            if random.random() < self.faults.corrupt:
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
                self.counts["corrupted"] += 1
            self.counts["delayed"] += seconds > self.faults.latency + self.faults.jitter
            self.scheduler.after(seconds, partial(self._deliver, sender, receiver, data))

    def _deliver(self, sender: int, receiver: SimulatedTransport, data: bytearray) -> None:
        to = receiver.device
        up = (min(sender, to), max(sender, to)) not in self.down
        if not up or (sender, to) in self.silent or self._endpoints.get(to) is not receiver:
            self.counts["lost"] += 1
            return
        receiver.put(sender, data)

    def _notice_all(self, device: int) -> None:
        for other in range(self.devices):
            if other != device:
                self._notice_later(device, other)

    def _notice_later(self, a: int, b: int) -> None:
        for observer, other in permutations((a, b)):
            seconds = self.faults.lease * self.scheduler.random.random()
            self.scheduler.after(seconds, partial(self._notice, observer, other))

    def _notice(self, observer: int, other: int) -> None:
        if observer in self._seen:
            if self.connected(observer, other):
                self._seen[observer].add(other)
            else:
                self._seen[observer].discard(other)


@dataclass(eq=False)
class SimulatedTransport:
    """The `Transport` of one process.

    Args:
        network: The network.
        device: Number of the device.
        process: The process.
        clock: The clock of its machine.
    """

    network: SimulatedNetwork
    device: int
    process: Process
    clock: SimulatedClock
    before_send: Callable[[], None] = lambda: None
    _inbox: deque[tuple[int, bytearray]] = field(default_factory=deque)
    _receiving: bool = False

    def neighbours(self) -> frozenset[int]:
        self.network.scheduler.current()
        return self.network.seen_by(self.device)

    def send(self, to: int, message: bytes) -> None:
        self.network.scheduler.current()
        self.before_send()
        self.network.transmit(self.device, to, message)

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        scheduler = self.network.scheduler
        scheduler.current()
        if not self._inbox and timeout > 0:
            self._receiving = True
            scheduler.sleep(self.clock.simulated(timeout))
            self._receiving = False
        if not self._inbox:
            return None
        return self._inbox.popleft()

    def close(self) -> None:
        self.network.close(self.device)

    def put(self, sender: int, data: bytearray) -> None:
        """Queue a message that has arrived.

        Args:
            sender: The sending device.
            data: The message.
        """
        waiting = sum(other == sender for other, _ in self._inbox)
        if waiting >= _WAITING:
            self.network.counts["overflow"] += 1
            return
        self._inbox.append((sender, data))
        if self._receiving:
            self.network.scheduler.wake(self.process)
