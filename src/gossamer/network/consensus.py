"""How fast averaging alone brings the devices of a network to consensus."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer.network.base import FloatArray, Links, Network
from gossamer.network.weights import NetworkWeights, PushSum, Weights

_VALUES = 8  # independent values per device, so that one lucky start does not decide
_LONGEST = 10_000  # rounds


def consensus_errors(network: Network, seed: int = 0) -> Iterator[float]:
    """Yield the distance to consensus after 0, 1, 2, … rounds of averaging random values.

    The distance is the norm of x - x̄, relative to that at the start. Weights are those that the
    network carries, or Metropolis weights. One-way links are averaged by push-sum.

    Args:
        network: The network.
        seed: Seed of the values.

    Example:
        >>> from itertools import islice
        >>> from gossamer.network import OnePeerExponential
        >>> [round(error, 9) for error in islice(consensus_errors(OnePeerExponential(4)), 4)][2:]
        [0.0, 0.0]
    """
    m = network.devices
    x = draws.normal(seed, "consensus", np.arange(m)[:, None], np.arange(_VALUES))
    ones = np.ones((m, 1))
    mean = x.mean(axis=0)
    start = np.linalg.norm(x - mean)
    pushed = np.concatenate([x, ones], axis=1)
    t = 0
    while True:
        distance = np.linalg.norm(pushed[:, :-1] / pushed[:, -1:] - mean)
        yield float(distance / start) if start else 0.0
        pushed = _mixed(_weights(network.links(t), t), pushed)
        t += 1


def rounds_to_consensus(
    network: Network, error: float = 1e-6, seed: int = 0, most: int = _LONGEST
) -> int | None:
    """Return how many rounds of averaging random values bring all close to their mean.

    Args:
        network: The network.
        error: The distance to consensus that counts as close: see `consensus_errors`.
        seed: Seed of the values.
        most: Number of rounds after which to give up.

    Returns:
        The number of rounds; None if `most` are not enough.

    Raises:
        InputError: If the error is not above 0, or `most` is not a whole number of at least 0.

    Example:
        >>> from gossamer.network import BaseGraph, Ring
        >>> rounds_to_consensus(BaseGraph(25, degree=2)), rounds_to_consensus(Ring(25))
        (6, 596)
    """
    checks.positive("error", error)
    checks.whole("most", most, 0)
    if network.rounds is not None:
        most = min(most, network.rounds)
    for t, distance in zip(range(most + 1), consensus_errors(network, seed), strict=False):
        if distance < error:
            return t
    return None


def _weights(links: Links, t: int) -> Weights:
    if links.directed:
        return PushSum()(links, t)
    return NetworkWeights()(links, t)


def _mixed(weights: Weights, x: FloatArray) -> FloatArray:
    from scipy.sparse import csr_array

    indptr, indices, values = weights.csr()
    matrix = csr_array((values, indices, indptr), shape=(weights.devices, weights.devices))
    mixed: FloatArray = matrix @ x
    return mixed
