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
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    RayActorError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
)
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gossamer import backend
from gossamer.engines.plan import Plan, Snapshot
from gossamer.engines.ray import adapter, shared_memory
from gossamer.engines.ray.actor import HEARTBEAT, Host, Rendezvous, ShardActor, versions
from gossamer.engines.ray.cluster import Report
from gossamer.engines.ray.exchange import Disconnected
from gossamer.engines.ray.heartbeat import ControlProcess, Heartbeats, Silent
from gossamer.engines.ray.placement import Request, reserve
from gossamer.engines.ray.state import KeptState
from gossamer.errors import Diverged, GossamerError, Lost
from gossamer.network.base import IntArray

if TYPE_CHECKING:
    from gossamer.engines.settings import Ray

# Timeout for a shard's process to start and import torch, whatever `wait` is.
_LOAD_SECONDS = 600.0
_SAY_SECONDS = 30.0  # duration of a start after which it is reported
# Time for Ray to notice that an actor is gone, once another has lost contact.
_NOTICE_SECONDS = 5.0
_POLL_SECONDS = 1.0
_STATE_LOST = "the machines that had a part of the last checkpoint left the cluster"
_ACTOR: dict[str, Any] = {"concurrency_groups": {HEARTBEAT: 1}}  # missing in Ray's type annotations


class ShardLost(Exception):
    """A shard is gone, or does not answer."""


