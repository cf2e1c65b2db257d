"""The devices of one seed: they are started, killed, restarted, and checked after every event."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import combinations
from pathlib import Path

import torch

from gossamer.errors import DataError, Unavailable
from gossamer.fleet.machine import Machine
from gossamer.fleet.node import Node
from gossamer.fleet.protocol.journal import CHECKPOINT_FILE, Transfer
from gossamer.fleet.simulation.clock import EPOCH, SimulatedClock, SimulatedStop
from gossamer.fleet.simulation.disk import SimulatedDisk
from gossamer.fleet.simulation.mix import ObservedPace
from gossamer.fleet.simulation.network import SimulatedNetwork
from gossamer.fleet.simulation.oracle import Oracle
from gossamer.fleet.simulation.scenario import (
    QUIET_ROUNDS,
    Scenario,
    draw_scenario,
    plan_of,
    worker_of,
)
from gossamer.fleet.simulation.scheduler import Killed, Process, Scheduler, Violation

_RUN = bytes(range(16))
_TRY_CRASH = 0.05  # probability that a crash is tried after a change of a disk
_LAST_EVENTS = 400  # kept for who replays a seed
_UNSETTLED_ROUNDS = 2  # before the end, whose exchanges may be in doubt then
# Delay before a node that gave up is restarted, once there are no faults.
_AGAIN_SECONDS = 0.5


@dataclass
class Result:
    """What happened in the simulation of a seed.

    Args:
        seed: The seed.
        scenario: What it stands for.
        violation: The rule that was broken, and how; "" if none was.
        digest: Digest of every message and every checkpoint.
        seconds: Simulated time.
        events: Number of events.
        counts: Faults and exchanges by kind.
        trace: The last events, each in one line.
    """

    seed: int
    scenario: str
    violation: str
    digest: str
    seconds: float
    events: int
    counts: Counter[str]
    trace: list[str]


@dataclass(eq=False)
class SimulatedDevice:
    """A device: its machine, and the process that runs there.

    Args:
        number: Number of the device.
        clock: Its clocks.
        folder: Its folder.
    """

    number: int
    clock: SimulatedClock
    folder: Path
    disk: SimulatedDisk = field(init=False)
    process: Process | None = None
    node: Node | None = None
    stop: SimulatedStop | None = None
    left_pending: tuple[Transfer, ...] = ()
    full_until: float = 0.0
    last_round: int = -1  # the last round that it has run
    latest_round: int = -1  # the latest of the rounds that it ran while there were faults
    done: bool = False


class SimulatedFleet:
    """All devices of a scenario.

    Args:
        scenario: What is simulated.

    Example:
        >>> SimulatedFleet(draw_scenario(1)).run().violation
        ''
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.scheduler = Scheduler(scenario.seed)
        self.counts: Counter[str] = Counter()
        self._trace: list[str] = []
        self._digest = blake2b(digest_size=16)
        self._quiet = False
        self._random = self.scheduler.random
        self.network = SimulatedNetwork(
            self.scheduler, scenario.devices, scenario.network, self._on_sent
        )
        self.devices: list[SimulatedDevice] = []
        for number in range(scenario.devices):
            self.devices.append(self._new_device(number))
        disks = [device.disk for device in self.devices]
        folders = [device.folder for device in self.devices]
        self.oracle = Oracle(folders, disks, scenario.power_failures)

    def run(self) -> Result:
        """Run the scenario, and check it at its end."""
        violation = ""
        self._schedule()
        try:
            self.scheduler.run(self.scenario.until)
            self._check_end()
        except Violation as error:
            violation = str(error)
        self.counts.update(self.oracle.counts)
        self.counts.update(self.network.counts)
        return Result(
            self.scenario.seed,
            self.scenario.describe(),
            violation,
            self._digest.hexdigest(),
            self.scheduler.now,
            self.scheduler.events,
            self.counts,
            self._trace,
        )

    # -- devices -----------------------------------------------------------------------------------

    def _new_device(self, number: int) -> SimulatedDevice:
        faults = self.scenario.machine
        rate = 1.0 + faults.drift * self._random.uniform(-1.0, 1.0)
        booted = self._random.uniform(0.0, 1e5)
        clock = SimulatedClock(self.scheduler, rate, booted=booted)
        device = SimulatedDevice(number, clock, Path(f"/n{number}"))
        device.disk = SimulatedDisk(
            self.scheduler,
            _DiskFaults(self, device),
            partial(self._on_replace, device),
            partial(self._on_change, device),
        )
        return device

    def _start(self, device: SimulatedDevice) -> None:
        if device.done or device.process is not None:
            return
        self._note(device, "starts")
        device.stop = SimulatedStop(self.scheduler, device.clock)
        device.process = self.scheduler.spawn(f"n{device.number}", partial(self._live, device))

    def _live(self, device: SimulatedDevice) -> None:
        """Run the node in its process, until it ends in any way."""
        assert device.process is not None
        assert device.stop is not None
        transport = self.network.open(device.number, device.process, device.clock)
        transport.before_send = partial(self._point, device)
        scenario = self.scenario
        try:
            node = Node(
                plan_of(scenario.method, scenario.devices, scenario.rounds),
                transport,
                device.folder,
                _RUN,
                scenario.fleet,
                EPOCH + scenario.fleet.slot,
                worker=worker_of(scenario.devices, device.number, scenario.outlier),
                machine=Machine(device.clock, device.disk),
            )
            node.pace = ObservedPace(node.pace, self.oracle, partial(self._compute, device))
            device.node = node
            device.done = node.run(device.stop)
            if device.done:  # else it may have abandoned a round, as if it had been killed
                device.left_pending = node.edges.pending
                self.oracle.on_end(device.number, node.edges.pending)
            self._note(device, "is done" if device.done else "has stopped")
            self._end(device)
        except DataError as error:
            self._note(device, f"gives up: {error}")
            self.counts["gave up"] += 1
            # It does so for a day if it is not sure that its clock is right, which it now is.
            device.done = isinstance(error, Unavailable) and self._is_over()
            self._end(device)
        except (Violation, Killed):
            raise
        except Exception as error:
            name = type(error).__name__
            sentence = f"n{device.number} ends by {name}: {error}"
            raise Violation("errors are of one sentence", sentence) from error

    def _end(self, device: SimulatedDevice) -> None:
        """End the process of a device, and start it again later unless it is done."""
        self.network.close(device.number)
        if device.node is not None:
            self.counts["refused by guards"] += device.node.edges.counts["refused: guard"]
        device.process = None
        device.node = None
        device.disk.end_process()
        self.oracle.on_end_of_process(device.number)
        if not device.done:
            seconds = _AGAIN_SECONDS
            if not self._quiet:
                away = self.scenario.machine.away * self.scenario.fleet.slot
                seconds = 0.01 + away * self._random.random()
            self.scheduler.after(seconds, partial(self._start, device))

    def _crash(self, device: SimulatedDevice) -> None:
        """Kill the process of a device, and maybe its power."""
        process = device.process
        assert process is not None
        self.counts["kills"] += 1
        if self._random.random() < self.scenario.machine.power:
            self.counts["power failures"] += 1
            self._note(device, "loses power")
            device.disk.fail_power(self._random)
        else:
            self._note(device, "is killed")
        self._end(device)
        self.scheduler.kill(process)

    def _point(self, device: SimulatedDevice) -> None:
        """Kill the running process here, sometimes."""
        if not self._quiet and self._random.random() < self.scenario.machine.kill:
            self._crash(device)
            raise Killed

    def _compute(self, device: SimulatedDevice) -> None:
        """Take the time of a gradient."""
        self._note_round(device)
        slot = self.scenario.fleet.slot
        seconds = 0.05 * slot * self._random.random()
        if not self._quiet and self._random.random() < self.scenario.machine.pause:
            seconds = 2.0 * slot * self._random.random()
            self.counts["pauses"] += 1
        self.scheduler.sleep(seconds)
        self._point(device)

    # -- faults ------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Schedule the starts, the faults of every slot, and their end."""
        slot = self.scenario.fleet.slot
        for device in self.devices:
            when = slot * self._random.random()
            if self._random.random() < self.scenario.late:
                when += 0.5 * self.scenario.quiet_after * self._random.random()
            self.scheduler.at(when, partial(self._start, device))
            if seconds := self.scenario.machine.boot_seconds:
                device.clock.jump(self._random.choice((-1, 1)) * seconds)
                when = self.scenario.quiet_after * self._random.random()
                self.scheduler.at(when, device.clock.set_right)
        when = 0.0
        while when < self.scenario.quiet_after:
            when += 0.5 * slot * (0.5 + self._random.random())
            self.scheduler.at(when, self._disturb)
        self.scheduler.at(when, self._end_faults)

    def _disturb(self) -> None:
        """Let happen what happens to links, clocks and processes from outside."""
        if self._quiet:
            return
        scenario = self.scenario
        machine = scenario.machine
        chance = self._random.random
        for a, b in combinations(range(scenario.devices), 2):
            if chance() < scenario.cut:
                self.counts["cuts"] += 1
                self.network.set_link(a, b, chance() < 0.5)
            if chance() < scenario.silence:
                self.counts["silences"] += 1
                self.network.silent ^= {self._random.choice(((a, b), (b, a)))}
        if chance() < scenario.partition:
            self.counts["partitions"] += 1
            self.network.partition({i for i in range(scenario.devices) if chance() < 0.5})
        for device in self.devices:
            if chance() < machine.jump:
                self.counts["clock jumps"] += 1
                device.clock.jump(machine.jump_seconds * self._random.uniform(-1.0, 1.0))
            if chance() < machine.stop and device.stop is not None and device.process is not None:
                self.counts["stops"] += 1
                self._note(device, "is told to stop")
                device.stop.set()
                self.scheduler.wake(device.process)
            if machine.kill and chance() < 0.05 and device.process is not None:
                self._crash(device)

    def _end_faults(self) -> None:
        self._quiet = True
        self.network.heal()
        for device in self.devices:
            device.clock.set_right()
            device.full_until = 0.0
            self._start(device)  # those that are away miss none of the rounds without faults

    def _is_over(self) -> bool:
        """Return True if the last round is over and there are no faults any more."""
        fleet = self.scenario.fleet
        end = (1 + self.scenario.rounds) * fleet.slot
        return self._quiet and fleet.pace == "slots" and self.scheduler.now >= end

    def _note_round(self, device: SimulatedDevice) -> None:
        """Note the round that a device runs."""
        assert device.node is not None
        t = device.node.edges.round
        if t < device.last_round:
            self.counts["went back"] += 1
        device.last_round = t
        if not self._quiet:
            device.latest_round = max(device.latest_round, t)

    # -- what is checked ---------------------------------------------------------------------------

    def _on_sent(self, sender: int, to: int, message: bytes) -> None:
        self._digest.update(b"%d %d %.9f " % (sender, to, self.scheduler.now))
        self._digest.update(message)
        self.oracle.on_sent(sender, to, message)

    def _on_replace(self, device: SimulatedDevice, path: Path, content: bytes) -> None:
        self._digest.update(f"{path} {self.scheduler.now:.9f} {len(content)} ".encode())
        if path == device.folder / CHECKPOINT_FILE:
            # Not of models: safetensors writes their metadata in random order.
            self._digest.update(content)
            self.oracle.on_checkpoint(device.number, content)

    def _on_change(self, device: SimulatedDevice) -> None:
        if self.scenario.power_failures and self._random.random() < _TRY_CRASH:
            self.oracle.check_crash(device.number, self._random)

    def _check_end(self) -> None:
        """Check that all devices have ended, and have settled what was in doubt."""
        for device in self.devices:
            if not device.done:
                where = "is away"
                if device.node is not None and device.process is not None:
                    waits = device.process.waits_until
                    where = f"is in round {device.node.edges.round}, waits until {waits}"
                raise Violation("nothing waits for ever", f"n{device.number} {where}")
        if self.scenario.fleet.pace == "slots" and not self.scenario.network.corrupt:
            self._check_quiet_rounds()

    def _check_quiet_rounds(self) -> None:
        """Check that the last rounds, without faults, have settled what was in doubt.

        A device ignores one that sent it a corrupted message for ten rounds, which may be all. One
        whose clock was ahead may have taken part in the last rounds before, and never does again.
        """
        settled = self.scenario.rounds - _UNSETTLED_ROUNDS
        # By a clock that was right no device was in one of the rounds without faults before.
        first = self.scenario.rounds - QUIET_ROUNDS
        ahead = {device.number for device in self.devices if device.latest_round >= first}
        for device in self.devices:
            if device.number in ahead:
                continue
            for transfer in device.left_pending:
                in_doubt = not transfer.confirmed and transfer.exchange[0] < settled
                if in_doubt and transfer.neighbour not in ahead:
                    raise Violation(
                        "nothing waits for ever",
                        f"n{device.number} is in doubt about round {transfer.exchange[0]}"
                        f" with n{transfer.neighbour} after the last round",
                    )
            alone = len(self.devices) - len(ahead) < 2 or self.scenario.outlier
            if not alone and self.oracle.last_commit.get(device.number, -1) < settled:
                raise Violation(
                    "nothing waits for ever",
                    f"n{device.number} exchanges nothing although all faults are over",
                )

    def _note(self, device: SimulatedDevice, what: str) -> None:
        line = f"{self.scheduler.now:12.6f}  n{device.number} {what}"
        self._trace.append(line)
        del self._trace[:-_LAST_EVENTS]
        self._digest.update(line.encode())


