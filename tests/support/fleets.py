"""Fleets of real processes for tests: many at a time, since rounds are mostly waiting."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gossamer import draws
from gossamer.engines import Simulator
from gossamer.fleet import files, namespaces
from gossamer.fleet.protocol.journal import Checkpoint, Journal
from gossamer.fleet.rehearsal import Event, Rehearsal
from gossamer.fleet.settings import Fleet
from gossamer.mirror import signed_power
from gossamer.network import Network
from gossamer.study import Study

_BARRIER_SECONDS = 150.0  # after which a fleet no longer waits for the others to be ready


@dataclass(frozen=True)
class Trial:
    """A fleet, and what happens to it.

    Args:
        study: The study to run.
        fleet: The settings that all devices share.
        events: Returns the events of a rehearsal, once all devices are ready.
        before: Called before devices start.
        trace: The links of each round; by default those of the study.
        clocks: Seconds by which clocks of devices are ahead.
        absent: Devices that are not started.
    """

    study: Study
    fleet: Fleet
    events: Callable[[Rehearsal], Iterable[Event]] = lambda rehearsal: ()
    before: Callable[[Rehearsal], None] = lambda rehearsal: None
    trace: Network | None = None
    clocks: Mapping[int, float] = field(default_factory=dict)
    absent: Collection[int] = ()


@dataclass
class Outcome:
    """The results of a fleet, and samples of its devices shortly before its last rounds.

    Args:
        trial: The trial.
        folder: The folder of the fleet.
        peak_memory: The largest memory of each device, in MB.
        processor_seconds: Processor time of each device.
        retransmitted: TCP packets that each device sent again.
        statuses: The status of each device, one dictionary per sample.
    """

    trial: Trial
    folder: Path
    peak_memory: dict[int, float] = field(default_factory=dict)
    processor_seconds: dict[int, float] = field(default_factory=dict)
    retransmitted: dict[int, int] = field(default_factory=dict)
    statuses: list[dict[int, dict[str, Any]]] = field(default_factory=list)

    @property
    def devices(self) -> range:
        return range(self.trial.study.network.devices)

    def device_folder(self, device: int) -> Path:
        return self.folder / f"n{device}"

    def status(self, device: int) -> dict[str, Any]:
        return dict(json.loads((self.device_folder(device) / files.STATUS).read_bytes()))

    def log(self, device: int) -> list[dict[str, Any]]:
        text = (self.device_folder(device) / files.LOG).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def checkpoint(self, device: int) -> Checkpoint:
        checkpoint = Journal(self.device_folder(device)).read()
        assert checkpoint is not None
        return checkpoint

    def counts(self, devices: Iterable[int] | None = None) -> Counter[str]:
        """Return the counts of devices since their last start, added up."""
        total: Counter[str] = Counter()
        for i in self.devices if devices is None else devices:
            total.update(self.status(i)["counts"])
        return +total

    def model(self, device: int, file: str = files.MODEL) -> Tensor:
        """Return a model as one vector, in the simulator's order."""
        tensors = files.read_model(self.device_folder(device) / file)
        learner = self.trial.study.plan().task.learner
        model = torch.empty(learner.parameters)
        for name, places in learner.unstack(torch.arange(learner.parameters)[None]).items():
            model[places.flatten()] = tensors[name].flatten()
        return model

    def accuracy(self, devices: Iterable[int] | None = None) -> float:
        """Return the mean final accuracy."""
        chosen = self.devices if devices is None else devices
        found = [self.log(i)[-1]["metrics"]["accuracy"] for i in chosen]
        return float(sum(found) / len(found))


class Fleets:
    """Fleets that run at the same time, in threads.

    `fleets[name]` waits for the outcome of one, or raises what it raised.
    """

    def __init__(self, trials: Mapping[str, Trial], folder: Path) -> None:
        # Starting processes slows down running ones: all fleets begin when all are ready.
        self._barrier = threading.Barrier(len(trials))
        self._pool = ThreadPoolExecutor(len(trials))
        self._outcomes: dict[str, Future[Outcome]] = {}
        for place, (name, trial) in enumerate(trials.items()):
            own = folder / name.replace(" ", "-")
            delay = place / len(trials) * trial.fleet.slot  # not all at the same instant
            self._outcomes[name] = self._pool.submit(self._run, trial, own, delay)

    def __getitem__(self, name: str) -> Outcome:
        return self._outcomes[name].result()

    def close(self) -> None:
        self._pool.shutdown()

    def _run(self, trial: Trial, folder: Path, delay: float) -> Outcome:
        outcome = Outcome(trial, folder)
        with Rehearsal(
            trial.study, trial.fleet, folder, trial.trace, dict(trial.clocks)
        ) as rehearsal:
            try:
                trial.before(rehearsal)
                rehearsal.load(trial.absent)
                with suppress(threading.BrokenBarrierError):
                    self._barrier.wait(_BARRIER_SECONDS)
            except BaseException:
                self._barrier.abort()
                raise
            time.sleep(delay)
            rehearsal.start()
            events = list(trial.events(rehearsal))
            for before in (3, 2, 1):
                when = trial.study.rounds - before - 0.3
                events.append((when, lambda: _sample(rehearsal, outcome)))
            rehearsal.play(events=events)
        return outcome


