"""Faults: the Markov chains behind them, and which links they remove."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import draws
from gossamer.errors import InputError
from gossamer.network import Callback, Churn, Full, GilbertElliott, LinkFailure, Links, Random, Ring
from gossamer.network.faults import chain


def pairs_of(links: Links) -> set[tuple[int, int]]:
    return {(a, b) for a, b in links.pairs.tolist()}


shares = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 1e-9]))


def forward(
    seed: int, purpose: str, rounds: int, ids: tuple[np.ndarray, ...], fail: float, recover: float
) -> np.ndarray:
    """Return the states of the chains by definition: from the start, round after round."""
    share = 0.0
    if recover > 0 and fail > 0:
        share = fail / (fail + recover)
    bad = draws.uniform(seed, purpose + "/start", *ids) < share
    states = []
    for t in range(rounds):
        u = draws.uniform(seed, purpose, t, *ids)
        bad = np.where(bad, u < 1 - recover, u < fail)
        states.append(bad)
    return np.array(states)


@given(seed=st.integers(0, 10**6), fail=shares, recover=shares)
@settings(deadline=None, max_examples=80)
def test_a_chain_in_any_round_equals_one_run_from_the_start(
    seed: int, fail: float, recover: float
) -> None:
    ids = (np.arange(40), np.arange(40) + 7)
    states = forward(seed, "x", 50, ids, fail, recover)
    for t in (49, 0, 20, 1):
        assert np.array_equal(chain(seed, "x", t, ids, fail, recover), states[t])


def test_many_chains_over_many_rounds() -> None:
    ids = (np.arange(20_000),)  # too many to look back over several rounds at once
    states = forward(1, "x", 300, ids, 0.01, 0.02)
    assert np.array_equal(chain(1, "x", 299, ids, 0.01, 0.02), states[299])


@pytest.mark.parametrize(("fail", "recover"), [(0.05, 0.2), (0.3, 0.7), (0.9, 0.8)])
def test_a_chain_is_stationary_with_the_given_probabilities(fail: float, recover: float) -> None:
    ids = (np.arange(20_000),)
    first = chain(5, "x", 0, ids, fail, recover)
    then = chain(5, "x", 1, ids, fail, recover)
    share = fail / (fail + recover)
    for state in (first, then):
        assert abs(state.mean() - share) < 5 * math.sqrt(share * (1 - share) / 20_000)
    for moved, probability in ((then[~first], fail), (~then[first], recover)):
        assert abs(moved.mean() - probability) < 5 * math.sqrt(
            probability * (1 - probability) / len(moved)
        )


def test_devices_that_never_come_back_leave_one_by_one() -> None:
    counts = []
    for t in range(0, 200, 20):
        counts.append((Ring(500) & Churn(0.02, 0.0)).links(t).active.sum())
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 450
    assert counts[-1] < 50


def test_gilbert_elliott_is_the_chain_of_the_pair() -> None:
    fault = GilbertElliott(0.2, 0.3, seed=4)
    full = Full(12).links(0)
    states = forward(4, "links/gilbert-elliott", 30, (full.a, full.b), 0.2, 0.3)
    for t in (29, 3, 0):
        assert (Full(12) & fault).links(t) == full.keep(~states[t])
    # The state also changes while the pair is not linked.
    sometimes = Random(12, 0.3) & fault
    for t in (29, 3, 0):
        wanted = pairs_of(full.keep(~states[t]))
        wanted &= pairs_of(Random(12, 0.3).links(t))
        assert pairs_of(sometimes.links(t)) == wanted


def test_gilbert_elliott_losses_in_each_state() -> None:
    fault = GilbertElliott(0.5, 0.5, loss_good=0.1, loss_bad=0.8)
    full = Full(200).links(0)
    bad = chain(0, "links/gilbert-elliott", 9, (full.a, full.b), 0.5, 0.5)
    remaining = pairs_of(fault.apply(full, 9))
    kept = np.array([tuple(p) in remaining for p in full.pairs.tolist()])
    for state, loss in ((~bad, 0.1), (bad, 0.8)):
        assert abs((~kept[state]).mean() - loss) < 5 * math.sqrt(loss * (1 - loss) / state.sum())


def test_directed_links_share_the_state_of_their_pair() -> None:
    both = Callback(10, lambda t: list(permutations(range(10), 2)), directed=True)
    for t in range(20):
        links = (both & GilbertElliott(0.3, 0.3)).links(t)
        pairs = pairs_of(links)
        assert links.directed
        assert 0 < len(pairs) < 90
        assert pairs == {(b, a) for a, b in pairs}


def test_link_failures_are_independent() -> None:
    links = (Full(200) & LinkFailure(0.3)).links(0)
    later = (Full(200) & LinkFailure(0.3)).links(1)
    sigma = math.sqrt(0.3 * 0.7 / 19_900)
    assert abs(len(links) / 19_900 - 0.7) < 5 * sigma
    both = pairs_of(links) & pairs_of(later)
    assert abs(len(both) / 19_900 - 0.49) < 5 * math.sqrt(0.49 * 0.51 / 19_900)
    assert (Ring(5) & LinkFailure(0.0)).links(0) == Ring(5).links(0)


def test_churn_removes_all_links_of_devices_that_are_away() -> None:
    network = Full(60) & Churn(0.1, 0.3, seed=2)
    states = forward(2, "devices/churn", 25, (np.arange(60),), 0.1, 0.3)
    for t in range(25):
        links = network.links(t)
        assert np.array_equal(links.active, ~states[t])
        present = int(links.active.sum())
        assert len(links) == present * (present - 1) // 2
        assert (links.degrees[~links.active] == 0).all()


def test_a_device_is_active_only_if_both_churns_say_so() -> None:
    first = Churn(0.3, 0.3, seed=1)
    second = Churn(0.3, 0.3, seed=2)
    active_first = (Full(50) & first).links(3).active
    active_second = (Full(50) & second).links(3).active
    active_both = (Full(50) & first & second).links(3).active
    assert np.array_equal(active_both, active_first & active_second)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("probability", lambda: LinkFailure(1.1)),
        ("probability", lambda: LinkFailure(math.nan)),
        ("seed", lambda: LinkFailure(0.1, seed="a")),
        ("fail", lambda: GilbertElliott(-0.1, 0.1)),
        ("recover", lambda: GilbertElliott(0.1, 2.0)),
        ("loss_good", lambda: GilbertElliott(0.1, 0.1, loss_good=3)),
        ("loss_bad", lambda: GilbertElliott(0.1, 0.1, loss_bad=-3)),
        ("leave", lambda: Churn(5, 0.5)),
        ("come_back", lambda: Churn(0.5, None)),
    ],
)
def test_invalid_arguments_are_refused(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field


def test_a_faulty_network_keeps_names_groups_and_description() -> None:
    class Ward(Ring):
        names = ("ann", "ben", "cas")
        groups = MappingProxyType({"ward": ("a", "a", "b")})

    network = Ward(3) & LinkFailure(0.1) & Churn(0.1, 0.5)
    assert network.names == ("ann", "ben", "cas")
    assert network.groups == {"ward": ("a", "a", "b")}
    (line,) = network.describe()
    assert line.startswith("3 devices, the same links in every round; with LinkFailure(")
    assert "Churn(" in line
    assert Ring(3).names is None
    assert not Ring(3).groups
