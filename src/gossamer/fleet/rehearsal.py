"""A whole fleet on one machine, before the field: a process and a network for each device, links cut and healed.

The processes are forked from one that has loaded all libraries, so that a hundred devices start within seconds and share
that memory; what then runs is what `gossamer node` runs.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any

from gossamer.errors import GossamerError, InputError, Lost
from gossamer.fleet import provision as fleets
from gossamer.fleet.namespaces import Ground, address
from gossamer.fleet.settings import Fleet
from gossamer.network import Network
from gossamer.study.study import Study

Event = tuple[float, Callable[[], None]]  # when, in rounds, and what is done then

LOG = "device.log"
_READY = 120.0  # seconds for all devices to load what they need
_SWITCH = 0.4  # where in a slot links change: when its exchanges are long over, and early enough to be noticed
_CLONE_NEWNET = 0x40000000
_NUMBERS = count()  # of the rehearsals in this process
# Several may go on at a time, each in a thread. Whoever starts a process asks after those of all others, too, and of two who
# ask for the same exit code at the same moment one gets a wrong answer.
_processes = threading.RLock()


class Rehearsal:
    """The devices of a fleet's folder, on a ground of their own.

        with Rehearsal(study, fleet, Path("rehearsal")) as rehearsal:
            rehearsal.begin()
            rehearsal.play()

    `trace`: the links of each round; else the study's network. `clocks`: by how many seconds the devices' clocks are ahead.
    """

    def __init__(
        self,
        study: Study,
        fleet: Fleet,
        folder: Path,
        trace: Network | None = None,
        clocks: dict[int, float] | None = None,
    ) -> None:
        self.study, self.fleet, self.folder = study, fleet, folder
        self.trace = trace or study.network
        self.devices = study.network.devices
        if self.trace.devices != self.devices:
            raise InputError(
                "links",
                f"{self.trace.devices} devices",
                f"links of {self.devices} devices, as the study has",
            )
        if self.trace.rounds is not None and self.trace.rounds < study.rounds:
            raise InputError(
                "rounds",
                study.rounds,
                f"at most {self.trace.rounds}, the rounds that the links have",
            )
        self.start = 0.0  # when round 0 begins
        self._clocks = clocks or {}
        self._ground = Ground(self.devices, f"gossamer-{os.getpid()}-{next(_NUMBERS)}-")
        self._up: set[tuple[int, int]] = set()
        self._running: dict[int, tuple[BaseProcess, Connection]] = {}

    def __enter__(self) -> Rehearsal:
        self._ground.__enter__()
        try:
            soon = datetime.now(UTC)  # the devices are told when they are all ready
            hosts = [address(i) for i in range(self.devices)]
            for path in fleets.init(self.study, self.fleet, self.folder, soon, hosts):
                device = fleets.read_device(path)
                near = self._ever_linked(device.device)
                dialled = tuple(end for j, end in enumerate(device.connect) if j in near)
                fleets.write_device(
                    path,
                    fleets.relative(
                        device, connect=dialled, clock=self._clocks.get(device.device, 0.0)
                    ),
                )
        except BaseException:
            self._ground.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for device in list(self._running):
            self.kill(device)
        self._ground.__exit__(kind, error, trace)

    @property
    def ground(self) -> Ground:
        """The networks, to make them worse."""
        return self._ground

    def load(self, absent: Collection[int] = ()) -> None:
        """Start all devices but the absent, and wait until they are ready."""
        self._link(0)
        for i in range(self.devices):
            if i not in absent:
                self._launch(i)
        until = time.monotonic() + _READY
        for i, (process, connection) in self._running.items():
            if not connection.poll(max(0.0, until - time.monotonic())) or not self._says_ready(
                connection
            ):
                raise GossamerError(
                    f"device {i} is not ready ({_last_words(self.folder / f'n{i}' / LOG)}), exit code {_exit_code(process)}"
                )

    def begin(self) -> None:
        """Start all devices, if they are not there yet, and their clock once they are ready."""
        if not self._running:
            self.load()
        self.start = time.time() + 2 * self.fleet.lease + 1  # for the links to be noticed
        for _, connection in self._running.values():
            connection.send(self.start)

    def play(
        self, each: Callable[[int], None] = lambda t: None, events: Iterable[Event] = ()
    ) -> None:
        """Follow the trace to its end; `each` is called in the middle of every round, and what else happens, in its time."""
        turns: list[Event] = [
            (t + _SWITCH, partial(self._turn, t, each)) for t in range(self.study.rounds)
        ]
        for when, do in sorted([*turns, *events], key=itemgetter(0)):
            self.sleep_until(when)
            do()
        self.wait()

    def _turn(self, t: int, each: Callable[[int], None]) -> None:
        if t + 1 < self.study.rounds:
            self._link(t + 1)
        each(t)

    def wait(self) -> None:
        """Wait for the devices to end, which they do by the clock."""
        ends = self.start + (self.study.rounds + 2) * self.fleet.slot + 30
        while self._running and time.time() < ends:
            wait(
                [process.sentinel for process, _ in self._running.values()],
                max(0.0, ends - time.time()),
            )
            self._check()
            for i, (process, connection) in list(self._running.items()):
                if _exit_code(process) is not None:
                    connection.close()
                    del self._running[i]
        if self._running:
            raise Lost(f"devices {', '.join(map(str, self._running))} did not end")

    def kill(self, device: int) -> None:
        """Kill a device, as a power cut would."""
        self._end(device, signal.SIGKILL)

    def stop(self, device: int) -> None:
        """Tell a device to leave, and wait until it has."""
        if code := self._end(device, signal.SIGTERM):
            raise Lost(
                f"device {device} ended with exit code {code}: {_last_words(self.folder / f'n{device}' / LOG)}"
            )

    def _end(self, device: int, by: signal.Signals) -> int | None:
        with suppress(ProcessLookupError):
            os.kill(self.pid(device), by)
        process, connection = self._running.pop(device)
        if not wait([process.sentinel], _READY):
            process.kill()
            raise Lost(f"device {device} did not end")
        connection.close()
        with _processes:
            process.join()
            return process.exitcode

    def launch(self, device: int) -> None:
        """Start a device while the others go on: one that was killed, has left, or was absent."""
        self._launch(device)
        self._running[device][1].send(self.start)

    @property
    def running(self) -> list[int]:
        """The devices whose processes were started, and not yet waited for."""
        return list(self._running)

    def pid(self, device: int) -> int:
        pid = self._running[device][0].pid
        assert pid is not None
        return pid

    def _launch(self, device: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["gossamer.fleet.provision", "gossamer.fleet.zenoh", "zenoh"]
        )
        ours, theirs = context.Pipe()
        words = (str(self.folder / f"n{device}.toml"), self._ground.name(device), theirs)
        process = context.Process(
            target=_device, args=words, name=f"gossamer-n{device}", daemon=True
        )
        with _processes:
            process.start()
        theirs.close()
        self._running[device] = process, ours

    def _says_ready(self, connection: Connection) -> bool:
        with suppress(EOFError, OSError):
            return connection.recv_bytes() == b"ready"
        return False

    def _link(self, t: int) -> None:
        wanted = {(int(a), int(b)) for a, b in self.trace.links(t).pairs}
        for a, b in self._up - wanted:
            self._ground.link(a, b, up=False)
        for a, b in wanted - self._up:
            self._ground.link(a, b, up=True)
        self._up = wanted

    def _ever_linked(self, device: int) -> set[int]:
        pairs = {
            (int(a), int(b)) for t in range(self.study.rounds) for a, b in self.trace.links(t).pairs
        }
        return {a + b - device for a, b in pairs if device in (a, b)}

    def sleep_until(self, round: float) -> None:
        """Until so far into the run; a device that ends before its time ends the rehearsal."""
        time.sleep(max(0.0, self.start + round * self.fleet.slot - time.time()))
        self._check()

    def _check(self) -> None:
        for i, (process, _) in self._running.items():
            if code := _exit_code(process):
                raise Lost(
                    f"device {i} ended with exit code {code}: {_last_words(self.folder / f'n{i}' / LOG)}"
                )


def _exit_code(process: BaseProcess) -> int | None:
    with _processes:
        return process.exitcode


def _last_words(log: Path) -> str:
    with suppress(OSError):
        return (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
    return "it said nothing"


def _device(path: str, namespace: str, connection: Connection) -> None:
    """A device's process: into its network, then what `gossamer node` does."""
    device = fleets.read_device(Path(path))
    log = os.open(device.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    stopped = threading.Event()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; whoever started us ends us
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    enter(namespace)

    def started() -> float:
        connection.send_bytes(b"ready")
        start: Any = connection.recv()
        threading.Thread(target=_until_alone, args=(connection, stopped), daemon=True).start()
        return float(start)

    try:
        fleets.live(device, stopped, started)
    except GossamerError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(error.exit_code)


def _until_alone(connection: Connection, stopped: threading.Event) -> None:
    """Whoever started us is gone: stop."""
    with suppress(EOFError, OSError):
        connection.recv_bytes()
    stopped.set()


def enter(namespace: str) -> None:
    """Move this thread, and those that it starts, into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise GossamerError(
                f"cannot enter the network {namespace}: {os.strerror(ctypes.get_errno())}"
            )
