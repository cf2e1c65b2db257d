"""Statistics of networks: against networkx, by definition, and at the extremes."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.network import (
    Callback,
    Churn,
    Cycle,
    ErdosRenyi,
    Full,
    Graph,
    Links,
    Network,
    Random,
    Ring,
    Star,
    connected,
    metropolis,
    spectral_gap,
    summary,
)


@given(m=st.integers(1, 12), p=st.floats(0, 1), seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_connected_agrees_with_networkx(m: int, p: float, seed: int) -> None:
    links = ErdosRenyi(m, p, seed=seed).links(0)
    assert connected(links) == nx.is_connected(links.to_networkx())
    one_way = Links.of(m, links.pairs, directed=True)
    assert connected(one_way) == nx.is_strongly_connected(one_way.to_networkx())


def test_summary_counts() -> None:
    report = summary(Cycle((Ring(6), Graph(6, ((0, 1),)))), rounds=10)
    assert (report.links_min, report.links_mean, report.links_max) == (1, 3.5, 6)
    assert (report.degree_min, report.degree_max) == (0, 2)
    assert report.degree_mean == pytest.approx(7 / 6)
    assert report.density_mean == pytest.approx(7 / 30)
    assert report.isolated_share == pytest.approx(4 / 12)
    assert report.connected_share == 0.5
    assert report.rounds == 10


def gap_by_definition(network: Network, rounds: int) -> float:
    squares = []
    for t in range(rounds):
        w = metropolis(network.links(t)).dense()
        squares.append(w.T @ w)
    eigenvalues = np.linalg.eigvalsh(np.mean(squares, axis=0))
    return float(1 - np.sort(eigenvalues)[-2])


@pytest.mark.parametrize("dense", [500, 1])
@pytest.mark.parametrize(
    "network",
    [Ring(12), Star(9), Random(20, 0.1), Full(30) & Churn(0.2, 0.4), Random(40, 0.02)],
    ids=str,
)
def test_spectral_gap(network: Network, dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.network.inspect._MAX_DENSE", dense)
    assert spectral_gap(network, 7) == pytest.approx(gap_by_definition(network, 7), abs=1e-6)


def test_gossip_contracts_by_at_least_the_spectral_gap() -> None:
    network = Random(15, 0.2)
    x = np.arange(15.0)
    gap = summary(network, 200).spectral_gap
    assert gap is not None
    shrunk = []
    for t in range(200):
        shrunk.append(np.var(metropolis(network.links(t)).dense() @ x) / np.var(x))
    assert np.mean(shrunk) <= 1 - gap + 1e-12


def test_extremes() -> None:
    assert spectral_gap(Full(8), 1) == pytest.approx(1.0)
    assert spectral_gap(Full(1), 1) == 1.0
    assert spectral_gap(Graph(4, ()), 1) == 0.0
    assert summary(Callback(3, lambda t: [(0, 1)], directed=True), 2).spectral_gap is None
    large = summary(Ring(2000), 5)
    assert large.connected_share == 1.0
    second_eigenvalue = 1 / 3 + 2 / 3 * np.cos(2 * np.pi / 2000)
    assert large.spectral_gap == pytest.approx(1 - second_eigenvalue**2, rel=1e-3)
