"""What devices have done so far: seconds of computing, exchanging, waiting, and being away.

All follows from the events of a timeline, and from what its devices are in the middle of. Nothing
here changes a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.engines.events.contacts import ContactSource
from gossamer.engines.events.event_list import (
    EXCHANGE,
    KEEP,
    RECEIVE,
    RESUME,
    SEND,
    STEP,
    UNDO,
    EventList,
)
from gossamer.engines.events.timeline import COMPUTING, EXCHANGING
from gossamer.engines.events.timeline_state import PREFIX
from gossamer.network.base import BoolArray, FloatArray, IntArray

# Shares of the time below this are rounding errors of its sums.
_ROUNDING = 1e-9
# More devices have no columns of their own in the metrics.
_MAX_DEVICES = 1000
_PREFIX = PREFIX + "activity/"


class _State(Protocol):
    """The state of a timeline; see `timeline_state`."""

    def tensors(self) -> dict[str, Tensor]: ...


class Activity(ABC):
    """Seconds that every device has spent in each state.

    Args:
        source: The contacts and durations of the run.
        timeline: What the devices are in the middle of.
    """

    def __init__(self, source: ContactSource, timeline: _State) -> None:
        self._source = source
        self._timeline = timeline
        devices = source.devices
        # What is under way is added when it is asked for.
        self._totals = {
            "computed": np.zeros(devices),
            "exchanged": np.zeros(devices),
            "absent": np.zeros(devices),  # rounds of the network in which the device is not there
            "charged": np.zeros(devices),
            # How long the step takes that the device is in the middle of.
            "step": source.step_seconds(0).copy(),
            "joules": np.full(devices, source.batteries.full),
        }

    def add(self, events: EventList, t: int) -> None:
        """Take note of what has happened in a round of the network.

        Args:
            events: What has happened.
            t: The round, the one after the last.
        """
        active = self._source.links(t).active
        if active is not None:
            self._totals["absent"][~active] += self._source.seconds_per_round
        self._add(events, t)

    @abstractmethod
    def _add(self, events: EventList, t: int) -> None:
        """Take note of the events of a round."""

    @abstractmethod
    def seconds(self, now: float) -> dict[str, FloatArray]:
        """Return the seconds since the start by state, one value per device.

        Args:
            now: The time at the end of the last round.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return the totals for a snapshot."""
        return {_PREFIX + name: torch.from_numpy(x.copy()) for name, x in self._totals.items()}

    def restore(self, tensors: dict[str, Tensor]) -> bool:
        """Take over the totals of a snapshot, after the timeline. Return False if it has none.

        Args:
            tensors: What `tensors` returned; others are ignored.
        """
        for name, x in self._totals.items():
            found = tensors.get(_PREFIX + name)
            if found is None or found.shape != x.shape:
                return False
            x[:] = found.numpy()
        return True

    def _end_steps(self, devices: IntArray, t: int) -> None:
        """Add the steps that devices have ended; they begin the next."""
        count = np.bincount(devices, minlength=self._source.devices)
        ended = count > 0
        step = self._totals["step"]
        now = self._source.step_seconds(t)
        self._totals["computed"][ended] += step[ended] + (count[ended] - 1) * now[ended]
        step[ended] = now[ended]

    def _state(self, name: str) -> FloatArray:
        """Return a part of the timeline's state."""
        return np.asarray(self._timeline.tensors()[PREFIX + name].numpy())

    def _step_done(self, remaining: FloatArray) -> FloatArray:
        """Return the seconds of the steps under way, given how long they still take."""
        step = self._totals["step"]
        return np.clip(step - remaining, 0.0, step)


