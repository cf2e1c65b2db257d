"""The life of one device: rounds on a clock that all share, its own data, its own disk, whatever the links do.

kept, promised      the journal: from it a device that was killed goes on
log.jsonl           a line a round: who was met, what was sent, and what was measured
history/            its models of the rounds that were measured, as long as there is room
model.safetensors   at the end
status.json         how it is now
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer._core.files import write_atomically
from gossamer.algorithms import State
from gossamer.engines.plan import Plan
from gossamer.engines.simulate import BatchGradient
from gossamer.errors import Diverged
from gossamer.fleet.edges import Edges
from gossamer.fleet.journal import Exchange, Journal
from gossamer.fleet.mix import PeerMix, check_runs_on_devices, shapes
from gossamer.fleet.settings import Fleet
from gossamer.fleet.transport import Transport
from gossamer.fleet.wire import Expected, Kind
from gossamer.tasks.task import Worker

LOG, STATUS, MODEL, HISTORY = "log.jsonl", "status.json", "model.safetensors", "history"
_BUFFER = "buffer/"
_EXCHANGING = (
    0.9  # the share of a slot by which its last exchange is over; the rest is for the step
)
_ASKING = 3  # slots in which a late device looks for a model: an answer comes at the end of a round


@dataclass(frozen=True)
class Slots:
    """When rounds are: round t begins at start + t·seconds; it has `parts` exchanges. `ahead` is added to this device's clock.

    >>> slots = Slots(start=1000.0, seconds=2.0, parts=2)
    >>> slots.begins(3), slots.at(1007.9), slots.until((3, 0)), slots.until((3, 1))
    (1006.0, 3, 1006.9, 1007.8)
    """

    start: float  # seconds since 1970
    seconds: float
    parts: int
    ahead: float = 0.0

    def now(self) -> float:
        return time.time() + self.ahead

    def begins(self, t: int) -> float:
        return self.start + t * self.seconds

    def at(self, when: float) -> int:
        return math.floor((when - self.start) / self.seconds)

    def until(self, exchange: Exchange) -> float:
        t, part = exchange
        return self.begins(t) + _EXCHANGING * self.seconds * (part + 1) / self.parts


class Node:
    """One device of a plan. `plan.task` needs to hold the samples of this device alone.

        node = Node(plan, 3, transport, folder, run, fleet, start)
        node.live(stopped)

    `told` is given the status after every round, and whenever it changes. `worker` is `worker_of` the plan, if it is made
    already.
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
        told: Callable[[dict[str, Any]], None] = lambda status: None,
        worker: Worker | None = None,
    ) -> None:
        check_runs_on_devices(plan.algorithm)
        torch.set_num_threads(plan.threads or 1)
        self.plan, self._fleet, self._folder, self._told = plan, fleet, folder, told
        self._dtype = getattr(torch, plan.dtype)
        self._worker = worker or worker_of(plan, transport.device)
        parts = shapes(plan.algorithm, self._worker.start())
        self.slots = Slots(start, fleet.slot, max(1, len(parts)), clock)
        expected = Expected(
            run,
            frozenset(Kind),
            parts,
            getattr(torch, fleet.wire),
            fleet.bound,
            start=(plan.task.learner.parameters,),
        )
        self._transport = transport
        self.edges = Edges(transport, Journal(folder, fleet.sync), expected, self.slots.now)
        self._kept_bytes = 0
        self._before = _last_line(folder / LOG)  # of an earlier life, whose counts go on
        self._last: dict[str, Any] = {}  # the newest measurement

    def live(self, stopped: threading.Event) -> bool:
        """Take part from now on, until the rounds are done or it is to stop; whether they are done. Goes on where it was."""
        self._tell("waiting")
        with torch.no_grad():
            state = self._begin(stopped)
            if self.edges.round == 0:
                self._log(0, state, frozenset(), frozenset())
            for t in self._rounds(stopped):
                self._tell("running")
                near = self.edges.near(t)
                mix = PeerMix(
                    self.edges, self.plan.algorithm.weights, t, self.plan.seed, self.slots.until
                )
                state = self.plan.algorithm.round(state, BatchGradient(self._worker, t), mix, t)
                self._check_finite(state, t)
                met = self.edges.met
                self.edges.finish(
                    t, {**state, **{_BUFFER + name: b for name, b in self._worker.buffers.items()}}
                )
                self.edges.give(self.plan.algorithm.models(state)[0])
                self._log(t + 1, state, near, met)
            done = self.edges.round >= self.plan.rounds
            if done:
                self._write_model(self._folder / MODEL, state)
        self.edges.leave()
        self._tell("done" if done else "stopped")
        return done

    def _begin(self, stopped: threading.Event) -> State:
        """The state to go on from: what is on disk; before round 0 the shared start; later a neighbour's model, or that."""
        stopped.wait(
            0 if self._transport.neighbours() else min(1.0, self._fleet.slot)
        )  # to find the first neighbours
        state = self.edges.start(self._new, max(0, self.slots.at(self.slots.now()) + 1))
        for name, b in self._worker.buffers.items():
            if _BUFFER + name in state:
                b.copy_(state[_BUFFER + name])
        return {name: x for name, x in state.items() if not name.startswith(_BUFFER)}

    def _new(self) -> State:
        state = self.plan.algorithm.init(self._worker.start())
        late = self.slots.now() >= self.slots.begins(0) + _EXCHANGING * self._fleet.slot
        if not late or self._fleet.join == "own":
            return state
        self._tell("joining")
        model = self.edges.ask(self.slots.now() + _ASKING * self._fleet.slot)
        if model is not None:  # models are what is mixed, up to a start that all share
            state["w"] = state["w"] + (
                model.to(self._dtype)[None] - self.plan.algorithm.models(state)
            )
        return state

    def _rounds(self, stopped: threading.Event) -> Iterator[int]:
        """The rounds to take part in, each when it begins. One that is nearly over when its turn comes is left out."""
        while not stopped.is_set():
            t = max(self.edges.round, self.slots.at(self.slots.now()))
            if self.slots.now() >= self.slots.until((t, 0)):
                t += 1
            if t >= self.plan.rounds:
                self.edges.round = max(self.edges.round, self.plan.rounds)
                return
            self.edges.counts["missed"] += t - self.edges.round
            if not stopped.wait(max(0.0, self.slots.begins(t) - self.slots.now())):
                yield t

    def _check_finite(self, state: State, t: int) -> None:
        for x in state.values():
            if not torch.isfinite(x).all():
                self._tell("diverged")
                raise Diverged(t + 1, self.edges.device)

    # -- what others can see -----------------------------------------------------------------------------------------

    def _log(self, done: int, state: State, near: frozenset[int], met: frozenset[int]) -> None:
        """A line about the round that was the `done`th; with measurements where the plan wants them."""
        counts, every = self.edges.counts, self.plan.measure.every
        line: dict[str, Any] = {"round": done, "near": sorted(near), "met": sorted(met)}
        for key, name in (("messages", "sent"), ("bytes", "bytes sent")):
            line[key] = counts[name] + self._before.get(key, 0)
        line |= {"late": self.slots.now() > self.slots.begins(done)}
        if done == self.plan.rounds or (every and done % every == 0):
            scores = self._worker.scores(self.plan.algorithm.models(state))
            self._last = {"accuracy": scores.accuracy.item(), "loss": scores.loss.item()}
            line |= self._last
            self._remember(done, state)
        with (self._folder / LOG).open("a") as file:
            file.write(json.dumps(line) + "\n")
        if done:
            self._tell("running", near=sorted(near), met=sorted(met))

    def _remember(self, done: int, state: State) -> None:
        folder = self._folder / HISTORY
        if not self._kept_bytes and folder.is_dir():
            self._kept_bytes = sum(file.stat().st_size for file in folder.iterdir())
        size = self.plan.task.learner.parameters * self._dtype.itemsize
        if self._kept_bytes + size <= 1e6 * self._fleet.history:
            folder.mkdir(exist_ok=True)
            self._write_model(folder / f"{done:06}.safetensors", state)
            self._kept_bytes += size

    def _write_model(self, path: Path, state: State) -> None:
        from safetensors.torch import save

        parts = (
            self.plan.task.learner.unstack(self.plan.algorithm.models(state)) | self._worker.buffers
        )
        content = save({name: part[0].contiguous() for name, part in parts.items()})
        write_atomically(path, content, sync=False)

    def _tell(self, doing: str, **more: Any) -> None:
        status = {
            "device": self.edges.device,
            "doing": doing,
            "round": self.edges.round,
            "rounds": self.plan.rounds,
            "near": sorted(self._transport.neighbours()),
            **more,
            **self._last,
            "pending": len(self.edges.pending),
            "counts": dict(self.edges.counts),
            "time": time.time(),
        }
        write_atomically(self._folder / STATUS, json.dumps(status).encode(), sync=False)
        self._told(status)


def worker_of(plan: Plan, device: int) -> Worker:
    """What trains and scores a device: it has the samples in its own form."""
    return plan.task.worker(
        np.array([device]),
        plan.seed,
        getattr(torch, plan.dtype),
        torch.device("cpu"),
        plan.measure.test,
    )


def _last_line(path: Path) -> dict[str, Any]:
    """The last line of a log, if it is whole."""
    if path.exists():
        for text in reversed(path.read_text(errors="replace").splitlines()):
            with suppress(ValueError):
                return dict(json.loads(text))
    return {}


def models(path: Path) -> dict[str, Tensor]:
    """What `Node` has written as a model."""
    from safetensors.torch import load_file

    return dict(load_file(path))
