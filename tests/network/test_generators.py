"""Networks from rules: against networkx, by counting, and by definition."""

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
    Callback,
    Cycle,
    Epidemic,
    ErdosRenyi,
    Full,
    Graph,
    Links,
    Mobility,
    Random,
    RandomRing,
    Regular,
    Ring,
    SmallWorld,
    Star,
    StochasticBlocks,
    Torus,
    from_networkx,
)
from gossamer.network.generators.pairs import number_of, pair_count, pair_of
from gossamer.network.generators.random_graphs import FEW_PAIRS


def same(links: Links, graph: nx.Graph) -> bool:
    return nx.utils.graphs_equal(links.to_networkx(), graph)


# The numbering of pairs


@given(m=st.integers(2, 40))
@settings(deadline=None, max_examples=20)
def test_pair_numbers_are_the_upper_triangle_row_by_row(m: int) -> None:
    a, b = pair_of(np.arange(pair_count(m)), m)
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == list(
        itertools.combinations(range(m), 2)
    )


@given(m=st.integers(99_990, 100_010), data=st.data())
@settings(deadline=None, max_examples=200)
def test_pair_numbers_round_trip_for_many_devices(m: int, data: st.DataObject) -> None:
    a = data.draw(st.one_of(st.integers(0, m - 2), st.sampled_from([0, 1, m - 3, m - 2])))
    b = data.draw(st.one_of(st.integers(a + 1, m - 1), st.sampled_from([a + 1, m - 1])))
    number = a * m - a * (a + 1) // 2 + (b - a - 1)  # exact Python integers
    assert number_of(np.array([a]), np.array([b]), m).tolist() == [number]
    assert [x.tolist() for x in pair_of(np.array([number]), m)] == [[a], [b]]


# Shapes, against networkx


@pytest.mark.parametrize("m", [1, 2, 3, 4, 10, 57])
def test_shapes(m: int) -> None:
    assert same(Full(m).links(0), nx.complete_graph(m))
    assert same(Star(m).links(3), nx.star_graph(m - 1))
    if m > 2:
        assert same(Ring(m).links(1), nx.cycle_graph(m))
        assert nx.is_isomorphic(RandomRing(m).links(1).to_networkx(), nx.cycle_graph(m))
    else:
        assert len(Ring(m).links(0)) == len(RandomRing(m).links(0)) == m - 1


def test_a_ring_of_ten_devices_does_not_have_density_0_1() -> None:
    assert Ring(10).links(0).density == pytest.approx(10 / 45)
    assert len(Random(10, density=0.1).links(0)) == 5


@given(m=st.integers(1, 60), density=st.floats(0, 1), seed=st.integers(), t=st.integers(0, 10**9))
@settings(deadline=None, max_examples=150)
def test_random_has_exactly_its_share_of_links(m: int, density: float, seed: int, t: int) -> None:
    links = Random(m, density, seed=seed).links(t)
    wanted = math.floor(density * m * (m - 1) / 2 + 0.5)
    assert len(links) == links.to_networkx().number_of_edges() == wanted


