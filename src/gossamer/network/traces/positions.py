"""Links from a log of positions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.network.base import BoolArray, FloatArray, IntArray, Links
from gossamer.network.mobility import within_of
from gossamer.network.parts import Part
from gossamer.network.traces.clock import count, in_words
from gossamer.network.traces.ids import with_count
from gossamer.network.traces.logs import PositionLog
from gossamer.network.traces.read import read_positions
from gossamer.network.traces.trace import SNAP, Trace, round_of

EARTH_RADIUS = 6_371_008.8  # metres; the mean radius


@register("network", "positions")
@dataclass(frozen=True)
class PositionTrace(Trace):
    """Links from a log of positions: lines `t device x y`, or GPX.

    See `read_positions` for the accepted formats. Two devices are linked if they are at most
    `radius` apart. Between two fixes a device moves in a straight line at constant speed; before
    its first and after its last fix it is absent, and so it is between two fixes that are more than
    `max_gap` apart. Round k has the positions at the time start + k · seconds per round.

    Args:
        path: The log: text, a GPX file with a track per device, or a folder with a GPX file per
            device.
        radius: Largest distance of a link, in the unit of the positions, or in metres along the
            surface of the Earth if `geographic`.
        devices: Number of devices; 0 for as many as the log names.
        geographic: True if the positions are latitude and longitude in degrees, as they are in
            GPX and in columns of these names.
        seconds_per_round: Seconds per round; by default 300 if the log has dates or unix times,
            1 if its times are relative.
        start: Time of round 0: a number of seconds, as in the log, or an ISO date; the first fix
            by default.
        beyond: What follows the last round: "error", "repeat" or "empty".
        columns: What the columns of the log are, if that is not clear: a name per column such as
            `["time", "device", "x", "y"]`, or by role the name in the header.
        absent: What a device does that the log does not see: "away", it takes no part in the
            round and keeps its model, or "alone", it trains without links.
        max_gap: Longest time between two fixes in which a device moves, in seconds; None for any.

    Raises:
        DataError: If the log cannot be read, has a wrong line, or is not clear.

    Example:
        A log of GPS fixes, with a round every 10 seconds::

            trace = PositionTrace("walks.gpx", radius=150.0, seconds_per_round=10.0)
            trace.links(0).active
    """

    path: str | Path
    radius: float
    devices: int = 0
    geographic: bool = False
    seconds_per_round: float | None = None
    start: float | str | datetime | None = None
    beyond: str = "error"
    columns: tuple[str, ...] | dict[str, str] = field(default=(), hash=False)
    absent: str = "away"
    max_gap: float | None = None
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    recorded: int = field(init=False, compare=False)
    round_seconds: float = field(init=False, repr=False, compare=False)
    start_time: float = field(init=False, repr=False, compare=False)
    _described: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # Time (in rounds) and position of each fix, sorted by device, then time.
    _time: FloatArray = field(init=False, repr=False, compare=False)
    _position: FloatArray = field(init=False, repr=False, compare=False)
    # All times that occur, sorted.
    _times: FloatArray = field(init=False, repr=False, compare=False)
    # Per fix: device · (len(_times) + 1) + index in `_times`.
    _key: IntArray = field(init=False, repr=False, compare=False)
    # Per device: one past its last fix.
    _ends: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative("radius", self.radius)
        checks.one_of("absent", self.absent, ("away", "alone"))
        if self.max_gap is not None:
            checks.not_negative("max_gap", self.max_gap, "a number of seconds")
        columns: Any = self.columns
        if isinstance(columns, list):
            self._set(columns=tuple(columns))
        log = read_positions(self.path, self.columns, self.geographic)
        names, number = with_count(self.path, log.names, self.devices)
        self._set_clock(float(log.time.min()), float(log.time.max()), log.absolute)
        self._set(devices=len(names), names=names, geographic=self.geographic or log.geographic)
        time = self._in_rounds(log.time)
        device = number[log.device]
        order = np.lexsort((time, device))
        times = np.unique(time)
        key = device * (len(times) + 1) + np.searchsorted(times, time)
        self._set(recorded=int(round_of(times[-1:])[0]) + 1, _times=times)
        self._set(_time=time[order], _position=log.position[order], _key=key[order])
        self._set(_ends=np.cumsum(np.bincount(device, minlength=len(names))))
        self._set(_described=self._description(log))

    def _description(self, log: PositionLog) -> tuple[str, ...]:
        period = in_words(float(log.time.min()), float(log.time.max()), log.absolute)
        unit = ""
        if self.geographic:
            unit = " m"
        fixes = f"{count(self.devices, 'device')}, {len(log.time):,} fixes, {period}"
        return (
            "; ".join([fixes, *log.notes]),
            f"{count(self.recorded, 'round')} of {self.round_seconds:,.10g} s, "
            f"links up to {self.radius:,.10g}{unit}",
        )

    def describe(self) -> tuple[str, ...]:
        return self._described

    def positions(self, t: int) -> FloatArray:
        """Return where the devices are in round t.

        Args:
            t: Number of the round, from 0.

        Returns:
            Coordinates [devices, 2] as in the log; NaN for devices that are away.
        """
        now = float(t)
        size = len(self._times) + 1
        # A fix within SNAP of now counts as now.
        first_now, after_now = np.searchsorted(self._times, [now - SNAP, now + SNAP])
        device = np.arange(self.devices)
        latest = np.searchsorted(self._key, device * size + after_now) - 1
        first = np.concatenate([[0], self._ends[:-1]])
        has_next = latest < self._ends - 1
        is_now = self._key[latest] >= device * size + first_now
        following = np.minimum(latest + 1, self._ends - 1)
        if self.max_gap is not None:
            gap = (self._time[following] - self._time[latest]) * self.round_seconds
            has_next &= gap <= self.max_gap
        present = (latest >= first) & (has_next | is_now)

        latest = latest[present]
        following = following[present]
        step = self._position[following] - self._position[latest]
        if self.geographic:
            step[:, 1] = (step[:, 1] + 180) % 360 - 180  # the shorter way around the Earth
        gap = self._time[following] - self._time[latest]
        done = np.divide(now - self._time[latest], gap, out=np.zeros_like(gap), where=gap > 0)
        position: FloatArray = np.full((self.devices, 2), np.nan)
        position[present] = self._position[latest] + np.clip(done, 0, 1)[:, None] * step
        return position

    @property
    def has_positions(self) -> bool:  # type: ignore[override]
        return True

    @property
    def link_radius(self) -> float:
        return self.radius

    def layout(self, t: int) -> FloatArray:
        if self.beyond == "repeat":
            t %= self.recorded
        position = self.positions(t)
        if self.geographic:
            return position[:, ::-1]  # the latitude is the vertical coordinate
        return position

    def _recorded_links(self, t: int) -> Links:
        return self._linked_in(t, np.ones(self.devices, dtype=bool))

    def _recorded_links_of(self, t: int, part: Part) -> Links:
        return self._linked_in(t, part.owner == part.number)

    def _linked_in(self, t: int, own: BoolArray) -> Links:
        """Return the links of some devices in a round."""
        position = self.positions(t)
        present = ~np.isnan(position[:, 0])
        device = np.flatnonzero(present)
        points = position[present]
        radius = self.radius
        if self.geographic:
            # The chord of a sphere grows with the distance along its surface, so that points in
            # space and a shorter radius give the same pairs.
            points = _on_sphere(points)
            radius = 2 * math.sin(min(radius / EARTH_RADIUS, math.pi) / 2)
        a, b = within_of(points, radius, own[device])
        active = None
        if self.absent == "away":
            active = present
        return Links(self.devices, device[a], device[b], active=active)


def _on_sphere(degrees: FloatArray) -> FloatArray:
    """Return points on the unit sphere from latitude and longitude in degrees."""
    latitude, longitude = np.radians(degrees).T
    horizontal = np.cos(latitude)
    x = horizontal * np.cos(longitude)
    y = horizontal * np.sin(longitude)
    return np.stack([x, y, np.sin(latitude)], axis=1)
