"""The events engine: a round of the method for each device or pair of devices, when it ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms import State
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.events.timeline import PREFIX, Meetings, Timeline
from gossamer.engines.events.waves import waves
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.engines.plan import Plan, Record, Snapshot
from gossamer.engines.simulate import Simulator
from gossamer.errors import InputError
from gossamer.network.base import IntArray, Links, Network
from gossamer.network.weights import Weights


class EventEngine(Simulator):
    """Runs a plan without common rounds, in this process.

    Devices compute at the pace of the plan's timing and end a round of their own when they have
    met a neighbour, or alone. `round` counts the rounds of the network, which are time: each lasts
    `seconds_per_round`. A method's schedules follow that time; its batches are those of the
    device's own rounds. Models are measured as they are at that time.

    Args:
        plan: What to run.
        seconds_per_round: How long the links of a round of the network last.
        patience: How long a device waits for a neighbour, in steps of its own.
        snapshot: The state to resume from. None: start at time 0.
        batched: Compute meetings that share no device together. False: one after the other, which
            gives the same result and is slow.

    Raises:
        InputError: If the method cannot run in pairs, or the plan has no timing.

    Example:
        >>> from gossamer import DPSGD, RandomRing, Study, Timing
        >>> study = Study(DPSGD(eta=0.1), RandomRing(10), timing=Timing(compute=0.1, rate=1e6))
        >>> engine = EventEngine(study.plan(), seconds_per_round=1.0)
        >>> engine.advance(10)
        >>> engine.record().seconds
        10.0
    """

    def __init__(
        self,
        plan: Plan,
        seconds_per_round: float = 1.0,
        patience: float = 1.0,
        snapshot: Snapshot | None = None,
        batched: bool = True,
    ) -> None:
        _check_plan(plan)
        super().__init__(plan, _without_timeline(snapshot))
        self._clock = None  # the time of the network is that of all devices
        self._seconds_per_round = seconds_per_round
        self._batched = batched
        self._unit = _UnitWeights.of(plan)
        size = self._message_bytes()
        self._timeline = Timeline(plan, size, seconds_per_round, patience)
        if snapshot is not None:
            self._timeline.restore(snapshot.tensors)

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

    # -- a round of the network -------------------------------------------------------------------

    def _run_round(self, t: int) -> None:
        self._last_links = self.plan.network.links(t)
        meetings = self._timeline.advance(t)
        self._traffic.bytes += meetings.cut_bytes
        for wave in self._waves(meetings):
            self._run_wave(meetings, wave, t)
        self._state = self.plan.algorithm.compact(self._state, lambda holds: holds)
        self._check_state(t)

    def _waves(self, meetings: Meetings) -> list[IntArray]:
        if self._batched:
            return waves(meetings.a, meetings.b, self.plan.task.devices)
        return [np.array([k]) for k in range(len(meetings))]

    def _run_wave(self, meetings: Meetings, wave: IntArray, t: int) -> None:
        """Run the method for the devices of a wave: first the pairs, then the single devices."""
        a = meetings.a[wave]
        b = meetings.b[wave]
        paired = b >= 0
        numbers = np.concatenate([np.stack([a[paired], b[paired]], 1).ravel(), a[~paired]])
        a_round = meetings.a_round[wave]
        b_round = meetings.b_round[wave]
        own_rounds = np.concatenate(
            [np.stack([a_round[paired], b_round[paired]], 1).ravel(), a_round[~paired]]
        )
        rows = torch.from_numpy(numbers).to(self._device)
        before = self._state_of(rows)
        pairs = int(paired.sum())
        after = self._next_state(before, rows, pairs, t, own_rounds, self._traffic)
        for name, x in after.items():
            if name in self._per_device(self._state):
                self._state[name].index_copy_(0, rows, x)
            else:
                self._state[name] = x

    def _state_of(self, rows: Tensor) -> State:
        """Return copies of some devices' rows, and what all devices share."""
        own = self._per_device(self._state)
        return {name: x[rows] if name in own else x for name, x in self._state.items()}

    def _next_state(
        self,
        state: State,
        rows: Tensor,
        pairs: int,
        t: int,
        own_rounds: IntArray,
        traffic: Traffic,
    ) -> State:
        """Return the state of some devices after a round of the method.

        Args:
            state: Their rows, which may be overwritten.
            rows: The devices: those of the pairs side by side, then single ones.
            pairs: Number of pairs.
            t: The round of the network.
            own_rounds: The devices' own rounds, which decide their batches.
            traffic: Counts the messages.
        """
        weights = self._unit.stacked(pairs, len(rows) - 2 * pairs)
        mix = StackedMix(weights, rows, self._dtype.itemsize, traffic, buffers=self._buffers)
        gradient = BatchGradient(self.worker, own_rounds, devices=rows)
        return self.plan.algorithm.next_state(state, gradient, mix, t)

    def _check_state(self, t: int) -> None:
        """Raise Diverged if a model is not finite."""
        mix = StackedMix(self._unit.stacked(0, len(self._devices)), self._devices, 0, Traffic())
        self._check_finite(t, mix)

    # -- results ----------------------------------------------------------------------------------

    def record(self) -> Record:
        return replace(super().record(), seconds=self.round * self._seconds_per_round)

    def _measured_models(self, t: int) -> Tensor:
        return self.models()

    def snapshot(self, copy: bool = True) -> Snapshot:
        found = super().snapshot(copy)
        return replace(found, tensors=found.tensors | self._timeline.tensors())


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


def _without_timeline(snapshot: Snapshot | None) -> Snapshot | None:
    """Return a snapshot with the state of the devices' models only."""
    if snapshot is None:
        return None
    tensors = {}
    for name, x in snapshot.tensors.items():
        if not name.startswith(PREFIX):
            tensors[name] = x
    return replace(snapshot, tensors=tensors)