@pytest.mark.parametrize("few", [0, FEW_PAIRS])  # without and with the shortcut for few pairs
@pytest.mark.parametrize("density", [0.07, 0.4, 0.8])
def test_random_treats_all_pairs_alike(
    density: float, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.network.generators.random_graphs.FEW_PAIRS", few)
    m = 8
    rounds = 2000
    count = np.zeros((m, m))
    both = 0  # rounds with both of two given pairs: subsets are uniform, not only single pairs
    network = Random(m, density, seed=11)
    for t in range(rounds):
        links = network.links(t)
        count[links.a, links.b] += 1
        pairs = set(zip(links.a.tolist(), links.b.tolist(), strict=True))
        both += {(0, 1), (0, 2)} <= pairs
    n = 28
    k = math.floor(density * n + 0.5)
    share = k / n
    sigma = math.sqrt(rounds * share * (1 - share))
    assert np.abs(count[np.triu_indices(m, 1)] - rounds * share).max() < 5 * sigma
    together = k * (k - 1) / (n * (n - 1))
    assert abs(both - rounds * together) < 5 * math.sqrt(rounds * together * (1 - together)) + 1


def test_erdos_renyi_links_pairs_independently() -> None:
    m = 8
    p = 0.3
    rounds = 2000
    count = np.zeros((m, m))
    sizes = []
    for t in range(rounds):
        links = ErdosRenyi(m, p, seed=2).links(t)
        count[links.a, links.b] += 1
        sizes.append(len(links))
    sigma = math.sqrt(rounds * p * (1 - p))
    assert np.abs(count[np.triu_indices(m, 1)] - rounds * p).max() < 5 * sigma
    variance = 28 * p * (1 - p)
    assert abs(np.var(sizes) - variance) < 5 * variance * math.sqrt(2 / rounds)


@pytest.mark.parametrize("probability", [0.0, 5e-324, 1e-300, 1e-12, 0.5, 1 - 1e-12, 1.0])
def test_erdos_renyi_extremes(probability: float) -> None:
    links = ErdosRenyi(50, probability).links(0)
    assert links.a.max(initial=0) < 50
    if probability < 0.1:
        assert len(links) == 0
    if probability > 0.9:
        assert links == Full(50).links(0)


@given(m=st.integers(1, 40), data=st.data(), seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=100)
def test_regular_is_regular_and_simple(m: int, data: st.DataObject, seed: int) -> None:
    degree = data.draw(st.integers(0, m - 1).filter(lambda k: m * k % 2 == 0))
    graph = Regular(m, degree, seed=seed).links(3).to_networkx()
    assert nx.is_k_regular(graph, degree)
    assert nx.number_of_selfloops(graph) == 0


def test_regular_reaches_all_graphs_about_equally() -> None:
    # The 2-regular graphs of 5 devices are the 12 rings; the pairing model is close to uniform.
    seen: dict[tuple[int, ...], int] = {}
    for t in range(1200):
        links = Regular(5, 2, seed=4).links(t)
        key = tuple((links.a * 5 + links.b).tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 12
    assert min(seen.values()) > 50


@pytest.mark.parametrize(
    "make", [RandomRing, lambda **k: Random(density=0.3, **k), lambda **k: Regular(degree=4, **k)]
)
def test_every_is_the_number_of_rounds_that_a_draw_stays(make: Callable) -> None:
    each = make(devices=20, seed=1, every=1)
    thirds = make(devices=20, seed=1, every=3)
    once = make(devices=20, seed=1, every=0)
    assert each.links(0) != each.links(1)
    for t in range(9):
        assert thirds.links(t) == each.links(t // 3)
    for t in range(9):
        assert once.links(t) == each.links(0)
    assert (each.period, thirds.period, once.period) == (None, None, 1)
    assert make(devices=20, seed=2).links(0) != each.links(0)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5), (2, 2), (2, 5), (3, 4), (5, 3)])
def test_torus_is_the_periodic_grid(rows: int, columns: int) -> None:
    grid = nx.grid_2d_graph(rows, columns, periodic=True)
    grid.remove_edges_from(list(nx.selfloop_edges(grid)))
    wanted = nx.relabel_nodes(grid, lambda place: place[0] * columns + place[1])
    assert nx.utils.graphs_equal(
        nx.Graph(Torus(rows * columns, rows=rows).links(2).to_networkx().edges),
        nx.Graph(wanted.edges),
    )


@pytest.mark.parametrize(("m", "size"), [(12, (3, 4)), (16, (4, 4)), (30, (5, 6)), (3, (1, 3))])
def test_torus_is_close_to_a_square(m: int, size: tuple[int, int]) -> None:
    assert Torus(m).rows_and_columns == size
    assert len(np.unique(Torus(m).layout(0).round(9), axis=0)) == m


