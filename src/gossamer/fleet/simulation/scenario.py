"""What a seed stands for: the method, the devices, and which faults happen how often."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Literal

from gossamer.algorithms import DPSGD, WPM, Algorithm, QuasiGlobal, Tracking
from gossamer.engines.plan import Measure, Plan
from gossamer.fleet.node import make_worker
from gossamer.fleet.settings import Fleet
from gossamer.fleet.simulation.network import NetworkFaults
from gossamer.network import Full
from gossamer.tasks import LinearRegression, Task, Worker
from gossamer.tasks.synthetic import LeastSquares

METHODS: dict[str, Algorithm] = {
    "d-psgd": DPSGD(0.05),
    "wpm": WPM(3, 0.02),
    "tracking": Tracking(eta=0.02),
    "quasi-global": QuasiGlobal(eta=0.05),
}
_PARAMETERS = 4
QUIET_ROUNDS = 4  # rounds without faults at the end, which settle all exchanges
_MAX_DEVICES = 5
_HOUR = 3600.0
_WRONG_CLOCKS = 0.3  # share of scenarios in slots with clocks that are far off
_OUTLIERS = 0.15  # share of scenarios with a device that the guards of the others refuse
_OUTLIER = 0  # number of that device
_OUTLIER_SCALE = 1e4  # scale of the targets of that device


@dataclass(frozen=True)
class MachineFaults:
    """What happens to a device, per point at which it can happen.

    A point is a wait, a message sent, or an operation on the disk.

    Args:
        kill: Probability that the process is killed at a point.
        power: Probability that a kill is a power failure.
        error: Probability that an operation on the disk fails.
        full: Probability that the disk is full from a write on, for up to a slot.
        stall: Probability that a sync takes up to a slot.
        pause: Probability that a process is suspended before an exchange, for up to two slots.
        stop: Probability that a process is told to stop, in a slot.
        away: Longest time until a process is started again, in slots.
        drift: Largest error of the rate of a clock.
        jump: Probability that a clock jumps, in a slot.
        jump_seconds: How far at most.
        boot_seconds: By how much each clock is wrong at first, until it is set.
    """

    kill: float = 0.0
    power: float = 0.0
    error: float = 0.0
    full: float = 0.0
    stall: float = 0.0
    pause: float = 0.0
    stop: float = 0.0
    away: float = 1.0
    drift: float = 0.0
    jump: float = 0.0
    jump_seconds: float = 0.0
    boot_seconds: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """A simulated run of a fleet.

    Args:
        seed: The seed of all that happens.
        method: A key of `METHODS`.
        devices: Number of devices.
        rounds: Number of rounds.
        fleet: The settings that all devices share.
        machine: Faults of devices.
        network: Faults of messages.
        cut: Probability that a link is cut or mended, per link and slot.
        partition: Probability that the network is split in two or mended, in a slot.
        silence: Probability that a link goes silent in one direction, per link and slot.
        late: Probability that a device is started late, by up to half of the rounds.
        outlier: True if device 0 learns a much larger model, which the others' guards refuse.
        quiet_after: When all faults end, in simulated seconds.
        until: When all devices must have ended.
    """

    seed: int
    method: str
    devices: int
    rounds: int
    fleet: Fleet
    machine: MachineFaults = field(default_factory=MachineFaults)
    network: NetworkFaults = field(default_factory=NetworkFaults)
    cut: float = 0.0
    partition: float = 0.0
    silence: float = 0.0
    late: float = 0.0
    outlier: bool = False
    quiet_after: float = 0.0
    until: float = 0.0

    @property
    def power_failures(self) -> bool:
        """True if devices may lose power: they sync what must survive it."""
        return self.fleet.sync

    def describe(self) -> str:
        """Return the scenario in one line."""
        return (
            f"{self.fleet.pace}, {self.method}, {self.devices} devices, {self.rounds} rounds,"
            f" {self.fleet.wire}, {'sync' if self.fleet.sync else 'no sync'}"
        )


def draw_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed. Each kind of fault is in about half of all scenarios.

    Args:
        seed: The seed.

    Example:
        >>> draw_scenario(0) == draw_scenario(0)
        True
    """
    random = Random(f"scenario {seed}")

    def sometimes(most: float, share: float = 0.5) -> float:
        """Return 0, or a rate of any magnitude up to `most`."""
        if random.random() >= share:
            return 0.0
        return most * 10.0 ** random.uniform(-1.0, 0.0)

    pace: Literal["slots", "contacts"] = random.choice(("slots", "contacts"))
    slot = random.choice((1.0, 5.0))
    sync = random.random() < 0.8
    fleet = Fleet(
        pace=pace,
        slot=slot,
        patience=slot * random.uniform(0.2, 1.0),
        timeout=slot * random.uniform(0.2, 1.0),
        wire=random.choice(("float64", "float64", "float32", "bfloat16")),
        join=random.choice(("neighbour", "own")),
        sync=sync,
        lease=0.2 * slot,
        model_every=random.choice((1, 3)),
        history=random.choice((64.0, 4e-5)),  # megabytes: enough for all models, or for one
    )
    machine = MachineFaults(
        kill=sometimes(0.03, 0.7),
        power=random.choice((0.0, 0.5, 1.0)) if sync else 0.0,
        error=sometimes(0.005, 0.3),
        full=sometimes(0.005, 0.2),
        stall=sometimes(0.1, 0.3),
        pause=sometimes(0.1, 0.3),
        stop=sometimes(0.1, 0.3),
        away=random.choice((0.1, 1.0, 3.0)),
        drift=sometimes(1e-3, 0.3),
        jump=sometimes(0.1, 0.2),
        jump_seconds=slot * random.choice((0.5, 3.0)),
    )
    network = NetworkFaults(
        latency=0.001,
        jitter=slot * random.choice((0.001, 0.01, 0.1)),
        drop=sometimes(0.3),
        duplicate=sometimes(0.3),
        delay=sometimes(0.2),
        delay_seconds=slot * random.choice((0.5, 2.0)),
        corrupt=sometimes(0.01, 0.2),
        lease=fleet.lease,
    )
    rounds = random.randrange(6, 13)
    if pace == "slots" and random.random() < _WRONG_CLOCKS:
        # By an hour, which is beyond the last round; or by less than the run is long.
        off = _HOUR
        if random.random() < 0.5:
            off = slot * random.uniform(12.0, 20.0)
            rounds = random.randrange(24, 31)
        machine = replace(machine, jump=sometimes(0.1), jump_seconds=off, boot_seconds=off)
    faulty = (rounds - QUIET_ROUNDS) * slot
    # A device that starts late or is slow still has all its rounds before it.
    seconds = rounds * (fleet.patience + 2 * fleet.timeout + slot)
    return Scenario(
        seed=seed,
        method=random.choice(tuple(METHODS)),
        devices=random.choice((2, 2, 3, 3, 3, 4, _MAX_DEVICES)),
        rounds=rounds,
        fleet=fleet,
        machine=machine,
        network=network,
        cut=sometimes(0.3),
        partition=sometimes(0.2, 0.3),
        silence=sometimes(0.2, 0.3),
        late=sometimes(0.5, 0.3),
        outlier=random.random() < _OUTLIERS,
        quiet_after=faulty,
        until=faulty + seconds + 10 * slot,
    )


