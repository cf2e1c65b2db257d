"""The Ray engine: the devices in shards, each an actor on a cluster, all running the same algorithm.

Ray places, watches and replaces the shards. The rows themselves go from shard to shard by gloo, inside the actors: only
those that have a neighbour elsewhere. Each shard works out links, weights and batches by itself, by name, so that one call
of the driver is many rounds. When a shard is lost, all are started anew from the newest state that was kept: processes of
an earlier start have no part in the new group, so that nothing of theirs can reach it.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gossamer._core import interrupts
from gossamer.engines.observer import Observer
from gossamer.engines.part import Part
from gossamer.engines.plan import Plan, Record, Snapshot
from gossamer.engines.ray import gloo
from gossamer.engines.ray.gloo import Apart, Gloo, dist, machine
from gossamer.engines.ray.placement import divide
from gossamer.engines.simulate import CLOCK, Simulator
from gossamer.errors import Diverged, GossamerError, InputError, Lost
from gossamer.network.base import IntArray

if TYPE_CHECKING:
    from gossamer.engines.settings import Ray

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
os.environ.setdefault(
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
)  # what a later Ray does; this one warns until it is said

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_CALL_SECONDS = 0.4  # how long one call of the driver is to take: it is how soon Ctrl-C is heard
_START_SECONDS = (
    120.0  # for a shard's process to load and to answer, whatever `wait` says of one that has
)
_STARTS = 3  # how often shards are started again without a round being won


class Shard:
    """The actor: a simulator with a part of the devices. What is wrong with the study is given back, not raised."""

    def __init__(
        self, plan: Plan, test: tuple[Tensor, Tensor], owner: IntArray, number: int, threads: int
    ) -> None:
        data = replace(plan.task.data, x_test=test[0], y_test=test[1])
        self._plan = replace(plan, task=replace(plan.task, data=data), threads=threads)
        self._owner, self._number, self._count = owner, number, int(owner.max()) + 1
        self._store: Any = None

    def host(self) -> tuple[str, str]:
        """The address and the name of its machine."""
        return str(ray.util.get_node_ip_address()), machine()

    def meet(self, host: str, seconds: float) -> int:
        """Open the place where the shards find each other; its port."""
        self._store = dist.TCPStore(
            host,
            0,
            self._count,
            is_master=True,
            timeout=timedelta(seconds=seconds),
            wait_for_workers=False,
        )
        return int(self._store.port)

    def join(
        self,
        where: str | tuple[str, int],
        hosts: list[tuple[str, str]],
        name: str,
        snapshot: Snapshot | None,
        seconds: float,
    ) -> GossamerError | None:
        """Find the others and begin, at the start or where the snapshot is."""
        limit = timedelta(seconds=seconds)
        if isinstance(where, str):
            store = dist.FileStore(where, self._count)
        else:
            store = self._store or dist.TCPStore(
                *where, self._count, timeout=limit, wait_for_workers=False
            )
        machines = [machine for _, machine in hosts]
        exchange = Gloo(store, self._number, machines, hosts[self._number][0], name, seconds)
        try:
            self._simulator = Simulator(
                self._plan, snapshot, Part(self._owner, self._number, exchange)
            )
        except GossamerError as error:
            return error
        return None

    def advance(self, until: int) -> tuple[GossamerError | None, float]:
        """Go on to a round. A run that diverges goes on to it too, since others count on its rows; what came first is told."""
        first, began = None, time.perf_counter()
        while self._simulator.round < until:
            try:
                self._simulator.advance(self._simulator.round + 1)
            except Diverged as error:
                first = first or (error.round, error.device, error.received)
                self._simulator.round += 1
            except GossamerError as error:
                return error, 0.0
        return (Diverged(*first) if first else None), time.perf_counter() - began

    def ask(self, what: str) -> Any:
        """What the simulator says of its part: its record, models, parts or snapshot."""
        return getattr(self._simulator, what)()


class _ShardLost(Exception):
    """A shard is gone, or does not answer."""


class RayEngine:
    """Runs a plan on a Ray cluster. What it gives is of all devices, as the simulator's.

    >>> engine = Ray(shards=2).start(plan)                                                    # doctest: +SKIP
    >>> engine.advance(100)                                                                    # doctest: +SKIP
    """

    def __init__(
        self,
        plan: Plan,
        settings: Ray,
        snapshot: Snapshot | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer or Observer()
        self.plan, self.settings = plan, settings
        self.round = 0 if snapshot is None else snapshot.round
        self.events: list[str] = []
        self._last, self._kept_at, self._keeping = snapshot, time.monotonic(), 0.0
        self._at_once, self._seconds_a_round, self._starts = 1, 0.0, 0
        self._shards: list[Any] = []
        self._group: Any = None
        self._name = "gossamer-none"
        self._folder = tempfile.TemporaryDirectory(prefix="gossamer-")
        self._connected = connect(settings, plan.task.devices)
        try:
            count = min(
                settings.shards or int(ray.cluster_resources().get("CPU", 1)), plan.task.devices
            )
            self.owner = divide(plan.network, count, plan.rounds)
            self._devices = [np.flatnonzero(self.owner == k) for k in range(count)]
            data = plan.task.data
            self._test = ray.put((data.x_test, data.y_test))
            bare = replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0])
            plans = (
                replace(plan, task=replace(plan.task, data=bare).only(devices))
                for devices in self._devices
            )
            self._plans = [
                ray.put(plan) for plan in plans
            ]  # a shard's samples go to it once, and stay for its successor
            try:
                self._start()
            except _ShardLost as lost:
                self._replace(str(lost))
        except BaseException:
            self.close()
            raise

    def advance(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Run rounds up to `until`; stop between two calls of the shards when `stop` says so."""
        while self.round < until and not stop():
            goal = min(until, self.round + self._at_once)
            self._surely(lambda goal=goal: self._go(goal))  # type: ignore[misc]
            self.round, self._starts = goal, 0
            # keeping the state is to cost at most a twentieth of the time
            if time.monotonic() - self._kept_at > max(self.settings.checkpoint, 20 * self._keeping):
                self.snapshot()

    def record(self) -> Record:
        """Measured by the shards, each its own devices; only the numbers come here."""
        found: list[Record] = self._ask("record")
        arrays = {
            name: self._together([getattr(record, name) for record in found])
            for name in ("accuracy", "loss", "distance", "power_distance")
        }
        return replace(found[0], **arrays)

    def models(self) -> Tensor:
        """All models [devices, parameters]."""
        models: Tensor = self._together(self._ask("models"))
        return models

    def parts(self) -> dict[str, Tensor]:
        """The same by the names of their parts."""
        return self._by_name(self._ask("parts"), shared=set())

    def snapshot(self) -> Snapshot:
        """All that is needed to go on from here, on any engine; it is also what a lost shard is replaced from."""
        began = time.monotonic()
        found: list[Snapshot] = self._ask("snapshot")
        tensors = self._by_name([part.tensors for part in found], self._shared())
        self._last = replace(found[0], tensors=tensors)
        self._kept_at = time.monotonic()
        self._keeping = self._kept_at - began
        return self._last

    def close(self) -> None:
        """End the shards, and the cluster if it was started for this run."""
        self._stop()
        self._folder.cleanup()
        if self._connected:
            self._connected = False
            ray.shutdown()

    # -- the shards --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start the shards, at the newest state that was kept."""
        count, wait = len(self._devices), self.settings.wait
        self._group = room(count, wait)
        actor = ray.remote(Shard)
        for number, plan in enumerate(self._plans):
            place = PlacementGroupSchedulingStrategy(self._group, number)
            options = actor.options(num_cpus=1, max_restarts=0, scheduling_strategy=place)
            self._shards.append(options.remote(plan, self._test, self.owner, number, 1))
        hosts = self._all("host", [()] * count, at_least=_START_SECONDS)
        self._name = f"gossamer-{secrets.token_hex(8)}"
        where: str | tuple[str, int] = os.path.join(self._folder.name, self._name)
        if self.settings.address:
            where = hosts[0][0], self._meet(hosts[0][0])
        _raise_first(
            self._all(
                "join",
                [(where, hosts, self._name, self._part_of_last(k), wait) for k in range(count)],
            )
        )

    def _meet(self, host: str) -> int:
        """The port of shard 0 that the others come to."""
        try:
            port: int = ray.get(
                self._shards[0].meet.remote(host, self.settings.wait), timeout=self.settings.wait
            )
        except (RayActorError, GetTimeoutError):
            raise _ShardLost(f"shard 0 of {len(self._shards)} was lost") from None
        return port

    def _stop(self) -> None:
        """End the shards. What they had begun ends with them."""
        with suppress(RayError, ValueError, RuntimeError):
            for shard in self._shards:
                ray.kill(shard)
            if self._group is not None:
                remove_placement_group(self._group)
        self._shards, self._group = [], None
        gloo.forget(self._name)

    def _surely(self, do: Callable[[], Any]) -> Any:
        """Do something with the shards; where one is lost, start all anew from what was kept, and do it again."""
        while True:
            try:
                return do()
            except _ShardLost as lost:
                self._replace(str(lost))

    def _replace(self, why: str) -> None:
        since = 0 if self._last is None else self._last.round
        self.events.append(f"after round {self.round}: {why}; all went on from round {since}")
        self._observer.message(self.events[-1])
        while True:
            self._stop()
            self._starts += 1
            if self._starts > _STARTS:
                raise Lost(
                    f"shards were lost {_STARTS} times without a round being won, at last: {why}; --resume goes on"
                )
            try:
                self._start()
                for goal in [*range(since, self.round, max(1, self._at_once)), self.round]:
                    self._go(goal)
                return
            except _ShardLost as lost:
                why = str(lost)
            except InputError as no_room:
                raise Lost(
                    f"{why}, and there is no room for another: {no_room.accepted}; --resume goes on"
                ) from None

    def _go(self, goal: int) -> None:
        """Have all shards go on to a round."""
        began = time.monotonic()
        found = self._all("advance", [(goal,)] * len(self._shards))
        _raise_first([error for error, _ in found])
        rounds = goal - self.round
        if rounds > 0:
            self._seconds_a_round = (time.monotonic() - began) / rounds
            self._at_once = max(
                1, min(2 * self._at_once, int(_CALL_SECONDS / self._seconds_a_round))
            )

    def _ask(self, what: str) -> list[Any]:
        return self._surely(lambda: self._all("ask", [(what,)] * len(self._shards)))

    def _all(self, name: str, arguments: list[tuple[Any, ...]], at_least: float = 0.0) -> list[Any]:
        """Call every shard, and wait for all; none is waited for without a limit."""
        limit = max(at_least, self.settings.wait, 20 * self._at_once * self._seconds_a_round)
        calls = [
            getattr(shard, name).remote(*words)
            for shard, words in zip(self._shards, arguments, strict=True)
        ]
        number = {call: k for k, call in enumerate(calls)}
        results: dict[int, Any] = {}
        lost: str | None = None
        waiting, deadline = calls, time.monotonic() + limit
        while waiting:
            done, waiting = ray.wait(
                waiting, timeout=max(0.0, min(1.0, deadline - time.monotonic()))
            )
            for call in done:
                try:
                    results[number[call]] = ray.get(call)
                except RayTaskError as error:
                    if not isinstance(error.cause, Apart):
                        raise error.cause if isinstance(error.cause, Exception) else error from None
                    lost = lost or f"shard {number[call]} was cut off from another"
                    deadline = min(
                        deadline, time.monotonic() + 5
                    )  # time for the one that is gone to be missed by Ray
                except RayActorError:
                    raise _ShardLost(f"shard {number[call]} of {len(calls)} was lost") from None
                except RayError as error:
                    raise Lost(
                        f"the Ray cluster is gone: {str(error).splitlines()[0]}; --resume goes on"
                    ) from None
            if waiting and not done and time.monotonic() >= deadline:
                silent = ", ".join(str(number[call]) for call in waiting)
                raise _ShardLost(
                    lost or f"no sign of life from shard {silent} for {limit:g} s (engine.wait)"
                )
        if lost:
            raise _ShardLost(lost)
        return [results[k] for k in range(len(calls))]

    # -- from parts to the whole and back ------------------------------------------------------------------------------------

    def _shared(self) -> set[str]:
        """The tensors of a state that all devices share: those that have one row, however many devices there are."""
        task, plan = self.plan.task, self.plan
        start = task.learner.init(plan.seed).to(getattr(torch, plan.dtype)).expand(2, -1)
        return {name for name, x in plan.algorithm.init(start).items() if len(x) == 1} | {CLOCK}

    def _part_of_last(self, number: int) -> Snapshot | None:
        if self._last is None:
            return None
        rows, shared = torch.from_numpy(self._devices[number]), self._shared()
        return replace(
            self._last,
            tensors={k: x if k in shared else x[rows] for k, x in self._last.tensors.items()},
        )

    def _together(self, values: list[Any]) -> Any:
        """One row a device, of all devices in their order."""
        m, first = self.plan.task.devices, values[0]
        shape = (m, *first.shape[1:])
        out = first.new_empty(shape) if isinstance(first, Tensor) else np.empty(shape, first.dtype)
        for devices, rows in zip(self._devices, values, strict=True):
            out[devices] = rows
        return out

    def _by_name(self, parts: list[dict[str, Tensor]], shared: set[str]) -> dict[str, Tensor]:
        return {
            k: x if k in shared else self._together([part[k] for part in parts])
            for k, x in parts[0].items()
        }


