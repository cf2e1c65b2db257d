"""The Ray actor that simulates one shard."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from gossamer import backend
from gossamer._core.columns import MAX_DEVICE_COLUMNS
from gossamer._core.process import configure_own_process
from gossamer._core.tensor_files import Layout, Shape
from gossamer._core.versions import version
from gossamer.engines.plan import Plan, Record, Snapshot
from gossamer.engines.ray.adapter import GlooGroup, dist
from gossamer.engines.ray.exchange import Disconnected, GlooExchange, Waiting
from gossamer.engines.ray.shared_memory import machine_id
from gossamer.engines.ray.state import OwnRows, What, to_arrays, to_tensors
from gossamer.engines.shard import Shard
from gossamer.engines.simulate import Simulator
from gossamer.errors import Diverged, GossamerError
from gossamer.network.base import IntArray

HEARTBEAT = "heartbeat"
"""Name of the actor's concurrency group that answers while the shard is at work."""

GROUP_SECONDS = 86_400.0
"""After which an exchange fails. The driver finds out much earlier whether a shard is alive."""

OWN_LINKS_DEVICES = 10_000
"""From so many devices on, a shard computes the links of its own devices only.

Of fewer, all links take less time than the messages by which shards share them.
"""


@dataclass(frozen=True)
class Host:
    """Where a shard runs.

    Args:
        address: Address of its node.
        machine: Its machine identifier.
        versions: Versions of gossamer, torch and Python.
    """

    address: str
    machine: str
    versions: str


@dataclass(frozen=True)
class Rendezvous:
    """Where the shards of a group find each other: a file, or a port of shard 0.

    Args:
        name: Name of the group. Shards of an earlier group have another one, so that nothing of
            theirs can reach this group.
        hosts: Where each shard runs.
        file: Path of a file that all shards can open ("": they use the port).
        port: Port of the store on the host of shard 0.
    """

    name: str
    hosts: list[Host]
    file: str
    port: int

    def store(self) -> Any:
        """Return a `torch.distributed` store as a client."""
        count = len(self.hosts)
        if self.file:
            return dist.FileStore(self.file, count)
        return dist.TCPStore(
            self.hosts[0].address,
            self.port,
            count,
            timeout=timedelta(seconds=GROUP_SECONDS),
            wait_for_workers=False,
        )


