"""The loop of one device: its rounds, with its own data and its own disk.

`protocol.journal` and `files` list the files that it writes.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer._core.disk import Disk
from gossamer._core.files import (
    PRIVATE_MODE,
    PUBLIC_MODE,
    os_errors,
    remove_partial_files,
    write_atomically,
)
from gossamer.algorithms import State
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.plan import Plan
from gossamer.errors import DataError, Diverged
from gossamer.fleet import files
from gossamer.fleet.carry_over import BUFFER, with_model
from gossamer.fleet.identity import study_digest, wire_run
from gossamer.fleet.machine import THIS_MACHINE, Machine, StopSignal
from gossamer.fleet.methods import (
    check_has_no_stream,
    check_runs_in_meetings,
    check_runs_on_devices,
    exchange_shapes,
)
from gossamer.fleet.notices import Kind, Notices
from gossamer.fleet.pace import make_pace
from gossamer.fleet.protocol.guard import is_too_long
from gossamer.fleet.protocol.journal import Journal
from gossamer.fleet.protocol.messages import MEETING_KINDS, SLOT_KINDS
from gossamer.fleet.protocol.wire import Expected
from gossamer.fleet.recovery import Recovery, is_finite
from gossamer.fleet.schedule import Schedule
from gossamer.fleet.settings import Fleet
from gossamer.fleet.transport.base import Transport
from gossamer.fleet.transport.stoppable import StoppableTransport, Stopped
from gossamer.tasks import Worker

_REST_SECONDS = 1.0  # period of checking whether a resting device may continue
_LONG_SECONDS = 0.5  # duration of a gradient that is not begun once the node is to stop
_REFUSALS: dict[str, tuple[Kind, str]] = {
    "run": ("other study", "runs another study: its messages are refused"),
    "guard": ("too large", "sends vectors much longer than the own: they are refused"),
}


class Node:
    """One device of a plan.

    Args:
        plan: The plan; its task needs the samples of this device only.
        transport: The device's links.
        folder: The device's folder.
        run: The run, 16 bytes.
        fleet: The settings that all devices share.
        start: When round 0 begins, in seconds since 1970. At the pace of contacts a device begins
            at once.
        clock: Seconds added to the device's clock.
        on_status: Called with the status after every round and whenever it changes.
        worker: `make_worker` of the plan, if it exists already.
        machine: Its clock and disk.
        notices: What is published with the status.
        new_worker: Called before every round; returns another worker if the samples have changed.
        why_rest: Called before every round with the bytes sent and received so far; returns why the
            device takes no part in it, or "".
        step_seconds: How long the device waits before every round, to rehearse a slower one.

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
        machine: Machine = THIS_MACHINE,
        notices: Notices | None = None,
        new_worker: Callable[[], Worker | None] = lambda: None,
        why_rest: Callable[[int], str] = lambda total_bytes: "",
        step_seconds: float = 0.0,
    ) -> None:
        check_runs_on_devices(plan.algorithm)
        check_has_no_stream(plan.stream)
        meetings = fleet.pace == "contacts"
        if meetings:
            check_runs_in_meetings(plan.algorithm, plan.network, plan.rounds)
        torch.set_num_threads(plan.threads or 1)
        self.plan = plan
        self._fleet = fleet
        self._folder = folder
        self._clock = machine.clock
        self._disk = machine.disk
        transport = StoppableTransport(transport, machine.clock)
        self._transport = transport
        self._notices = notices or Notices()
        self._on_status = on_status
        self._dtype = getattr(torch, plan.dtype)
        self._worker = worker or make_worker(plan, transport.device)
        parts = exchange_shapes(plan.algorithm, self._worker.start(), proposals=not meetings)
        schedule = Schedule(start, fleet.slot, max(1, len(parts)), clock, machine.clock)
        digest = study_digest(plan, self._worker.start(), fleet)
        expected = Expected(
            wire_run(run, digest),
            MEETING_KINDS if meetings else SLOT_KINDS,
            parts,
            getattr(torch, fleet.wire),
            fleet.bound,
            start=(plan.task.learner.parameters,),
            guard=fleet.guard or math.inf,
        )
        journal = Journal(folder, fleet.sync, machine.disk, digest)
        self._journal = journal
        remove_partial_files(folder, self._disk)  # left by a kill; no other process writes here
        files.end_torn_line(folder, self._disk)
        # Counts of messages, bytes and seconds continue from before a restart.
        self._before = (files.read_log(folder, self._disk) or [{}])[-1]
        seconds = self._before.get("seconds", 0.0)
        self.pace = make_pace(plan, transport, journal, expected, fleet, schedule, seconds)
        self.edges = self.pace.edges
        self.edges.watch_refused(self._note_refused)
        self._recovery = Recovery(folder, machine.disk, plan.rounds)
        self._history = _History(folder, fleet.history, self._disk)
        self._scores: dict[str, Any] = {}  # the newest measurement
        self._rounds_run = 0  # rounds since the node was started
        self._new_worker = new_worker
        self._why_rest = why_rest
        self._rests = False
        self._step_seconds = step_seconds
        self._stopped: StopSignal = threading.Event()
        self._gradient_seconds = 0.0  # duration of the last gradient

    def run(self, stopped: StopSignal) -> bool:
        """Take part until the rounds are done or the node is stopped. Resumes from disk.

        Args:
            stopped: Set it to stop the node at the end of its exchange.

        Returns:
            True if the rounds are done.

        Raises:
            Diverged: If the model is no longer finite.
        """
        self._report("waiting")
        self._transport.watch(stopped)
        self._stopped = stopped
        try:
            with torch.no_grad():
                done = self._run_rounds(stopped)
        except (Stopped, KeyboardInterrupt):
            if not stopped.is_set():
                raise
            # In the middle of a round, as if it were killed: it resumes from its journal.
            self._write_model_of_journal()
            self._report("stopped")
            return False
        self.edges.leave()
        self._report("done" if done else "stopped")
        return done

    def _run_rounds(self, stopped: StopSignal) -> bool:
        """Run until the rounds are done or the node is stopped; return True if they are done."""
        state = self._first_state(stopped)
        if self.edges.round == 0:
            self._log(0, state, frozenset(), frozenset())
        for t in self.pace.rounds(stopped):
            if self._rest(t, stopped):
                continue
            if self._step_seconds and stopped.wait(self._step_seconds):
                continue
            state = self._run_round(state, t)
            self._write_current_model(state)
        self._write_model(self._folder / files.MODEL, state)
        return self.edges.round >= self.plan.rounds

    def _rest(self, t: int, stopped: StopSignal) -> bool:
        """Return True if the device takes no part in round t; wait a while if so."""
        counts = self.edges.counts
        why = self._why_rest(counts["bytes sent"] + counts["bytes received"])
        if why:
            if not self._rests:
                self.edges.leave()
            # In slots the round passes; at the pace of contacts it is the device's own.
            self.edges.skip(t)
            self._report("resting", why=why)
            stopped.wait(min(_REST_SECONDS, self._fleet.slot))
        self._rests = bool(why)
        return self._rests

    def _run_round(self, state: State, t: int) -> State:
        self.edges.begin(t)
        self._report("running")
        if (worker := self._new_worker()) is not None:
            worker.buffers = self._worker.buffers
            self._worker = worker
        algorithm = self.plan.algorithm
        neighbours = self.edges.neighbours(t)
        gradient = _NodeGradient(self._worker, t, around=self._step)
        state = algorithm.next_state(state, gradient, self.pace.mix(t), t)
        state = self._good_state(state, t)
        committed_with = self.edges.committed_with
        buffers = {BUFFER + name: b for name, b in self._worker.buffers.items()}
        self.edges.finish(t, {**state, **buffers})
        self.edges.send_models(algorithm.models(state)[0])
        self._log(t + 1, state, neighbours, committed_with)
        return state

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Compute a gradient in this block; a long one is not begun once the node is to stop.

        Raises:
            Stopped: If the node is to stop, and the last gradient took long.
        """
        if self._gradient_seconds > _LONG_SECONDS and self._stopped.is_set():
            raise Stopped
        begin = self._clock.monotonic()
        yield
        self._gradient_seconds = self._clock.monotonic() - begin

    def _first_state(self, stopped: StopSignal) -> State:
        """Return the state to resume from: that on disk, or that of a new device."""
        self.pace.check_clock(self._journal.read())
        if not self._transport.neighbours():
            stopped.wait(min(1.0, self._fleet.slot))  # time to find the first neighbours
        state = self.edges.start(self._new_state, self.pace.first_round())
        self._check_fits(state)
        return self._restored(state)

    def _check_fits(self, state: State) -> None:
        """Refuse the state of another model or method, which an older version has written."""
        for name, x in self.plan.algorithm.first_state(self._worker.start()).items():
            if name not in state or state[name].shape != x.shape:
                raise DataError(
                    f"{self._folder} has the state of another model or method: give the device an"
                    " empty folder, and it starts as a new one"
                )

    def _new_state(self) -> State:
        """Return the initial state: the start that all share, or late a neighbour's model."""
        state = self.plan.algorithm.first_state(self._worker.start())
        if self._fleet.join == "own" or not self.pace.may_join_others():
            return state
        self._report("joining")
        model = self.edges.request_model(self.pace.join_until())
        own = self.plan.algorithm.models(state)
        if model is not None and not is_too_long(model, own, self._fleet.guard or math.inf):
            return with_model(self.plan.algorithm, state, model)
        return state

    def _good_state(self, state: State, t: int) -> State:
        """Return a state that is finite: this one, or an earlier one if the model diverged."""
        everything = {**state, **{BUFFER + name: b for name, b in self._worker.buffers.items()}}
        if is_finite(everything):
            self._recovery.keep(t, everything)
            return state
        earlier = self._recovery.fall_back(t)
        if earlier is None:
            self._report("diverged")
            raise Diverged(t + 1, self.edges.device)
        round, everything = earlier
        sentence = f"the model was not finite after round {t + 1}: back to that of round {round}"
        self._notices.add("diverged", self.edges.device, sentence)
        return self._restored(everything)

    def _restored(self, everything: State) -> State:
        """Return the state of the algorithm, and restore the buffers of the model beside it."""
        for name, b in self._worker.buffers.items():
            if BUFFER + name in everything:
                b.copy_(everything[BUFFER + name])
        return {name: x for name, x in everything.items() if not name.startswith(BUFFER)}

    def _note_refused(self, sender: int, reason: str) -> None:
        kind, words = _REFUSALS.get(reason, ("refused", f"sends invalid messages: {reason}"))
        self._notices.add(kind, sender, f"device {sender} {words}")

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
            **self.pace.log_entry(done),
        }
        every = self.plan.measure.every
        if done == self.plan.rounds or (every and done % every == 0):
            scores = self._worker.scores(self.plan.algorithm.models(state), self.plan.metrics)
            metrics = {name: value.item() for name, value in scores.metrics.items()}
            self._scores = {"loss": scores.loss.item(), "metrics": metrics}
            line |= self._scores
            size = self.plan.task.learner.parameters * self._dtype.itemsize
            if model := self._history.reserve(done, size):
                self._write_model(model, state, PRIVATE_MODE)
        path = self._folder / files.LOG
        with os_errors("write", path), self._disk.append(path, PUBLIC_MODE) as file:
            file.write(json.dumps(line).encode() + b"\n")
        if done:
            self._report("running", near=sorted(neighbours), met=sorted(committed_with))

    def _write_current_model(self, state: State) -> None:
        """Write the model for other programs of the device, every few rounds."""
        every = self._fleet.model_every
        self._rounds_run += 1
        if every and self._rounds_run % every == 0:
            self._write_model(self._folder / files.MODEL, state)

    def _write_model_of_journal(self) -> None:
        """Write the model of the last round that is over."""
        checkpoint = self._journal.read()
        if checkpoint is not None:
            with torch.no_grad():
                state = self._restored(checkpoint.state)
                self._write_model(self._folder / files.MODEL, state)

    def _write_model(self, path: Path, state: State, mode: int = PUBLIC_MODE) -> None:
        from safetensors.torch import save

        models = self.plan.algorithm.models(state)
        tensors = {}
        for name, x in (self.plan.task.learner.unstack(models) | self._worker.buffers).items():
            tensors[name] = x[0].contiguous()
        content = save(tensors, {"format": "pt", "round": str(self.edges.round)})
        # Synced before it gets its name: others read it after a power failure, too.
        write_atomically(path, content, mode=mode, sync=self._fleet.sync, disk=self._disk)

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
            "notices": self._notices.entries(),
            "time": self._clock.time(),
        }
        data = json.dumps(status).encode()
        write_atomically(self._folder / files.STATUS, data, sync=False, disk=self._disk)
        self._on_status(status)


