"""Fixed shapes: all pairs, a star, a ring, a torus."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import FloatArray, IntArray, Links, Network
from gossamer.network.generators.pairs import links_from_numbers, pair_code, pair_count


class Static(Network):
    """A network whose links never change."""

    @property
    def period(self) -> int | None:
        return 1


@register("network", "full")
@dataclass(frozen=True)
class Full(Static):
    """Every device is linked to every other one.

    Args:
        devices: Number of devices.

    Example:
        >>> len(Full(10).links(0))
        45
    """

    devices: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        limits.check_links("devices", self.devices, pair_count(self.devices))

    def links(self, t: int) -> Links:
        return links_from_numbers(self.devices, np.arange(pair_count(self.devices)))


@register("network", "star")
@dataclass(frozen=True)
class Star(Static):
    """Every device is linked to device 0 only.

    Args:
        devices: Number of devices, device 0 included.

    Example:
        >>> Star(4).links(0).degrees.tolist()
        [3, 1, 1, 1]
    """

    devices: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)

    def links(self, t: int) -> Links:
        b = np.arange(1, self.devices)
        return Links(self.devices, np.zeros_like(b), b)


def ring(order: IntArray) -> Links:
    """Link devices that follow each other, and the last to the first.

    Args:
        order: All devices, in the order of the ring.
    """
    m = len(order)
    code = pair_code(order, np.roll(order, -1), m)
    if m <= 2:  # two devices have one link, one device has none
        code = code[: m - 1]
    code = np.sort(code)
    return Links(m, code // m, code % m)


@register("network", "ring")
@dataclass(frozen=True)
class Ring(Static):
    """Device i is linked to i - 1 and i + 1, and the last device to the first.

    Args:
        devices: Number of devices.

    Example:
        >>> Ring(4).links(0).pairs.tolist()
        [[0, 1], [0, 3], [1, 2], [2, 3]]
    """

    devices: int

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)

    def links(self, t: int) -> Links:
        return ring(np.arange(self.devices))


@register("network", "torus")
@dataclass(frozen=True)
class Torus(Static):
    """A grid of two dimensions whose opposite edges are joined: four neighbours per device.

    Device r · columns + c is at row r and column c. With one or two rows, or columns, devices have
    fewer neighbours.

    Args:
        devices: Number of devices.
        rows: Number of rows, which must divide `devices`; 0 for the grid closest to a square.

    Example:
        >>> Torus(12).rows_and_columns
        (3, 4)
        >>> set(Torus(12).links(0).degrees.tolist())
        {4}
    """

    devices: int
    rows: int = 0

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        checks.whole("rows", self.rows, 0, self.devices)
        if self.rows and self.devices % self.rows:
            accepted = f"0, or a number that divides {self.devices} devices without a remainder"
            raise InputError("rows", self.rows, accepted)
        if self.devices > 3 and not self.rows and self.rows_and_columns[0] == 1:
            accepted = "a number of devices that is no prime, rows times columns; or rows = 1"
            raise InputError("devices", self.devices, accepted)

    @property
    def rows_and_columns(self) -> tuple[int, int]:
        """The size of the grid."""
        rows = self.rows
        if not rows:
            rows = math.isqrt(self.devices)
            while self.devices % rows:
                rows -= 1
        return rows, self.devices // rows

    def links(self, t: int) -> Links:
        return self._links

    @cached_property
    def _links(self) -> Links:
        rows, columns = self.rows_and_columns
        device = np.arange(self.devices)
        row, column = np.divmod(device, columns)
        right = row * columns + (column + 1) % columns
        below = (row + 1) % rows * columns + column
        pairs = np.stack([np.tile(device, 2), np.concatenate([right, below])], axis=1)
        return Links.of(self.devices, pairs)

    def layout(self, t: int) -> FloatArray:
        # Rows are circles around each other. A twist keeps the links between them apart.
        rows, columns = self.rows_and_columns
        row, column = np.divmod(np.arange(self.devices), columns)
        radius = 1 - 0.9 * row / rows
        angle = np.pi / 2 - 2 * np.pi * (column + 0.5 * row / rows) / columns
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