class StateLost(ShardLost):
    """The last machine that had a part of a checkpoint is gone."""


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
        request: What they reserve.
        folder: A folder of this machine, for the rendezvous of a local cluster.
        report: Called with a sentence if a start takes long.
    """

    inputs: ShardInputs
    settings: Ray
    request: Request
    folder: Path
    report: Report
    _handles: list[Any] = field(default_factory=list)
    _placement: Any = None
    _hosts: list[Host] = field(default_factory=list)
    _control: ControlProcess = field(default_factory=ControlProcess)
    _name: str = "gossamer-none"

    @property
    def count(self) -> int:
        """Number of shards."""
        return len(self.inputs.plans)

    def start(self, kept: KeptState | None, share: int = 1) -> None:
        """Start the actors and connect them.

        Args:
            kept: The state; None: the initial one.
            share: How many shards share what one of them asks for.

        Raises:
            ShardLost: If one is lost meanwhile.
            InputError: If the cluster has no room for them.
            GossamerError: If a shard cannot start.
        """
        self._placement = reserve(self.request, self.settings.wait, self.report, share)
        actor = ray.remote(**_ACTOR)(ShardActor)
        for number, plan in enumerate(self.inputs.plans):
            bundle = PlacementGroupSchedulingStrategy(self._placement, number)
            options = actor.options(
                max_restarts=0, scheduling_strategy=bundle, **self.request.options(share)
            )
            inputs = self.inputs
            handle = options.remote(
                plan,
                inputs.test,
                inputs.owner,
                number,
                inputs.backend,
                self.request.cpus,
                self.settings.exchange_dtype,
            )
            self._handles.append(handle)
        self._hosts = self.call("host", starting=True)
        _check_versions(self._hosts)
        self._name = f"gossamer-{secrets.token_hex(8)}"
        rendezvous = self._rendezvous(self._hosts)
        arguments: list[tuple[Any, ...]] = [(rendezvous, None, None)] * self.count
        if kept is not None:
            # Ray passes the tensors, which the references stand for, from shard to shard.
            arguments = [(rendezvous, kept.snapshot, part) for part in kept.parts]
        raise_first(self.call("join", arguments))

    def keep(self) -> KeptState:
        """Copy the state of all shards into the object store, and each part to a second machine.

        Raises:
            ShardLost: If a shard is lost meanwhile.
            Lost: If the cluster is gone.
        """
        numbers = {}
        parts = []
        for number, handle in enumerate(self._handles):
            snapshot, part = handle.keep.remote()
            numbers[snapshot] = number
            parts.append(part)
        snapshots: list[Snapshot] = self._results(numbers)
        held: list[list[Any]] = [[] for _ in self._handles]
        for number, part in enumerate(parts):
            elsewhere = self._on_next_machine(number)
            if elsewhere is not None:
                held[elsewhere].append(part)
        if any(held):
            self.call("hold", [tuple(several) for several in held])
        return KeptState(snapshots[0], parts)

    def _on_next_machine(self, number: int) -> int | None:
        """Return the next shard after one that runs on another machine; None: there is none."""
        for step in range(1, self.count):
            other = (number + step) % self.count
            if self._hosts[other].address != self._hosts[number].address:
                return other
        return None

    def _rendezvous(self, hosts: list[Host]) -> Rendezvous:
        if not self.settings.address:  # all on this machine
            return Rendezvous(self._name, hosts, str(self.folder / self._name), 0)
        try:
            serving = self._handles[0].serve_store.remote(hosts[0].address)
            port = ray.get(serving, timeout=self.settings.wait)
        except RayActorError as error:
            raise ShardLost(self._lost(0, error)) from None
        except GetTimeoutError:
            raise ShardLost(f"shard 0 of {len(hosts)} does not answer") from None
        return Rendezvous(self._name, hosts, "", port)

    def stop(self) -> None:
        """Stop the actors, whatever they are doing."""
        with suppress(RayError, ValueError, RuntimeError):
            if self._control.gone:  # Ray would wait for it, and end this process
                self._handles = []
                self._placement = None
            for handle in self._handles:
                ray.kill(handle)
            if self._placement is not None:
                remove_placement_group(self._placement)
        self._handles = []
        self._placement = None
        shared_memory.remove_buffers(self._name)

    def call(
        self,
        method: str,
        arguments: list[tuple[Any, ...]] | None = None,
        *,
        starting: bool = False,
    ) -> list[Any]:
        """Call a method of every actor and wait for all results, as long as they are alive.

        Args:
            method: Name of the method.
            arguments: Arguments per shard; None: the method takes none.
            starting: Whether this is the first call, which waits for the processes to start.

        Returns:
            The result of each shard.

        Raises:
            ShardLost: If a shard is lost, cut off, or gives no sign of life.
            GossamerError: If a shard cannot start.
            Lost: If the cluster is gone.
        """
        if arguments is None:
            arguments = [()] * len(self._handles)
        numbers: dict[Any, int] = {}
        for number, handle in enumerate(self._handles):
            numbers[getattr(handle, method).remote(*arguments[number])] = number
        return self._results(numbers, starting)

    def call_checked(self, method: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        """Call a method of every actor; raise the first error that one returns.

        Args:
            method: Name of the method.
            arguments: Arguments per shard.
        """
        results = self.call(method, arguments)
        raise_first(results)
        return results

    def call_one(self, number: int, method: str, *arguments: Any) -> Any:
        """Call a method of one actor, and return its result; see `call`.

        Args:
            number: Number of the shard.
            method: Name of the method.
            *arguments: Its arguments.
        """
        call = getattr(self._handles[number], method).remote(*arguments)
        return self._results({call: number})[0]

    def _results(self, numbers: dict[Any, int], starting: bool = False) -> list[Any]:
        """Wait for calls, and return their results in the order of the shards.

        Args:
            numbers: The shard of each call.
            starting: Whether this is the first call, which waits for the processes to start.
        """
        results: dict[int, Any] = {}
        disconnected: int | None = None
        pending = list(numbers)
        start = _Start(self.report) if starting else None
        heartbeats = Heartbeats(self._handles, self.settings.wait)
        notice = 0.0
        while pending:
            done, pending = ray.wait(pending, timeout=_POLL_SECONDS)
            for call in done:
                number = numbers[call]
                try:
                    results[number] = self._result(call, number)
                except Disconnected:
                    # Another shard may be gone, which Ray will report: that is the better message.
                    if disconnected is None:
                        disconnected = number
                        notice = time.monotonic() + _NOTICE_SECONDS
            if disconnected is not None and not done and time.monotonic() >= notice:
                break
            self._control.check_sometimes()
            working = [numbers[call] for call in pending]
            try:
                if start is not None:
                    start.check(working)
                else:
                    heartbeats.check(working)
            except Silent as silent:
                raise ShardLost(str(silent)) from None
        if disconnected is not None:
            raise ShardLost(f"shard {disconnected} was disconnected from another shard")
        return [results[number] for number in sorted(results)]

    def _result(self, call: Any, number: int) -> Any:
        """Return the result of a finished call, or raise what ended it."""
        try:
            return ray.get(call)
        except RayTaskError as error:
            if isinstance(error.cause, ObjectLostError):
                raise StateLost(_STATE_LOST) from None
            if isinstance(error.cause, Exception):
                if not isinstance(error.cause, Disconnected | GossamerError):
                    error.cause.add_note(f"in {self._named(number)}: {error}")
                raise error.cause from None
            raise
        except RuntimeEnvSetupError as error:
            reason = adapter.cause_in_creation(error)
            raise GossamerError(f"Ray cannot prepare engine.runtime_env: {reason}") from None
        except RayActorError as error:
            if error.actor_init_failed:
                raise GossamerError(self._failed_start(number, error)) from None
            raise ShardLost(self._lost(number, error)) from None
        except ObjectLostError:
            raise StateLost(_STATE_LOST) from None
        except RayError as error:
            reason = str(error).splitlines()[0]
            raise Lost(f"the Ray cluster is gone: {reason}; --resume continues the run") from None

    def _named(self, number: int) -> str:
        return f"shard {number} of {len(self._handles)}"

    def _lost(self, number: int, error: RayActorError) -> str:
        return f"{self._named(number)} was lost: {adapter.cause_of_death(error)}"

    def _failed_start(self, number: int, error: RayActorError) -> str:
        reason = adapter.cause_in_creation(error)
        advice = ""
        if "ModuleNotFoundError" in reason or "ImportError" in reason:
            advice = (
                "; install the module on every machine, or send it: "
                'engine.runtime_env.working_dir = "."'
            )
        return f"{self._named(number)} cannot start: {reason}{advice}"


class _Start:
    """Waits for the processes of the shards: Ray reports those that end, but not slow ones."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._began = time.monotonic()
        self._said = False

    def check(self, working: list[int]) -> None:
        """Raise Silent after the longest time that a start may take; say before what it takes."""
        seconds = time.monotonic() - self._began
        waiting = ", ".join(map(str, working))
        if working and seconds > _LOAD_SECONDS:
            raise Silent(f"the process of shard {waiting} did not start in {_LOAD_SECONDS:g} s")
        if working and seconds > _SAY_SECONDS and not self._said:
            self._said = True
            self._report(
                f"the process of shard {waiting} has been starting for {seconds:.0f} s: it loads "
                f"torch, and may take up to {_LOAD_SECONDS:g} s"
            )


def _check_versions(hosts: list[Host]) -> None:
    """Refuse machines that would compute something else."""
    expected = versions()
    for number, host in enumerate(hosts):
        if host.versions != expected:
            raise GossamerError(
                f"shard {number} on {host.address} has {host.versions}, but this machine has "
                f"{expected}: install the same on every machine"
            )


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
