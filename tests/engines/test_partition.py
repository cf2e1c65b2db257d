"""The partition of devices into shards: equal sizes, and few rows that travel where possible."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gs
from gossamer.engines.ray.partition import boundary_rows, partition
from gossamer.network import Graph, Links


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.integers(1, 8), st.floats(0, 1), st.integers(0, 99))
def test_shards_have_equal_sizes(devices: int, shards: int, density: float, seed: int) -> None:
    shards = min(shards, devices)
    owner = partition(gs.Random(devices, density, seed), shards, rounds=20)
    sizes = np.bincount(owner, minlength=shards)
    assert len(owner) == devices
    assert sizes.max() - sizes.min() <= 1


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 12), st.floats(0, 1), st.integers(0, 99), st.integers(1, 4))
def test_boundary_rows_equal_a_count_one_by_one(
    devices: int, density: float, seed: int, shards: int
) -> None:
    graph = nx.gnp_random_graph(devices, density, seed=seed)
    owner = np.random.default_rng(seed).integers(0, shards, devices)
    sent = set()
    for i in graph:
        for j in graph[i]:
            if owner[i] != owner[j]:
                sent.add((i, owner[j]))
    assert boundary_rows(Links.of(devices, list(graph.edges)), owner) == len(sent)


def shuffled(graph: nx.Graph, seed: int = 3) -> gs.Network:
    """Return a static network with random device numbers."""
    numbers = np.random.default_rng(seed).permutation(len(graph))
    links = []
    for a, b in graph.edges:
        ends = sorted((int(numbers[a]), int(numbers[b])))
        links.append((ends[0], ends[1]))
    return Graph(len(graph), tuple(links))


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        pytest.param(nx.cycle_graph(200), 8, id="ring"),  # 4 shards of a ring have 8 ends
        pytest.param(  # random numbers would send 1,140 rows
            nx.convert_node_labels_to_integers(nx.grid_2d_graph(20, 20)), 140, id="grid"
        ),
        pytest.param(
            nx.connected_watts_strogatz_graph(200, 6, 0.05, seed=1), 120, id="small world"
        ),
    ],
)
def test_structure_is_found(graph: nx.Graph, most: int) -> None:
    network = shuffled(graph)
    assert boundary_rows(network.links(0), partition(network, 4, 10)) <= most


def test_devices_that_move_slowly_stay_together() -> None:
    network = gs.Mobility(120, radius=0.15, min_speed=0.001, max_speed=0.002, seed=2)
    rounds = [network.links(t) for t in range(0, 40, 3)]
    plain = np.arange(120) * 3 // 120
    found = partition(network, 3, 40)
    plain_rows = sum(boundary_rows(links, plain) for links in rounds)
    assert sum(boundary_rows(links, found) for links in rounds) < 0.6 * plain_rows


def test_links_drawn_anew_have_no_structure() -> None:
    assert partition(gs.RandomRing(50), 2, 30).tolist() == (np.arange(50) * 2 // 50).tolist()


def test_many_devices_are_divided_without_eigenvectors() -> None:
    """Slowly moving devices in parts of any size; it takes time that is linear in the links."""
    network = gs.Mobility(12_000, radius=0.01, min_speed=1e-5, max_speed=2e-5, seed=4)
    links = network.links(20)
    plain = np.arange(12_000) * 4 // 12_000
    found = partition(network, 4, 40)
    assert np.bincount(found).tolist() == [3000] * 4
    assert boundary_rows(links, found) < 0.2 * boundary_rows(links, plain)


@pytest.mark.parametrize("network", [gs.Random(40, 0.1), gs.Epidemic(40, 2), gs.Regular(40, 4)])
def test_no_links_are_drawn_where_no_division_helps(network: gs.Network) -> None:
    faulty = network & gs.LinkFailure(0.1)
    assert not faulty.structured
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(network), "links", None)
        assert partition(faulty, 2, 30).tolist() == (np.arange(40) * 2 // 40).tolist()
