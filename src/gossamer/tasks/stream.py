"""Data that keep coming: the samples of a device arrive over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer._core import checks
from gossamer._core.arguments import checked

_MAX_SAMPLES = 2.0**52  # above 2⁵³ not every whole number is a float64


@checked
@dataclass(frozen=True)
class Stream:
    """Samples of every device that arrive at a constant rate, in the order of the split.

    A batch is drawn from what has arrived when its step is taken. Time is the seconds since the
    start: in rounds, those at which the device begins the round if the study has a timing, else the
    number of the round. On the events engine, the time of the step.

    Args:
        rate: Samples per second and device, until all of the device's samples have arrived.
        start: Samples that every device has at the start.

    Raises:
        InputError: If a value is not accepted.

    Example:
        >>> Stream(rate=0.5, start=10).arrived(np.array([0.0, 3.0, 100.0]), np.array([9, 99, 40]))
        array([ 9, 11, 40])
    """

    rate: float
    start: int = 1

    def __post_init__(self) -> None:
        checks.not_negative("rate", self.rate)
        checks.whole("start", self.start, 1, 10**12)

    def arrived(self, seconds: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many samples devices have.

        Args:
            seconds: The time of each device.
            sizes: The number of samples that each device has in the end.
        """
        with np.errstate(over="ignore"):  # infinitely many are bounded below
            came = np.minimum(np.floor(self.rate * seconds), _MAX_SAMPLES).astype(np.int64)
        return np.minimum(self.start + came, sizes)