class PairActivity(Activity):
    """Of methods with rounds in pairs: a device does one thing after the other.

    Args:
        source: The contacts and durations of the run.
        timeline: What the devices are in the middle of.
    """

    def __init__(self, source: ContactSource, timeline: _State) -> None:
        super().__init__(source, timeline)
        self._remember()

    def restore(self, tensors: dict[str, Tensor]) -> bool:
        self._remember()
        return super().restore(tensors)

    def _remember(self) -> None:
        """Keep which exchanges are under way at the end of a round."""
        self._exchanging = self._state("phase") == EXCHANGING
        self._since = self._state("since")

    def _add(self, events: EventList, t: int) -> None:
        paired = events.b >= 0
        seconds = np.zeros(len(events))
        timing = self._source.timing
        seconds[paired] = timing.carrying(
            t, events.a[paired], events.b[paired], self._source.message_bytes
        )
        # An entry for each device of each event.
        event = np.repeat(np.arange(len(events)), 1 + paired)
        is_second = np.zeros(len(event), dtype=bool)
        is_second[1:] = event[1:] == event[:-1]
        devices = np.where(is_second, events.b[event], events.a[event])
        time = events.time[event]
        sent = paired[event]
        exchange = seconds[event]
        # An exchange that was under way has now ended, or was cut.
        first = np.full(len(self._exchanging), -1)
        first[devices[::-1]] = np.arange(len(event))[::-1]  # the earliest entry is written last
        firsts = first[self._exchanging & (first >= 0)]
        exchange[firsts] = time[firsts] - self._since[devices[firsts]]
        np.add.at(self._totals["exchanged"], devices, exchange)
        self._end_steps(devices, t)
        if self._source.batteries.exist:
            self._discharge(devices, sent)
        self._remember()

    def _discharge(self, devices: IntArray, sent: BoolArray) -> None:
        """Follow the batteries, as the timeline does."""
        batteries = self._source.batteries
        joules = self._totals["joules"]
        for device, has_sent in zip(devices.tolist(), sent.tolist(), strict=True):
            left = batteries.after_step(joules[device])
            if has_sent:
                left = batteries.after_message(left)
            away = batteries.seconds_away(left)
            joules[device] = batteries.full if away else left
            self._totals["charged"][device] += away

    def seconds(self, now: float) -> dict[str, FloatArray]:
        remaining = self._state("due") - now
        computes = self._state("phase") == COMPUTING
        step = self._totals["step"]
        step_done = np.where(computes, self._step_done(remaining), step)
        computing = self._totals["computed"] + step_done
        exchanging = self._totals["exchanged"] + self._exchanging * (now - self._since)
        still_charging = np.where(computes, np.maximum(0.0, remaining - step), 0.0)
        away = self._totals["absent"] + self._totals["charged"] - still_charging
        waiting = _rest(now, computing + exchanging + away)
        return {
            "computing": computing,
            "exchanging": exchanging,
            "waiting": waiting,
            "away": away,
        }


class BackgroundActivity(Activity):
    """Of methods without rounds: a device that is there computes, and may exchange meanwhile."""

    def _add(self, events: EventList, t: int) -> None:
        self._end_steps(events.a[events.kind == STEP], t)
        kind = events.kind
        both = kind == EXCHANGE
        begins = (kind == SEND) | (kind == RESUME)
        ends = both | (kind == RECEIVE) | (kind == UNDO) | (kind == KEEP)
        exchanged = self._totals["exchanged"]
        np.subtract.at(exchanged, events.a[begins], events.time[begins])
        np.add.at(exchanged, events.a[ends], events.time[ends])
        np.add.at(exchanged, events.b[both], events.time[both])

    def seconds(self, now: float) -> dict[str, FloatArray]:
        computing = self._totals["computed"] + self._step_done(self._state("step_due") - now)
        exchanging = self._totals["exchanged"] + now * (self._state("partner") >= 0)
        return {
            "computing": computing,
            "exchanging": exchanging,
            "waiting": np.zeros_like(computing),
            "away": _rest(now, computing),
        }


def _rest(now: float, seconds: FloatArray) -> FloatArray:
    """Return what is left of the time, without rounding errors."""
    rest = now - seconds
    rest[rest < _ROUNDING * now] = 0.0
    return rest


def activity(source: ContactSource, timeline: _State, in_pairs: bool) -> Activity | None:
    """Return what the devices of a run do; None if there are too many to tell of each.

    Args:
        source: The contacts and durations of the run.
        timeline: What the devices are in the middle of.
        in_pairs: True for methods with rounds in pairs.
    """
    if source.devices > _MAX_DEVICES:
        return None
    if in_pairs:
        return PairActivity(source, timeline)
    return BackgroundActivity(source, timeline)
