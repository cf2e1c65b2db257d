"""The Ray engine: the devices in shards, each an actor on a cluster, all with the same algorithm.

Ray places and monitors the shards. The rows themselves go from shard to shard by gloo or shared
memory, and only those that a neighbour in another shard needs. Each shard computes links, weights
and batches by itself, since all draws are by name; so one call of the driver runs many rounds. When
a shard is lost, all shards are started again from the last checkpoint, as a new group: messages of
an earlier group cannot reach it.
"""

from __future__ import annotations

import queue
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import ray
import torch
from torch import Tensor

from gossamer._core.spread import Spread
from gossamer.engines.observer import Observer
from gossamer.engines.plan import Parts, Plan, Record, Snapshot
from gossamer.engines.ray.actors import ShardActors, ShardInputs, ShardLost, StateLost, raise_first
from gossamer.engines.ray.cluster import connect, sending_code
from gossamer.engines.ray.partition import partition
from gossamer.engines.ray.placement import Request
from gossamer.engines.ray.state import KeptState, ShardParts, shared_tensors, to_arrays
from gossamer.errors import InputError, Lost
from gossamer.network.base import FloatArray, IntArray

if TYPE_CHECKING:
    from gossamer.engines.settings import Ray

# Duration of one call of the driver, and so the delay until Ctrl-C is handled.
_CALL_SECONDS = 0.4
_MAX_LOSSES = 3  # losses in a row, without a checkpoint in between
# Period of checking whether shards that share a place can be placed apart.
_ROOM_CHECK_SECONDS = 10.0
_CHECKPOINT_SHARE = 1 / 20  # largest share of the time spent on checkpoints

Result = TypeVar("Result")


