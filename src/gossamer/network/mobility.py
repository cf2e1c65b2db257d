"""Devices that move in an area and are linked while they are close to each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import BoolArray, FloatArray, IntArray, Links, Network
from gossamer.network.parts import Part

_ROUNDING = 1e-9  # relative error of a distance, at most
# Crossings of the area per round: every leg of every device is computed in turn.
_MAX_CROSSINGS = 1000


def within(points: FloatArray, radius: float) -> tuple[IntArray, IntArray]:
    """Find the pairs of points that are at most `radius` apart.

    Args:
        points: Coordinates [points, dimensions].
        radius: Largest distance of a pair.

    Returns:
        The pairs as two arrays a and b with a < b, sorted by (a, b).

    Raises:
        InputError: If there are more pairs than a round may have links.
    """
    from scipy.spatial import cKDTree

    points = np.asarray(points)
    tree = cKDTree(points)
    if len(points) > math.isqrt(2 * limits.MAX_LINKS):  # only then can there be too many
        ordered = int(tree.count_neighbors(tree, radius))
        limits.check_links("radius", radius, (ordered - len(points)) / 2)
    pairs = tree.query_pairs(radius * (1 + _ROUNDING), output_type="ndarray").astype(np.int64)
    # The tree rounds differently for other sets of points. So that a pair at exactly the radius has
    # one answer, a little more is searched, and the distance decides.
    apart = points[pairs[:, 0]] - points[pairs[:, 1]]
    pairs = pairs[(apart**2).sum(1) <= radius**2]
    code = np.sort(pairs[:, 0] * len(points) + pairs[:, 1])
    return code // len(points), code % len(points)


def within_of(points: FloatArray, radius: float, own: BoolArray) -> tuple[IntArray, IntArray]:
    """Find the pairs of points that are at most `radius` apart, at least one of them marked.

    Args:
        points: Coordinates [points, dimensions].
        radius: Largest distance of a pair.
        own: Which points are marked.

    Returns:
        Those of the pairs that `within` returns.
    """
    if not own.any():
        return np.arange(0), np.arange(0)
    margin = radius * (1 + _ROUNDING)
    low = points[own].min(0) - margin
    high = points[own].max(0) + margin
    near = np.flatnonzero(((points >= low) & (points <= high)).all(1))
    a, b = within(points[near], radius)
    a = near[a]
    b = near[b]
    wanted = own[a] | own[b]
    return a[wanted], b[wanted]


@register("network", "mobility")
@dataclass(frozen=True)
class Mobility(Network):
    """Random waypoint mobility.

    Each device moves straight to a random place at a random speed, pauses, and moves on to the
    next. Two devices are linked in a round if they are at most `radius` apart when it begins, at
    the time t · seconds_per_round. Going forward in t is cheap; an earlier round is computed again
    from round 0, with the same result.

    Args:
        devices: Number of devices.
        radius: Largest distance of a link, in the unit of `width` and `height`.
        min_speed: Smallest speed, in that unit per second.
        max_speed: Largest speed.
        pause: Seconds that a device stays at each place.
        width: Width of the area.
        height: Height of the area.
        seed: Seed of places and speeds.
        seconds_per_round: Seconds between the beginnings of two rounds.

    Example:
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
    # The last legs that were computed: the time, the devices, and their legs.
    _latest: list[tuple[float, IntArray, FloatArray]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        limits.check_drawn(self.seed)
        checks.not_negative("radius", self.radius)
        for name in ("min_speed", "max_speed", "width", "height", "seconds_per_round"):
            checks.positive(name, getattr(self, name))
        checks.not_negative("pause", self.pause)
        if self.max_speed < self.min_speed:
            accepted = f"a number from min_speed = {self.min_speed}"
            raise InputError("max_speed", self.max_speed, accepted)
        size = max(self.width, self.height)
        if self.max_speed * self.seconds_per_round > _MAX_CROSSINGS * size:
            accepted = f"a speed that crosses the area at most {_MAX_CROSSINGS} times per round"
            raise InputError("max_speed", self.max_speed, accepted)
        object.__setattr__(self, "_latest", [])

    @property
    def has_positions(self) -> bool:  # type: ignore[override]
        return True

    @property
    def round_seconds(self) -> float:  # type: ignore[override]
        return self.seconds_per_round

    @property
    def link_radius(self) -> float:
        return self.radius

    def links(self, t: int) -> Links:
        return Links(self.devices, *within(self.positions(t), self.radius))

    def links_of(self, t: int, part: Part) -> Links:
        # Each process moves its own devices, and receives the positions of all others.
        positions = part.sum_rows(self._positions_of(part.devices, t))
        own = part.owner == part.number
        return Links(self.devices, *within_of(positions, self.radius, own))

    def layout(self, t: int) -> FloatArray:
        return self.positions(t)

    def positions(self, t: int) -> FloatArray:
        """Return where the devices are at the beginning of round t.

        Args:
            t: Number of the round, from 0.

        Returns:
            Coordinates [devices, 2].
        """
        return self._positions_of(np.arange(self.devices), t)

    def _positions_of(self, devices: IntArray, t: int) -> FloatArray:
        time = t * self.seconds_per_round
        legs = self._legs_at(time, devices)
        start = legs[:, 1:3]
        goal = legs[:, 3:5]
        begin = legs[:, 5]
        duration = legs[:, 6] - begin
        done = np.divide(time - begin, duration, out=np.ones_like(duration), where=duration > 0)
        position: FloatArray = start + np.clip(done, 0.0, 1.0)[:, None] * (goal - start)
        return position

    def _legs_at(self, time: float, devices: IntArray) -> FloatArray:
        """Return the leg of each of some devices at this time.

        The columns are the leg's number, start (x, y), goal (x, y), and the times at which the
        device sets off, arrives, and begins the next leg.
        """
        # The list is read once and set once, and its arrays never change: threads may share it.
        known = self._latest[:1]
        if known and known[0][0] <= time and np.array_equal(known[0][1], devices):
            legs = known[0][2]
        else:
            before = np.zeros((len(devices), 8))
            before[:, 0] = -1
            before[:, 3:5] = self._waypoint(devices, 0 * devices)
            legs = self._next(devices, before)
        while len(over := np.flatnonzero(legs[:, 7] <= time)):
            legs = legs.copy()
            legs[over] = self._next(devices[over], legs[over])
        self._latest[:] = [(time, devices, legs)]
        return legs

    def _next(self, device: IntArray, before: FloatArray) -> FloatArray:
        """Return the legs after these: leg k goes from waypoint k to waypoint k + 1."""
        k = before[:, 0].astype(np.int64) + 1
        start = before[:, 3:5]
        begin = before[:, 7]
        goal = self._waypoint(device, k + 1)
        u = draws.uniform(self.seed, "waypoint/speed", device, k)
        speed = self.min_speed + u * (self.max_speed - self.min_speed)
        arrive = begin + np.hypot(*(goal - start).T) / speed
        return np.column_stack([k, start, goal, begin, arrive, arrive + self.pause])

    def _waypoint(self, device: IntArray, k: IntArray) -> FloatArray:
        x = draws.uniform(self.seed, "waypoint/x", device, k) * self.width
        y = draws.uniform(self.seed, "waypoint/y", device, k) * self.height
        return np.stack([x, y], axis=1)
