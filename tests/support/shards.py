"""Several parts of one plan in threads of this process: what a cluster does, without one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import gossamer as gs
from gossamer import testing
from gossamer.engines import Measure, Plan, Simulator, Snapshot
from gossamer.engines.part import Part
from gossamer.network import Timing
from gossamer.network.base import IntArray
from support.methods import EVERY, MORE


class Threads:
    """`Exchange` by queues, one for each ordered pair of parts."""

    def __init__(
        self, number: int, boxes: dict[tuple[int, int], queue.Queue[Tensor]], count: int
    ) -> None:
        self.number, self.boxes, self.count, self.rows = number, boxes, count, 0

    def swap(
        self, x: Tensor, wanted: dict[int, IntArray], needed: dict[int, int]
    ) -> Callable[[], dict[int, Tensor]]:
        for k, rows in wanted.items():
            self.rows += len(rows)
            self.boxes[self.number, k].put(x[torch.from_numpy(rows)])

        def receive() -> dict[int, Tensor]:
            received = {k: self.boxes[k, self.number].get(timeout=60) for k in needed}
            assert all(len(received[k]) == count for k, count in needed.items())
            return received

        return receive

    def gather(self, x: Tensor) -> list[Tensor]:
        for k in range(self.count):
            self.boxes[self.number, k].put(x.clone())
        return [self.boxes[k, self.number].get(timeout=60) for k in range(self.count)]


class Parts:
    """The parts of a plan, each with a thread; `owner` says who has which device."""

    def __init__(
        self, plan: Plan, owner: IntArray, snapshots: list[Snapshot] | None = None
    ) -> None:
        count = int(owner.max()) + 1
        boxes: dict[tuple[int, int], queue.Queue[Tensor]] = {
            (i, k): queue.Queue() for i in range(count) for k in range(count)
        }
        self.parts = [Part(owner, k, Threads(k, boxes, count)) for k in range(count)]
        kept = snapshots or [None] * count
        plans = [replace(plan, task=plan.task.only(part.devices)) for part in self.parts]
        self.simulators = [
            Simulator(p, s, part) for p, s, part in zip(plans, kept, self.parts, strict=True)
        ]

    def each(self, do: Callable[[Simulator], Any]) -> list[Any]:
        with ThreadPoolExecutor(len(self.simulators)) as pool:
            return [
                future.result()
                for future in [pool.submit(do, simulator) for simulator in self.simulators]
            ]

    def advance(self, until: int) -> None:
        lock = threading.Barrier(len(self.simulators))

        def go(simulator: Simulator) -> None:
            lock.wait()
            simulator.advance(until)

        self.each(go)

    def together(self, values: list[Any]) -> Any:
        """One row a device, of all devices in their order."""
        found = {
            int(i): x
            for part, rows in zip(self.parts, values, strict=True)
            for i, x in zip(part.devices, rows, strict=True)
        }
        rows = [found[i] for i in sorted(found)]
        return torch.stack(rows) if isinstance(rows[0], Tensor) else np.array(rows)

    def models(self) -> Tensor:
        return self.together(self.each(Simulator.models))


ROUNDS = 50


METHODS = {
    **EVERY,
    **MORE,
    "wpm constant": gs.WPM(
        3, 0.02, gs.Constant(), anchor=False
    ),  # which goes over to the dual, all at once
    "wpm p=15 constant": gs.WPM(15, 1e-4, gs.Constant()),
    "guarded": gs.Guarded(gs.WPM(3, 0.02, gs.Constant(), anchor=False), gs.TrimmedMean(0.34)),
    "broken": gs.Broken(gs.DPSGD(0.05), (2,), "noise", 0.1),
}


def plan_of(method: gs.Algorithm, network: str, rounds: int = ROUNDS) -> Plan:
    plan = testing.conformance_plan(method, testing.NETWORKS[network], rounds)
    return replace(
        plan,
        timing=Timing(compute=gs.LogUniform(1.0, 2.0), rate=1e4, latency=0.01),
        measure=Measure(at="after_mix"),
    )
