"""Which process holds which devices: linked devices together where the network has structure, so that few rows travel."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gossamer import draws
from gossamer.network.base import IntArray, Links, Network

_LOOKS = 16  # rounds that are looked at


def divide(network: Network, parts: int, rounds: int) -> IntArray:
    """owner[i], the part that holds device i; parts differ by at most one device in size.

    The devices are halved again and again, along the second eigenvector of the Laplacian of the links that were seen in some
    rounds: who is linked is near each other there. Other rounds show whether that saves anything. Where links are drawn
    anew in every round it does not, and the devices stay in the order of their numbers.

    >>> from gossamer.network import Ring
    >>> divide(Ring(6), 2, rounds=10).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    m = network.devices
    plain = np.arange(m) * parts // m
    if parts == 1:
        return plain
    last = max(1, rounds if network.rounds is None else min(rounds, network.rounds))
    seen = [network.links(int(t)) for t in np.unique(np.linspace(0, last - 1, _LOOKS).astype(int))]
    shown, others = seen[::2], seen[1::2] or seen
    stay = sum(boundary_rows(links, plain) for links in others)
    if stay < 0.05 * m * len(others):  # a ring, numbered along it: nothing to be saved
        return plain
    owner = np.zeros(m, dtype=np.int64)
    _halve(_together(shown, m), np.arange(m), plain, owner)
    return owner if sum(boundary_rows(links, owner) for links in others) < 0.9 * stay else plain


def boundary_rows(links: Links, owner: IntArray) -> int:
    """How many rows travel when all mix once: a device's row goes to every other part that has a neighbour of it."""
    apart = owner[links.a] != owner[links.b]
    a, b = links.a[apart], links.b[apart]
    parts = int(owner.max(initial=0)) + 1
    return len(np.unique(np.concatenate([a * parts + owner[b], b * parts + owner[a]])))


def _together(seen: list[Links], m: int) -> Any:
    """How often each pair was linked, as a sparse matrix."""
    from scipy.sparse import coo_array

    a, b = (np.concatenate([getattr(links, end) for links in seen]) for end in ("a", "b"))
    return coo_array(
        (np.ones(2 * len(a)), (np.concatenate([a, b]), np.concatenate([b, a]))), (m, m)
    ).tocsr()


def _halve(met: Any, devices: IntArray, numbers: IntArray, owner: IntArray) -> None:
    """Give these devices to the parts in `numbers` (ascending, one a device), those that met to the same if possible."""
    parts = np.unique(numbers)
    if len(parts) == 1:
        owner[devices] = parts[0]
        return
    order = devices[np.argsort(_second_eigenvector(met[devices][:, devices]), kind="stable")]
    cut = int(np.searchsorted(numbers, parts[len(parts) // 2]))
    _halve(met, np.sort(order[:cut]), numbers[:cut], owner)
    _halve(met, np.sort(order[cut:]), numbers[cut:], owner)


def _second_eigenvector(met: Any) -> Any:
    """Of the graph's Laplacian; roughly, which is enough to cut it in two."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import lobpcg

    m = met.shape[0]
    degree = np.asarray(met.sum(1)).ravel()
    if m <= 200:
        return np.linalg.eigh((diags_array(degree) - met).toarray())[1][:, min(1, m - 1)]
    start = draws.normal(0, "placement", np.arange(m)[:, None], np.arange(2))
    with warnings.catch_warnings():  # that it has not converged to the last digit
        warnings.simplefilter("ignore")
        _, vectors = lobpcg(
            diags_array(degree) - met,
            start,
            M=diags_array(1 / (degree + 1)),
            Y=np.ones((m, 1)),
            tol=1e-3,
            maxiter=200,
            largest=False,
        )
    return vectors[:, 0]
