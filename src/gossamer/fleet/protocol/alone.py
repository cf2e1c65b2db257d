"""Rounds that a device was in alone: once its clock is corrected, it may go back before them.

A device whose clock is an hour ahead runs rounds that no other device is in. After the correction
it would have to wait an hour, since a round is never run twice: a neighbour could then have two
vectors of it. It may go back if

- no other device was in any of the rounds since, so that none of them moved anything;
- it never again takes part in those in which it has sent a vector;
- the first of those is many rounds away, so that no message of it is still under way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

MIN_ROUNDS = 10  # fewest rounds that a device goes back by; otherwise it waits
_MAX_SPANS = 16  # largest number of spans; beyond it the two nearest are merged

Span = tuple[int, int]  # the first round, and the one after the last


@dataclass
class AloneRounds:
    """What a device has to know of its rounds so far.

    Args:
        shared: The round after the last one in which another device was as well.
        spans: The rounds since in which this device has sent a vector, ascending.
        ran: Number of rounds since that this device has run, whether or not it sent a vector.

    Example:
        >>> alone = AloneRounds(shared=6)
        >>> alone.add(366, sent=True, shared=False)
        >>> alone.next_round(367, shown=7)
        7
        >>> alone.next_round(366, shown=366)
        367
    """

    shared: int = 0
    spans: list[Span] = field(default_factory=list)
    ran: int = 0

    def add(self, t: int, sent: bool, shared: bool) -> None:
        """Note a round that is over.

        Args:
            t: The round.
            sent: True if the device has sent a vector in it.
            shared: True if another device was in this round.
        """
        if shared:
            self.shared = max(self.shared, t + 1)
            self.spans = [span for span in self.spans if span[1] > self.shared]
            self.ran = 0
            return
        self.ran += 1
        if sent:
            self._add_span(t)

    def go_back(self, t: int) -> None:
        """Note that the device goes back.

        Args:
            t: The round to which it goes back.
        """
        self.ran = min(self.ran, max(0, t - self.shared))

    def missed(self, rounds: int) -> int:
        """Return how many of the first `rounds` rounds this device has not run since `shared`.

        Args:
            rounds: Number of rounds.
        """
        return max(0, rounds - self.shared - self.ran)

    def next_round(self, t: int, shown: int) -> int:
        """Return the next round to take part in.

        Args:
            t: The round after the last one.
            shown: The round that the clock shows.
        """
        if self._may_go_back(t, shown):
            return shown
        t = max(t, shown)
        for first, end in self.spans:
            if first <= t < end:
                t = end
        return t

    def _may_go_back(self, t: int, shown: int) -> bool:
        if shown < self.shared or t - shown < MIN_ROUNDS:
            return False
        return all(end <= shown or first - shown >= MIN_ROUNDS for first, end in self.spans)

    def _add_span(self, t: int) -> None:
        spans = sorted([*self.spans, (t, t + 1)])
        joined = spans[:1]
        for first, end in spans[1:]:
            if first <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((first, end))
        if len(joined) > _MAX_SPANS:
            gaps = [later[0] - span[1] for span, later in pairwise(joined)]
            k = gaps.index(min(gaps))
            joined[k : k + 2] = [(joined[k][0], joined[k + 1][1])]
        self.spans = joined
