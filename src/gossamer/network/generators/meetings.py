"""Devices that meet at random times, for a random or a fixed time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer._core.sorting import distinct
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import FloatArray, IntArray, Links, Network
from gossamer.network.generators.pairs import links_from_numbers, pair_count, pair_of

# A draw has 53 bits, so no exponential one is longer than −ln 2⁻⁵³ = 36.7 times its mean.
_LONGEST = 37.0
_BLOCKS_KEPT = 4
_MAX_MEETINGS = 20_000_000  # meetings in one block: 0.5 GB

Block = tuple[FloatArray, FloatArray, IntArray]  # begins, ends, numbers of pairs
Meetings = tuple[IntArray, IntArray, FloatArray, FloatArray]  # pairs, begins, ends


@register("network", "poisson-meetings")
@dataclass(frozen=True)
class PoissonMeetings(Network):
    """Every pair of devices meets at random times, independently of all others.

    The meetings of a pair begin as a Poisson process. Two devices are linked in a round if they
    are together when it begins, at the time t · seconds_per_round; a shorter meeting may fall
    between two rounds. A pair is linked in the share 1 − exp(−rate · duration) of all rounds. Only
    meetings are drawn, not pairs.

    Args:
        devices: Number of devices.
        rate: Meetings per second of each pair.
        duration: Mean length of a meeting in seconds.
        lengths: "exponential" lengths, or "fixed" ones.
        seed: Seed of the meetings.
        seconds_per_round: Seconds between the beginnings of two rounds.

    Example:
        >>> network = PoissonMeetings(100, rate=1e-4, duration=12.0)
        >>> network.links(7) == network.links(7)
        True
    """

    devices: int
    rate: float
    duration: float
    lengths: Literal["exponential", "fixed"] = "exponential"
    seed: int = 0
    seconds_per_round: float = 1.0
    _blocks: dict[int, Block] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        limits.check_drawn(self.seed)
        checks.not_negative("rate", self.rate)
        checks.positive("duration", self.duration)
        checks.positive("seconds_per_round", self.seconds_per_round)
        if self.lengths not in ("exponential", "fixed"):
            raise InputError("lengths", self.lengths, '"exponential" or "fixed"')
        meetings = self._rate_of_all * self._block_seconds
        if not meetings <= _MAX_MEETINGS:
            accepted = (
                f"rarer or shorter meetings, or fewer devices: {meetings:.3g} meetings within "
                f"{self._block_seconds:g} s are more than {_MAX_MEETINGS:,}"
            )
            raise InputError("rate", self.rate, accepted)
        object.__setattr__(self, "_blocks", {})

    @property
    def round_seconds(self) -> float:  # type: ignore[override]
        return self.seconds_per_round

    @property
    def _rate_of_all(self) -> float:
        """Meetings per second of all pairs."""
        return self.rate * pair_count(self.devices)

    @property
    def _block_seconds(self) -> float:
        """Length of the blocks of time whose meetings are drawn together.

        No meeting is longer, so one that lasts now has begun in this block or the one before.
        """
        longest = self.duration
        if self.lengths == "exponential":
            longest *= _LONGEST
        return max(longest, self.seconds_per_round)

    def links(self, t: int) -> Links:
        now = t * self.seconds_per_round
        _, _, pairs = self._during(now, now)
        return links_from_numbers(self.devices, distinct(pairs))

    def meetings(self, begin: float, end: float) -> Meetings:
        """Return the meetings that last at some time in an interval, in the order they begin.

        Two meetings of a pair may overlap.

        Args:
            begin: Begin of the interval in seconds.
            end: End of the interval.

        Returns:
            Both devices of each meeting, and when it begins and ends. A meeting may have begun
            before time 0.

        Example:
            >>> a, b, begins, ends = PoissonMeetings(9, 0.1, 2.0).meetings(0.0, 10.0)
            >>> bool((begins < 10).all()) and bool((ends > 0).all())
            True
        """
        begins, ends, numbers = self._during(begin, end)
        return *pair_of(numbers, self.devices), begins, ends

    def _during(self, begin: float, end: float) -> Block:
        """Return the meetings that last at some time from begin to end, both included."""
        first = math.floor(begin / self._block_seconds) - 1
        last = math.floor(end / self._block_seconds)
        blocks = [self._block(number) for number in range(first, last + 1)]
        begins, ends, pairs = (np.concatenate(column) for column in zip(*blocks, strict=True))
        lasting = (begins <= end) & (ends > begin)
        return begins[lasting], ends[lasting], pairs[lasting]

    def _block(self, number: int) -> Block:
        """Return the meetings that begin in a block of time."""
        if number not in self._blocks:
            while len(self._blocks) >= _BLOCKS_KEPT:
                self._blocks.pop(next(iter(self._blocks)), None)
            self._blocks[number] = self._draw(number)
        return self._blocks[number]

    def _draw(self, number: int) -> Block:
        begins = self._begins(number)
        which = np.arange(len(begins))
        pairs = pair_count(self.devices)
        u = draws.uniform(self.seed, "links/meetings/pair", number, which)
        lengths = np.full(len(begins), float(self.duration))
        if self.lengths == "exponential":
            v = draws.uniform(self.seed, "links/meetings/length", number, which)
            lengths = -np.log1p(-v) * self.duration
        return begins, begins + lengths, np.minimum((u * pairs).astype(np.int64), pairs - 1)

    def _begins(self, number: int) -> FloatArray:
        """Return when the meetings of a block begin: the gaps between them are exponential."""
        mean = self._rate_of_all * self._block_seconds
        if mean == 0:
            return np.empty(0)
        size = int(mean + 5 * math.sqrt(mean) + 5)
        while True:
            u = draws.uniform(self.seed, "links/meetings/begin", number, np.arange(size))
            passed = np.cumsum(-np.log1p(-u)) / mean  # measured in blocks
            if passed[-1] >= 1:
                inside = passed[: np.searchsorted(passed, 1.0)]
                return (number + inside) * self._block_seconds
            size *= 2
