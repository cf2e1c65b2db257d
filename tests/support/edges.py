"""Devices that gossip in threads of this process, over an in-memory network."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gossamer import draws
from gossamer.algorithms import Algorithm, Gradient, Mix, State
from gossamer.fleet.methods import exchange_shapes
from gossamer.fleet.mix import PeerMix
from gossamer.fleet.protocol.edges import Edges
from gossamer.fleet.protocol.journal import Checkpoint, Journal, Transfer
from gossamer.fleet.protocol.messages import Kind
from gossamer.fleet.protocol.wire import Expected
from gossamer.fleet.transport.base import Transport
from gossamer.fleet.transport.memory import Endpoint, Memory
from gossamer.mirror import power_map, signed_power

RUN = bytes(range(16))
_THREAD_SECONDS = 60  # for all devices, in real time


def deadline(exchange: tuple[int, int]) -> float:
    """Return the deadline of an exchange: a round takes a second, each of its parts 0.3 s."""
    return exchange[0] + 0.3 * (exchange[1] + 1)


@dataclass(frozen=True)
class Gossip(Algorithm):
    """Mix w by the power mean and y by the plain mean, without steps. Both means are invariant."""

    p: float = 3.0

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "y": w0.clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return {"w": mix.mean(state["w"], power_map(self.p)), "y": mix(state["y"])}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return state["w"]


class Killed(BaseException):
    """The device is killed at this point."""


@dataclass
class KillSwitch:
    """Raise `Killed` at the n-th call; never again after that."""

    calls: int = 0

    def count(self) -> None:
        self.calls -= 1
        if self.calls == 0:
            raise Killed


@dataclass
class KillableTransport:
    """A transport whose device may be killed before any send or receive."""

    inner: Transport
    switch: KillSwitch

    @property
    def device(self) -> int:
        return self.inner.device

    def neighbours(self) -> frozenset[int]:
        return self.inner.neighbours()

    def send(self, to: int, message: bytes) -> None:
        self.switch.count()
        self.inner.send(to, message)

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        self.switch.count()
        return self.inner.receive(timeout)

    def close(self) -> None:
        self.inner.close()


class KillableJournal(Journal):
    """A journal whose device may be killed before and after any write."""

    switch = KillSwitch()

    def log_own(
        self, exchange: tuple[int, int], own: Tensor, checksum: int, partner: int | None = None
    ) -> None:
        self.switch.count()
        super().log_own(exchange, own, checksum, partner)
        self.switch.count()

    def log(self, transfers: Sequence[Transfer]) -> None:
        self.switch.count()
        super().log(transfers)
        self.switch.count()

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.switch.count()
        super().write_checkpoint(checkpoint)
        self.switch.count()


@dataclass
class GossipFleet:
    """Devices that gossip, each in its own thread and folder, on a shared clock.

    Args:
        network: The network, in simulated time.
        folder: Where each device has its folder.
        start: Initial models [devices, parameters].
        algorithm: What they run.
        rounds: Number of rounds.
        leaves: Round before which a device leaves.
        wire: dtype of vectors on the wire.
        kills: For each device (round, calls): it is killed at that call from that round on.
        rounds_away: Rounds until a killed device returns.
    """

    network: Memory
    folder: Path
    start: Tensor
    algorithm: Algorithm = field(default_factory=Gossip)
    rounds: int = 50
    leaves: dict[int, int] = field(default_factory=dict)
    wire: torch.dtype = torch.float64
    kills: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    rounds_away: int = 0
    edges: dict[int, Edges] = field(default_factory=dict)
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)
    killed: int = 0

    def expected(self) -> Expected:
        return Expected(
            RUN,
            frozenset(Kind),
            exchange_shapes(self.algorithm, self.start[:1]),
            self.wire,
            1e6,
            start=tuple(self.start.shape[1:]),
        )

    def run_device(self, device: int, endpoint: Endpoint) -> None:
        """Run one device; restart it from its journal when it is killed."""
        kills = list(self.kills.get(device, ()))
        first = 0
        while True:
            switch = KillSwitch()
            journal = KillableJournal(self.folder / str(device), sync=False)
            journal.switch = switch
            transport = KillableTransport(endpoint, switch)
            edges = Edges(transport, journal, self.expected(), self.network.now)
            try:
                state = edges.start(
                    lambda: self.algorithm.first_state(self.start[device : device + 1]), first
                )
                for t in range(edges.round, self.leaves.get(device, self.rounds)):
                    endpoint.sleep_until(t)
                    switch.calls = kills.pop(0)[1] if kills and t >= kills[0][0] else 0
                    mix = PeerMix(edges, self.algorithm.weights, t, 0, deadline)
                    state = self.algorithm.next_state(state, None, mix, t)  # type: ignore[arg-type]
                    edges.finish(t, state)
                if device in self.leaves:
                    edges.leave()
                break
            except Killed:
                self.killed += 1
                endpoint = self.network.endpoint(device)
                first = t + self.rounds_away
            finally:
                self.counts[device] = self.counts.get(device, Counter()) + edges.counts
        self.states[device] = state
        self.edges[device] = edges

    def run(self, others: Iterable[tuple[int, Callable[[Endpoint], None]]] = ()) -> None:
        """Run all devices, and other functions as further devices."""
        functions: dict[int, Callable[[Endpoint], None]] = {}
        for i in range(len(self.start)):
            functions[i] = partial(self.run_device, i)
        run_in_threads(self.network, {**functions, **dict(others)})

    def stacked(self, name: str) -> Tensor:
        """Return a state tensor of all devices."""
        return torch.cat([self.states[i][name] for i in sorted(self.states)])

    def total(self) -> Counter[str]:
        return sum(self.counts.values(), Counter())

    def check_mean(self, p: float, devices: int | None = None) -> None:
        """Assert that nothing is pending and that the means of w^[p] and y are those of the start.

        The tolerance is p·2e-7 of their size in float32, where every round rounds to 6e-8, and
        p·1e-14 in float64.
        """
        for i in self.states:
            for transfer in self.edges[i].pending:
                assert transfer.neighbour not in self.states
        tolerance = 2e-7 if self.start.dtype == torch.float32 else 1e-14
        for name, power in (("w", p), ("y", 1.0)):
            start = signed_power(self.start[:devices].double(), power)
            end = signed_power(self.stacked(name)[:devices].double(), power)
            drift = (end.mean(0) - start.mean(0)).abs()
            assert (drift <= power * tolerance * start.abs().mean(0)).all()


def run_in_threads(network: Memory, functions: dict[int, Callable[[Endpoint], None]]) -> None:
    """Run the function of each device in a thread, and raise the first exception here."""
    raised: list[BaseException] = []

    def run(function: Callable[[Endpoint], None], endpoint: Endpoint) -> None:
        try:
            function(endpoint)
        except BaseException as error:
            raised.append(error)
        finally:
            network.close_endpoint(endpoint.device)

    threads = []
    for i, function in functions.items():
        threads.append(threading.Thread(target=run, args=(function, network.endpoint(i))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_THREAD_SECONDS)
    for thread in threads:
        assert not thread.is_alive(), "a device hangs"
    if raised:
        raise raised[0]


def initial_models(devices: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return models with values of every magnitude and sign, whose powers exceed float32."""
    drawn = draws.normal(5, "start", np.arange(devices)[:, None], np.arange(6))
    scale = np.array([1.0, 1e-6, 1e3, 1.0, 1e-3, 1.0])
    w = torch.from_numpy(drawn * scale)
    w[:, 5] = w[:, 5].abs()
    return w.to(dtype)
