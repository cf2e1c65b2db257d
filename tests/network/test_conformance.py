"""Requirements on every network: one suite for all of them, alone and with faults."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.network import (
    BaseGraph,
    Callback,
    Churn,
    ContactTrace,
    Cycle,
    Epidemic,
    EquiDyn,
    EquiStatic,
    ErdosRenyi,
    Exponential,
    Fault,
    Full,
    GilbertElliott,
    Graph,
    HyperHypercube,
    LinkFailure,
    Links,
    Mobility,
    Network,
    NetworkWeights,
    OnePeerExponential,
    PoissonMeetings,
    PositionTrace,
    PushSum,
    Random,
    RandomRing,
    Regular,
    Ring,
    Sequence,
    SmallWorld,
    Star,
    StochasticBlocks,
    Torus,
    from_networkx,
    matching,
    metropolis,
    one_pair,
    save,
)

# Functions that make networks: two equal networks share no cache, so that both can be asked for
# rounds in different orders.
MAKERS: dict[str, Callable[[int], Network]] = {
    "full": lambda seed: Full(9),
    "one device": lambda seed: Full(1),
    "two devices": lambda seed: Ring(2),
    "ring": lambda seed: Ring(10),
    "star": lambda seed: Star(7),
    "random ring": lambda seed: RandomRing(12, seed=seed),
    "random ring, every 3": lambda seed: RandomRing(12, seed=seed, every=3),
    "random, sparse": lambda seed: Random(30, density=0.05, seed=seed),
    "random, dense": lambda seed: Random(12, density=0.8, seed=seed),
    "random, once": lambda seed: Random(12, density=0.3, seed=seed, every=0),
    "erdos-renyi": lambda seed: ErdosRenyi(15, probability=0.3, seed=seed),
    "regular": lambda seed: Regular(14, degree=3, seed=seed),
    "regular, dense": lambda seed: Regular(11, degree=8, seed=seed),
    "mobility": lambda seed: Mobility(20, radius=0.25, pause=0.5, seed=seed),
    "poisson-meetings": lambda seed: PoissonMeetings(20, 0.05, 2.0, seed=seed),
    "cycle": lambda seed: Cycle((Ring(8), Random(8, 0.4, seed=seed), Star(8))),
    "graph": lambda seed: Graph(5, pairs=((3, 1), (0, 4), (1, 3))),
    "networkx": lambda seed: from_networkx([nx.petersen_graph(), nx.cycle_graph(10)]),
    "callback": lambda seed: Callback(6, lambda t: [(t % 5, 5), (0, 1)]),
}
DESIGNED: dict[str, Callable[[int], Network]] = {
    "torus": lambda seed: Torus(12),
    "small world": lambda seed: SmallWorld(13, degree=4, rewire=0.3, seed=seed),
    "blocks": lambda seed: StochasticBlocks(14, 3, within=0.7, between=0.1, seed=seed),
    "exponential": lambda seed: Exponential(11),
    "one-peer exponential": lambda seed: OnePeerExponential(11),
    "hyper-hypercube": lambda seed: HyperHypercube(12, degree=2),
    "base graph": lambda seed: BaseGraph(11, degree=2),
    "equi-static": lambda seed: EquiStatic(11, basis=2, seed=seed),
    "equi-dyn": lambda seed: EquiDyn(11, seed=seed),
    "weights in some rounds": lambda seed: Cycle((BaseGraph(5), Ring(5))),
}
DIRECTED: dict[str, Callable[[int], Network]] = {
    "epidemic": lambda seed: Epidemic(9, degree=2, seed=seed),
    "exponential, directed": lambda seed: Exponential(9, directed=True),
    "one-peer exponential, directed": lambda seed: OnePeerExponential(9, directed=True),
    "equi-static, directed": lambda seed: EquiStatic(9, basis=2, directed=True, seed=seed),
    "equi-dyn, directed": lambda seed: EquiDyn(9, basis=4, directed=True, seed=seed),
}
FAULTS: dict[str, tuple[Callable[[int], Fault], ...]] = {
    "none": (),
    "failure": (lambda seed: LinkFailure(0.3, seed=seed),),
    "bursts": (lambda seed: GilbertElliott(0.1, 0.3, loss_good=0.05, loss_bad=0.9, seed=seed),),
    "churn": (lambda seed: Churn(0.1, 0.4, seed=seed),),
    "all": (
        lambda seed: LinkFailure(0.1, seed=seed),
        lambda seed: GilbertElliott(0.7, 0.8, seed=seed),
        lambda seed: Churn(0.2, 0.3, seed=seed),
    ),
}


def make(kind: str, faults: str, seed: int) -> Network:
    network = (MAKERS | DESIGNED | DIRECTED)[kind](seed)
    for fault in FAULTS[faults]:
        network = network & fault(seed)
    return network


SYMMETRIC = [*itertools.product(MAKERS, FAULTS), *itertools.product(DESIGNED, ["none", "all"])]
symmetric = pytest.mark.parametrize(("kind", "faults"), SYMMETRIC)
ONE_WAY = [*itertools.product(DIRECTED, ["none", "all"])]
one_way = pytest.mark.parametrize(("kind", "faults"), ONE_WAY)
everything = pytest.mark.parametrize(("kind", "faults"), SYMMETRIC + ONE_WAY)


@everything
@given(seed=st.integers(0, 2**40), times=st.lists(st.integers(0, 60), min_size=1, max_size=8))
@settings(deadline=None, max_examples=6)
def test_links_depend_on_the_round_alone(
    kind: str, faults: str, seed: int, times: list[int]
) -> None:
    network = make(kind, faults, seed)
    in_this_order = {t: network.links(t) for t in times}
    for t in sorted(times):
        assert make(kind, faults, seed).links(t) == in_this_order[t]


@everything
def test_links_are_canonical(kind: str, faults: str) -> None:
    network = make(kind, faults, seed=3)
    for t in range(12):
        links = network.links(t)
        assert links.devices == network.devices
        assert links.a.dtype == links.b.dtype == np.int64
        # Links.of sorts, orients links to a < b, and drops loops and repeats.
        again = Links.of(links.devices, links.pairs, links.directed)
        assert np.array_equal(again.pairs, links.pairs)
        if links.active is not None:
            assert links.active[links.a].all()
            assert links.active[links.b].all()


@symmetric
@pytest.mark.parametrize("scheme", [metropolis, NetworkWeights(), one_pair, matching])
def test_weights_are_symmetric_and_doubly_stochastic(
    kind: str, faults: str, scheme: Callable
) -> None:
    network = make(kind, faults, seed=5)
    for t in range(8):
        links = network.links(t)
        weights = scheme(links, t, 1)
        dense = weights.dense()
        single = dense.astype(np.float32)
        assert np.array_equal(dense, dense.T)
        assert (dense >= 0).all()
        assert np.abs(single.sum(axis=0, dtype=np.float32) - 1).max() < 1e-6
        assert np.abs(single.sum(axis=1, dtype=np.float32) - 1).max() < 1e-6
        assert (weights.own[links.degrees == 0] == 1).all()
        linked = np.zeros_like(dense, dtype=bool)
        linked[links.a, links.b] = linked[links.b, links.a] = True
        assert not dense[~linked & ~np.eye(len(dense), dtype=bool)].any()
        if links.active is not None:
            assert (links.active | (weights.own == 1)).all()


@one_way
def test_weights_of_one_way_links_keep_the_sum(kind: str, faults: str) -> None:
    network = make(kind, faults, seed=5)
    for t in range(8):
        links = network.links(t)
        dense = PushSum()(links).dense()
        assert (dense > -1e-15).all()
        np.testing.assert_allclose(dense.sum(axis=0), 1, atol=1e-14)
        linked = np.eye(links.devices, dtype=bool)
        linked[links.b, links.a] = True  # b takes of a
        assert not dense[~linked].any()


@everything
def test_saved_and_read_back(kind: str, faults: str, tmp_path: Path) -> None:
    network = make(kind, faults, seed=7)
    save(network, tmp_path / "links.parquet", rounds=15)
    back = Sequence(tmp_path / "links.parquet")
    assert (back.devices, back.rounds, back.directed) == (network.devices, 15, network.directed)
    for t in range(15):
        assert back.links(t) == network.links(t)


@pytest.mark.parametrize("kind", [*MAKERS, *DESIGNED, *DIRECTED])
def test_links_repeat_after_the_period(kind: str) -> None:
    network = make(kind, "none", seed=1)
    if network.period is not None:
        for t in range(10):
            assert network.links(t) == network.links(t + network.period)


@pytest.mark.parametrize(
    ("text", "make_trace"),
    [
        ("0 a b\n1 b c\n3 a c\n", lambda path: ContactTrace(path)),
        ("0 CONN 0 1 up\n2.5 CONN 0 1 down\n3 CONN 1 2 up\n", lambda path: ContactTrace(path)),
        ("0 a 0 0\n4 a 4 0\n1 b 2 0\n3 b 2 0\n", lambda path: PositionTrace(path, radius=1.0)),
    ],
)
def test_traces_meet_the_requirements(
    text: str, make_trace: Callable[[Path], Network], tmp_path: Path
) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    trace = make_trace(path)
    again = make_trace(path)
    assert trace == again
    assert list(trace) == [again.links(t) for t in reversed(range(again.rounds or 0))][::-1]
    faulty = trace & Churn(0.2, 0.5) & LinkFailure(0.1)
    assert faulty.rounds == trace.rounds
    save(faulty, tmp_path / "links.parquet", rounds=trace.rounds or 0)
    assert list(Sequence(tmp_path / "links.parquet")) == list(faulty)
    for links in faulty:
        assert np.abs(metropolis(links).dense().astype(np.float32).sum(axis=0) - 1).max() < 1e-6
