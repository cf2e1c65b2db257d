"""Which samples each device holds, and which of them make a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer import draws
from gossamer._core.arguments import checked
from gossamer.backend import sample_numbers
from gossamer.errors import InputError

IntArray = NDArray[np.int64]

_MAX_SAMPLES = 1 << 32  # a draw has 32 bits


@dataclass(frozen=True, eq=False)
class Split:
    """Device i holds the samples index[offsets[i] : offsets[i+1]], at least one.

    Args:
        index: Sample numbers, device by device.
        offsets: Where each device's samples begin, and where the last device's end.

    Example:
        >>> split = Split(np.array([0, 2, 4, 1, 3]), np.array([0, 3, 5]))
        >>> split.of(0).tolist(), split.of(1).tolist()
        ([0, 2, 4], [1, 3])
    """

    index: IntArray
    offsets: IntArray

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> IntArray:
        """Number of samples that each device holds."""
        return np.diff(self.offsets)

    def of(self, device: int) -> IntArray:
        """Return the sample numbers of one device."""
        return self.index[self.offsets[device] : self.offsets[device + 1]]


def batch(
    split: Split,
    seed: int,
    t: int | IntArray,
    step: int,
    size: int,
    devices: IntArray,
    arrived: IntArray | None = None,
) -> IntArray:
    """Draw batches from each device's own samples, uniformly and with replacement.

    The draw is by name: a device's batch does not depend on the other devices that are asked for.

    Args:
        split: The samples of each device.
        seed: The seed of the run.
        t: The round; the round of each device, as [devices, 1]; or several rounds, as
            [rounds, 1, 1].
        step: Local step within the round.
        size: Samples per batch.
        devices: Numbers of the devices.
        arrived: How many samples each of them has so far, the first ones; None: all.

    Returns:
        Sample numbers [devices, size], or [rounds, devices, size].

    Example:
        >>> split = Split(np.arange(6), np.array([0, 3, 6]))
        >>> batch(split, seed=0, t=5, step=0, size=4, devices=np.arange(2)).shape
        (2, 4)
    """
    column = devices[:, None]
    bits = draws.bits(seed, "batch", t, step, column)
    rows = np.broadcast_to(column, bits.shape).ravel()
    held = split.sizes[column]
    if arrived is not None:
        held = arrived[:, None]
    first = split.offsets[rows]
    sizes = np.broadcast_to(held, bits.shape).ravel()
    found = sample_numbers(bits.ravel(), first, sizes, split.index, size)
    if found is not None:
        return found.reshape(*bits.shape[:-1], size)
    position = draws.below(held, seed, "batch", t, step, column, np.arange(size))
    position += split.offsets[column]
    return split.index[position]


def whole(split: Split, devices: IntArray) -> IntArray:
    """Return all samples of devices that hold equally many.

    Args:
        split: The samples of each device.
        devices: Numbers of the devices.

    Returns:
        Sample numbers [devices, size]: a view of the split if these are all devices, since a
        million devices need no second copy of it.

    Example:
        >>> split = Split(np.array([5, 3, 0, 1]), np.array([0, 2, 4]))
        >>> whole(split, np.array([1, 0])).tolist()
        [[0, 1], [5, 3]]
    """
    size = int(split.sizes[devices[0]])
    first = split.offsets[devices]
    if np.array_equal(first, np.arange(len(devices)) * size) and len(devices) == split.devices:
        return split.index.reshape(-1, size)
    return split.index[first[:, None] + np.arange(size)]


@checked
def from_lists(lists: Iterable[ArrayLike], samples: int | None = None) -> Split:
    """Make a split from one list of sample numbers per device.

    Args:
        lists: The sample numbers of each device. Several devices may hold a sample, or none.
        samples: Number of samples, if the sample numbers shall be checked against it.

    Returns:
        The split.

    Raises:
        InputError: If a list is empty or holds anything but sample numbers.

    Example:
        >>> from_lists([[0, 1], [1, 2, 3]]).sizes.tolist()
        [2, 3]
    """
    try:
        parts = [np.asarray(part) for part in lists]
    except ValueError as error:  # a list within the list
        raise InputError(
            "lists", "nested lists", "one flat list of sample numbers for each device"
        ) from error
    if not parts:
        raise InputError("lists", [], "one list of sample numbers for each device")
    for device, part in enumerate(parts):
        if part.ndim != 1 or len(part) == 0 or part.dtype.kind not in "iu":
            accepted = f"a list of whole numbers, at least one, for device {device}"
            raise InputError("lists", part.tolist(), accepted)
    return checked_split(np.concatenate(parts), np.cumsum([0, *map(len, parts)]), samples)


def checked_split(index: NDArray[Any], offsets: NDArray[Any], samples: int | None) -> Split:
    """Make a split from its arrays.

    Args:
        index: Sample numbers, device by device.
        offsets: Where each device's samples begin, and where the last device's end.
        samples: Number of samples (None: any).

    Raises:
        InputError: If a sample number is out of range.
    """
    limit = _MAX_SAMPLES if samples is None else samples
    outside = (index < 0) | (index >= limit)
    if outside.any():
        accepted = f"sample numbers from 0 to {limit - 1}"
        raise InputError("lists", int(index[outside][0]), accepted)
    return Split(index.astype(np.int64), offsets.astype(np.int64))


def own_split(source: Any) -> Split | None:
    """Return the split that a data source brings along, or None if it has none.

    A synthetic problem draws every device's own samples: its method `split()` returns which they
    are, and a study's split rule does not apply.

    Args:
        source: A source of data, or loaded data.

    Returns:
        The samples of each device, or None.

    Example:
        >>> from gossamer.tasks import Digits
        >>> own_split(Digits()) is None
        True
    """
    make = getattr(source, "split", None)
    if make is None:
        return None
    split: Split = make()
    return split