def connect(settings: Ray, most: int = 1 << 30) -> bool:
    """Join the cluster of the settings, or start one on this machine; whether that was done now. `most`: shards of use."""
    if ray.is_initialized():
        return False
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Ray prints what becomes of its processes to stdout, where results go; a shard that is lost is told by the engine itself.
    ray._private.worker.print_to_stdstream = lambda *words, **more: None
    how: dict[str, Any] = {
        "log_to_driver": False,
        "configure_logging": False,
        "logging_level": "ERROR",
    }
    try:
        if settings.address:
            _knock(settings.address, settings.wait)
            ray.init(address=settings.address, **how)
        else:  # shards may be more than cores; nothing of it is to be reached from outside
            cores = max(os.cpu_count() or 1, min(settings.shards, most))
            how |= {"num_cpus": cores, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            with interrupts.held():  # what stops the run is not to stop the cluster under it
                ray.init(address="local", **how)
    except (OSError, RuntimeError, ValueError) as error:
        accepted = 'the address of a Ray cluster that is up, "auto" for this machine\'s, or "" to start one'
        raise InputError(
            "engine.address", settings.address, f"{accepted} ({str(error).splitlines()[0]})"
        ) from None
    return True


def _knock(address: str, wait: float) -> None:
    """Raise where nobody is at "host:port": Ray would go on trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=min(wait, 10.0)).close()


def room(count: int, wait: float) -> Any:
    """Room for so many shards, a CPU each; says so where there is none."""
    group = placement_group([{"CPU": 1}] * count)
    if not group.wait(timeout_seconds=wait):
        remove_placement_group(group)
        total, free = (
            int(kind.get("CPU", 0)) for kind in (ray.cluster_resources(), ray.available_resources())
        )
        has = f"the cluster has {total} CPUs, {free} of them free"
        raise InputError(
            "engine.shards",
            count,
            f"at most {max(1, free)} now: {has}, and no more came in {wait:g} s",
        )
    return group


def _raise_first(errors: list[GossamerError | None]) -> None:
    """Raise what went wrong first: of runs that diverged, the earliest round, and there whoever did not get it from others."""
    real = [error for error in errors if error is not None]
    if real:
        raise min(
            real,
            key=lambda e: (
                (e.round, e.received, e.device) if isinstance(e, Diverged) else (-1, False, 0)
            ),
        )