@dataclass(eq=False)
class _DiskFaults:
    """The faults of the disk of one device."""

    fleet: SimulatedFleet
    device: SimulatedDevice

    def before(self, operation: str, path: Path) -> None:
        fleet = self.fleet
        fleet._point(self.device)
        if fleet._quiet or fleet._random.random() >= fleet.scenario.machine.error:
            return
        fleet.counts["disk errors"] += 1
        raise OSError(errno.EIO, f"Input/output error in {operation}", str(path))

    def written(self, size: int) -> int:
        fleet = self.fleet
        now = fleet.scheduler.now
        if fleet._quiet:
            return size
        if now < self.device.full_until:
            return 0
        if fleet._random.random() < fleet.scenario.machine.full:
            fleet.counts["full disks"] += 1
            self.device.full_until = now + fleet.scenario.fleet.slot * fleet._random.random()
            return fleet._random.randrange(size + 1)
        return size

    def sync_seconds(self) -> float:
        fleet = self.fleet
        if not fleet._quiet and fleet._random.random() < fleet.scenario.machine.stall:
            fleet.counts["stalls"] += 1
            return fleet.scenario.fleet.slot * fleet._random.random()
        return 0.001 + 0.01 * fleet._random.random()


def simulate(seed: int) -> Result:
    """Simulate the fleet of a seed.

    Args:
        seed: The seed.

    Example:
        >>> simulate(3).digest == simulate(3).digest
        True
    """
    with torch.no_grad():
        return SimulatedFleet(draw_scenario(seed)).run()
