"""The Ray actor that simulates one shard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import ray
from torch import Tensor

from gossamer import backend
from gossamer._core.process import configure_own_process
from gossamer.engines.plan import Plan, Record, Snapshot
from gossamer.engines.ray.adapter import GlooGroup, dist
from gossamer.engines.ray.exchange import Disconnected, GlooExchange
from gossamer.engines.ray.shared_memory import machine_id
from gossamer.engines.shard import Shard
from gossamer.engines.simulate import Simulator
from gossamer.errors import Diverged, GossamerError
from gossamer.network.base import IntArray


@dataclass(frozen=True)
class Host:
    """Where a shard runs: the address of its node, and its machine identifier."""

    address: str
    machine: str


@dataclass(frozen=True)
class Rendezvous:
    """Where the shards of a group find each other: a file, or a port of shard 0.

    Args:
        name: Name of the group. Shards of an earlier group have another one, so that nothing of
            theirs can reach this group.
        hosts: Where each shard runs.
        file: Path of a file that all shards can open ("": they use the port).
        port: Port of the store on the host of shard 0.
        timeout: Seconds to wait for another shard, now and in every exchange.
    """

    name: str
    hosts: list[Host]
    file: str
    port: int
    timeout: float

    def store(self) -> Any:
        """Return a `torch.distributed` store as a client."""
        count = len(self.hosts)
        if self.file:
            return dist.FileStore(self.file, count)
        return dist.TCPStore(
            self.hosts[0].address,
            self.port,
            count,
            timeout=timedelta(seconds=self.timeout),
            wait_for_workers=False,
        )


class ShardActor:
    """A simulator of the devices of one shard.

    Errors in the study are returned, not raised: Ray would wrap them.

    Args:
        plan: The plan, whose task has the samples of this shard's devices only.
        test: Test inputs and targets, which all shards share.
        owner: Shard of each device.
        number: Number of this shard.
        chosen: The implementations that all shards compute with.
    """

    def __init__(
        self,
        plan: Plan,
        test: tuple[Tensor, Tensor],
        owner: IntArray,
        number: int,
        chosen: dict[str, str],
    ) -> None:
        configure_own_process()
        backend.use(chosen)
        self._plan = plan
        self._test = test
        self._owner = owner
        self._number = number
        self._served_store: Any = None
        self._group: GlooGroup
        self._simulator: Simulator

    def host(self) -> Host:
        """Return where this shard runs."""
        return Host(str(ray.util.get_node_ip_address()), machine_id())

    def serve_store(self, address: str, timeout: float) -> int:
        """Open the store through which the shards find each other. Return its port."""
        self._served_store = dist.TCPStore(
            address,
            0,
            int(self._owner.max()) + 1,
            is_master=True,
            timeout=timedelta(seconds=timeout),
            wait_for_workers=False,
        )
        return int(self._served_store.port)

    def join(self, rendezvous: Rendezvous, snapshot: Snapshot | None) -> GossamerError | None:
        """Connect to the other shards and set the state: the initial one, or the snapshot's."""
        hosts = rendezvous.hosts
        # Kept until the actor ends: if this shard fails below, the others may still be connecting.
        self._group = self._connect(rendezvous)
        exchange = GlooExchange(self._group, [host.machine for host in hosts], rendezvous.name)
        try:
            shard = Shard(self._owner, self._number, exchange)
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
            return GlooGroup(store, self._number, len(hosts), address, rendezvous.timeout)
        except RuntimeError as error:
            raise Disconnected(str(error)) from error

    def _whole_plan(self) -> Plan:
        """Return the plan with the test samples; this may import the user's own code."""
        x_test, y_test = self._test
        data = replace(self._plan.task.data, x_test=x_test, y_test=y_test)
        return replace(self._plan, task=replace(self._plan.task, data=data), threads=1)

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
        """Measure the devices of this shard, or return the error of a metric."""
        try:
            return self._simulator.record()
        except GossamerError as error:
            return error

    def models(self) -> Tensor:
        return self._simulator.models()

    def state_dict(self) -> dict[str, Tensor]:
        return self._simulator.state_dict()

    def snapshot(self) -> Snapshot:
        return self._simulator.snapshot(copy=False)  # Ray copies it
