"""Fleets for tests: many at a time, each with a ground of its own, since rounds are mostly waiting."""

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
from gossamer.fleet import namespaces, node
from gossamer.fleet.journal import Journal, Kept
from gossamer.fleet.rehearsal import Event, Rehearsal
from gossamer.fleet.settings import Fleet
from gossamer.mirror import signed_power
from gossamer.network import Network
from gossamer.study import Study

_TOGETHER = 150.0  # seconds after which a fleet no longer waits for the others to be ready


@dataclass(frozen=True)
class Trial:
    """A fleet, and what is to happen to it. `events` is asked when all is ready; `before` is called before devices start."""

    study: Study
    fleet: Fleet
    events: Callable[[Rehearsal], Iterable[Event]] = lambda rehearsal: ()
    before: Callable[[Rehearsal], None] = lambda rehearsal: None
    trace: Network | None = None
    clocks: Mapping[int, float] = field(default_factory=dict)
    absent: Collection[int] = ()


@dataclass
class Outcome:
    """What a fleet has left behind, and what was seen in its last rounds, shortly before a round begins.

    `peak` is the most memory that each device had, in MB; `used` its seconds of a core; `retransmitted` counts TCP's packets.
    """

    trial: Trial
    folder: Path
    peak: dict[int, float] = field(default_factory=dict)
    used: dict[int, float] = field(default_factory=dict)
    retransmitted: dict[int, int] = field(default_factory=dict)
    glimpses: list[dict[int, dict[str, Any]]] = field(default_factory=list)  # the status of each

    @property
    def devices(self) -> range:
        return range(self.trial.study.network.devices)

    def status(self, device: int) -> dict[str, Any]:
        return dict(json.loads((self.folder / f"n{device}" / node.STATUS).read_bytes()))

    def log(self, device: int) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in (self.folder / f"n{device}" / node.LOG).read_text().splitlines()
        ]

    def kept(self, device: int) -> Kept:
        kept = Journal(self.folder / f"n{device}").read()
        assert kept is not None
        return kept

    def counts(self, devices: Iterable[int] | None = None) -> Counter[str]:
        """Of the devices' last lives, together."""
        every = self.devices if devices is None else devices
        return sum((Counter(self.status(i)["counts"]) for i in every), Counter())

    def model(self, device: int, file: str = node.MODEL) -> Tensor:
        """As one vector, in the simulator's order."""
        parts = node.models(self.folder / f"n{device}" / file)
        learner = self.trial.study.plan().task.learner
        model = torch.empty(learner.parameters)
        for name, places in learner.unstack(torch.arange(learner.parameters)[None]).items():
            model[places.flatten()] = parts[name].flatten()
        return model

    def accuracy(self, devices: Iterable[int] | None = None) -> float:
        found = [
            self.log(i)[-1]["accuracy"] for i in (self.devices if devices is None else devices)
        ]
        return sum(found) / len(found)


class Fleets:
    """Fleets that run now, in threads; `fleets[name]` waits for the outcome of one, or raises what it raised."""

    def __init__(self, trials: Mapping[str, Trial], folder: Path) -> None:
        self._gate = threading.Barrier(
            len(trials)
        )  # what starts slows down what runs: all begin when all are ready
        self._pool = ThreadPoolExecutor(len(trials))
        self._outcomes: dict[str, Future[Outcome]] = {
            name: self._pool.submit(
                self._run, trial, folder / name.replace(" ", "-"), place / len(trials)
            )
            for place, (name, trial) in enumerate(trials.items())
        }

    def __getitem__(self, name: str) -> Outcome:
        return self._outcomes[name].result()

    def close(self) -> None:
        self._pool.shutdown()

    def _run(self, trial: Trial, folder: Path, later: float) -> Outcome:
        outcome = Outcome(trial, folder)
        with Rehearsal(
            trial.study, trial.fleet, folder, trial.trace, dict(trial.clocks)
        ) as rehearsal:
            try:
                trial.before(rehearsal)
                rehearsal.load(trial.absent)
                with suppress(threading.BrokenBarrierError):
                    self._gate.wait(_TOGETHER)
            except BaseException:
                self._gate.abort()
                raise
            time.sleep(later * trial.fleet.slot)  # not all in the same instant
            rehearsal.begin()
            looks = [
                (trial.study.rounds - before - 0.3, lambda: _look(rehearsal, outcome))
                for before in (3, 2, 1)
            ]
            rehearsal.play(events=[*trial.events(rehearsal), *looks])
        return outcome


