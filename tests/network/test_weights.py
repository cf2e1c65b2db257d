"""Mixing weights: against their formulas, naive loops and networkx."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from gossamer import draws
from gossamer.errors import InputError
from gossamer.network import Full, Links, Ring, matching, metropolis, one_pair
from gossamer.network.weights import (
    BestConstant,
    Clients,
    Laplacian,
    Matching,
    Metropolis,
    NetworkWeights,
    OnePair,
    PushSum,
    RandomPeer,
    ReceivedMean,
    WeightRule,
)


@st.composite
def random_links(draw: st.DrawFn) -> Links:
    m = draw(st.integers(1, 14))
    device = st.integers(0, m - 1)
    return Links.of(m, draw(st.lists(st.tuples(device, device), max_size=40)))


@given(links=random_links())
@settings(deadline=None, max_examples=100)
def test_metropolis_is_the_formula(links: Links) -> None:
    graph = links.to_networkx()
    wanted = np.zeros((links.devices, links.devices))
    for i, j in graph.edges():
        wanted[i, j] = wanted[j, i] = min(1 / (graph.degree(i) + 1), 1 / (graph.degree(j) + 1))
    for i in range(links.devices):
        wanted[i, i] = 1 - wanted[i].sum()
    np.testing.assert_allclose(metropolis(links).dense(), wanted, atol=1e-15)


@given(links=random_links())
@settings(deadline=None, max_examples=100)
def test_csr_is_the_dense_matrix_with_ascending_columns(links: Links) -> None:
    weights = metropolis(links)
    indptr, indices, values = weights.csr()
    matrix = csr_array((values, indices, indptr), shape=(links.devices, links.devices))
    assert np.array_equal(matrix.toarray(), weights.dense())
    assert len(values) == links.devices + 2 * len(links)  # the diagonal is always there
    for row in range(links.devices):
        assert (np.diff(indices[indptr[row] : indptr[row + 1]]) > 0).all()


@given(links=random_links(), t=st.integers(0, 1000), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=100)
def test_one_pair(links: Links, t: int, seed: int) -> None:
    weights = one_pair(links, t, seed)
    assert weights.active is not None
    assert weights.active.sum() == (2 if len(links) else 0)
    if len(links):
        pair = np.flatnonzero(weights.active).tolist()
        assert pair in links.pairs.tolist()
        assert weights.dense()[pair[0], pair[1]] == weights.dense()[pair[0], pair[0]] == 0.5


def test_one_pair_takes_each_link_equally_often() -> None:
    links = Ring(6).links(0)
    rounds = 3000
    count = np.zeros((6, 6))
    for t in range(rounds):
        weights = one_pair(links, t, 0)
        count[weights.a, weights.b] += 1
    count_per_link = count[links.a, links.b]
    assert count_per_link.sum() == rounds
    assert np.abs(count_per_link - rounds / 6).max() < 5 * math.sqrt(rounds * 5 / 36)


@given(links=random_links(), t=st.integers(0, 1000), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=100)
def test_matching_is_what_each_device_computes_locally(links: Links, t: int, seed: int) -> None:
    def draw(pair: list[int]) -> tuple[int, list[int]]:
        return int(draws.bits(seed, "weights/matching", t, *pair)), pair

    pairs = links.pairs.tolist()
    wanted = []
    for p in pairs:
        if all(draw(p) <= draw(q) for q in pairs if set(p) & set(q)):
            wanted.append(p)
    weights = matching(links, t, seed)
    assert np.stack([weights.a, weights.b], axis=1).tolist() == wanted
    assert nx.is_matching(links.to_networkx(), {tuple(p) for p in wanted})
    assert bool(wanted) == bool(pairs)  # the link with the lowest draw is always active
    assert np.array_equal(np.flatnonzero(weights.active), np.unique(np.array(wanted, dtype=int)))
    assert (weights.value == 0.5).all()


def test_matching_changes_with_the_round_and_the_seed() -> None:
    links = Full(20).links(0)
    found = []
    for t in range(3):
        for seed in range(3):
            found.append(matching(links, t, seed).a.tolist())
    assert len({tuple(f) for f in found}) == 9


def test_equal_draws_still_give_a_matching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        draws, "bits", lambda seed, purpose, t, a, b: np.zeros(len(a), dtype=np.uint64)
    )
    weights = matching(Full(5).links(0), 0, 0)
    assert (weights.a.tolist(), weights.b.tolist()) == ([0], [1])


def test_inactive_devices_stay_inactive() -> None:
    links = Ring(4).links(0)
    active = np.array([True, True, True, False])
    remaining = links.keep(active[links.a] & active[links.b], active)
    assert np.array_equal(metropolis(remaining).active, active)
    assert not matching(remaining, 0, 0).active[3]


@pytest.mark.parametrize("scheme", [metropolis, one_pair, matching])
def test_directed_links_are_refused(scheme) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        scheme(Links.of(3, [(0, 1), (2, 1)], directed=True), 0, 0)
    assert caught.value.field == "network"


@given(links=random_links())
@settings(deadline=None, max_examples=50)
def test_both_ends_of_a_link_compute_its_weight(links: Links) -> None:
    for rule in (Metropolis(), Laplacian(0.2)):
        matrix = rule(links).dense()
        weight = rule.link_weight()
        for a, b in links.pairs.tolist():
            degrees = int(links.degrees[a]), int(links.degrees[b])
            assert weight(*degrees) == weight(*reversed(degrees)) == matrix[a, b]


@given(links=random_links(), t=st.integers(0, 1000), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=50)
def test_a_matching_has_the_pairs_that_propose_to_each_other(
    links: Links, t: int, seed: int
) -> None:
    rule = Matching()
    graph = links.to_networkx()
    proposals = {}
    for device in range(links.devices):
        neighbours = list(graph.neighbors(device))
        if neighbours:
            proposals[device] = rule.proposal(device, neighbours, t, seed)
    pairs = []
    for i, j in sorted(proposals.items()):
        if i < j and proposals[j] == i:
            pairs.append((i, j))
    weights = rule(links, t, seed)
    assert pairs == list(zip(weights.a.tolist(), weights.b.tolist(), strict=True))
    assert rule.link_weight()(3, 5) == 0.5


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (OnePair(), "matching"),
        (BestConstant(), "whole network"),
        (Laplacian(), "whole network"),
        (Clients(), "average over all devices"),
        (PushSum(), "same for both ends"),
        (RandomPeer(), "same for both ends"),
        (ReceivedMean(), "same for both ends"),
    ],
    ids=str,
)
def test_rules_that_two_devices_cannot_compute(rule: WeightRule, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        rule.link_weight()
    assert not rule.paired
    with pytest.raises(InputError, match="pairs devices"):
        rule.proposal(0, [1], 0, 0)


# Weights that the network carries


@given(links=random_links())
@settings(deadline=None, max_examples=50)
def test_network_weights_are_metropolis_if_the_network_carries_none(links: Links) -> None:
    found = NetworkWeights()(links)
    wanted = metropolis(links)
    assert np.array_equal(found.value, wanted.value)
    assert np.array_equal(found.own, wanted.own)
    assert NetworkWeights().peer_weight(None)(7, 3, 5) == Metropolis().link_weight()(3, 5)


def test_both_ends_of_a_link_take_the_weight_that_it_carries() -> None:
    weight = NetworkWeights().peer_weight({4: 0.25, 6: 0.125})
    assert weight(4, 1, 1) == 0.25
    assert weight(6, 9, 1) == 0.125
    assert Metropolis().peer_weight({4: 0.25})(4, 1, 3) == 0.25 == Metropolis().link_weight()(1, 3)


@given(links=random_links(), directed=st.booleans())
@settings(deadline=None, max_examples=50)
def test_received_mean_is_the_plain_mean(links: Links, directed: bool) -> None:
    links = Links.of(links.devices, links.pairs, directed)
    graph = links.to_networkx().to_directed()
    found = ReceivedMean()(links).dense()
    for i in range(links.devices):
        senders = [i, *graph.predecessors(i)]
        wanted = np.zeros(links.devices)
        wanted[senders] = 1 / len(senders)
        np.testing.assert_allclose(found[i], wanted, atol=1e-15)
