"""Devices that gossip in meetings of two, in threads of this process, without a shared clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from gossamer.algorithms import Algorithm, State
from gossamer.fleet.methods import exchange_shapes
from gossamer.fleet.mix import MeetingMix
from gossamer.fleet.protocol.meetings import Meetings
from gossamer.fleet.protocol.messages import MEETING_KINDS, Kind
from gossamer.fleet.protocol.wire import Expected, unpack
from gossamer.fleet.transport.memory import Endpoint, Memory
from gossamer.mirror import signed_power
from support.edges import (
    RUN,
    Gossip,
    KillableJournal,
    KillableTransport,
    Killed,
    KillSwitch,
    run_in_threads,
)


@dataclass
class CountingTransport(KillableTransport):
    """A transport that counts the vectors that are sent."""

    expected: Expected
    vectors: Counter[tuple[int, int, int, int]]

    def send(self, to: int, message: bytes) -> None:
        super().send(to, message)
        sent = unpack(message, self.expected)
        if sent.kind == Kind.MODEL:
            self.vectors[self.device, to, sent.round, sent.part] += 1


@dataclass
class MeetingFleet:
    """Devices that gossip in meetings of two, each in its own thread and folder.

    Args:
        network: The network, in simulated time.
        folder: Where each device has its folder.
        start: Initial models [devices, parameters].
        algorithm: What they run.
        until: When devices end, in simulated seconds: at the end of a round.
        step: Seconds that a step takes on each device.
        clocks: Seconds by which the clock of a device is ahead.
        patience: Seconds to wait for a partner.
        timeout: Seconds after which an exchange is given up.
        kills: For each device (round, calls): it is killed at that call from that round on.
        away: Seconds until a killed device returns.
    """

    network: Memory
    folder: Path
    start: Tensor
    algorithm: Algorithm = field(default_factory=Gossip)
    until: float = 30.0
    step: dict[int, float] = field(default_factory=dict)
    clocks: dict[int, float] = field(default_factory=dict)
    patience: float = 1.0
    timeout: float = 0.5
    wire: torch.dtype = torch.float64
    kills: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    away: float = 0.5
    edges: dict[int, Meetings] = field(default_factory=dict)
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)
    met: dict[int, list[frozenset[int]]] = field(default_factory=dict)
    killed: int = 0
    # How often each vector was sent, by sender, receiver, number and part.
    vectors: Counter[tuple[int, int, int, int]] = field(default_factory=Counter)

    def expected(self) -> Expected:
        shapes = exchange_shapes(self.algorithm, self.start[:1], proposals=False)
        start = tuple(self.start.shape[1:])
        return Expected(RUN, MEETING_KINDS, shapes, self.wire, 1e6, start=start)

    def run_device(self, device: int, endpoint: Endpoint) -> None:
        """Run one device; restart it from its journal when it is killed."""
        kills = list(self.kills.get(device, ()))
        met = self.met.setdefault(device, [])
        offset = self.clocks.get(device, 0.0)

        def clock() -> float:
            return self.network.now() + offset

        while True:
            switch = KillSwitch()
            journal = KillableJournal(self.folder / str(device), sync=False)
            journal.switch = switch
            transport = CountingTransport(endpoint, switch, self.expected(), self.vectors)
            edges = Meetings(transport, journal, self.expected(), clock)
            try:
                state = edges.start(
                    lambda: self.algorithm.first_state(self.start[device : device + 1])
                )
                while self.network.now() < self.until:
                    t = edges.round
                    endpoint.sleep_until(self.network.now() + self.step.get(device, 0.1))
                    switch.calls = kills.pop(0)[1] if kills and t >= kills[0][0] else 0
                    mix = MeetingMix(
                        edges, self.algorithm.weights, clock, self.patience, self.timeout
                    )
                    state = self.algorithm.next_state(state, None, mix, t)  # type: ignore[arg-type]
                    met.append(edges.committed_with)
                    edges.finish(t, state)
                switch.calls = 0
                edges.leave()
                break
            except Killed:
                self.killed += 1
                endpoint = self.network.endpoint(device)
                endpoint.sleep_until(self.network.now() + self.away)
            finally:
                self.counts[device] = self.counts.get(device, Counter()) + edges.counts
        self.states[device] = state
        self.edges[device] = edges

    def run(self, others: dict[int, Callable[[Endpoint], None]] | None = None) -> None:
        """Run all devices, and other functions as further devices."""
        functions: dict[int, Callable[[Endpoint], None]] = {}
        for i in range(len(self.start)):
            functions[i] = partial(self.run_device, i)
        run_in_threads(self.network, {**functions, **(others or {})})

    def stacked(self, name: str) -> Tensor:
        """Return a state tensor of all devices."""
        return torch.cat([self.states[i][name] for i in sorted(self.states)])

    def total(self) -> Counter[str]:
        return sum(self.counts.values(), Counter())

    def check_mean(self, p: float) -> None:
        """Assert that nothing is pending and that the means of w^[p] and y are those of the start.

        No number may have been used twice, not even by a device that was killed. The tolerance is
        p·1e-14 of their size, for float64.
        """
        assert max(self.vectors.values(), default=1) == 1
        for edges in self.edges.values():
            assert not edges.pending
        for name, power in (("w", p), ("y", 1.0)):
            start = signed_power(self.start, power)
            drift = (signed_power(self.stacked(name), power).mean(0) - start.mean(0)).abs()
            assert (drift <= power * 1e-14 * start.abs().mean(0)).all()
