"""The events engine: what all methods share, with rounds in pairs or without rounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
from torch import Tensor

from gossamer.algorithms import State
from gossamer.backend import get_rows, set_rows
from gossamer.engines.events.activity import Activity
from gossamer.engines.events.event_list import EventList
from gossamer.engines.events.timeline_state import PREFIX
from gossamer.engines.events.waves import waves
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.engines.plan import Plan, Record, Snapshot
from gossamer.engines.simulate import Simulator
from gossamer.network.base import IntArray, Links
from gossamer.network.weights import Weights


class _Timeline(Protocol):
    """Decides what happens when; see `Timeline` and `BackgroundTimeline`."""

    @property
    def total_steps(self) -> int: ...

    def advance(self, t: int) -> EventList: ...

    def links(self, t: int) -> Links: ...

    def tensors(self) -> dict[str, Tensor]: ...

    def restore(self, tensors: dict[str, Tensor]) -> None: ...


class EventEngine(Simulator):
    """Runs a plan without common rounds, in this process. `start_events` makes one.

    Devices compute at the pace of the plan's timing. `round` counts the rounds of the network,
    which are time: each lasts `seconds_per_round`. A method's schedules follow that time; its
    batches are those of the device's own rounds or steps. Models are measured as they are at that
    time.

    Args:
        plan: What to run.
        seconds_per_round: How long the links of a round of the network last.
        snapshot: The state to resume from. None: start at time 0.
        batched: Compute events that share no device together. False: one after the other, which
            gives the same result and is slow.
    """

    _timeline: _Timeline
    _activity: Activity | None

    def __init__(
        self,
        plan: Plan,
        seconds_per_round: float,
        snapshot: Snapshot | None,
        batched: bool,
    ) -> None:
        super().__init__(plan, _without_timeline(snapshot))
        self._clock = None  # the time of the network is that of all devices
        self._seconds_per_round = seconds_per_round
        self._batched = batched

    # -- a round of the network -------------------------------------------------------------------

    def _run_round(self, t: int) -> None:
        events = self._timeline.advance(t)
        if self._activity is not None:
            self._activity.add(events, t)
        self._last_links = self._timeline.links(t)
        self._traffic.bytes += events.cut_bytes
        self._begin_round(events)
        for wave in self._waves(events):
            self._run_wave(events, wave, t)
        self._state = self.plan.algorithm.compact(self._state, lambda holds: holds)
        self._check_state(t)

    def _waves(self, events: EventList) -> Iterator[IntArray]:
        if self._batched:
            yield from waves(events.a, events.b, events.kind, self.plan.task.devices)
            return
        for k in range(len(events)):
            yield np.array([k])

    def _begin_round(self, events: EventList) -> None:
        """Prepare what all waves of a round need."""

    def _restore_activity(self, tensors: dict[str, Tensor]) -> None:
        """Take over what a snapshot says about the past; one of an earlier version says nothing."""
        if self._activity is not None and not self._activity.restore(tensors):
            self._activity = None

    @abstractmethod
    def _run_wave(self, events: EventList, wave: IntArray, t: int) -> None:
        """Compute the events of a wave, all of one kind; a device takes part at most once."""

    def _state_of(self, rows: Tensor) -> State:
        """Return copies of some devices' rows, and what all devices share."""
        found = {}
        for name, x in self._state.items():
            found[name] = get_rows(x, rows) if self._is_per_device(x) else x
        return found

    def _set_state_of(self, rows: Tensor, values: State) -> None:
        """Set the rows of some devices, and what all devices share."""
        for name, x in values.items():
            current = self._state.get(name)
            if current is not None and self._is_per_device(current):
                set_rows(current, rows, x)
            else:
                self._state[name] = x

    def _is_per_device(self, x: Tensor) -> bool:
        return x.shape[0] == self._devices.shape[0]

    def _check_state(self, t: int) -> None:
        """Raise Diverged if a model is not finite."""
        none = np.empty(0, dtype=np.int64)
        alone = Weights(len(self._devices), none, none, np.empty(0), np.ones(len(self._devices)))
        self._check_finite(t, StackedMix(alone, self._devices, 0, Traffic()))

    # -- results ----------------------------------------------------------------------------------

    def record(self) -> Record:
        steps = self._timeline.total_steps
        now = self.round * self._seconds_per_round
        return replace(
            super().record(),
            seconds=now,
            steps=steps,
            joules=self._joules(steps, self._traffic.bytes),
            activity={} if self._activity is None else self._activity.seconds(now),
        )

    def _measured_models(self, t: int) -> Tensor:
        return self.models()

    def snapshot(self, copy: bool = True) -> Snapshot:
        found = super().snapshot(copy)
        tensors = found.tensors | self._timeline.tensors()
        if self._activity is not None:
            tensors |= self._activity.tensors()
        return replace(found, tensors=tensors)


def _without_timeline(snapshot: Snapshot | None) -> Snapshot | None:
    """Return a snapshot with the state of the devices' models only."""
    if snapshot is None:
        return None
    tensors = {}
    for name, x in snapshot.tensors.items():
        if not name.startswith(PREFIX):
            tensors[name] = x
    return replace(snapshot, tensors=tensors)