class RayEngine:
    """Runs a plan on a Ray cluster. What it returns covers all devices, like the simulator's.

    Args:
        plan: What to run.
        settings: The cluster and the number of shards.
        snapshot: The state to start from; None: the initial one.
        observer: Receives a message when shards are lost and replaced.

    Raises:
        InputError: If there is no cluster, or no room on it.

    Example:
        >>> engine = Ray(shards=2).start(plan)  # doctest: +SKIP
        >>> engine.advance(100)                 # doctest: +SKIP
    """

    def __init__(
        self,
        plan: Plan,
        settings: Ray,
        snapshot: Snapshot | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.round = 0
        if snapshot is not None:
            self.round = snapshot.round
        self._observer = observer or Observer()
        self._resumed = snapshot is not None
        self._checkpoint: KeptState | None = None
        self._checkpoint_time = time.monotonic()
        self._checkpoint_seconds = 0.0  # duration of the last checkpoint
        self._rounds_per_call = 1
        self._seconds_per_round = 0.0
        self._losses = 0  # losses since a round was reached or kept for the first time
        self._share = 1  # number of shards per place
        self._room_checked = 0.0
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()  # filled by any thread
        self._shared = shared_tensors(plan)
        with ExitStack() as cleanup:
            folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="gossamer-"))
            cleanup.enter_context(connect(settings, plan.task.devices, self._messages.put))
            self._request = Request.of(settings, plan)
            self.owner = partition(plan.network, self._request.shards, plan.rounds)
            with sending_code(settings):
                inputs = ShardInputs.put(plan, self.owner)
            if snapshot is not None:
                self._checkpoint = self._kept(snapshot)
                del snapshot
            self._actors = ShardActors(
                inputs, settings, self._request, Path(folder), self._observer.message
            )
            cleanup.callback(self._actors.stop)
            try:
                self._start()
            except ShardLost as lost:
                self._replace(str(lost))
            self._pass_messages()
            self._cleanup = cleanup.pop_all()

    def advance(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        while self.round < until and not stop():
            goal = min(until, self.round + self._rounds_per_call)
            self._with_replacement(self._advance_to, goal)
            self.round = goal
            self._losses = 0
            self._checkpoint_if_due(self.settings.checkpoint)
            self._spread_if_possible()
            self._pass_messages()

    def _pass_messages(self) -> None:
        """Pass what Ray has reported to the observer, which this thread calls."""
        while not self._messages.empty():
            self._observer.message(f"Ray: {self._messages.get()}")

    def _checkpoint_if_due(self, pause: float) -> None:
        """Take a checkpoint after a pause, or a longer one if checkpoints take long."""
        since = time.monotonic() - self._checkpoint_time
        if since > max(pause, self._checkpoint_seconds / _CHECKPOINT_SHARE):
            self._with_replacement(self._take_checkpoint)

    def record(self) -> Record:
        records: list[Record] = self._with_replacement(self._record)
        scorer = records[self.owner[0]]  # the shard that scores the merged model
        merged: dict[str, Any] = {"devices": self.plan.measured_devices}
        counts = [record.weights for record in records if record.weights is not None]
        merged["weights"] = np.sum(counts, axis=0)
        if scorer.spreads:
            spreads = {}
            for name in scorer.spreads:
                spreads[name] = Spread.merged([record.spreads[name] for record in records])
            merged["spreads"] = spreads
        else:
            for name in ("distance", "power_distance"):
                merged[name] = self._merged([getattr(record, name) for record in records])
        if "loss" not in scorer.spreads:
            merged["loss"] = self._of_measured([record.loss for record in records])
        metrics = {}
        for name in scorer.metrics:
            metrics[name] = self._of_measured([record.metrics[name] for record in records])
        return replace(scorer, metrics=metrics, **merged)

    def _of_measured(self, values: list[FloatArray]) -> FloatArray:
        """Return one value per measured device from those of the shards."""
        sample = self.plan.measured_devices
        if sample is None:
            merged: FloatArray = self._merged(values)
            return merged
        # Each shard has its part of the sample in ascending order.
        order = np.argsort(self.owner[sample], kind="stable")
        result = np.empty(len(sample))
        result[order] = np.concatenate(values)
        return result

    def _record(self) -> list[Record]:
        records = self._call("record")
        raise_first(records)
        return records

    def models(self) -> Tensor:
        models: Tensor = self._merged(self._with_replacement(self._call, "models"))
        return models

    def state_dict(self) -> dict[str, Tensor]:
        return self._merged_by_name(self._with_replacement(self._call, "state_dict"), shared=set())

    def snapshot(self, copy: bool = True) -> Snapshot:
        """Return the state, which any engine can resume.

        Args:
            copy: Not used: the state is gathered from the shards anyway.
        """
        snapshots: list[Snapshot] = self._with_replacement(self._call, "snapshot")
        tensors = self._merged_by_name([part.tensors for part in snapshots], self._shared)
        return replace(snapshots[0], tensors=tensors)

    def parts(self, what: Literal["state", "models"]) -> Parts | None:
        """Return the state or the models, which the shards write to a file.

        Args:
            what: Which of the two.
        """
        shared = self._shared if what == "state" else set()
        return ShardParts(self._actors, self.owner, what, shared, self._with_replacement)

    def _take_checkpoint(self) -> None:
        """Keep the state in the object store. Lost shards are restored from it."""
        began = time.monotonic()
        kept = self._actors.keep()
        if kept.snapshot.round > self._checkpoint_round:
            self._losses = 0
        self._checkpoint = kept
        self._checkpoint_time = time.monotonic()
        self._checkpoint_seconds = self._checkpoint_time - began

    @property
    def _checkpoint_round(self) -> int:
        """The round of the checkpoint; 0 if there is none."""
        if self._checkpoint is None:
            return 0
        return self._checkpoint.snapshot.round

    def close(self) -> None:
        """Stop the shards, and the cluster if it was started for this run."""
        self._cleanup.close()

    # -- calls that survive the loss of a shard ---------------------------------------------------

    def _with_replacement(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function; if a shard is lost, start all shards again and repeat the call."""
        while True:
            try:
                return call(*arguments)
            except ShardLost as lost:
                self._replace(str(lost))

    def _replace(self, reason: str) -> None:
        """Start all shards from the checkpoint and repeat the rounds since then.

        The rounds that are repeated are kept as soon as that is cheap, so that losses during the
        repetition do not start it from the beginning.
        """
        while True:
            since = self._checkpoint_round
            self._observer.message(
                f"after round {self.round}: {reason}; all shards restarted from round {since}"
            )
            self._actors.stop()
            self._losses += 1
            if self._losses > _MAX_LOSSES:
                raise Lost(
                    f"shards were lost {self._losses} times without a new round in between, "
                    f"the last time: {reason}; --resume continues the run"
                )
            try:
                self._restart(reason)
                self._repeat(since)
                return
            except StateLost as lost:
                reason = str(lost)
                if self._resumed:
                    raise Lost(f"{reason}; --resume continues the run") from None
                self._checkpoint = None
            except ShardLost as lost:
                reason = str(lost)

    def _restart(self, reason: str) -> None:
        """Start the shards again; if there is no room for each, let several share a place."""
        try:
            self._start()
        except InputError as no_room:
            share = self._request.least_share()
            if share is None or share <= self._share:
                raise Lost(
                    f"{reason}, and the cluster has no room for a replacement: "
                    f"{no_room.accepted}; --resume continues the run"
                ) from None
            self._share = share
            self._observer.message(
                f"the cluster has no room for {self._request.shards} shards any more: up to "
                f"{share} share the place of one until there is"
            )
            self._start()

    def _repeat(self, since: int) -> None:
        """Repeat the rounds up to the one that was reached, and keep them on the way."""
        reached = self.round
        for goal in [*range(since + 1, reached, self._rounds_per_call), reached]:
            self._advance_to(goal)
            if goal < reached:
                pause = self._checkpoint_seconds / _CHECKPOINT_SHARE
                if time.monotonic() - self._checkpoint_time > pause:
                    self._take_checkpoint()

    def _spread_if_possible(self) -> None:
        """Give every shard a place of its own again, once the cluster has room."""
        now = time.monotonic()
        if self._share == 1 or now - self._room_checked < _ROOM_CHECK_SECONDS:
            return
        self._room_checked = now
        held = -(-self._request.shards // self._share)
        if self._request.free_places() < self._request.shards - held:
            return
        self._with_replacement(self._take_checkpoint)
        self._share = 1
        self._observer.message(
            f"after round {self.round}: the cluster has room again; "
            f"all {self._request.shards} shards have a place of their own"
        )
        self._actors.stop()
        self._with_replacement(self._restart, "the shards were moved")

    def _start(self) -> None:
        """Start the shards from the checkpoint."""
        self._actors.start(self._checkpoint, self._share)

    def _advance_to(self, goal: int) -> None:
        """Run all shards up to a round, and set how many rounds the next call runs."""
        began = time.monotonic()
        raise_first(self._call("advance", goal))
        rounds = goal - self.round
        if rounds > 0:
            self._seconds_per_round = (time.monotonic() - began) / rounds
            fitting = int(_CALL_SECONDS / self._seconds_per_round)
            self._rounds_per_call = max(1, min(2 * self._rounds_per_call, fitting))

    def _call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every shard with the same arguments."""
        return self._actors.call(method, [arguments] * self._shards)

    # -- rows of the shards and rows of all devices -----------------------------------------------

    @property
    def _shards(self) -> int:
        return int(self.owner.max()) + 1

    def _devices(self, number: int) -> IntArray:
        return np.flatnonzero(self.owner == number)

    def _kept(self, snapshot: Snapshot) -> KeptState:
        """Copy a snapshot of all devices into the object store, in parts."""
        parts = []
        for number in range(self._shards):
            rows = torch.from_numpy(self._devices(number))
            tensors = {}
            for name, x in snapshot.tensors.items():
                tensors[name] = x if name in self._shared else x[rows]
            parts.append(ray.put(to_arrays(tensors)))
        return KeptState(replace(snapshot, tensors={}), parts)

    def _merged(self, values: list[Any]) -> Any:
        """Return one array or tensor of all devices from those of the shards."""
        first = values[0]
        shape = (self.plan.task.devices, *first.shape[1:])
        if isinstance(first, Tensor):
            merged: Any = first.new_empty(shape)
        else:
            merged = np.empty(shape, first.dtype)
        for number, rows in enumerate(values):
            merged[self._devices(number)] = rows
        return merged

    def _merged_by_name(
        self, parts: list[dict[str, Tensor]], shared: set[str]
    ) -> dict[str, Tensor]:
        merged = {}
        for name, x in parts[0].items():
            if name not in shared:
                x = self._merged([part[name] for part in parts])
            merged[name] = x
        return merged
