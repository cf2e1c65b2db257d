"""Whole nodes in one process, on the in-memory network and its simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gossamer.fleet.identity import study_digest, wire_run
from gossamer.fleet.machine import Machine
from gossamer.fleet.node import Node, make_worker
from gossamer.fleet.notices import Notices
from gossamer.fleet.protocol.journal import Checkpoint, Journal
from gossamer.fleet.protocol.messages import Kind, Message
from gossamer.fleet.protocol.wire import pack
from gossamer.fleet.settings import Fleet
from gossamer.fleet.transport.memory import Endpoint, Memory
from gossamer.study import Study
from support.edges import run_in_threads

RUN = bytes(16)
START = 2.0  # when round 0 begins, in simulated seconds


@dataclass
class SimulatedClock:
    """The clock of a device: that of the network, and a difference that may change."""

    network: Memory
    offset: Callable[[float], float] = lambda now: 0.0

    def time(self) -> float:
        return self.network.now() + self.offset(self.network.now())

    def monotonic(self) -> float:
        return self.network.now()


@dataclass
class SimulatedStop:
    """A signal that stops a device at a time."""

    endpoint: Endpoint
    at: float = float("inf")
    waits: list[float] = field(default_factory=list)  # seconds asked for

    def is_set(self) -> bool:
        return self.endpoint.network.now() >= self.at

    def wait(self, timeout: float) -> bool:
        self.waits.append(timeout)
        now = self.endpoint.network.now()
        self.endpoint.sleep_until(min(now + timeout, max(self.at, now)))
        return self.is_set()


@dataclass
class NodeFleet:
    """Nodes of a study, each in a thread and a folder of its own.

    Args:
        study: The study; the devices beyond `nodes` of its network are played by others.
        folder: Where each device has its folder.
        fleet: The settings that all devices share.
        nodes: Number of nodes.
        offsets: By which the clock of a device is ahead, from the simulated time.
        stops: When a device is told to stop.
        runs: The run that the messages of a device name.
        prefix: What the name of a device's folder begins with.
    """

    study: Study
    folder: Path
    fleet: Fleet
    nodes: int
    offsets: dict[int, Callable[[float], float]] = field(default_factory=dict)
    stops: dict[int, float] = field(default_factory=dict)
    runs: dict[int, bytes] = field(default_factory=dict)
    prefix: str = ""
    network: Memory = field(default_factory=Memory)
    statuses: dict[int, dict[str, Any]] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)

    def run(self, others: dict[int, Callable[[Endpoint], None]] | None = None) -> None:
        """Run all nodes until they end, and other functions as further devices."""
        devices = self.study.network.devices
        pairs = [(a, b) for a in range(devices) for b in range(a)]
        self.network.link(pairs)
        functions: dict[int, Callable[[Endpoint], None]] = dict(others or {})
        for i in range(self.nodes):
            functions[i] = partial(self._run_node, i)
        run_in_threads(self.network, functions)

    @property
    def message_run(self) -> bytes:
        """The field `run` of messages."""
        plan = self.study.plan()
        return wire_run(RUN, study_digest(plan, make_worker(plan, 0).start(), self.fleet))

    def checkpoint(self, device: int) -> Checkpoint:
        checkpoint = Journal(self.folder / f"{self.prefix}{device}", sync=False).read()
        assert checkpoint is not None
        return checkpoint

    def _run_node(self, device: int, endpoint: Endpoint) -> None:
        clock = SimulatedClock(self.network, self.offsets.get(device, lambda now: 0.0))
        node = Node(
            self.study.plan(),
            endpoint,
            self.folder / f"{self.prefix}{device}",
            self.runs.get(device, RUN),
            self.fleet,
            START,
            on_status=lambda status: self.statuses.__setitem__(device, status),
            machine=Machine(clock),
            notices=Notices(),
        )
        stop = SimulatedStop(endpoint, self.stops.get(device, float("inf")))
        try:
            self.results[device] = node.run(stop)
        except Exception as error:
            self.results[device] = error
        self.ended[device] = self.network.now()

    def notices(self, device: int) -> set[tuple[str, int | None]]:
        return {(one["kind"], one["device"]) for one in self.statuses[device]["notices"]}


def send_value(value: Callable[[int], float], nodes: NodeFleet, endpoint: Endpoint) -> None:
    """Play a device that sends the same value in all elements, and acknowledges what it gets."""
    network = endpoint.network
    run = nodes.message_run
    devices = nodes.study.network.devices
    slot = nodes.fleet.slot
    for t in range(nodes.study.rounds):
        endpoint.sleep_until(START + t * slot + 0.01)
        vector = torch.full((_parameters,), value(t))
        for j in range(devices):
            if j != endpoint.device:
                fields: dict[str, Any] = {"degree": devices - 1, "vector": vector}
                message = Message(Kind.MODEL, run, endpoint.device, t, **fields)
                endpoint.send(j, pack(message))
        until = START + (t + 0.8) * slot
        while network.now() < until:
            arrived = endpoint.receive(until - network.now())
            if arrived is not None:
                _acknowledge(endpoint, run, *arrived)


_parameters = 650  # softmax regression on digits


def _acknowledge(endpoint: Endpoint, run: bytes, sender: int, data: bytes | bytearray) -> None:
    kind = data[6]
    if kind != Kind.MODEL:
        return
    t = int.from_bytes(data[28:32], "little")
    checksum = int.from_bytes(data[64:68], "little")
    ready = Message(Kind.READY, run, endpoint.device, t, checksum=checksum)
    endpoint.send(sender, pack(ready))
