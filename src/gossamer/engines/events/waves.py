"""Waves: meetings that share no device commute, so those of one wave are computed together."""

from __future__ import annotations

import numpy as np

from gossamer.network.base import IntArray


def waves(a: IntArray, b: IntArray, devices: int) -> list[IntArray]:
    """Divide meetings into waves, in each of which a device takes part at most once.

    A meeting is in the first wave after those of the earlier meetings of its devices. So every
    device takes part in its meetings in their order, and the result does not depend on the waves.

    Args:
        a: One device of each meeting, in the order of time.
        b: The other device; -1 if there is none.
        devices: Number of devices.

    Returns:
        The numbers of the meetings of each wave, ascending.

    Example:
        >>> a = np.array([0, 2, 1])
        >>> b = np.array([1, -1, 2])
        >>> [wave.tolist() for wave in waves(a, b, 3)]
        [[0, 1], [2]]
    """
    following = [0] * (devices + 1)  # the first wave that is free; the last entry is for b = -1
    wave = []
    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        own = following[one]
        if other >= 0 and following[other] > own:
            own = following[other]
        wave.append(own)
        following[one] = own + 1
        if other >= 0:
            following[other] = own + 1
    found = np.array(wave, dtype=np.int64)
    order = np.argsort(found, kind="stable")
    return np.split(order, np.cumsum(np.bincount(found))[:-1]) if len(found) else []
