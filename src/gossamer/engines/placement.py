"""Which process holds which devices: linked devices together where the network has structure, so that few rows travel."""

from __future__ import annotations

import numpy as np

from gossamer.network.base import IntArray, Links, Network

_LOOKS = 8  # rounds that are looked at


def divide(network: Network, parts: int, rounds: int) -> IntArray:
    """owner[i], the part that holds device i; parts differ by at most one device in size.

    Devices are put in an order in which those that were linked in some of the rounds are near each other (reverse
    Cuthill–McKee), which is then cut into equal pieces. Where links are drawn anew in every round no order is better than
    another, and the devices stay in theirs.

    >>> from gossamer.network import Ring
    >>> divide(Ring(6), 2, rounds=10).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    m = network.devices
    plain = np.arange(m) * parts // m
    if parts == 1:
        return plain
    last = max(1, rounds if network.rounds is None else min(rounds, network.rounds))
    seen = [network.links(int(t)) for t in np.unique(np.linspace(0, last - 1, _LOOKS).astype(int))]
    a, b = (np.concatenate([getattr(links, end) for links in seen]) for end in ("a", "b"))
    ends = np.concatenate([a, b]), np.concatenate([b, a])
    order = reverse_cuthill_mckee(coo_array((np.ones(2 * len(a), dtype=np.int8), ends), (m, m)).tocsr(), symmetric_mode=True)
    owner = np.empty(m, dtype=np.int64)
    owner[order] = plain
    travel, stay = (sum(boundary_rows(links, way) for links in seen) for way in (owner, plain))
    return owner if travel < 0.9 * stay else plain


def boundary_rows(links: Links, owner: IntArray) -> int:
    """How many rows travel when all mix once: a device's row goes to every other part that has a neighbour of it."""
    apart = owner[links.a] != owner[links.b]
    a, b = links.a[apart], links.b[apart]
    parts = int(owner.max(initial=0)) + 1
    return len(np.unique(np.concatenate([a * parts + owner[b], b * parts + owner[a]])))
