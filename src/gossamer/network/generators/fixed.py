"""Fixed shapes: all pairs, a star, a ring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gossamer._core.registry import register
from gossamer.network import limits
from gossamer.network.base import IntArray, Links, Network
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