@given(m=st.integers(1, 30), data=st.data(), rewire=st.floats(0, 1), seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_small_world_keeps_its_links_and_first_ends(
    m: int, data: st.DataObject, rewire: float, seed: int
) -> None:
    degree = data.draw(st.integers(0, m - 1).filter(lambda k: k % 2 == 0))
    links = SmallWorld(m, degree, rewire, seed=seed).links(3)
    assert len(links) == len(np.unique(links.a * m + links.b)) == m * degree // 2
    assert (links.a < links.b).all()
    # Every device is the first end of degree/2 links: an orientation with these out-degrees exists.
    flow = nx.DiGraph()
    for a, b in links.pairs.tolist():
        flow.add_edge("source", (a, b), capacity=1)
        flow.add_edge((a, b), a)
        flow.add_edge((a, b), b)
    for device in range(m):
        flow.add_edge(device, "sink", capacity=degree // 2)
    if len(links):
        assert nx.maximum_flow_value(flow, "source", "sink") == len(links)


def test_small_world_without_rewiring_is_that_of_networkx() -> None:
    assert same(SmallWorld(11, 4, rewire=0.0).links(0), nx.watts_strogatz_graph(11, 4, 0.0))


def test_small_world_rewires_to_any_device() -> None:
    m = 12
    rewired = 0
    count = np.zeros(m)
    for t in range(600):
        links = SmallWorld(m, 4, rewire=0.25, seed=1).links(t)
        distance = (links.b - links.a) % m
        distance = np.minimum(distance, m - distance)
        rewired += int((distance > 2).sum())
        count += np.bincount(distance[distance > 2], minlength=m)
    mean = 600 * 24 * 0.25
    assert abs(rewired - mean) < 5 * math.sqrt(mean * 0.75)
    # Distances 3, 4 and 5 are reached both ways around, 6 only once.
    expected = rewired * np.array([2, 2, 2, 1]) / 7
    assert np.abs(count[3:7] - expected).max() < 5 * math.sqrt(expected.max())


@given(m=st.integers(1, 25), data=st.data(), seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_blocks_are_complete_or_empty_at_the_extremes(
    m: int, data: st.DataObject, seed: int
) -> None:
    blocks = data.draw(st.integers(1, m))
    network = StochasticBlocks(m, blocks, within=1.0, between=0.0, seed=seed)
    block = np.array(network.groups["block"]).astype(int)
    sizes = np.bincount(block)
    assert len(sizes) == blocks
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(block) >= 0).all()
    graph = nx.complete_multipartite_graph(*sizes.tolist())
    assert same(network.links(2), nx.complement(graph))
    between = StochasticBlocks(m, blocks, within=0.0, between=1.0, seed=seed)
    assert same(between.links(2), nx.complement(nx.complement(graph)))  # without its attributes


def test_blocks_link_pairs_with_their_probabilities() -> None:
    m = 9
    rounds = 2000
    network = StochasticBlocks(m, 2, within=0.6, between=0.1, seed=3)
    block = np.array(network.groups["block"])
    count = np.zeros((m, m))
    for t in range(rounds):
        links = network.links(t)
        count[links.a, links.b] += 1
    a, b = np.triu_indices(m, 1)
    wanted = np.where(block[a] == block[b], 0.6, 0.1)
    sigma = np.sqrt(rounds * wanted * (1 - wanted))
    assert (np.abs(count[a, b] - rounds * wanted) < 5 * sigma).all()


@given(m=st.integers(1, 20), data=st.data(), seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_epidemic_sends_to_different_others(m: int, data: st.DataObject, seed: int) -> None:
    degree = data.draw(st.integers(0, m - 1))
    links = Epidemic(m, degree, seed=seed).links(4)
    assert links.directed
    assert (links.degrees == degree).all()
    assert Links.of(m, links.pairs, directed=True) == links  # sorted, no loops or repeats


@pytest.mark.parametrize("degree", [2, 5])  # drawn directly, and by what is left out
def test_epidemic_treats_all_sets_alike(degree: int) -> None:
    m = 8
    rounds = 1500
    count = np.zeros((m, m))
    both = np.zeros(m)
    for t in range(rounds):
        links = Epidemic(m, degree, seed=2).links(t)
        sent = np.zeros((m, m))
        sent[links.a, links.b] = 1
        count += sent
        both += sent[:, 0] * sent[:, 1]
    share = degree / (m - 1)
    sigma = math.sqrt(rounds * share * (1 - share))
    assert np.abs(count[~np.eye(m, dtype=bool)] - rounds * share).max() < 5 * sigma
    together = share * (degree - 1) / (m - 2)
    sigma = math.sqrt(rounds * together * (1 - together))
    assert np.abs(both[2:] - rounds * together).max() < 5 * sigma


# Given graphs


@given(m=st.integers(1, 12), p=st.floats(0, 1), seed=st.integers(0, 1000), directed=st.booleans())
@settings(deadline=None, max_examples=40)
def test_networkx_round_trip(m: int, p: float, seed: int, directed: bool) -> None:
    graph = nx.gnp_random_graph(m, p, seed=seed, directed=directed)
    network = from_networkx(graph)
    assert network.directed == directed
    assert same(network.links(4), graph)


def test_networkx_nodes_with_names_and_in_any_order() -> None:
    named = from_networkx(nx.Graph([("z", "a"), ("a", "m")]))
    assert named.links(0).pairs.tolist() == [[0, 1], [1, 2]]
    assert from_networkx(nx.Graph([(2, 0), (0, 1)])).links(0).pairs.tolist() == [[0, 1], [0, 2]]


def test_a_list_of_graphs_is_taken_in_turn() -> None:
    graphs = [nx.path_graph(5), nx.star_graph(4), nx.complete_graph(5)]
    network = from_networkx(graphs)
    assert network.period == 3
    for t in range(7):
        assert same(network.links(t), graphs[t % 3])


def test_cycle_numbers_the_rounds_of_each_network() -> None:
    ring = RandomRing(9, seed=1)
    cycle = Cycle((ring, Star(9)))
    for t in range(5):
        assert cycle.links(2 * t) == ring.links(t)
    assert cycle.links(3) == Star(9).links(0)
    assert cycle.period is None
    assert Cycle((Cycle((Ring(4), Full(4), Star(4))), Full(4))).period == 6


@pytest.mark.parametrize(
    "given",
    [
        [(1, 0), (1, 2), (2, 1)],
        np.array([[0, 1], [1, 2]]),
        nx.path_graph(3),
        Links.of(4, [(0, 1), (1, 2)]),
    ],
)
def test_callback_takes_pairs_arrays_graphs_and_links(given: object) -> None:
    assert Callback(4, lambda t: given).links(0).pairs.tolist() == [[0, 1], [1, 2]]


def test_callback_directed() -> None:
    graph = nx.DiGraph([(1, 0), (0, 1), (2, 0)])
    assert Callback(3, lambda t: graph, directed=True).links(0).pairs.tolist() == [
        [0, 1],
        [1, 0],
        [2, 0],
    ]


# Invalid arguments


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("devices", lambda: Ring(0)),
        ("devices", lambda: Ring(2.5)),
        ("devices", lambda: Ring(True)),
        ("devices", lambda: Torus(13)),
        ("rows", lambda: Torus(12, rows=5)),
        ("degree", lambda: SmallWorld(10, degree=3, rewire=0.1)),
        ("degree", lambda: SmallWorld(10, degree=10, rewire=0.1)),
        ("rewire", lambda: SmallWorld(10, degree=2, rewire=1.1)),
        ("blocks", lambda: StochasticBlocks(10, 11, 0.5, 0.5)),
        ("within", lambda: StochasticBlocks(10, 2, -0.1, 0.5)),
        ("between", lambda: StochasticBlocks(10, 2, 0.1, 1.5)),
        ("within", lambda: StochasticBlocks(10**6, 1, 1.0, 0.0)),
        ("degree", lambda: Epidemic(10, degree=10)),
        ("degree", lambda: Epidemic(10**7, degree=11)),
        ("devices", lambda: Full(100_000)),
        ("devices", lambda: Random(10**9, 0.1)),
        ("density", lambda: Random(10, 1.5)),
        ("density", lambda: Random(10, -0.1)),
        ("density", lambda: Random(10, math.nan)),
        ("density", lambda: Random(10, "0.1")),
        ("density", lambda: Random(100_000, 0.9)),
        ("seed", lambda: Random(10, 0.1, seed=0.5)),
        ("every", lambda: RandomRing(10, every=-1)),
        ("probability", lambda: ErdosRenyi(10, 2)),
        ("probability", lambda: ErdosRenyi(1_000_000, 0.5)),
        ("degree", lambda: Regular(5, 3)),
        ("degree", lambda: Regular(5, 5)),
        ("degree", lambda: Regular(1, 1)),
        ("degree", lambda: Regular(6, -2)),
        ("link", lambda: Graph(3, ((0, 3),))),
        ("pairs", lambda: Graph(3, ((0, 1, 2), (1, 2, 0)))),
        ("pairs", lambda: Graph(3, ((0, 1), (1,)))),
        ("pairs", lambda: Graph(3, ((0.5, 1.5),))),
        ("networks", lambda: Cycle(())),
        ("networks", lambda: Cycle((Ring(3), Ring(4)))),
        ("graphs", lambda: from_networkx([])),
        ("graphs", lambda: from_networkx([nx.path_graph(3), nx.path_graph(4)])),
        ("function", lambda: Callback(3, [(0, 1)])),
        ("function(5)", lambda: Callback(3, lambda t: nx.DiGraph([(0, 1)])).links(5)),
        ("function(0)", lambda: Callback(3, lambda t: Links.of(4, [])).links(0)),
        ("link", lambda: Callback(3, lambda t: [(0, 7)]).links(0)),
        ("radius", lambda: Mobility(3, radius=-1.0)),
        ("radius", lambda: Mobility(20_000, radius=2.0).links(0)),
        ("min_speed", lambda: Mobility(3, radius=1.0, min_speed=0.0)),
        ("max_speed", lambda: Mobility(3, radius=1.0, min_speed=2.0)),
        ("max_speed", lambda: Mobility(3, radius=1.0, max_speed=1e30)),
        ("pause", lambda: Mobility(3, radius=1.0, pause=math.inf)),
        ("seconds_per_round", lambda: Mobility(3, radius=1.0, seconds_per_round=0)),
    ],
)
def test_invalid_arguments_are_refused(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
