"""Networks whose links several processes compute together, each those of its own devices."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gossamer._core.sorting import distinct
from gossamer.network.base import FloatArray, IntArray, Links


class Part(Protocol):
    """The devices of one process, and how it speaks with those that have the others.

    All processes make the same calls in the same order.

    Attributes:
        number: Number of the process.
        count: Number of processes.
        owner: The process of each device.
        devices: The devices of this process, ascending.
    """

    @property
    def number(self) -> int: ...

    @property
    def count(self) -> int: ...

    @property
    def owner(self) -> IntArray: ...

    @property
    def devices(self) -> IntArray: ...

    def sum(self, x: IntArray) -> IntArray:
        """Return the sum of what all processes pass, element by element."""

    def sum_rows(self, x: FloatArray) -> FloatArray:
        """Return one row per device of the network from one per device of each process."""

    def send(self, values: IntArray, to: IntArray) -> IntArray:
        """Send each value to a process.

        Args:
            values: The values.
            to: The process that receives each of them; it may be this one.

        Returns:
            What this process receives: by the number of the sender, and in its order.
        """


def own_range(size: int, part: Part) -> IntArray:
    """Return the numbers below `size` that one process draws: each is in one process.

    Args:
        size: How many numbers there are.
        part: The process.
    """
    return np.arange(size * part.number // part.count, size * (part.number + 1) // part.count)


def to_all(values: IntArray, part: Part) -> IntArray:
    """Return what all processes pass, one after the other.

    Args:
        values: What this process passes.
        part: This process.
    """
    return part.send(np.tile(values, part.count), np.repeat(np.arange(part.count), len(values)))


def links_of_ends(
    devices: int, a: IntArray, b: IntArray, part: Part, directed: bool = False
) -> Links:
    """Return the links of this process, from links that any of the processes have found.

    Args:
        devices: Number of devices of the network.
        a: First device of each link that this process has found; the smaller one unless directed.
        b: Second device.
        part: This process. A link that several have found counts once.
        directed: True if links go one way.
    """
    code = a * devices + b
    crossing = part.owner[a] != part.owner[b]
    to = np.concatenate([part.owner[a], part.owner[b[crossing]]])
    code = distinct(part.send(np.concatenate([code, code[crossing]]), to))
    return Links(devices, code // devices, code % devices, directed)
