"""Devices that move, and are linked while they are near each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import IntArray, Links, Network

FloatArray = NDArray[np.float64]


def within(points: FloatArray, radius: float) -> tuple[IntArray, IntArray]:
    """The pairs (a < b) of points at most `radius` apart, sorted."""
    from scipy.spatial import cKDTree

    tree = cKDTree(points)
    if len(points) > math.isqrt(2 * limits.MAX_LINKS):  # only then can there be too many
        limits.check_links(
            "radius", radius, (int(tree.count_neighbors(tree, radius)) - len(points)) / 2
        )
    pairs = tree.query_pairs(radius, output_type="ndarray").astype(np.int64)
    code = np.sort(pairs[:, 0] * len(points) + pairs[:, 1])
    return code // len(points), code % len(points)


@register("network", "mobility")
@dataclass(frozen=True)
class Mobility(Network):
    """Random waypoint: each device goes straight to a random place at a random speed, pauses, and goes on to the next.

    Two devices are linked in a round if they are at most `radius` apart at its start, `t · seconds_per_round`. Lengths
    are in the units of `width` and `height`, speeds in those units a second. Going forward in t is cheap; asking for an
    earlier round starts again from round 0 and gives the same answer.

    >>> Mobility(20, radius=0.2).links(3) == Mobility(20, radius=0.2).links(3)
    True
    """

    devices: int
    radius: float
    min_speed: float = 0.05
    max_speed: float = 0.15
    pause: float = 0.0
    width: float = 1.0
    height: float = 1.0
    seed: int = 0
    seconds_per_round: float = 1.0
    _latest: list[tuple[float, FloatArray]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        limits.check_drawn(self.seed)
        checks.not_negative("radius", self.radius)
        for name in ("min_speed", "max_speed", "width", "height", "seconds_per_round"):
            checks.positive(name, getattr(self, name))
        checks.not_negative("pause", self.pause)
        if self.max_speed < self.min_speed:
            raise InputError(
                "max_speed", self.max_speed, f"a number from min_speed = {self.min_speed}"
            )
        if self.max_speed * self.seconds_per_round > 1000 * max(self.width, self.height):
            raise InputError(
                "max_speed",
                self.max_speed,
                "a speed that crosses the area at most 1000 times a round",
            )
        object.__setattr__(self, "_latest", [])

    def links(self, t: int) -> Links:
        return Links(self.devices, *within(self.positions(t), self.radius))

    def positions(self, t: int) -> FloatArray:
        """Where the devices are at the start of round t: [m, 2]."""
        time = t * self.seconds_per_round
        legs = self._legs_at(time)
        start, goal, begin, arrive = legs[:, 1:3], legs[:, 3:5], legs[:, 5], legs[:, 6]
        way = arrive - begin
        done = np.divide(time - begin, way, out=np.ones_like(way), where=way > 0)
        here: FloatArray = start + np.clip(done, 0.0, 1.0)[:, None] * (goal - start)
        return here

    def _legs_at(self, time: float) -> FloatArray:
        """Each device's leg at this time: its number, start (x, y), goal (x, y), when it begins, arrives, and ends."""
        # The list is read once and set once, to arrays that are never changed, so threads cannot disturb each other.
        known = self._latest[:1]
        if known and known[0][0] <= time:
            legs = known[0][1]
        else:
            everyone = np.arange(self.devices)
            before = np.zeros((self.devices, 8))
            before[:, 0] = -1
            before[:, 3:5] = self._waypoint(everyone, 0 * everyone)
            legs = self._next(everyone, before)
        while len(over := np.flatnonzero(legs[:, 7] <= time)):
            legs = legs.copy()
            legs[over] = self._next(over, legs[over])
        self._latest[:] = [(time, legs)]
        return legs

    def _next(self, device: IntArray, before: FloatArray) -> FloatArray:
        """The legs after these: leg k goes from waypoint k to waypoint k + 1."""
        k = before[:, 0].astype(np.int64) + 1
        start, begin = before[:, 3:5], before[:, 7]
        goal = self._waypoint(device, k + 1)
        u = draws.uniform(self.seed, "waypoint/speed", device, k)
        speed = self.min_speed + u * (self.max_speed - self.min_speed)
        arrive = begin + np.hypot(*(goal - start).T) / speed
        return np.column_stack([k, start, goal, begin, arrive, arrive + self.pause])

    def _waypoint(self, device: IntArray, k: IntArray) -> FloatArray:
        x = draws.uniform(self.seed, "waypoint/x", device, k) * self.width
        y = draws.uniform(self.seed, "waypoint/y", device, k) * self.height
        return np.stack([x, y], axis=1)
