"""Networks from papers: exponential, finite-time and EquiTopo graphs, against their definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import InputError
from gossamer.network import (
    BaseGraph,
    EquiDyn,
    EquiStatic,
    Exponential,
    HyperHypercube,
    Links,
    Network,
    NetworkWeights,
    OnePeerExponential,
    PushSum,
    connected,
)
from gossamer.network.generators.equitopo import pairs_apart

Matrix = np.ndarray


def matrix(network: Network, t: int) -> Matrix:
    """Return the weights that a network carries, built entry by entry."""
    links = network.links(t)
    assert links.weight is not None
    w = np.eye(links.devices)
    for a, b, weight in zip(links.a, links.b, links.weight, strict=True):
        w[b, a] += weight  # b takes of a
        w[a, a] -= weight if links.directed else 0
        if not links.directed:
            w[a, b] += weight
            w[a, a] -= weight
            w[b, b] -= weight
    return w


def over_a_period(network: Network) -> Matrix:
    product = np.eye(network.devices)
    for t in range(network.period or 1):
        product = matrix(network, t) @ product
    return product


ALL: dict[str, Callable[[int], Network]] = {
    "exponential": lambda m: Exponential(m),
    "exponential, directed": lambda m: Exponential(m, directed=True),
    "one-peer": lambda m: OnePeerExponential(m),
    "one-peer, directed": lambda m: OnePeerExponential(m, directed=True),
    "base, 1": lambda m: BaseGraph(m, 1),
    "base, 3": lambda m: BaseGraph(m, 3),
    "base, simple": lambda m: BaseGraph(m, 2, simple=True),
    "equi-static": lambda m: EquiStatic(m, 3),
    "equi-static, directed": lambda m: EquiStatic(m, 3, directed=True),
    "equi-dyn": lambda m: EquiDyn(m),
    "equi-dyn, directed": lambda m: EquiDyn(m, basis=2, directed=True),
}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 10])
def test_carried_weights_are_doubly_stochastic(kind: str, m: int) -> None:
    network = ALL[kind](m)
    assert network.weighted
    for t in range(7):
        links = network.links(t)
        assert links.directed == network.directed
        unweighted = Links(m, links.a, links.b, links.directed)
        assert Links.of(m, links.pairs, links.directed) == unweighted  # sorted, no repeats
        w = matrix(network, t)
        assert (w > -1e-15).all()
        np.testing.assert_allclose(w.sum(0), 1, atol=1e-14)
        np.testing.assert_allclose(w.sum(1), 1, atol=1e-14)
        np.testing.assert_allclose(PushSum()(links).dense(), w, atol=1e-15)
        if not network.directed:
            assert np.array_equal(
                NetworkWeights()(links).dense(), NetworkWeights()(links).dense().T
            )
            np.testing.assert_allclose(NetworkWeights()(links).dense(), w, atol=1e-15)


# Exponential graphs


@pytest.mark.parametrize("m", [2, 3, 5, 8, 13, 16])
def test_exponential_is_the_circulant_graph_of_powers_of_two(m: int) -> None:
    steps = [2**k for k in range(m) if 2**k < m]
    graph = nx.DiGraph()
    graph.add_nodes_from(range(m))
    for i, step in itertools.product(range(m), steps):
        graph.add_edge(i, (i + step) % m)
    directed = Exponential(m, directed=True).links(3)
    assert nx.utils.graphs_equal(directed.to_networkx(), graph)
    assert len(steps) == math.ceil(math.log2(m))
    symmetric = Exponential(m).links(3).to_networkx()
    assert nx.utils.graphs_equal(symmetric, nx.circulant_graph(m, steps))


@pytest.mark.parametrize("m", [3, 6, 8, 11])
def test_one_peer_links_are_those_of_the_exponential_graph_in_turn(m: int) -> None:
    for t in range(9):
        step = 2 ** (t % math.ceil(math.log2(m)))
        directed = OnePeerExponential(m, directed=True).links(t)
        assert sorted(map(tuple, directed.pairs.tolist())) == sorted(
            (i, (i + step) % m) for i in range(m)
        )
        symmetric = OnePeerExponential(m).links(t)
        wanted = [[i, i ^ step] for i in range(m) if i < i ^ step < m]
        assert symmetric.pairs.tolist() == wanted


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("power", range(8))
def test_one_peer_averages_powers_of_two_exactly(directed: bool, power: int) -> None:
    network = OnePeerExponential(2**power, directed)
    assert network.period == max(1, power)
    assert np.array_equal(over_a_period(network), np.full((2**power, 2**power), 0.5**power))


# Finite-time graphs


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("simple", [False, True])
def test_base_graph_averages_exactly_in_one_period(k: int, simple: bool) -> None:
    for m in range(2, 65):
        network = BaseGraph(m, k, simple)
        assert np.abs(over_a_period(network) - 1 / m).max() < 1e-12
        for t in range(network.period or 1):
            assert network.links(t).degrees.max() <= k
        assert (network.period or 1) <= 2 * math.log(m, k + 1) + 2  # Theorem 1
        assert (network.period or 1) <= (BaseGraph(m, k, simple=True).period or 1)


def shortest(m: int, most: int) -> int | None:
    """Return the least number of factors up to `most` whose product is m, by trying all."""
    if m == 1:
        return 0
    found = [shortest(m // f, most) for f in range(2, most + 1) if m % f == 0]
    reached = [length for length in found if length is not None]
    return 1 + min(reached) if reached else None


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_hyper_hypercube_averages_exactly_with_the_fewest_factors(k: int) -> None:
    for m in range(2, 73):
        wanted = shortest(m, k + 1)
        if wanted is None:
            with pytest.raises(InputError, match="base-graph takes any"):
                HyperHypercube(m, k)
            continue
        network = HyperHypercube(m, k)
        assert network.period == wanted
        assert np.abs(over_a_period(network) - 1 / m).max() < 1e-12
        for t in range(wanted):
            assert network.links(t).degrees.max() <= k
        assert network.links(wanted + 1) == network.links(1)


def test_the_base_2_graphs_of_the_paper() -> None:
    """Lengths that the paper gives for five and six devices."""
    assert BaseGraph(5, 1).period == 5
    assert BaseGraph(6, 1).period == 4
    assert BaseGraph(6, 1, simple=True).period == 5
    assert BaseGraph(8, 1).links(1) == OnePeerExponential(8).links(1)


# EquiTopo


def basis(m: int, u: int) -> Matrix:
    """Return the basis graph A(u) of the paper: i takes (m-1)/m of i - u."""
    a = np.eye(m) / m
    for i in range(m):
        a[i, (i - u) % m] += (m - 1) / m
    return a


@given(m=st.integers(2, 12), count=st.integers(1, 30), seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_equi_static_is_a_mean_of_basis_graphs(m: int, count: int, seed: int) -> None:
    directed = matrix(EquiStatic(m, count, directed=True, seed=seed), 0)
    # The basis graphs are A(0) = I and shifts; their counts follow from the first column.
    counts = directed[:, 0] * count * m / (m - 1)
    counts[0] = 0
    np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
    assert counts.sum() == pytest.approx(count)
    wanted = np.zeros((m, m))
    for u in range(1, m):
        wanted += counts[u] / count * basis(m, u)
    np.testing.assert_allclose(directed, wanted, atol=1e-12)
    symmetric = matrix(EquiStatic(m, count, seed=seed), 0)
    np.testing.assert_allclose(symmetric, (directed + directed.T) / 2, atol=1e-12)


@pytest.mark.parametrize(("m", "count"), [(12, 1), (12, 2), (30, 1), (30, 2), (2, 1)])
def test_basis_graphs_connect_all_devices(m: int, count: int) -> None:
    for seed in range(20):
        assert connected(EquiStatic(m, count, directed=True, seed=seed).links(0))
        assert connected(EquiStatic(m, count, seed=seed).links(0))


def test_equi_static_has_the_expected_consensus_rate() -> None:
    m = 13  # a prime: all basis graphs connect all devices
    count = 3
    x = np.arange(m) - (m - 1) / 2
    ratios = []
    for seed in range(800):
        y = matrix(EquiStatic(m, count, directed=True, seed=seed), 0) @ x
        ratios.append((y @ y) / (x @ x))
    error = np.std(ratios) / math.sqrt(len(ratios))
    assert abs(np.mean(ratios) - (1 - 2 / m) / count) < 5 * error


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_equi_dyn_has_the_expected_consensus_rate(share: float) -> None:
    m = 12
    network = EquiDyn(m, directed=True, share=share, seed=3)
    square = np.zeros((m, m))
    rounds = 1500
    for t in range(rounds):
        w = matrix(network, t)
        if t < 10:
            step = int((network.links(t).b - network.links(t).a)[0]) % m
            np.testing.assert_allclose(w, (1 - share) * np.eye(m) + share * basis(m, step))
        square += w.T @ w / rounds
    rate = np.linalg.eigvalsh(square - 1 / m)
    wanted = (1 - share) ** 2 + share**2 * (1 - 2 / m)
    # All eigenvalues but that of consensus are equal in expectation.
    assert np.abs(rate[1:] - wanted).max() < 0.06


def greedy_pairs(m: int, step: int, begin: int) -> set[tuple[int, int]]:
    """Pair each free device, in turn from `begin`, with the one `step` further if it is free."""
    free = set(range(m))
    found = set()
    for i in [*range(begin, m), *range(begin)]:
        j = (i + step) % m
        if i in free and j in free:
            found.add((min(i, j), max(i, j)))
            free -= {i, j}
    return found


@given(m=st.integers(2, 30), data=st.data())
@settings(deadline=None, max_examples=100)
def test_pairs_are_those_of_the_paper(m: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(1, m // 2))
    begin = data.draw(st.integers(0, m - 1))
    u, v = pairs_apart(m, step, begin)
    found = {(min(i, j), max(i, j)) for i, j in zip(u.tolist(), v.tolist(), strict=True)}
    assert found == greedy_pairs(m, step, begin)


@pytest.mark.parametrize("m", [5, 8, 9])
def test_steps_beyond_half_the_devices_have_the_same_pairs(m: int) -> None:
    """The network takes the shorter way around, which is as likely in the paper's procedure."""
    for step in range(m // 2 + 1, m):
        longer = sorted(sorted(greedy_pairs(m, step, begin)) for begin in range(m))
        shorter = sorted(sorted(greedy_pairs(m, m - step, begin)) for begin in range(m))
        assert longer == shorter


def test_equi_dyn_pairs_have_the_rate_of_the_mean_over_all_rounds() -> None:
    m = 10
    share = 0.5
    exact = np.zeros((m, m))
    for step, begin in itertools.product(range(1, m), range(m)):
        w = np.eye(m)
        for i, j in greedy_pairs(m, step, begin):
            w[[i, j], [i, j]] -= share * (m - 1) / m
            w[[i, j], [j, i]] += share * (m - 1) / m
        exact += w.T @ w / (m * (m - 1))
    network = EquiDyn(m, share=share, seed=1)
    found = np.zeros((m, m))
    for t in range(3000):
        w = matrix(network, t)
        found += w.T @ w / 3000
    assert np.abs(found - exact).max() < 0.03
    assert 1 - np.linalg.eigvalsh(exact - 1 / m)[-1] > 0.4


def test_equi_dyn_draws_from_its_basis() -> None:
    steps = set()
    for t in range(60):
        links = EquiDyn(50, basis=3, directed=True, seed=2).links(t)
        steps.add(int((links.b - links.a)[0] % 50))
    assert len(steps) <= 3


# Weights of faulty links, and arguments


@pytest.mark.parametrize("kind", ["base, 3", "equi-static", "one-peer"])
def test_the_weight_of_a_failed_link_stays_with_its_ends(kind: str) -> None:
    links = ALL[kind](9).links(1)
    mask = np.arange(len(links)) % 3 != 0
    kept = links.keep(mask)
    assert kept.weight is not None
    before = NetworkWeights()(links).dense()
    after = NetworkWeights()(kept).dense()
    for a, b in links.pairs[~mask]:
        assert after[a, b] == 0
        before[a, a] += before[a, b]
        before[b, b] += before[b, a]
        before[a, b] = before[b, a] = 0
    np.testing.assert_allclose(after, before, atol=1e-15)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("devices", lambda: Exponential(0)),
        ("devices", lambda: OnePeerExponential(-1)),
        ("degree", lambda: BaseGraph(10, 0)),
        ("degree", lambda: BaseGraph(10, 1.5)),
        ("degree", lambda: BaseGraph(100_000, 99_999)),
        ("devices", lambda: HyperHypercube(10, 3)),
        ("basis", lambda: EquiStatic(10, 0)),
        ("basis", lambda: EquiStatic(1_000_000, 1000)),
        ("basis", lambda: EquiDyn(10, -1)),
        ("share", lambda: EquiDyn(10, share=0.0)),
        ("share", lambda: EquiDyn(10, share=1.5)),
        ("seed", lambda: EquiDyn(10, seed=0.5)),
    ],
)
def test_invalid_arguments_are_refused(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
