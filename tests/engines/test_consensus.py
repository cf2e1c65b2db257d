"""Consensus: what the theory says about mixing alone, and about a full network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.plans import CHANGING, M, plan_of, run

from gossamer import draws
from gossamer.algorithms import (
    DPSGD,
    WPM,
    Algorithm,
    AllReduce,
    Composition,
    Constant,
    PushSum,
    Safe,
)
from gossamer.engines import Simulator, Snapshot
from gossamer.errors import InputError
from gossamer.mirror import signed_power
from gossamer.network import (
    BaseGraph,
    Cycle,
    EquiDyn,
    Full,
    Graph,
    Metropolis,
    Network,
    OnePeerExponential,
    Ring,
)
from gossamer.theory import check_assumption1


def scattered(algorithm: Algorithm, network: Network, rounds: int) -> Simulator:
    """Return a simulator whose devices start from different models, of both signs."""
    plan = plan_of(algorithm, network, rounds)
    w = torch.from_numpy(draws.normal(0, "scattered", np.arange(M)[:, None], np.arange(5)))
    zero = torch.zeros(1, 5, dtype=torch.float64)
    state = {name: w if name == "w" else zero for name in algorithm.first_state(w)}
    return Simulator(plan, Snapshot(0, 0, 0, state))


PAIRS = Cycle(
    (Graph(M, ((0, 1), (2, 3))), Graph(M, ()), Graph(M, ((3, 4), (1, 2))), Graph(M, ((4, 5),)))
)


@pytest.mark.parametrize("network", [CHANGING, PAIRS, Ring(M)], ids=["changing", "pairs", "ring"])
@pytest.mark.parametrize("rule", [Constant(), Safe()], ids=repr)
@pytest.mark.parametrize("p", [1, 3, 15])
def test_mixing_preserves_the_mean(network: Network, rule: Any, p: float) -> None:
    """Doubly stochastic weights preserve the mean of the duals (p = 1: the arithmetic mean)."""
    simulator = scattered(WPM(p, 0.0, rule, anchor=False), network, 40)
    z = signed_power(simulator.models(), p)
    for until in range(1, 41):
        simulator.advance(until)
        now = signed_power(simulator.models(), p)
        assert ((now.mean(0) - z.mean(0)).abs() <= 40 * 8 * p * 2.0**-52 * z.abs().mean(0)).all()
    assert not torch.equal(now, z)


@pytest.mark.slow
@pytest.mark.parametrize("network", [CHANGING, PAIRS, Ring(M)], ids=["changing", "pairs", "ring"])
@pytest.mark.parametrize("p", [1, 3])
def test_mixing_over_b_connected_links_reaches_consensus(network: Network, p: float) -> None:
    """No single round of `PAIRS` is connected, but every four consecutive rounds together are."""
    rounds = 400
    assert check_assumption1(network, rounds).holds
    simulator = scattered(WPM(p, 0.0, Constant(), anchor=False), network, rounds)
    centre = signed_power(signed_power(simulator.models(), p).mean(0), 1 / p)
    simulator.advance(rounds)
    torch.testing.assert_close(simulator.models(), centre.expand(M, -1), rtol=0, atol=1e-9)


def test_mixing_over_unconnected_links_does_not() -> None:
    apart = Graph(M, ((0, 1), (1, 2), (3, 4), (4, 5)))
    assert not check_assumption1(apart, 400).holds
    simulator = scattered(DPSGD(0.0), apart, 400)
    simulator.advance(400)
    w = simulator.models()
    assert (w[0] - w[2]).norm() < 1e-9
    assert (w[0] - w[3]).norm() > 0.1


def test_d_psgd_over_a_full_network_is_all_reduce() -> None:
    """Adapt-then-combine over all links is SGD with the batches of all devices."""
    gossip = run(plan_of(DPSGD(0.05, order="adapt-then-combine"), Full(M)))
    full = run(plan_of(AllReduce(0.05), Full(M)))
    torch.testing.assert_close(gossip.models(), full.models(), rtol=0, atol=1e-12)
    assert torch.equal(full.models(), full.models()[:1].expand(M, -1))


# Networks that carry their weights


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 3])
def test_a_period_of_a_base_graph_reaches_consensus(degree: int, p: float) -> None:
    network = BaseGraph(M, degree)
    simulator = scattered(WPM(p, 0.0, Constant(), anchor=False), network, network.period or 1)
    centre = signed_power(signed_power(simulator.models(), p).mean(0), 1 / p)
    simulator.advance(network.period or 1)
    torch.testing.assert_close(simulator.models(), centre.expand(M, -1), rtol=0, atol=1e-10)


def test_a_method_can_ask_for_other_weights() -> None:
    network = BaseGraph(M, simple=True)
    method = Composition(eta=0.0, weights=Metropolis())
    simulator = scattered(method, network, network.period or 1)
    mean = simulator.models().mean(0)
    simulator.advance(network.period or 1)
    assert (simulator.models() - mean).abs().max() > 0.01


def test_push_sum_takes_the_weights_of_one_way_links() -> None:
    network = EquiDyn(M, directed=True)
    plan = plan_of(PushSum(0.0), network, 3)
    x = torch.from_numpy(draws.normal(0, "scattered", np.arange(M)[:, None], np.arange(5)))
    ones = torch.ones(M, 1, dtype=torch.float64)
    simulator = Simulator(plan, Snapshot(0, 0, 0, {"x": x, "weight": ones}))
    simulator.advance(3)
    expected = x
    for t in range(3):
        links = network.links(t)
        w = np.eye(M) * (1 - 0.5 * (M - 1) / M)
        w[links.b, links.a] = 0.5 * (M - 1) / M
        expected = torch.from_numpy(w) @ expected
    torch.testing.assert_close(simulator.models(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("method", [DPSGD(), Composition(weights=Metropolis())], ids=str)
def test_one_way_links_with_weights_are_for_push_sum(method: Algorithm) -> None:
    with pytest.raises(InputError, match="push-sum takes one-way ones"):
        plan_of(method, OnePeerExponential(M, directed=True))