def _look(rehearsal: Rehearsal, outcome: Outcome) -> None:
    outcome.glimpses.append({device: outcome.status(device) for device in rehearsal.running})
    for device in rehearsal.running:
        process = Path(f"/proc/{rehearsal.pid(device)}")
        with suppress(OSError, KeyError):  # it has ended
            status = dict(
                line.split(":", 1)
                for line in (process / "status").read_text().splitlines()
                if ":" in line
            )
            outcome.peak[device] = int(status["VmHWM"].split()[0]) / 1024
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            outcome.used[device] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            names, numbers = (
                line.split()
                for line in (process / "net/snmp").read_text().splitlines()
                if line[:4] == "Tcp:"
            )
            outcome.retransmitted[device] = int(numbers[names.index("RetransSegs")])


def simulated(study: Study) -> Simulator:
    """The same study in the simulator, at its end."""
    simulator = Simulator(study.plan())
    simulator.advance(study.rounds)
    return simulator


# -- fleets that take no steps, from different starts: their mean is to be kept ----------------------------------------------


def starts(study: Study) -> Tensor:
    """Every device from elsewhere, with weights of every size."""
    devices, size = (
        np.arange(study.network.devices),
        np.arange(study.plan().task.learner.parameters),
    )
    w = (
        draws.normal(5, "start", devices[:, None], size)
        * 10.0 ** draws.below(7, 5, "size", size)
        / 1e4
    )
    return torch.from_numpy(w).float()


def from_elsewhere(rehearsal: Rehearsal, absent: Collection[int] = ()) -> None:
    """As if each device, but the absent, had been stopped there before round 0. They all begin with round 1."""
    for i, w in enumerate(starts(rehearsal.study)):
        if i not in absent:
            journal = Journal(rehearsal.folder / f"n{i}", sync=False)
            journal.write(Kept(0, rehearsal.study.algorithm.init(w[None])))


def dual_start(outcome: Outcome, p: float) -> Tensor:
    return signed_power(starts(outcome.trial.study).double(), p)


def dual_end(outcome: Outcome, p: float) -> Tensor:
    """The z of all devices, in float64, with what one may still be owed from the last rounds, after which none can be paid."""
    kept = [outcome.kept(i) for i in outcome.devices]
    z = signed_power(torch.cat([one.state["w"] for one in kept]).double(), p)
    for i, one in enumerate(kept):
        for flow in one.pending:
            assert flow.exchange[0] >= outcome.trial.study.rounds - 3, (
                "what was in doubt has not been settled"
            )
            if flow.exchange in kept[flow.neighbour].applied[i]:
                z[i] += flow.weight * (
                    signed_power(flow.other.double(), p) - signed_power(flow.own.double(), p)
                )
    return z


def drift(start: Tensor, end: Tensor) -> float:
    """By how much the mean has changed, relative to itself. Every coordinate counts in units of its own size."""
    size = start.abs().mean(0)
    return float(((end.mean(0) - start.mean(0)) / size).norm() / (start.mean(0) / size).norm())


def apart(z: Tensor, start: Tensor) -> float:
    """How far the devices are from their mean, in the same units."""
    return float(((z - z.mean(0)) / start.abs().mean(0)).norm())


# -- where there can be none, and none left ------------------------------------------------------------------------------------


def needed() -> None:
    """Skip where no fleet can be."""
    pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")
    if sentence := namespaces.refusal():
        pytest.skip(sentence)


def leftovers() -> list[str]:
    """Networks and processes that the fleets of this process have left."""
    names = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    processes = [
        process.name
        for process in multiprocessing.active_children()
        if process.name.startswith("gossamer-")
    ]
    return [name for name in names if name.startswith(f"gossamer-{os.getpid()}-")] + processes
