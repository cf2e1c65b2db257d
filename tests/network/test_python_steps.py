"""Links and weights of many devices are computed by NumPy, not by loops in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import draws
from gossamer._core.registry import kinds
from gossamer.network import (
    BaseGraph,
    Churn,
    Epidemic,
    EquiDyn,
    EquiStatic,
    ErdosRenyi,
    Exponential,
    GilbertElliott,
    HyperHypercube,
    LinkFailure,
    Links,
    Mobility,
    Network,
    OnePeerExponential,
    Random,
    RandomRing,
    Regular,
    Ring,
    SmallWorld,
    Star,
    StochasticBlocks,
    Torus,
)
from gossamer.network.generators.pairs import pair_count, pair_of

FEW = 512
MANY = 16 * FEW

NETWORKS: dict[str, Callable[[int], Network]] = {
    "ring": Ring,
    "star": Star,
    "torus": Torus,
    "random-ring": RandomRing,
    "random": lambda m: Random(m, density=8 / m),
    "erdos-renyi": lambda m: ErdosRenyi(m, probability=8 / m),
    "regular": lambda m: Regular(m, degree=8),
    "small-world": lambda m: SmallWorld(m, degree=4, rewire=0.2),
    "stochastic-blocks": lambda m: StochasticBlocks(m, 4, within=16 / m, between=4 / m),
    "epidemic": lambda m: Epidemic(m, degree=3),
    "exponential": Exponential,
    "one-peer-exponential": OnePeerExponential,
    "hyper-hypercube": HyperHypercube,
    "base-graph": BaseGraph,
    "equi-static": lambda m: EquiStatic(m, basis=3),
    "equi-dyn": EquiDyn,
    "mobility": lambda m: Mobility(m, radius=1 / np.sqrt(m)),
    "faults": lambda m: (
        RandomRing(m) & LinkFailure(0.1) & GilbertElliott(0.1, 0.5) & Churn(0.1, 0.5)
    ),
}
NOT_FOR_MANY = {"best-constant"}  # needs all eigenvalues


def python_steps(call: Callable[[], Any]) -> int:
    """Return how many lines of Python a call executes."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


def assert_no_loop_over_devices(make: Callable[[int], Callable[[], Any]]) -> None:
    """Compare the steps of Python for few and for 16 times as many devices."""
    few = make(FEW)
    many = make(MANY)
    few()  # imports and caches do not count
    many()
    steps = python_steps(few)
    # Some networks take a few steps more for every doubling of their devices.
    assert python_steps(many) < 2 * steps + 200


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", NETWORKS)
def test_links_take_no_loop_over_devices(kind: str) -> None:
    def make(devices: int) -> Callable[[], Any]:
        network = NETWORKS[kind](devices)
        return lambda: network.links(5)

    assert_no_loop_over_devices(make)


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", sorted(set(kinds("weights")) - NOT_FOR_MANY))
def test_weights_take_no_loop_over_devices(kind: str) -> None:
    rule = kinds("weights")[kind]()

    def make(devices: int) -> Callable[[], Any]:
        network: Network = Epidemic(devices, degree=4)
        if not rule.one_way:
            network = Random(devices, density=8 / devices)
        links = network.links(5)
        return lambda: rule(links, 5, 0).csr()

    assert_no_loop_over_devices(make)


@given(
    devices=st.integers(2, 40),
    density=st.floats(0, 0.5),
    seed=st.integers(0, 2**40),
    draw=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=40)
def test_random_links_are_the_first_different_draws(
    devices: int, density: float, seed: int, draw: int
) -> None:
    pairs = pair_count(devices)
    count = int(np.floor(density * pairs + 0.5))
    if 8 * count >= pairs:  # drawn in another way
        return
    found: list[int] = []
    slot = 0
    while len(found) < count:
        number = int(draws.bits(seed, "links/random", draw, slot)) % pairs
        if number not in found:
            found.append(number)
        slot += 1
    expected = Links(devices, *pair_of(np.sort(np.array(found, dtype=np.int64)), devices))
    assert Random(devices, density, seed).links(draw) == expected