@lru_cache(maxsize=64)
def plan_of(method: str, devices: int, rounds: int) -> Plan:
    """Return what the devices of a scenario do: a few steps of least squares.

    Args:
        method: A key of `METHODS`.
        devices: Number of devices.
        rounds: Number of rounds.
    """
    measure = Measure(every=rounds // 2)
    return Plan(
        _task(devices),
        Full(devices),
        METHODS[method],
        rounds,
        0,
        measure,
        "float64",
        "cpu",
        threads=1,
    )


@lru_cache(maxsize=64)
def worker_of(devices: int, device: int, outlier: bool) -> Worker:
    """Return what trains a device. It has no state, so that all scenarios share it.

    Args:
        devices: Number of devices.
        device: Number of the device.
        outlier: True if device 0 learns a much larger model.
    """
    plan = plan_of("d-psgd", devices, 2)
    if outlier and device == _OUTLIER:
        data = replace(plan.task.data, y=_OUTLIER_SCALE * plan.task.data.y)
        plan = replace(plan, task=replace(plan.task, data=data))
    return make_worker(plan, device)


@lru_cache(maxsize=8)
def _task(devices: int) -> Task:
    problem = LeastSquares(devices, _PARAMETERS, samples=8)
    return Task(problem.load(), problem.split(), LinearRegression(), batch=3)
