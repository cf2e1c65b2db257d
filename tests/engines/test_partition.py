"""Which shard holds which devices: parts of equal size, and few rows that travel where the network has structure."""

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
def test_parts_are_of_equal_size(devices: int, parts: int, density: float, seed: int) -> None:
    parts = min(parts, devices)
    owner = partition(gs.Random(devices, density, seed), parts, rounds=20)
    sizes = np.bincount(owner, minlength=parts)
    assert len(owner) == devices
    assert sizes.max() - sizes.min() <= 1


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 12), st.floats(0, 1), st.integers(0, 99), st.integers(1, 4))
def test_boundary_rows_are_counted_one_by_one(
    devices: int, density: float, seed: int, parts: int
) -> None:
    graph = nx.gnp_random_graph(devices, density, seed=seed)
    owner = np.random.default_rng(seed).integers(0, parts, devices)
    sent = {(i, owner[j]) for i in graph for j in graph[i] if owner[i] != owner[j]}
    assert boundary_rows(Links.of(devices, list(graph.edges)), owner) == len(sent)


def shuffled(graph: nx.Graph, seed: int = 3) -> gs.Network:
    """A static network whose device numbers say nothing of who is near whom."""
    names = np.random.default_rng(seed).permutation(len(graph))
    return Graph(
        len(graph), tuple(tuple(sorted((int(names[a]), int(names[b])))) for a, b in graph.edges)
    )


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        (nx.cycle_graph(200), 8),  # 4 parts of a ring: 8 ends
        (
            nx.convert_node_labels_to_integers(nx.grid_2d_graph(20, 20)),
            140,
        ),  # of the 1,140 that numbers at random would send
        (nx.connected_watts_strogatz_graph(200, 6, 0.05, seed=1), 120),
    ],
    ids=["ring", "grid", "small world"],
)
def test_structure_is_found(graph: nx.Graph, most: int) -> None:
    network = shuffled(graph)
    assert boundary_rows(network.links(0), partition(network, 4, 10)) <= most


def test_devices_that_move_slowly_stay_together() -> None:
    network = gs.Mobility(120, radius=0.15, min_speed=0.001, max_speed=0.002, seed=2)
    placed, plain = partition(network, 3, 40), np.arange(120) * 3 // 120
    rows = [
        sum(boundary_rows(network.links(t), owner) for t in range(0, 40, 3))
        for owner in (placed, plain)
    ]
    assert rows[0] < 0.6 * rows[1]


def test_links_drawn_anew_have_no_structure() -> None:
    assert partition(gs.RandomRing(50), 2, 30).tolist() == (np.arange(50) * 2 // 50).tolist()
