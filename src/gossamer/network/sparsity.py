"""Find networks with so few links that a run on them is probably a mistake.

A trace that was misunderstood often has many devices and hardly a link. Such a run trains every
device alone, and nothing in its curves says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.network.base import Network

# Rounds that are looked at, at most: about 0.1 s for a small network.
_MAX_ROUNDS = 2_000
# Devices times rounds that are looked at, at most, but no less than two rounds: 0.2 to 8 s for
# 1,000,000 devices, less than two rounds of training them.
_MAX_WORK = 2_000_000
_MIN_ROUNDS = 2
# Multiples of the golden ratio, modulo 1, spread evenly over the run however many there are, and
# do not fall in step with days or other periods of a trace.
_GOLDEN_RATIO = 0.618_033_988_749_894_9
_HINT = "`gossamer network show` shows how the network is understood"


@dataclass(frozen=True)
class LinkCount:
    """The number of links in a run, as far as it was counted.

    Attributes:
        links: Links in the rounds that were looked at.
        looked_at: Number of these rounds.
        rounds: Number of rounds of the run.
    """

    links: int
    looked_at: int
    rounds: int

    @property
    def is_exact(self) -> bool:
        """True if all rounds were looked at."""
        return self.looked_at == self.rounds

    @property
    def estimate(self) -> float:
        """Links of the whole run, in proportion to those of the rounds that were looked at."""
        return self.links * self.rounds / max(1, self.looked_at)


def few_links(network: Network, rounds: int) -> str | None:
    """Return a warning if a run has fewer links than it takes to connect its devices.

    That is fewer than one link per device in the whole run, or none at all. Counting stops as soon
    as there are enough links. Of a long run, only some rounds are looked at.

    Args:
        network: The network.
        rounds: Number of rounds of the run.

    Returns:
        A sentence, or None if there are enough links.

    Example:
        >>> from gossamer.network import Graph, Ring
        >>> few_links(Ring(10), rounds=1)
        >>> few_links(Graph(100, [(0, 1)]), rounds=20).split(",")[0]
        'the 100 devices have 20 links in all 20 rounds together'
    """
    count = count_links(network, rounds, enough_links(network.devices))
    return warning_of(network.devices, count)


def enough_links(devices: int) -> int:
    """Return the smallest number of links that connects all devices.

    Args:
        devices: Number of devices.
    """
    return devices - 1


def count_links(network: Network, rounds: int, enough: int) -> LinkCount:
    """Count the links of a run until there are enough.

    Args:
        network: The network.
        rounds: Number of rounds of the run.
        enough: Number of links at which counting stops.

    Returns:
        The count. It is exact if the network knows its links, or has few rounds.
    """
    known = network.known_links(rounds)
    if known is not None:
        return LinkCount(known, rounds, rounds)
    most = max(_MIN_ROUNDS, min(_MAX_ROUNDS, _MAX_WORK // max(1, network.devices)))
    looked_at = 0
    links = 0
    while links < enough and looked_at < min(rounds, most):
        t = looked_at
        if rounds > most:
            t = int(looked_at * _GOLDEN_RATIO % 1 * rounds)
        links += len(network.links(t))
        looked_at += 1
    return LinkCount(links, looked_at, rounds)


def warning_of(devices: int, count: LinkCount) -> str | None:
    """Return a warning if a count is too small for a number of devices.

    Args:
        devices: Number of devices.
        count: The links of the run.

    Returns:
        A sentence, or None if there are enough links or no rounds.
    """
    if count.rounds == 0 or count.estimate >= enough_links(devices):
        return None
    if count.links == 0:
        where = f"any of the {count.rounds:,} rounds"
        if not count.is_exact:
            where = f"{count.looked_at:,} of the {count.rounds:,} rounds"
        pair = f"no two of the {devices:,} devices"
        return f"{pair} are linked in {where}, so each learns alone; {_HINT}"
    number = f"{count.links:,} links"
    if count.links == 1:
        number = "1 link"
    if not count.is_exact:
        number = f"about {count.estimate:,.0f} links"
    return (
        f"the {devices:,} devices have {number} in all {count.rounds:,} rounds together, "
        f"fewer than one per device, so most of them learn alone; {_HINT}"
    )