def _sample(rehearsal: Rehearsal, outcome: Outcome) -> None:
    """Add the status and the resources of all running devices to the outcome."""
    outcome.statuses.append({device: outcome.status(device) for device in rehearsal.running})
    for device in rehearsal.running:
        process = Path(f"/proc/{rehearsal.pid(device)}")
        with suppress(OSError, KeyError):  # it has ended
            status = {}
            for line in (process / "status").read_text().splitlines():
                key, _, value = line.partition(":")
                status[key] = value
            outcome.peak_memory[device] = int(status["VmHWM"].split()[0]) / 1024
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            outcome.processor_seconds[device] = ticks / os.sysconf("SC_CLK_TCK")
            lines = (process / "net/snmp").read_text().splitlines()
            names, values = (line.split() for line in lines if line.startswith("Tcp:"))
            outcome.retransmitted[device] = int(values[names.index("RetransSegs")])


def simulated(study: Study) -> Simulator:
    """Return the simulator of the same study after its last round."""
    simulator = Simulator(study.plan())
    simulator.advance(study.rounds)
    return simulator


# -- fleets without steps, from different starts: their mean must not change -----------------------


def initial_models(study: Study) -> Tensor:
    """Return a different model for every device, with values of every magnitude."""
    devices = np.arange(study.network.devices)
    parameters = np.arange(study.plan().task.learner.parameters)
    scale = 10.0 ** draws.below(7, 5, "size", parameters) / 1e4
    w = draws.normal(5, "start", devices[:, None], parameters) * scale
    return torch.from_numpy(w).float()


def write_initial_models(rehearsal: Rehearsal, absent: Collection[int] = ()) -> None:
    """Write checkpoints as if devices were stopped before round 0; they begin with round 1."""
    for i, w in enumerate(initial_models(rehearsal.study)):
        if i not in absent:
            journal = Journal(rehearsal.folder / f"n{i}", sync=False)
            journal.write_checkpoint(Checkpoint(0, rehearsal.study.algorithm.first_state(w[None])))


def dual_start(outcome: Outcome, p: float) -> Tensor:
    """Return the initial models of all devices in the dual, in float64."""
    return signed_power(initial_models(outcome.trial.study).double(), p)


def dual_end(outcome: Outcome, p: float) -> Tensor:
    """Return the final models of all devices in the dual, in float64.

    Transfers of the last rounds that one end has applied and the other cannot apply any more are
    added.
    """
    checkpoints = [outcome.checkpoint(i) for i in outcome.devices]
    w = torch.cat([checkpoint.state["w"] for checkpoint in checkpoints])
    z = signed_power(w.double(), p)
    for i, checkpoint in enumerate(checkpoints):
        for transfer in checkpoint.pending:
            recent = transfer.exchange[0] >= outcome.trial.study.rounds - 3
            assert recent, "a transfer in doubt has not been settled"
            if transfer.exchange in checkpoints[transfer.neighbour].applied[i]:
                other = signed_power(transfer.other.double(), p)
                own = signed_power(transfer.own.double(), p)
                z[i] += transfer.weight * (other - own)
    return z


def drift(start: Tensor, end: Tensor) -> float:
    """Return the relative change of the mean; every coordinate in units of its own size."""
    size = start.abs().mean(0)
    return float(((end.mean(0) - start.mean(0)) / size).norm() / (start.mean(0) / size).norm())


def spread(z: Tensor, start: Tensor) -> float:
    """Return how far the devices are from their mean, in the same units."""
    return float(((z - z.mean(0)) / start.abs().mean(0)).norm())


# -- where fleets cannot run, and what they leave --------------------------------------------------


def require_namespaces() -> None:
    """Skip the test where no fleet can run."""
    pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")
    if reason := namespaces.unavailable_reason():
        pytest.skip(reason)


def leftovers() -> list[str]:
    """Return networks and processes that the fleets of this process have left."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    prefix = f"gossamer-{os.getpid()}-"
    found = []
    for name in listed.stdout.splitlines():
        if name.startswith(prefix):
            found.append(name)
    for process in multiprocessing.active_children():
        if process.name.startswith("gossamer-"):
            found.append(process.name)
    return found
