"""Periods of rounds, and which of them a round is in.

A log of days has few rounds with contacts and contacts of very different lengths. `Spans` finds
those of a round in time proportional to their number, whatever the lengths of gaps and contacts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gossamer.network.base import IntArray


@dataclass(frozen=True, eq=False)
class Spans:
    """Periods of rounds with a code each.

    Args:
        code: What each period is of: a link or a device.
        first: Its first round.
        last: Its last round.
    """

    code: IntArray
    first: IntArray
    last: IntArray
    # Periods of similar length are together, so that a window of at most twice their length before
    # a round has all of them that may reach the round.
    _longest: IntArray = field(init=False)  # length - 1 of the longest period of each class
    _bounds: IntArray = field(init=False)  # index at which each class begins, and the end

    def __post_init__(self) -> None:
        length = self.last - self.first + 1
        kind = np.frexp(length.astype(np.float64))[1]  # 2^(kind - 1) ≤ length < 2^kind
        order = np.lexsort((self.first, kind))
        kinds, bounds = np.unique(kind[order], return_index=True)
        for name in ("code", "first", "last"):
            object.__setattr__(self, name, getattr(self, name)[order])
        object.__setattr__(self, "_longest", 2 ** kinds.astype(np.int64) - 2)
        object.__setattr__(self, "_bounds", np.append(bounds, len(order)))

    def at(self, t: int) -> IntArray:
        """Return the codes of the periods that a round is in, sorted and each once.

        Args:
            t: Number of the round.
        """
        found = []
        for k, longest in enumerate(self._longest.tolist()):
            begin = self._bounds[k]
            first = self.first[begin : self._bounds[k + 1]]
            low, high = np.searchsorted(first, [t - longest, t + 1]) + begin
            found.append(self.code[low:high][self.last[low:high] >= t])
        if not found:
            return np.zeros(0, dtype=np.int64)
        return np.unique(np.concatenate(found))

    def count_before(self, t: int) -> int:
        """Return the number of codes in the rounds before t: the sum of `len(at(k))` for k < t.

        Args:
            t: Number of the round.
        """
        begun = self.first < t
        if not begun.any():
            return 0
        _, number = np.unique(self.code[begun], return_inverse=True)
        # The rounds of all codes, one after the other with a gap.
        offset = number.reshape(-1) * (t + 1)
        last = np.minimum(self.last[begun], t - 1)
        begins, ends = union(self.first[begun] + offset, last + offset)
        return int((ends - begins + 1).sum())


def union(first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rounds that some periods cover, as periods that neither overlap nor touch.

    Args:
        first: First round of each period.
        last: Last round of each period.

    Returns:
        The first and last rounds, in order.

    Example:
        >>> begin, end = union(np.array([5, 0, 2]), np.array([6, 1, 2]))
        >>> begin.tolist(), end.tolist()
        ([0, 5], [2, 6])
    """
    order = np.argsort(first, kind="stable")
    first = first[order]
    reach = np.maximum.accumulate(last[order])
    begins = np.concatenate([[True], first[1:] > reach[:-1] + 1])
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(first)) - 1
    return first[starts], reach[ends]
