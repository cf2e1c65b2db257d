"""Random waypoint mobility against a plain implementation."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import draws
from gossamer.network import Mobility


def walk(network: Mobility, device: int, time: float) -> tuple[float, float]:
    """Return a position, leg by leg: the executable specification of random waypoint."""

    def waypoint(k: int) -> tuple[float, float]:
        x = float(draws.uniform(network.seed, "waypoint/x", device, k)) * network.width
        return x, float(draws.uniform(network.seed, "waypoint/y", device, k)) * network.height

    clock = 0.0
    for k in itertools.count():
        x, y = waypoint(k)
        to_x, to_y = waypoint(k + 1)
        u = float(draws.uniform(network.seed, "waypoint/speed", device, k))
        speed = network.min_speed + u * (network.max_speed - network.min_speed)
        travel = math.dist((x, y), (to_x, to_y)) / speed
        if time < clock + travel:
            part = (time - clock) / travel
            return x + part * (to_x - x), y + part * (to_y - y)
        if time < clock + travel + network.pause:
            return to_x, to_y
        clock += travel + network.pause
    raise AssertionError


@given(seed=st.integers(0, 10**6), pause=st.sampled_from([0.0, 0.7, 30.0]), t=st.integers(0, 60))
@settings(deadline=None, max_examples=15)
def test_positions_and_links_against_a_plain_walk(seed: int, pause: float, t: int) -> None:
    network = Mobility(
        6,
        0.4,
        min_speed=0.2,
        max_speed=0.9,
        pause=pause,
        width=2.0,
        seed=seed,
        seconds_per_round=0.5,
    )
    wanted = [walk(network, device, t * 0.5) for device in range(6)]
    np.testing.assert_allclose(network.positions(t), wanted, atol=1e-9)
    linked = []
    for i, j in itertools.combinations(range(6), 2):
        if math.dist(wanted[i], wanted[j]) <= 0.4:
            linked.append([i, j])
    assert network.links(t).pairs.tolist() == linked


def test_devices_stay_inside_and_within_their_speed() -> None:
    network = Mobility(200, 0.1, min_speed=0.01, max_speed=0.05, width=2.0, height=0.5)
    positions = np.stack([network.positions(t) for t in range(100)])
    assert (positions >= 0).all()
    assert (positions <= [2.0, 0.5]).all()
    moved = np.linalg.norm(np.diff(positions, axis=0), axis=2)
    assert moved.max() <= 0.05 + 1e-12
    assert np.median(moved) > 0.01


def test_rounds_in_any_order_have_the_same_links() -> None:
    in_order = Mobility(30, 0.2)
    shuffled = Mobility(30, 0.2)
    expected = [in_order.links(t) for t in range(80)]
    for t in draws.permutation(80, 0, "test").tolist():
        assert shuffled.links(t) == expected[t]


def test_threads_can_share_a_network() -> None:
    shared = Mobility(30, 0.2)
    alone = Mobility(30, 0.2)
    times = [7 * k % 50 for k in range(200)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(shared.links, times))
    assert answers == [alone.links(t) for t in times]


def test_equality_and_hash_ignore_the_cache() -> None:
    used = Mobility(5, 0.1)
    used.links(9)
    assert used == Mobility(5, 0.1)
    assert hash(used) == hash(Mobility(5, 0.1))
    assert "_latest" not in repr(used)
