"""Real nodes at the pace of contacts in simulated time, over the links of a network, no faults."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from gossamer.engines.plan import Plan
from gossamer.errors import InputError
from gossamer.fleet import files
from gossamer.fleet.machine import Machine
from gossamer.fleet.node import Node, make_worker
from gossamer.fleet.settings import Fleet
from gossamer.fleet.simulation.clock import EPOCH, SimulatedClock, SimulatedStop
from gossamer.fleet.simulation.disk import ReadOnlyDisk, SimulatedDisk
from gossamer.fleet.simulation.network import NetworkFaults, SimulatedNetwork
from gossamer.fleet.simulation.scheduler import Process, Scheduler

_RUN = bytes(range(16))

Log = list[dict[str, Any]]  # the lines of a device's log


class Replay:
    """A fleet of real nodes on simulated machines, whose links are those of the plan's network.

    Args:
        plan: What the devices do; a device is done after `plan.rounds` rounds of its own.
        fleet: The settings that all devices share, at the pace of contacts. A round of the network
            lasts `fleet.slot` seconds; a link is noticed after at most `fleet.lease` seconds.
        step_seconds: How long a step of each device takes.
        latency: Seconds that a message takes.
        seed: Seed of what the nodes do not decide: when a link is noticed, and the order of what
            happens at the same time.

    Raises:
        InputError: If the fleet is not at the pace of contacts.

    Example:
        logs = Replay(study.plan(), Fleet(pace="contacts", slot=20.0), [1.0] * 10).run(60)
    """

    def __init__(
        self,
        plan: Plan,
        fleet: Fleet,
        step_seconds: list[float],
        latency: float = 0.01,
        seed: int = 0,
    ) -> None:
        if fleet.pace != "contacts":
            raise InputError("pace", fleet.pace, '"contacts"')
        self._plan = plan
        self._fleet = replace(fleet, sync=False)
        self._step_seconds = step_seconds
        self._scheduler = Scheduler(seed)
        faults = NetworkFaults(latency=latency, jitter=0.0, lease=fleet.lease)
        self._network = SimulatedNetwork(self._scheduler, plan.network.devices, faults)
        self._disks = [SimulatedDisk(self._scheduler, _NoFaults()) for _ in step_seconds]
        self._linked: set[tuple[int, int]] = set()

    def run(self, rounds: int) -> list[Log]:
        """Run the nodes for some rounds of the network.

        Args:
            rounds: Number of rounds.

        Returns:
            The lines that each device has logged.
        """
        self._network.down = set(combinations(range(self._plan.network.devices), 2))
        slot = self._fleet.slot
        for t in range(rounds):
            self._scheduler.at(t * slot, partial(self._set_links, t))
        for device in range(self._plan.network.devices):
            self._scheduler.at(0.0, partial(self._start, device))
        with torch.no_grad():
            self._scheduler.run(rounds * slot)
        found = []
        for device, disk in enumerate(self._disks):
            found.append(files.read_log(_folder(device), ReadOnlyDisk(disk.peek_all())))
        return found

    def _set_links(self, t: int) -> None:
        wanted = {(int(a), int(b)) for a, b in self._plan.network.links(t).pairs}
        for a, b in sorted(self._linked ^ wanted):
            self._network.set_link(a, b, up=(a, b) in wanted)
        self._linked = wanted

    def _start(self, device: int) -> None:
        started: list[Process] = []
        live = partial(self._live, device, started)
        started.append(self._scheduler.spawn(f"n{device}", live))

    def _live(self, device: int, started: list[Process]) -> None:
        """Run a node in its process, until it is done."""
        clock = SimulatedClock(self._scheduler)
        with closing(self._network.open(device, started[0], clock)) as transport:
            node = Node(
                self._plan,
                transport,
                _folder(device),
                _RUN,
                self._fleet,
                EPOCH,
                worker=make_worker(self._plan, device),
                machine=Machine(clock, self._disks[device]),
                step_seconds=self._step_seconds[device],
            )
            node.run(SimulatedStop(self._scheduler, clock))


def _folder(device: int) -> Path:
    return Path(f"/n{device}")


class _NoFaults:
    """A disk on which nothing goes wrong, and nothing takes time."""

    def before(self, operation: str, path: Path) -> None:
        pass

    def written(self, size: int) -> int:
        return size

    def sync_seconds(self) -> float:
        return 0.0


def seconds_to(
    logs: list[Log], metric: str, target: float, slot: float, rounds: int
) -> float | None:
    """Return when the mean of the devices' newest measurements has reached a target.

    Args:
        logs: The log of each device.
        metric: Name of the metric.
        target: The value to reach.
        slot: Seconds between two looks at the mean.
        rounds: Number of looks.

    Returns:
        The first of these moments; None if it is never reached.

    Example:
        >>> line = {"seconds": 1.5, "metrics": {"accuracy": 0.8}}
        >>> seconds_to([[line]], "accuracy", 0.7, slot=1.0, rounds=5)
        2.0
    """
    for t in range(1, rounds + 1):
        values = []
        for log in logs:
            past = [line for line in log if line["seconds"] <= t * slot and "metrics" in line]
            values.append(past[-1]["metrics"][metric] if past else -float("inf"))
        if sum(values) / len(values) >= target:
            return t * slot
    return None
