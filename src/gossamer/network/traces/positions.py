"""Links from a log of positions."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.network.base import FloatArray, IntArray, Links
from gossamer.network.mobility import within
from gossamer.network.traces.reader import SNAP, Trace, TraceReader, round_of

EARTH_RADIUS = 6_371_008.8  # metres; the mean radius


@register("network", "positions")
@dataclass(frozen=True)
class PositionTrace(Trace):
    """Links from a log of positions, with lines `t device x y`.

    Two devices are linked if they are at most `radius` apart. Between two fixes a device moves in a
    straight line at constant speed; before its first and after its last fix it is away. Round k
    has the positions at the time start + k · seconds_per_round.

    Args:
        path: The log.
        radius: Largest distance of a link, in the unit of the positions, or in metres along the
            surface of the Earth if `geographic`.
        devices: Number of devices; 0 for as many as the log names.
        geographic: True if the positions are latitude and longitude in degrees.
        seconds_per_round: Seconds per round.
        start: Time of round 0, in seconds.
        beyond: What follows the last round: "error", "repeat" or "empty".

    Raises:
        DataError: If the log cannot be read or has a wrong line.

    Example:
        A log of GPS fixes, with a round every 10 seconds::

            trace = PositionTrace(
                "fixes.csv",
                radius=150.0,
                geographic=True,
                seconds_per_round=10.0,
                start=1_700_000_000,
            )
            trace.links(0).active
    """

    path: str | Path
    radius: float
    devices: int = 0
    geographic: bool = False
    seconds_per_round: float = 1.0
    start: float = 0.0
    beyond: str = "error"
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    recorded: int = field(init=False, compare=False)
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
        reader = self._reader()
        device_column, time, x, y = self._read(reader)
        names, number = reader.device_numbers(self.devices)
        device = number[device_column]
        order = np.lexsort((time, device))
        times = np.unique(time)
        key = device * (len(times) + 1) + np.searchsorted(times, time)
        recorded = int(round_of(times[-1:])[0]) + 1
        self._set(devices=len(names), names=names, recorded=recorded, _times=times)
        self._set(_time=time[order], _position=np.stack([x, y], axis=1)[order], _key=key[order])
        self._set(_ends=np.cumsum(np.bincount(device, minlength=len(names))))

    def _read(self, reader: TraceReader) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Return device (in the order of appearance), time (in rounds), x and y of each fix."""
        device = array("q")
        time = array("d")
        x_column = array("d")
        y_column = array("d")
        for words in reader:
            if len(words) != 4:
                raise reader.error(f"expected lines `t device x y`, not {' '.join(words)[:60]!r}")
            x = reader.parse_number(words[2], "the position")
            y = reader.parse_number(words[3], "the position")
            if self.geographic and (abs(x) > 90 or abs(y) > 180):
                raise reader.error(
                    f"latitude {x} or longitude {y} is out of range; "
                    "give -90 to 90 and -180 to 180 degrees"
                )
            time.append(reader.parse_time(words[0]))
            x_column.append(x)
            y_column.append(y)
            device.append(reader.parse_device(words[1]))
        return np.array(device), np.array(time), np.array(x_column), np.array(y_column)

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
        present = (latest >= first) & (has_next | is_now)

        latest = latest[present]
        following = np.minimum(latest + 1, self._ends[present] - 1)
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

    def layout(self, t: int) -> FloatArray:
        if self.beyond == "repeat":
            t %= self.recorded
        position = self.positions(t)
        if self.geographic:
            return position[:, ::-1]  # the latitude is the vertical coordinate
        return position

    def _recorded_links(self, t: int) -> Links:
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
        a, b = within(points, radius)
        return Links(self.devices, device[a], device[b], active=present)


def _on_sphere(degrees: FloatArray) -> FloatArray:
    """Return points on the unit sphere from latitude and longitude in degrees."""
    latitude, longitude = np.radians(degrees).T
    horizontal = np.cos(latitude)
    x = horizontal * np.cos(longitude)
    y = horizontal * np.sin(longitude)
    return np.stack([x, y, np.sin(latitude)], axis=1)
