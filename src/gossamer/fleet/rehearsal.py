"""A whole fleet on one machine: a process and a virtual network for each device."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from multiprocessing.connection import wait
from operator import itemgetter
from pathlib import Path
from types import TracebackType

import numpy as np

from gossamer.errors import GossamerError, InputError, Lost
from gossamer.fleet.namespaces import VirtualNetwork, address, remove_abandoned
from gossamer.fleet.processes import DeviceProcess
from gossamer.fleet.provision import init
from gossamer.fleet.settings import Fleet, read_device, write_device
from gossamer.network import Network
from gossamer.study.study import Study

Event = tuple[float, Callable[[], None]]  # when, in rounds, and an action

_READY_SECONDS = 120.0  # timeout for all devices to load their libraries
# Where in a slot links change: its exchanges are over, and there is time to notice the change. At
# the pace of contacts there are no slots, and links change at the end of their round.
_SWITCH_SHARE = {"slots": 0.4, "contacts": 1.0}
_PREFIX = "gossamer-"  # prefix of namespaces; process id and number of the rehearsal follow
_NUMBERS = count()  # numbers of the rehearsals in this process


class Rehearsal:
    """The devices of a fleet on a virtual network.

    Args:
        study: The study to run.
        fleet: The settings that all devices share.
        folder: The folder of the fleet; it must be empty or missing.
        trace: The links of each round, which lasts a slot at any pace; by default those of the
            study's network.
        clocks: Seconds by which clocks of devices are ahead.

    Raises:
        InputError: If the trace has other devices or too few rounds.

    Example:
        with Rehearsal(study, fleet, Path("rehearsal")) as rehearsal:
            rehearsal.start()
            rehearsal.play()
    """

    def __init__(
        self,
        study: Study,
        fleet: Fleet,
        folder: Path,
        trace: Network | None = None,
        clocks: dict[int, float] | None = None,
    ) -> None:
        self.study = study
        self.fleet = fleet
        self.folder = folder
        self.trace = trace or study.network
        self.devices = study.network.devices
        if self.trace.devices != self.devices:
            raise InputError(
                "links",
                f"{self.trace.devices} devices",
                f"links of {self.devices} devices, as the study has",
            )
        self._link_rounds = study.rounds  # number of rounds in which links change
        if fleet.pace == "contacts":
            self._link_rounds = self.trace.rounds or study.rounds
        elif self.trace.rounds is not None and self.trace.rounds < study.rounds:
            raise InputError(
                "rounds",
                study.rounds,
                f"at most {self.trace.rounds}, the rounds that the links have",
            )
        self.start_time = 0.0  # when round 0 begins, in seconds since 1970
        self._clocks = clocks or {}
        self._network = VirtualNetwork(self.devices, f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}-")
        self._up: set[tuple[int, int]] = set()
        self._running: dict[int, DeviceProcess] = {}

    def __enter__(self) -> Rehearsal:
        self._network.__enter__()
        try:
            remove_abandoned(_PREFIX)
            self._provision()
        except BaseException:
            self._network.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for device in list(self._running):
                self.kill(device)
        finally:
            self._network.__exit__(kind, error, trace)

    @property
    def network(self) -> VirtualNetwork:
        """The virtual network, to which faults can be added."""
        return self._network

    @property
    def running(self) -> list[int]:
        """The devices whose processes were started and not yet waited for."""
        return list(self._running)

    def pid(self, device: int) -> int:
        """Return the process id of a device."""
        return self._running[device].pid

    def load(self, absent: Collection[int] = ()) -> None:
        """Start the processes of devices, and wait until they are ready.

        Args:
            absent: Devices that are not started.

        Raises:
            GossamerError: If a device does not become ready.
        """
        self._set_links(0)
        for i in range(self.devices):
            if i not in absent:
                self._launch(i)
        until = time.monotonic() + _READY_SECONDS
        for i, process in self._running.items():
            if not process.is_ready(max(0.0, until - time.monotonic())):
                raise GossamerError(
                    f"device {i} is not ready ({process.last_output()}),"
                    f" exit code {process.exit_code}"
                )

    def start(self) -> None:
        """Start all devices, if `load` has not, and begin round 0 once they are ready."""
        if not self._running:
            self.load()
        # Links are noticed before round 0.
        self.start_time = time.time() + 2 * self.fleet.lease + 1
        if self.fleet.pace == "contacts":
            self.sleep_until(0)  # devices wait for their start time
        for process in self._running.values():
            process.set_start(self.start_time)

    def play(
        self, on_round: Callable[[int], None] = lambda t: None, events: Iterable[Event] = ()
    ) -> None:
        """Switch the links as in the trace until the last round, and wait for all devices.

        Args:
            on_round: Called in every round, after its links have changed.
            events: Further actions, each at a time in rounds.

        Raises:
            Lost: If a device ends too early or does not end.
        """
        switches: list[Event] = []
        share = _SWITCH_SHARE[self.fleet.pace]
        for t in range(self._link_rounds):
            switches.append((t + share, partial(self._switch, t, on_round)))
        events = list(events)
        last_event = max((when for when, _ in events), default=0.0)
        for when, action in sorted([*switches, *events], key=itemgetter(0)):
            if when > last_event and self._all_ended():
                break
            self.sleep_until(when)
            action()
        self.wait()

    def wait(self) -> None:
        """Wait for the devices to end.

        Raises:
            Lost: If a device fails or does not end.
        """
        ends = self.start_time + self._most_seconds()
        while self._running and time.time() < ends:
            sentinels = [process.sentinel for process in self._running.values()]
            wait(sentinels, max(0.0, ends - time.time()))
            self._check()
            for i, process in list(self._running.items()):
                if process.exit_code is not None:
                    process.close()
                    del self._running[i]
        if self._running:
            raise Lost(f"devices {', '.join(map(str, self._running))} did not end")

    def kill(self, device: int) -> None:
        """Kill a device, as a power failure would.

        Args:
            device: Number of the device.
        """
        self._end(device, signal.SIGKILL)

    def stop(self, device: int) -> None:
        """Tell a device to leave, and wait until it has.

        Args:
            device: Number of the device.

        Raises:
            Lost: If it fails.
        """
        self._check_exit_code(device, self._end(device, signal.SIGTERM))

    def launch(self, device: int) -> None:
        """Start a device while the others run: one that was killed, has left, or was absent.

        Args:
            device: Number of the device.
        """
        self._launch(device)
        self._running[device].set_start(self.start_time)

    def sleep_until(self, round: float) -> None:
        """Sleep until a time in rounds.

        Args:
            round: The time since the start, in rounds.

        Raises:
            Lost: If a device has failed meanwhile.
        """
        time.sleep(max(0.0, self.start_time + round * self.fleet.slot - time.time()))
        self._check()

    def _provision(self) -> None:
        """Write the folder of the fleet. Devices dial those to which they ever have a link."""
        hosts = [address(i) for i in range(self.devices)]
        now = datetime.now(UTC)  # replaced by `start`
        ever_linked = self._ever_linked()
        step_seconds = self._step_seconds()
        for path in init(self.study, self.fleet, self.folder, now, hosts):
            device = read_device(path)
            connect = []
            for j, endpoint in enumerate(device.connect):
                if (j, device.device) in ever_linked:
                    connect.append(endpoint)
            clock = self._clocks.get(device.device, 0.0)
            made = replace(device, connect=tuple(connect), clock=clock)
            write_device(path, replace(made, step_seconds=step_seconds[device.device]))

    def _step_seconds(self) -> list[float]:
        """Return how long a step of each device takes beyond what it computes.

        At the pace of contacts it is `timing.compute` of the study, in its first round.
        """
        timing = self.study.timing
        if timing is None or self.fleet.pace != "contacts":
            return [0.0] * self.devices
        seconds: list[float] = timing.of("compute", 0, np.arange(self.devices)).tolist()
        return seconds

    def _end(self, device: int, by: signal.Signals) -> DeviceProcess:
        process = self._running.pop(device)
        if not process.end(by, _READY_SECONDS):
            raise Lost(f"device {device} did not end")
        return process

    def _launch(self, device: int) -> None:
        file = self.folder / f"n{device}.toml"
        self._running[device] = DeviceProcess(file, self._network.name(device))

    def _switch(self, t: int, on_round: Callable[[int], None]) -> None:
        if t + 1 < self._link_rounds:
            self._set_links(t + 1)
        on_round(t)

    def _set_links(self, t: int) -> None:
        wanted = self._pairs(t)
        for a, b in self._up - wanted:
            self._network.link(a, b, up=False)
        for a, b in wanted - self._up:
            self._network.link(a, b, up=True)
        self._up = wanted

    def _pairs(self, t: int) -> set[tuple[int, int]]:
        return {(int(a), int(b)) for a, b in self.trace.links(t).pairs}

    def _ever_linked(self) -> set[tuple[int, int]]:
        pairs: set[tuple[int, int]] = set()
        for t in range(self._link_rounds):
            pairs |= self._pairs(t)
        return pairs

    def _most_seconds(self) -> float:
        """Return how long the devices may take: by the clock, or if every meeting fails."""
        fleet = self.fleet
        if fleet.pace == "slots":
            return (self.study.rounds + 2) * fleet.slot + 30
        links = self._link_rounds * fleet.slot
        return links + self.study.rounds * (fleet.patience + 2 * fleet.timeout) + 60

    def _all_ended(self) -> bool:
        return all(process.exit_code is not None for process in self._running.values())

    def _check(self) -> None:
        for i, process in self._running.items():
            self._check_exit_code(i, process)

    def _check_exit_code(self, device: int, process: DeviceProcess) -> None:
        if code := process.exit_code:
            raise Lost(f"device {device} ended with exit code {code}: {process.last_output()}")
