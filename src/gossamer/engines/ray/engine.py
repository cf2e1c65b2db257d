"""The Ray engine: the devices in shards, each an actor on a cluster, all with the same algorithm.

Ray places and monitors the shards. The rows themselves go from shard to shard by gloo or shared
memory, and only those that a neighbour in another shard needs. Each shard computes links, weights
and batches by itself, since all draws are by name; so one call of the driver runs many rounds. When
a shard is lost, all shards are started again from the last checkpoint, as a new group: messages of
an earlier group cannot reach it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import ray
import torch
from torch import Tensor

from gossamer.engines.observer import Observer
from gossamer.engines.plan import Plan, Record, Snapshot
from gossamer.engines.ray.actors import ShardActors, ShardInputs, ShardLost, raise_first
from gossamer.engines.ray.cluster import connect
from gossamer.engines.ray.partition import partition
from gossamer.engines.simulate import CLOCK
from gossamer.errors import InputError, Lost
from gossamer.network.base import FloatArray, IntArray

if TYPE_CHECKING:
    from gossamer.engines.settings import Ray

_CALL_SECONDS = 0.4  # duration of one call of the driver, and so the delay until Ctrl-C is handled
_SLOWEST = 20  # a call may take this many times as long as the last one predicts
_MAX_STARTS = 3  # without a round in between
_CHECKPOINT_SHARE = 1 / 20  # of the time, at most, goes into checkpoints

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
        self._checkpoint = snapshot
        self._checkpoint_time = time.monotonic()
        self._checkpoint_seconds = 0.0  # that the last checkpoint took
        self._rounds_per_call = 1
        self._seconds_per_round = 0.0
        self._failed_starts = 0
        self._shared = _shared_tensors(plan)
        with ExitStack() as cleanup:
            folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="gossamer-"))
            cleanup.enter_context(connect(settings, plan.task.devices))
            cpus = int(ray.cluster_resources().get("CPU", 1))
            count = min(settings.shards or cpus, plan.task.devices)
            self.owner = partition(plan.network, count, plan.rounds)
            inputs = ShardInputs.put(plan, self.owner)
            self._actors = ShardActors(inputs, settings, Path(folder))
            cleanup.callback(self._actors.stop)
            try:
                self._start()
            except ShardLost as lost:
                self._replace(str(lost))
            self._cleanup = cleanup.pop_all()

    def advance(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        while self.round < until and not stop():
            goal = min(until, self.round + self._rounds_per_call)
            self._with_replacement(self._advance_to, goal)
            self.round = goal
            self._failed_starts = 0
            since = time.monotonic() - self._checkpoint_time
            pause = max(self.settings.checkpoint, self._checkpoint_seconds / _CHECKPOINT_SHARE)
            if since > pause:
                self.snapshot()

    def record(self) -> Record:
        records: list[Record] = self._with_replacement(self._record)
        arrays = {}
        for name in ("distance", "power_distance"):
            arrays[name] = self._merged([getattr(record, name) for record in records])
        arrays["loss"] = self._of_measured([record.loss for record in records])
        metrics = {}
        for name in records[0].metrics:
            metrics[name] = self._of_measured([record.metrics[name] for record in records])
        scorer = records[self.owner[0]]  # the shard that scores the merged model
        return replace(scorer, metrics=metrics, devices=self.plan.measured_devices, **arrays)

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
        """Return the state, which any engine can resume. Lost shards are restored from it.

        Args:
            copy: Not used: the state is gathered from the shards anyway.
        """
        began = time.monotonic()
        snapshots: list[Snapshot] = self._with_replacement(self._call, "snapshot")
        tensors = self._merged_by_name([part.tensors for part in snapshots], self._shared)
        self._checkpoint = replace(snapshots[0], tensors=tensors)
        self._checkpoint_time = time.monotonic()
        self._checkpoint_seconds = self._checkpoint_time - began
        return self._checkpoint

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
        """Start all shards from the checkpoint and repeat the rounds since then."""
        since = 0
        if self._checkpoint is not None:
            since = self._checkpoint.round
        self._observer.message(
            f"after round {self.round}: {reason}; all shards restarted from round {since}"
        )
        while True:
            self._actors.stop()
            self._failed_starts += 1
            if self._failed_starts > _MAX_STARTS:
                raise Lost(
                    f"shards were lost {_MAX_STARTS} times without a round in between, "
                    f"the last time: {reason}; --resume continues the run"
                )
            try:
                self._start()
                for goal in range(since, self.round, self._rounds_per_call):
                    self._advance_to(goal)
                self._advance_to(self.round)
                return
            except ShardLost as lost:
                reason = str(lost)
            except InputError as no_room:
                raise Lost(
                    f"{reason}, and the cluster has no room for a replacement: "
                    f"{no_room.accepted}; --resume continues the run"
                ) from None

    def _start(self) -> None:
        """Start the shards from the checkpoint."""
        snapshots = []
        for number in range(self._shards):
            snapshots.append(self._part_of_checkpoint(number))
        self._actors.start(snapshots)

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
        predicted = self._rounds_per_call * self._seconds_per_round
        timeout = max(self.settings.wait, _SLOWEST * predicted)
        return self._actors.call(method, [arguments] * self._shards, timeout=timeout)

    # -- rows of the shards and rows of all devices -----------------------------------------------

    @property
    def _shards(self) -> int:
        return int(self.owner.max()) + 1

    def _devices(self, number: int) -> IntArray:
        return np.flatnonzero(self.owner == number)

    def _part_of_checkpoint(self, number: int) -> Snapshot | None:
        """Return the checkpoint with the rows of one shard's devices."""
        if self._checkpoint is None:
            return None
        rows = torch.from_numpy(self._devices(number))
        tensors = {}
        for name, x in self._checkpoint.tensors.items():
            tensors[name] = x if name in self._shared else x[rows]
        return replace(self._checkpoint, tensors=tensors)

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


def _shared_tensors(plan: Plan) -> set[str]:
    """Return the names of the state's tensors that have one row for all devices."""
    dtype = getattr(torch, plan.dtype)
    start = plan.task.learner.init(plan.seed).to(dtype).expand(2, -1)
    state = plan.algorithm.first_state(start)
    return {CLOCK, *(name for name, x in state.items() if len(x) == 1)}
