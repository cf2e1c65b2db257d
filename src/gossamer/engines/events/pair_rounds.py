"""Methods with rounds: a round of the method for each pair that meets, and for single devices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms import State
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.events.activity import activity
from gossamer.engines.events.engine import EventEngine
from gossamer.engines.events.event_list import EventList
from gossamer.engines.events.timeline import Timeline
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.engines.plan import Plan, Snapshot
from gossamer.errors import InputError
from gossamer.network.base import IntArray, Links, Network
from gossamer.network.weights import Weights


class PairEngine(EventEngine):
    """Runs a method with rounds in pairs of devices: a device that is ready waits for a neighbour.

    Args:
        plan: What to run.
        seconds_per_round: How long the links of a round of the network last.
        patience: How long a device waits for a neighbour, in steps of its own.
        snapshot: The state to resume from. None: start at time 0.
        batched: Compute meetings that share no device together.
        patience_seconds: How long a device waits, in seconds; 0: `patience` steps.

    Raises:
        InputError: If the method cannot run in pairs, or the plan has no timing.
    """

    def __init__(
        self,
        plan: Plan,
        seconds_per_round: float,
        patience: float,
        snapshot: Snapshot | None = None,
        batched: bool = True,
        patience_seconds: float = 0.0,
    ) -> None:
        _check_plan(plan)
        super().__init__(plan, seconds_per_round, snapshot, batched)
        self._unit = _UnitWeights.of(plan)
        message_bytes = self._message_bytes()
        self._timeline = Timeline(
            plan, message_bytes, seconds_per_round, patience, batched, patience_seconds
        )
        self._activity = activity(self._timeline.source, self._timeline, in_pairs=True)
        if snapshot is not None:
            self._timeline.restore(snapshot.tensors)
            self._restore_activity(snapshot.tensors)

    def _message_bytes(self) -> float:
        """Return what a device sends in a meeting, found by a meeting without effect."""
        if self.plan.task.devices < 2:
            return 0.0
        traffic = Traffic()
        buffers = {name: x.clone() for name, x in self.worker.buffers.items()}
        rows = torch.arange(2, device=self._device)
        state = {name: x.clone() for name, x in self._state_of(rows).items()}
        own_rounds = np.zeros(2, dtype=np.int64)
        with torch.no_grad():
            self._next_state(state, rows, 1, 0, own_rounds, traffic)
        for name, x in buffers.items():
            self.worker.buffers[name].copy_(x)
        if np.ndim(traffic.link_bytes):
            accepted = (
                "a method that sends whole vectors: a compressed change means nothing to a "
                "neighbour that has missed earlier ones"
            )
            raise InputError("algorithm", self.plan.algorithm.label, accepted)
        return float(traffic.link_bytes)

    def _run_wave(self, events: EventList, wave: IntArray, t: int) -> None:
        """Run the method for the devices of a wave: first the pairs, then the single devices."""
        a = events.a[wave]
        b = events.b[wave]
        paired = b >= 0
        numbers = np.concatenate([np.stack([a[paired], b[paired]], 1).ravel(), a[~paired]])
        a_round = events.a_count[wave]
        b_round = events.b_count[wave]
        own_rounds = np.concatenate(
            [np.stack([a_round[paired], b_round[paired]], 1).ravel(), a_round[~paired]]
        )
        rows = torch.from_numpy(numbers).to(self._device)
        before = self._state_of(rows)
        pairs = int(paired.sum())
        seconds = events.time[wave]
        times = np.concatenate([np.repeat(seconds[paired], 2), seconds[~paired]])
        arrived = self._arrived(times, rows)
        after = self._next_state(before, rows, pairs, t, own_rounds, self._traffic, arrived)
        self._set_state_of(rows, after)

    def _next_state(
        self,
        state: State,
        rows: Tensor,
        pairs: int,
        t: int,
        own_rounds: IntArray,
        traffic: Traffic,
        arrived: IntArray | None = None,
    ) -> State:
        """Return the state of some devices after a round of the method.

        Args:
            state: Their rows, which may be overwritten.
            rows: The devices: those of the pairs side by side, then single ones.
            pairs: Number of pairs.
            t: The round of the network.
            own_rounds: The devices' own rounds, which decide their batches.
            traffic: Counts the messages.
            arrived: How many samples the devices have so far; None: all.
        """
        weights = self._unit.stacked(pairs, len(rows) - 2 * pairs)
        mix = StackedMix(weights, rows, self._dtype.itemsize, traffic, buffers=self._buffers)
        gradient = BatchGradient(self.worker, own_rounds, devices=rows, arrived=arrived)
        return self.plan.algorithm.next_state(state, gradient, mix, t)


@dataclass(frozen=True)
class _UnitWeights:
    """What the method's rule gives to two linked devices, and to one that is alone.

    Attributes:
        pair: The weights of two linked devices.
        single: Those of a device without links.
    """

    pair: Weights
    single: Weights

    @classmethod
    def of(cls, plan: Plan) -> _UnitWeights:
        """Return the weights of a plan's method."""
        rule = plan.algorithm.weights
        return cls(rule(Links.of(2, [(0, 1)]), 0, plan.seed), rule(Links.of(1, []), 0, plan.seed))

    def stacked(self, pairs: int, singles: int) -> Weights:
        """Return the weights of pairs, whose devices are side by side, and then single devices.

        Args:
            pairs: Number of pairs.
            singles: Number of single devices.
        """
        a = 2 * np.arange(pairs)
        back = None
        if self.pair.back is not None:
            back = np.repeat(self.pair.back, pairs)
        active = None
        if self.pair.active is not None and self.single.active is not None:
            active = np.concatenate(
                [np.tile(self.pair.active, pairs), np.tile(self.single.active, singles)]
            )
        return Weights(
            2 * pairs + singles,
            a,
            a + 1,
            np.repeat(self.pair.value, pairs),
            np.concatenate([np.tile(self.pair.own, pairs), np.tile(self.single.own, singles)]),
            active,
            back,
        )


@dataclass(frozen=True)
class _Pairs(Network):
    """Links that change from meeting to meeting, for a method to accept or refuse."""

    devices: int

    def links(self, t: int) -> Links:
        return Links.of(self.devices, [(t % self.devices, (t + 1) % self.devices)])


def _check_plan(plan: Plan) -> None:
    """Refuse methods and networks that meetings of two devices cannot serve."""
    method = plan.algorithm
    if plan.network.directed:
        accepted = "symmetric links: in the events engine two devices that meet exchange models"
        raise InputError("network", "directed", accepted)
    if method.connected_rounds or method.weights.sums == "nothing":
        accepted = f"a method of single links: {method.label} needs all devices in every round"
        raise InputError("algorithm", method.label, accepted)
    method.check(_Pairs(plan.network.devices))
    if plan.network.weighted:
        accepted = "links without weights: in the events engine devices meet in pairs"
        raise InputError("network", type(plan.network).__name__, accepted)
