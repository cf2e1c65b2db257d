"""Devices that gossip in threads of this process, over a network in memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer import draws
from gossamer.algorithms import Algorithm, Gradient, Mix, State
from gossamer.fleet.edges import Edges
from gossamer.fleet.journal import Journal
from gossamer.fleet.mix import PeerMix, shapes
from gossamer.fleet.transport import Endpoint, Memory, Transport
from gossamer.fleet.wire import Expected, Kind
from gossamer.mirror import signed_power

RUN = bytes(range(16))


def until(exchange: tuple[int, int]) -> float:
    """A round is a second; each of its parts has three tenths of it."""
    return exchange[0] + 0.3 * (exchange[1] + 1)


@dataclass(frozen=True)
class Gossip(Algorithm):
    """No steps: what is w is mixed by the power mean, what is y by the plain one. Both means are kept."""

    p: float = 3.0

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "y": w0.clone()}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return {"w": mix.power_mean(state["w"], self.p), "y": mix(state["y"])}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return state["w"]


class Killed(BaseException):
    pass


@dataclass
class Fuse:
    """Kills whoever calls for the n-th time; burnt out, it does nothing more."""

    calls: int = 0

    def burn(self) -> None:
        self.calls -= 1
        if self.calls == 0:
            raise Killed


@dataclass
class MortalTransport:
    inner: Transport
    fuse: Fuse

    @property
    def device(self) -> int:
        return self.inner.device

    def neighbours(self) -> frozenset[int]:
        return self.inner.neighbours()

    def send(self, to: int, message: bytes) -> None:
        self.fuse.burn()
        self.inner.send(to, message)

    def receive(self, timeout: float) -> tuple[int, bytes] | None:
        self.fuse.burn()
        return self.inner.receive(timeout)

    def close(self) -> None:
        self.inner.close()


class MortalJournal(Journal):
    """Killed before it writes, or after."""

    fuse = Fuse()

    def promise(self, flows: Any) -> None:
        self.fuse.burn()
        super().promise(flows)
        self.fuse.burn()

    def write(self, kept: Any) -> None:
        self.fuse.burn()
        super().write(kept)
        self.fuse.burn()


@dataclass
class Fleet:
    """Devices that gossip, each in its own thread and folder, on a shared clock, from a start w0 [devices, parameters]."""

    network: Memory
    folder: Path
    start: Tensor
    algorithm: Algorithm = field(default_factory=Gossip)
    rounds: int = 50
    leaves: dict[int, int] = field(default_factory=dict)  # device: before which round
    wire: torch.dtype = torch.float64
    fuses: dict[int, list[tuple[int, int]]] = field(
        default_factory=dict
    )  # device: (calls to live from its round on, …)
    asleep: int = 0  # rounds before a killed device is there again
    edges: dict[int, Edges] = field(default_factory=dict)
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)
    killed: int = 0

    def expected(self) -> Expected:
        return Expected(
            RUN,
            frozenset(Kind),
            shapes(self.algorithm, self.start[:1]),
            self.wire,
            1e6,
            start=tuple(self.start.shape[1:]),
        )

    def life(self, device: int, endpoint: Endpoint) -> None:
        fuses, first = list(self.fuses.get(device, ())), 0
        while True:
            fuse = Fuse()
            mortal = MortalJournal(self.folder / str(device), sync=False)
            mortal.fuse = fuse
            edges = Edges(
                MortalTransport(endpoint, fuse), mortal, self.expected(), self.network.now
            )
            try:
                state = edges.start(
                    lambda: self.algorithm.init(self.start[device : device + 1]), first
                )
                for t in range(edges.round, self.leaves.get(device, self.rounds)):
                    endpoint.sleep_until(t)
                    fuse.calls = fuses.pop(0)[1] if fuses and t >= fuses[0][0] else 0
                    mix = PeerMix(edges, self.algorithm.weights, t, 0, until)
                    state = self.algorithm.round(state, None, mix, t)  # type: ignore[arg-type]
                    edges.finish(t, state)
                if device in self.leaves:
                    edges.leave()
                break
            except Killed:
                self.killed += 1
                endpoint, first = (
                    self.network.endpoint(device),
                    t + self.asleep,
                )  # it would take part again at once
            finally:
                self.counts[device] = self.counts.get(device, Counter()) + edges.counts
        self.states[device], self.edges[device] = state, edges

    def run(self, others: Iterable[tuple[int, Callable[[Endpoint], None]]] = ()) -> None:
        lives = {i: lambda e, i=i: self.life(i, e) for i in range(len(self.start))} | dict(others)
        in_threads(self.network, lives)

    def of_all(self, name: str) -> Tensor:
        return torch.cat([self.states[i][name] for i in sorted(self.states)])

    def total(self) -> Counter[str]:
        return sum(self.counts.values(), Counter())

    def check_mean(self, p: float, devices: int | None = None) -> None:
        """Nothing is pending, and the means of w^[p] and of y are those of the start.

        To p·2e-7 of their size in float32, where every round is rounded to 6e-8; in float64 to p·1e-14.
        """
        assert not [
            flow
            for i in self.states
            for flow in self.edges[i].pending
            if flow.neighbour in self.states
        ]
        for name, power in (("w", p), ("y", 1.0)):
            start, end = (
                signed_power(x[:devices].double(), power) for x in (self.start, self.of_all(name))
            )
            close = power * (2e-7 if self.start.dtype == torch.float32 else 1e-14)
            assert ((end.mean(0) - start.mean(0)).abs() <= close * start.abs().mean(0)).all()


def in_threads(network: Memory, lives: dict[int, Callable[[Endpoint], None]]) -> None:
    """Each device's life in a thread; whatever one raises is raised here."""
    raised: list[BaseException] = []

    def live(life: Callable[[Endpoint], None], endpoint: Endpoint) -> None:
        try:
            life(endpoint)
        except BaseException as error:
            raised.append(error)
        finally:
            network._endpoints[endpoint.device].close()

    threads = [
        threading.Thread(target=live, args=(life, network.endpoint(i))) for i, life in lives.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a device hangs"
    if raised:
        raise raised[0]


def start_of(devices: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Every magnitude and sign, so that powers beyond float32 occur."""
    drawn = draws.normal(5, "start", np.arange(devices)[:, None], np.arange(6))
    scale = np.array([1.0, 1e-6, 1e3, 1.0, 1e-3, 1.0])
    w = torch.from_numpy(drawn * scale)
    w[:, 5] = w[:, 5].abs()
    return w.to(dtype)
