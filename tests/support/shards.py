"""All shards of a plan in threads of this process: what a cluster does, without one."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import cloudpickle
import numpy as np
import torch
from torch import Tensor

import gossamer as gs
from gossamer import testing
from gossamer.engines import Measure, Plan, Simulator, Snapshot
from gossamer.engines.shard import Reduction, Shard
from gossamer.network import Timing
from gossamer.network.base import IntArray
from support.methods import EVERY, MORE

Result = TypeVar("Result")
Kind = tuple[str, torch.dtype, int]  # of an exchange: its function, the type, the dimensions
Queues = dict[tuple[int, int], "queue.Queue[Tensor]"]  # by sender and receiver

ROUNDS = 50
_TIMEOUT = 60  # seconds to wait for another shard


def make_queues(count: int) -> Queues:
    """Return a queue for each sender and receiver."""
    return {(i, k): queue.Queue() for i in range(count) for k in range(count)}


class QueueExchange:
    """`Exchange` by queues. It counts the rows that it sends, and notes the kinds of exchange."""

    def __init__(self, number: int, count: int, queues: Queues) -> None:
        self.number = number
        self.count = count
        self.queues = queues
        self.rows_sent = 0
        self.kinds: set[Kind] = set()

    def exchange_rows(
        self, x: Tensor, send: dict[int, IntArray], receive: dict[int, int]
    ) -> Callable[[], dict[int, Tensor]]:
        assert send.keys() == receive.keys()
        self.kinds.add(("rows", x.dtype, x.ndim))
        for k, rows in send.items():
            self.rows_sent += len(rows)
            self.queues[self.number, k].put(x[torch.from_numpy(rows)])

        def wait() -> dict[int, Tensor]:
            received = {}
            for k, count in receive.items():
                received[k] = self.queues[k, self.number].get(timeout=_TIMEOUT)
                assert len(received[k]) == count
            return received

        return wait

    def all_reduce(self, x: Tensor, operation: Reduction) -> Tensor:
        self.kinds.add((operation, x.dtype, x.ndim))
        for k in range(self.count):
            self.queues[self.number, k].put(x.clone())
        parts = [self.queues[k, self.number].get(timeout=_TIMEOUT) for k in range(self.count)]
        stacked = torch.stack(parts)
        if operation == "sum":
            return stacked.sum(0, dtype=x.dtype)
        if operation == "max":
            return stacked.amax(0)
        return stacked.amin(0)


class ThreadedShards:
    """The simulators of all shards of a plan.

    Args:
        plan: What to run.
        owner: The shard of each device.
        snapshots: The state per shard; None: start at round 0.
        own_links: Let each shard compute the links of its own devices only.
    """

    def __init__(
        self,
        plan: Plan,
        owner: IntArray,
        snapshots: list[Snapshot] | None = None,
        own_links: bool = True,
    ) -> None:
        count = int(owner.max()) + 1
        queues = make_queues(count)
        self.exchanges = [QueueExchange(k, count, queues) for k in range(count)]
        self.shards = [Shard(owner, k, self.exchanges[k], own_links) for k in range(count)]
        self.simulators = []
        for k, shard in enumerate(self.shards):
            # As Ray sends it.
            own_plan = cloudpickle.loads(
                cloudpickle.dumps(replace(plan, task=plan.task.only(shard.devices)))
            )
            snapshot = None if snapshots is None else snapshots[k]
            self.simulators.append(Simulator(own_plan, snapshot, shard))

    def call(self, function: Callable[[Simulator], Result]) -> list[Result]:
        """Call a function with the simulator of every shard, all at the same time."""
        with ThreadPoolExecutor(len(self.simulators)) as pool:
            return list(pool.map(function, self.simulators))

    def advance(self, until: int) -> None:
        self.call(lambda simulator: simulator.advance(until))

    def merged(self, values: list[Any]) -> Any:
        """Return one row per device of the network, from those of the shards."""
        rows: dict[int, Any] = {}
        for shard, own_rows in zip(self.shards, values, strict=True):
            for device, row in zip(shard.devices.tolist(), own_rows, strict=True):
                rows[device] = row
        ordered = [rows[device] for device in sorted(rows)]
        if isinstance(ordered[0], Tensor):
            return torch.stack(ordered)
        return np.array(ordered)

    def models(self) -> Tensor:
        merged: Tensor = self.merged(self.call(Simulator.models))
        return merged


METHODS = {
    **EVERY,
    **MORE,
    "wpm constant": gs.WPM(3, 0.02, gs.Constant(), anchor=False),  # all shards switch to the dual
    "wpm p=15 constant": gs.WPM(15, 1e-4, gs.Constant()),
    "sinh": gs.Composition(gs.SinhMap(0.3), 0.02, gs.Constant()),
    "arcsinh": gs.Composition(gs.ArcsinhMap(0.3), 0.02, gs.Constant(), anchor=True),
    "guarded": gs.Guarded(gs.WPM(3, 0.02, gs.Constant(), anchor=False), gs.TrimmedMean(0.34)),
    "broken": gs.Broken(gs.DPSGD(0.05), (2,), "noise", 0.1),
}

# The methods that are run on a real cluster: together they exchange all kinds of values.
ON_RAY = (
    "d-psgd",
    "wpm p=15 constant",
    "push-sum",
    "swarm-sgd",
    "all-reduce",
    "tracking",
    "choco-sgd",
    "diloco",
    "guarded",
)


def plan_of(method: gs.Algorithm, network: str, rounds: int = ROUNDS) -> Plan:
    """Return the plan of the conformance suite, with timing, measured in the middle of a round."""
    plan = testing.conformance_plan(method, testing.NETWORKS[network], rounds)
    timing = Timing(compute=gs.LogUniform(1.0, 2.0), rate=1e4, latency=0.01)
    return replace(plan, timing=timing, measure=Measure(at="after_mix"))
