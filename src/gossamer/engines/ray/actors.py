"""The shard actors as the driver sees them: start them, call them all, stop them."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gossamer import backend
from gossamer.engines.plan import Plan, Snapshot
from gossamer.engines.ray import shared_memory
from gossamer.engines.ray.actor import Host, Rendezvous, ShardActor
from gossamer.engines.ray.cluster import reserve_cpus
from gossamer.engines.ray.exchange import Disconnected
from gossamer.errors import Diverged, GossamerError, Lost
from gossamer.network.base import IntArray

if TYPE_CHECKING:
    from gossamer.engines.settings import Ray

_LOAD_SECONDS = 120.0  # for a shard's process to start and to import torch, whatever `wait` says
_NOTICE_SECONDS = 5.0  # for Ray to notice that an actor is gone, once another has lost contact
_POLL_SECONDS = 1.0


class ShardLost(Exception):
    """A shard is gone, or does not answer."""


@dataclass(frozen=True)
class ShardInputs:
    """What the actors are constructed from, in Ray's object store.

    It stays there for the whole run, so that the samples of a shard are sent once, and a
    replacement finds them.
    """

    owner: IntArray
    plans: list[Any]
    test: Any
    backend: dict[str, str]

    @classmethod
    def put(cls, plan: Plan, owner: IntArray) -> ShardInputs:
        """Store one plan per shard, with the samples of its devices, and the test samples once."""
        data = plan.task.data
        without_test = replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0])
        task = replace(plan.task, data=without_test)
        plans = []
        for number in range(int(owner.max()) + 1):
            devices = np.flatnonzero(owner == number)
            plans.append(ray.put(replace(plan, task=task.only(devices))))
        # All shards compute with the implementations of the driver, so that they round alike.
        return cls(owner, plans, ray.put((data.x_test, data.y_test)), backend.choices())


@dataclass(eq=False)
class ShardActors:
    """The actors of one start. After a loss all of them are stopped and started again.

    Args:
        inputs: What they are constructed from.
        settings: The settings of the engine.
        folder: A folder of this machine, for the rendezvous of a local cluster.
    """

    inputs: ShardInputs
    settings: Ray
    folder: Path
    _handles: list[Any] = field(default_factory=list)
    _placement: Any = None
    _name: str = "gossamer-none"

    def start(self, snapshots: list[Snapshot | None]) -> None:
        """Start the actors and connect them.

        Args:
            snapshots: The state per shard, or None for the initial one.

        Raises:
            ShardLost: If one is lost meanwhile.
            InputError: If the cluster has no room for them.
        """
        count = len(self.inputs.plans)
        self._placement = reserve_cpus(count, self.settings.wait)
        actor = ray.remote(ShardActor)
        for number, plan in enumerate(self.inputs.plans):
            bundle = PlacementGroupSchedulingStrategy(self._placement, number)
            options = actor.options(num_cpus=1, max_restarts=0, scheduling_strategy=bundle)
            inputs = self.inputs
            handle = options.remote(plan, inputs.test, inputs.owner, number, inputs.backend)
            self._handles.append(handle)
        hosts: list[Host] = self.call("host", timeout=max(_LOAD_SECONDS, self.settings.wait))
        self._name = f"gossamer-{secrets.token_hex(8)}"
        rendezvous = self._rendezvous(hosts)
        arguments = [(rendezvous, snapshot) for snapshot in snapshots]
        raise_first(self.call("join", arguments, timeout=self.settings.wait))

    def _rendezvous(self, hosts: list[Host]) -> Rendezvous:
        wait = self.settings.wait
        if not self.settings.address:  # all on this machine
            return Rendezvous(self._name, hosts, str(self.folder / self._name), 0, wait)
        try:
            first = self._handles[0]
            port = ray.get(first.serve_store.remote(hosts[0].address, wait), timeout=wait)
        except (RayActorError, GetTimeoutError):
            raise ShardLost(f"shard 0 of {len(hosts)} was lost") from None
        return Rendezvous(self._name, hosts, "", port, wait)

    def stop(self) -> None:
        """Stop the actors, whatever they are doing."""
        with suppress(RayError, ValueError, RuntimeError):
            for handle in self._handles:
                ray.kill(handle)
            if self._placement is not None:
                remove_placement_group(self._placement)
        self._handles = []
        self._placement = None
        shared_memory.remove_buffers(self._name)

    def call(
        self, method: str, arguments: list[tuple[Any, ...]] | None = None, *, timeout: float
    ) -> list[Any]:
        """Call a method of every actor and wait for all results.

        Args:
            method: Name of the method.
            arguments: Arguments per shard; None: the method takes none.
            timeout: Most seconds to wait.

        Returns:
            The result of each shard.

        Raises:
            ShardLost: If a shard is lost, cut off, or does not answer in time.
            Lost: If the cluster is gone.
        """
        if arguments is None:
            arguments = [()] * len(self._handles)
        numbers: dict[Any, int] = {}
        for number, handle in enumerate(self._handles):
            numbers[getattr(handle, method).remote(*arguments[number])] = number
        results: dict[int, Any] = {}
        disconnected: int | None = None
        pending = list(numbers)
        deadline = time.monotonic() + timeout
        while pending:
            left = deadline - time.monotonic()
            done, pending = ray.wait(pending, timeout=max(0.0, min(_POLL_SECONDS, left)))
            for call in done:
                number = numbers[call]
                try:
                    results[number] = self._result(call, number)
                except Disconnected:
                    # Another shard may be gone, which Ray will report: that is the better message.
                    if disconnected is None:
                        disconnected = number
                    deadline = min(deadline, time.monotonic() + _NOTICE_SECONDS)
            if pending and not done and time.monotonic() >= deadline:
                break
        if disconnected is not None:
            raise ShardLost(f"shard {disconnected} was disconnected from another shard")
        if pending:
            silent = ", ".join(str(numbers[call]) for call in pending)
            raise ShardLost(f"no answer from shard {silent} for {timeout:g} s (engine.wait)")
        return [results[number] for number in range(len(numbers))]

    def _result(self, call: Any, number: int) -> Any:
        """Return the result of a finished call, or raise what ended it."""
        try:
            return ray.get(call)
        except RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise
        except RayActorError:
            raise ShardLost(f"shard {number} of {len(self._handles)} was lost") from None
        except RayError as error:
            reason = str(error).splitlines()[0]
            raise Lost(f"the Ray cluster is gone: {reason}; --resume continues the run") from None


def raise_first(errors: list[Any]) -> None:
    """Raise the error that came first, if there is any.

    Of several divergences this is the one of the earliest round; within a round a device that
    diverged by itself comes before one that received values which are not finite.

    Args:
        errors: One result per shard; those that are errors count.
    """
    found = [error for error in errors if isinstance(error, GossamerError)]
    if found:
        raise min(found, key=_order)


def _order(error: GossamerError) -> tuple[int, bool, int]:
    if isinstance(error, Diverged):
        return error.round, error.received, error.device
    return -1, False, 0