@dataclass(frozen=True)
class _NodeGradient(BatchGradient):
    """The gradients of a round of a node.

    Args:
        around: Returns the block in which each is computed.
    """

    around: Callable[[], AbstractContextManager[None]] = nullcontext

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        with self.around():
            return super().__call__(w, step, rows)


class _History:
    """The models that a device keeps of the rounds that are measured: the newest ones, up to a
    number of bytes.
    """

    def __init__(self, folder: Path, megabytes: float, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self._limit = 1e6 * megabytes
        history = folder / files.HISTORY
        remove_partial_files(history, disk)
        self._sizes: dict[Path, int] = {}  # the oldest first
        with os_errors("read", history):
            for file in sorted(disk.files(history), key=lambda path: (len(path.name), path.name)):
                self._sizes[file] = disk.size(file)

    def reserve(self, t: int, size: int) -> Path | None:
        """Remove the oldest models until there is room for that after t rounds.

        Args:
            t: Number of rounds.
            size: Bytes of the model.

        Returns:
            Its file; None if the model alone exceeds the limit.
        """
        path = files.history_file(self._folder, t)
        self._sizes.pop(path, None)
        while self._sizes and sum(self._sizes.values()) + size > self._limit:
            oldest = next(iter(self._sizes))
            with os_errors("remove", oldest), suppress(FileNotFoundError):
                self._disk.remove(oldest)
            del self._sizes[oldest]
        if size > self._limit:
            return None
        self._sizes[path] = size
        with os_errors("make", path.parent):
            self._disk.make_folder(path.parent)
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
