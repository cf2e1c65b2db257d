"""One round of 100,000 devices fits in memory; a dense matrix would take 80 GB."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gossamer.network import (
    BaseGraph,
    Churn,
    EquiDyn,
    ErdosRenyi,
    GilbertElliott,
    LinkFailure,
    Mobility,
    Network,
    Random,
    RandomRing,
    Regular,
    SmallWorld,
    Star,
    StochasticBlocks,
    Torus,
    connected,
    matching,
    metropolis,
)

pytestmark = pytest.mark.slow

M = 100_000


@pytest.mark.parametrize(
    ("network", "links"),
    [
        (Random(M, density=1e-4), 499_995),
        (ErdosRenyi(M, probability=1e-4), None),
        (Regular(M, degree=6), 300_000),
        (RandomRing(M), M),
        (Star(M), M - 1),
        (Torus(M), 2 * M),
        (SmallWorld(M, degree=6, rewire=0.1), 3 * M),
        (StochasticBlocks(M, blocks=100, within=0.005, between=1e-5), None),
        (BaseGraph(M - 1, degree=3), None),
        (EquiDyn(M), None),
        (Mobility(M, radius=0.004), None),
        (RandomRing(M) & LinkFailure(0.1) & GilbertElliott(0.02, 0.1) & Churn(0.05, 0.5), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_round_of_many_devices_fits(network: Network, links: int | None) -> None:
    network.links(0)  # imports and caches do not count
    tracemalloc.start()
    try:
        found = network.links(5)
        weights = metropolis(found)
        indptr, indices, values = weights.csr()
        pairs = matching(found, 5, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 500e6
    if links is None:
        assert 10_000 < len(found) < 1_000_000
    else:
        assert len(found) == links
    sums = np.add.reduceat(values, indptr[:-1])
    assert np.abs(sums.astype(np.float32) - 1).max() < 1e-6
    assert len(indices) == network.devices + 2 * len(found)
    assert np.bincount(np.concatenate([pairs.a, pairs.b])).max() == 1
    if isinstance(network, Regular):
        assert (found.degrees == 6).all()
    if isinstance(network, RandomRing):
        assert (found.degrees == 2).all()
        assert connected(found)


def test_erdos_renyi_of_many_devices_has_the_expected_number_of_links() -> None:
    pairs = M * (M - 1) / 2
    assert abs(len(ErdosRenyi(M, 1e-4).links(3)) - pairs * 1e-4) < 5 * np.sqrt(pairs * 1e-4)