def versions() -> str:
    """Return the versions that all processes of a run have to share."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"gossamer {version('gossamer')}, torch {torch.__version__}, Python {python}"


class ShardActor:
    """A simulator of the devices of one shard.

    Errors in the study are returned, not raised: Ray would wrap them.

    Args:
        plan: The plan, whose task has the samples of this shard's devices only.
        test: Test inputs and targets, which all shards share.
        owner: Shard of each device.
        number: Number of this shard.
        chosen: The implementations that all shards compute with.
        threads: Number of torch threads.
        exchange_dtype: Type in which rows of models are sent; "": as they are.
    """

    def __init__(
        self,
        plan: Plan,
        test: tuple[Tensor, Tensor],
        owner: IntArray,
        number: int,
        chosen: dict[str, str],
        threads: int,
        exchange_dtype: str,
    ) -> None:
        configure_own_process()
        backend.use(chosen)
        self._plan = plan
        self._test = test
        self._owner = owner
        self._number = number
        self._threads = threads
        self._dtype = getattr(torch, exchange_dtype) if exchange_dtype else None
        self._waiting = Waiting()
        self._served_store: Any = None
        self._held: list[Any] = []
        self._group: GlooGroup
        self._simulator: Simulator
        self._written: OwnRows

    def host(self) -> Host:
        """Return where this shard runs."""
        return Host(str(ray.util.get_node_ip_address()), machine_id(), versions())

    @ray.method(concurrency_group=HEARTBEAT)
    def seconds_waiting(self) -> float:
        """Return for how long this shard has been waiting for others; 0 if it is at work.

        It is answered at any time, by a thread of its own.
        """
        return self._waiting.seconds

    def serve_store(self, address: str) -> int:
        """Open the store through which the shards find each other. Return its port."""
        self._served_store = dist.TCPStore(
            address,
            0,
            int(self._owner.max()) + 1,
            is_master=True,
            timeout=timedelta(seconds=GROUP_SECONDS),
            wait_for_workers=False,
        )
        return int(self._served_store.port)

    def join(
        self, rendezvous: Rendezvous, snapshot: Snapshot | None, state: dict[str, Any] | None
    ) -> GossamerError | None:
        """Connect to the other shards and set the state.

        Args:
            rendezvous: Where the shards find each other.
            snapshot: Round and traffic; None: start at round 0.
            state: The tensors of this shard, as `to_arrays` has them.
        """
        hosts = rendezvous.hosts
        if snapshot is not None and state is not None:
            snapshot = replace(snapshot, tensors=to_tensors(state))
        # Kept until the actor ends: if this shard fails below, the others may still be connecting.
        self._group = self._connect(rendezvous)
        machines = [host.machine for host in hosts]
        exchange = GlooExchange(self._group, machines, rendezvous.name, self._waiting, self._dtype)
        try:
            own_links = len(self._owner) >= OWN_LINKS_DEVICES
            shard = Shard(self._owner, self._number, exchange, own_links)
            self._simulator = Simulator(self._whole_plan(), snapshot, shard)
        except GossamerError as error:
            return error
        return None

    def _connect(self, rendezvous: Rendezvous) -> GlooGroup:
        """Connect to the other shards.

        Raises:
            Disconnected: If one of them is gone.
        """
        hosts = rendezvous.hosts
        store = self._served_store or rendezvous.store()
        address = hosts[self._number].address
        try:
            with self._waiting.for_others():
                return GlooGroup(store, self._number, len(hosts), address, GROUP_SECONDS)
        except RuntimeError as error:
            raise Disconnected(str(error)) from error

    def _whole_plan(self) -> Plan:
        """Return the plan with the test samples; this may import the user's own code."""
        x_test, y_test = self._test
        data = replace(self._plan.task.data, x_test=x_test, y_test=y_test)
        task = replace(self._plan.task, data=data)
        device = self._plan.device
        if device.startswith("cuda"):
            device = "cuda"  # the one that Ray has given to this process
        return replace(self._plan, task=task, threads=self._threads, device=device)

    def advance(self, until: int) -> GossamerError | None:
        """Run rounds up to `until`.

        A shard that diverges runs to the end all the same, since the others wait for its rows.

        Returns:
            The first error, if any.
        """
        first: Diverged | None = None
        while self._simulator.round < until:
            try:
                self._simulator.advance(self._simulator.round + 1)
            except Diverged as error:
                first = first or Diverged(error.round, error.device, error.received)
                self._simulator.round += 1  # the round was run; only the check at its end failed
            except GossamerError as error:
                return error
        return first

    def record(self) -> Record | GossamerError:
        """Measure the devices of this shard, or return the error of a metric.

        Of many devices the driver receives means and extremes, not one value for each.
        """
        try:
            record = self._simulator.record()
        except GossamerError as error:
            return error
        if len(self._owner) <= MAX_DEVICE_COLUMNS:
            return record
        return record.reduced(np.flatnonzero(self._owner == self._number))

    def models(self) -> Tensor:
        return self._simulator.models()

    def state_dict(self) -> dict[str, Tensor]:
        return self._simulator.state_dict()

    def snapshot(self) -> Snapshot:
        return self._simulator.snapshot(copy=False)  # Ray copies it

    # -- the state, which the driver does not fetch -----------------------------------------------

    @ray.method(num_returns=2)
    def keep(self) -> tuple[Snapshot, dict[str, Any]]:
        """Copy the state into Ray's object store. The driver fetches the first of the two only."""
        snapshot = self._simulator.snapshot(copy=False)
        return replace(snapshot, tensors={}), to_arrays(snapshot.tensors)

    def hold(self, *states: Any) -> None:
        """Hold the states of shards on other machines until the next call.

        Ray has copied them to this machine.
        """
        self._held = list(states)

    def begin_writing(self, what: What) -> tuple[Snapshot, dict[str, Shape]]:
        """Prepare the tensors of this shard. Return round and traffic, and their shapes."""
        snapshot = self._simulator.snapshot(copy=False)
        tensors = snapshot.tensors if what == "state" else self._simulator.state_dict()
        devices = np.flatnonzero(self._owner == self._number)
        self._written = OwnRows(tensors, devices, self._number)
        return replace(snapshot, tensors={}), self._written.shapes()

    def write_rows(self, path: Path, layout: Layout, shared: set[str]) -> int | Exception | None:
        """Write the rows of this shard into a file; None if its machine does not have the file."""
        try:
            return self._written.write(path, layout, shared)
        except GossamerError as error:
            return error

    def rows_of(self, name: str, first: int, last: int) -> Any:
        """Return rows of a tensor that is written."""
        return self._written.rows(name, first, last)

    def end_writing(self) -> None:
        """Release the tensors."""
        self._written = OwnRows({}, np.empty(0, dtype=np.int64), self._number)
