"""Waves: events that share no device commute, so those of one wave are computed together."""

from __future__ import annotations

import numpy as np

from gossamer.backend import wave_numbers
from gossamer.network.base import IntArray

_FEW = 1 << 15  # numbers below which NumPy sorts 16 bits in one pass


def waves(a: IntArray, b: IntArray, kind: IntArray, devices: int) -> list[IntArray]:
    """Divide events into waves of one kind, in each of which a device takes part at most once.

    An event is in the first wave of its kind after those of the earlier events of its devices. So
    every device takes part in its events in their order, and the result does not depend on the
    waves. The kinds take turns: few waves with many events each are faster than many with few.

    Args:
        a: One device of each event, in the order of time.
        b: The other device; -1 if there is none.
        kind: The kinds of the events, small whole numbers.
        devices: Number of devices.

    Returns:
        The numbers of the events of each wave, ascending.

    Example:
        >>> a = np.array([0, 2, 1])
        >>> b = np.array([1, -1, 2])
        >>> [wave.tolist() for wave in waves(a, b, np.zeros(3, np.int64), 3)]
        [[0, 1], [2]]
    """
    if len(a) == 0:
        return []
    present = np.bincount(kind) > 0
    turn = (np.cumsum(present) - 1)[kind]
    wave = wave_numbers(a, b, turn, int(present.sum()), devices)
    sizes = np.bincount(wave)
    if len(sizes) < _FEW:
        wave = wave.astype(np.int16)
    order = np.argsort(wave, kind="stable")
    return np.split(order, np.cumsum(sizes[sizes > 0])[:-1])
