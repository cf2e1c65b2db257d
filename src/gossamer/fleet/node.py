"""The loop of one device: rounds on a shared clock, with its own data and its own disk.

`protocol.journal` and `files` list the files that it writes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer._core.files import remove_partial_files, write_atomically
from gossamer.algorithms import State
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.plan import Plan
from gossamer.errors import Diverged
from gossamer.fleet import files
from gossamer.fleet.methods import check_runs_on_devices, exchange_shapes, scheduled_neighbours
from gossamer.fleet.mix import PeerMix
from gossamer.fleet.protocol.edges import Edges
from gossamer.fleet.protocol.journal import Journal
from gossamer.fleet.protocol.messages import Kind
from gossamer.fleet.protocol.wire import Expected
from gossamer.fleet.schedule import EXCHANGE_SHARE, Schedule
from gossamer.fleet.settings import Fleet
from gossamer.fleet.transport.base import Transport
from gossamer.tasks import Worker

_BUFFER = "buffer/"  # prefix of the names of the model's buffers in a checkpoint
_JOIN_SLOTS = 3  # in which a late device asks for a model: neighbours respond at the end of a round


class Node:
    """One device of a plan.

    Args:
        plan: The plan; its task needs the samples of this device only.
        transport: The device's links.
        folder: The device's folder.
        run: The run, 16 bytes.
        fleet: The settings that all devices share.
        start: When round 0 begins, in seconds since 1970.
        clock: Seconds added to the device's clock.
        on_status: Called with the status after every round and whenever it changes.
        worker: `make_worker` of the plan, if it exists already.

    Raises:
        InputError: If the algorithm cannot run on devices.

    Example:
        node = Node(plan, transport, folder, run, fleet, start)
        node.run(stopped)
    """

    def __init__(
        self,
        plan: Plan,
        transport: Transport,
        folder: Path,
        run: bytes,
        fleet: Fleet,
        start: float,
        clock: float = 0.0,
        on_status: Callable[[dict[str, Any]], None] = lambda status: None,
        worker: Worker | None = None,
    ) -> None:
        check_runs_on_devices(plan.algorithm)
        torch.set_num_threads(plan.threads or 1)
        self.plan = plan
        self._fleet = fleet
        self._folder = folder
        self._transport = transport
        self._on_status = on_status
        self._dtype = getattr(torch, plan.dtype)
        self._worker = worker or make_worker(plan, transport.device)
        parts = exchange_shapes(plan.algorithm, self._worker.start())
        self.schedule = Schedule(start, fleet.slot, max(1, len(parts)), clock)
        expected = Expected(
            run,
            frozenset(Kind),
            parts,
            getattr(torch, fleet.wire),
            fleet.bound,
            start=(plan.task.learner.parameters,),
        )
        journal = Journal(folder, fleet.sync)
        remove_partial_files(folder)  # left by a kill; no other process writes here
        self.edges = Edges(transport, journal, expected, self.schedule.now)
        self._history = _History(folder, fleet.history)
        # Counts of messages and bytes continue from before a restart.
        self._before = (files.read_log(folder) or [{}])[-1]
        self._scores: dict[str, Any] = {}  # the newest measurement

    def run(self, stopped: threading.Event) -> bool:
        """Take part until the rounds are done or the node is stopped. Resumes from disk.

        Args:
            stopped: Set it to stop the node at the end of its exchange.

        Returns:
            True if the rounds are done.

        Raises:
            Diverged: If the model is no longer finite.
        """
        self._report("waiting")
        with torch.no_grad():
            state = self._first_state(stopped)
            if self.edges.round == 0:
                self._log(0, state, frozenset(), frozenset())
            for t in self._rounds(stopped):
                state = self._run_round(state, t)
            done = self.edges.round >= self.plan.rounds
            if done:
                self._write_model(self._folder / files.MODEL, state)
        self.edges.leave()
        self._report("done" if done else "stopped")
        return done

    def _run_round(self, state: State, t: int) -> State:
        self._report("running")
        algorithm = self.plan.algorithm
        neighbours = self.edges.neighbours(t)
        scheduled = scheduled_neighbours(self.plan.network, self.edges.device, t)
        mix = PeerMix(
            self.edges, algorithm.weights, t, self.plan.seed, self.schedule.deadline, scheduled
        )
        state = algorithm.next_state(state, BatchGradient(self._worker, t), mix, t)
        self._check_finite(state, t)
        committed_with = self.edges.committed_with
        buffers = {_BUFFER + name: b for name, b in self._worker.buffers.items()}
        self.edges.finish(t, {**state, **buffers})
        self.edges.send_models(algorithm.models(state)[0])
        self._log(t + 1, state, neighbours, committed_with)
        return state

    def _first_state(self, stopped: threading.Event) -> State:
        """Return the state to resume from: that on disk, or that of a new device."""
        if not self._transport.neighbours():
            stopped.wait(min(1.0, self._fleet.slot))  # to find the first neighbours
        current = self.schedule.round_at(self.schedule.now())
        state = self.edges.start(self._new_state, max(0, current + 1))
        for name, b in self._worker.buffers.items():
            if _BUFFER + name in state:
                b.copy_(state[_BUFFER + name])
        return {name: x for name, x in state.items() if not name.startswith(_BUFFER)}

    def _new_state(self) -> State:
        """Return the initial state: the start that all share, or late a neighbour's model."""
        state = self.plan.algorithm.first_state(self._worker.start())
        late = self.schedule.now() >= self.schedule.begin(0) + EXCHANGE_SHARE * self._fleet.slot
        if not late or self._fleet.join == "own":
            return state
        self._report("joining")
        model = self.edges.request_model(self.schedule.now() + _JOIN_SLOTS * self._fleet.slot)
        if model is not None:
            # What is mixed is the model, up to a start that all share.
            shift = model.to(self._dtype)[None] - self.plan.algorithm.models(state)
            state["w"] = state["w"] + shift
        return state

    def _rounds(self, stopped: threading.Event) -> Iterator[int]:
        """Yield the rounds to take part in, each when it begins. A round nearly over is skipped."""
        schedule = self.schedule
        while not stopped.is_set():
            t = max(self.edges.round, schedule.round_at(schedule.now()))
            if schedule.now() >= schedule.deadline((t, 0)):
                t += 1
            if t >= self.plan.rounds:
                self.edges.round = max(self.edges.round, self.plan.rounds)
                return
            self.edges.counts["missed"] += t - self.edges.round
            if not stopped.wait(max(0.0, schedule.begin(t) - schedule.now())):
                yield t

    def _check_finite(self, state: State, t: int) -> None:
        for x in state.values():
            if not torch.isfinite(x).all():
                self._report("diverged")
                raise Diverged(t + 1, self.edges.device)

    # -- what others see ---------------------------------------------------------------------------

    def _log(
        self,
        done: int,
        state: State,
        neighbours: frozenset[int],
        committed_with: frozenset[int],
    ) -> None:
        """Log the round that was the `done`th, with measurements where the plan asks for them."""
        line: dict[str, Any] = {
            "round": done,
            "near": sorted(neighbours),
            "met": sorted(committed_with),
            "messages": self.edges.counts["sent"] + self._before.get("messages", 0),
            "bytes": self.edges.counts["bytes sent"] + self._before.get("bytes", 0),
            "late": self.schedule.now() > self.schedule.begin(done),
        }
        every = self.plan.measure.every
        if done == self.plan.rounds or (every and done % every == 0):
            scores = self._worker.scores(self.plan.algorithm.models(state), self.plan.metrics)
            metrics = {name: value.item() for name, value in scores.metrics.items()}
            self._scores = {"loss": scores.loss.item(), "metrics": metrics}
            line |= self._scores
            size = self.plan.task.learner.parameters * self._dtype.itemsize
            if path := self._history.reserve(done, size):
                self._write_model(path, state)
        with (self._folder / files.LOG).open("a") as file:
            file.write(json.dumps(line) + "\n")
        if done:
            self._report("running", near=sorted(neighbours), met=sorted(committed_with))

    def _write_model(self, path: Path, state: State) -> None:
        from safetensors.torch import save

        models = self.plan.algorithm.models(state)
        tensors = {}
        for name, x in (self.plan.task.learner.unstack(models) | self._worker.buffers).items():
            tensors[name] = x[0].contiguous()
        write_atomically(path, save(tensors), sync=False)

    def _report(self, doing: str, **more: Any) -> None:
        """Write the status to disk, and pass it on."""
        status = {
            "device": self.edges.device,
            "doing": doing,
            "round": self.edges.round,
            "rounds": self.plan.rounds,
            "near": sorted(self._transport.neighbours()),
            **more,
            **self._scores,
            "pending": len(self.edges.pending),
            "counts": dict(self.edges.counts),
            "time": time.time(),
        }
        write_atomically(self._folder / files.STATUS, json.dumps(status).encode(), sync=False)
        self._on_status(status)


class _History:
    """The models that a device keeps of the rounds that are measured, up to a number of bytes."""

    def __init__(self, folder: Path, megabytes: float) -> None:
        self._folder = folder
        self._limit = 1e6 * megabytes
        self._used = 0
        history = folder / files.HISTORY
        if history.is_dir():
            remove_partial_files(history)
            self._used = sum(file.stat().st_size for file in history.iterdir())

    def reserve(self, t: int, size: int) -> Path | None:
        """Return the file for the model after t rounds; None if its bytes exceed the limit."""
        if self._used + size > self._limit:
            return None
        self._used += size
        path = files.history_file(self._folder, t)
        path.parent.mkdir(exist_ok=True)
        return path


def make_worker(plan: Plan, device: int) -> Worker:
    """Return what trains and scores a device. It holds the samples in its own form.

    Args:
        plan: The plan.
        device: Number of the device.
    """
    return plan.task.worker(
        np.array([device]),
        plan.seed,
        getattr(torch, plan.dtype),
        torch.device("cpu"),
        plan.measure.test,
    )
