"""Networks as pages draw them."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

from gossamer import Churn, Mobility, Network, Random, Ring
from gossamer.network import Callback
from gossamer.report import links


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


@pytest.mark.parametrize(
    "network", [Random(9, 0.3), Ring(9), Mobility(9, radius=0.4) & Churn(0.3, 0.5)], ids=repr
)
def test_links_and_active_devices_are_packed(network: Network) -> None:
    rounds = [0, 1, 2, 3]
    drawn = links.Drawn(network, rounds).frames(links.frame_plan(network, 3))
    assert drawn["rounds"] == rounds
    flags = np.unpackbits(
        np.frombuffer(unpacked(drawn["links"]), np.uint8).reshape(4, -1), axis=1, bitorder="little"
    )
    pairs = np.stack(np.triu_indices(9, 1), axis=1)
    for k, t in enumerate(rounds):
        found = pairs[flags[k, : len(pairs)] == 1].tolist()
        assert found == (network.links(t - 1).pairs.tolist() if t else [])
    if drawn["here"]:
        here = np.unpackbits(
            np.frombuffer(unpacked(drawn["here"]), np.uint8).reshape(4, -1),
            axis=1,
            bitorder="little",
        )[:, :9]
        assert here[1:].astype(bool).tolist() == [
            network.links(t - 1).active.tolist() for t in rounds[1:]
        ]


def test_directed_links_have_a_bit_per_direction() -> None:
    one_way = Callback(3, lambda t: [(2, 0)], directed=True)
    drawn = links.Drawn(one_way, [1]).frames(links.FramePlan(((0, 1),), 1, 1))
    packed = np.frombuffer(unpacked(drawn["links"]), np.uint8)
    flags = np.unpackbits(packed, bitorder="little")[:9].reshape(3, 3)
    assert flags.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]


def met(network: Network, begin: int, end: int) -> set[tuple[int, int]]:
    """The pairs that are linked after `begin` rounds until `end` rounds are done."""
    found = set()
    for t in range(max(begin, 0), end):
        found |= {(a, b) for a, b in network.links(t).pairs.tolist()}
    return found


def test_many_rounds_share_pictures_that_keep_all_links() -> None:
    network = Random(12, 0.05)
    plan = links.frame_plan(network, 1000, max_bytes=700)
    assert plan.every == plan.joined == 16
    assert plan.spans[-1][1] == 1000
    drawn = links.Drawn(network, [0]).frames(plan)
    assert len(unpacked(drawn["links"])) <= 700
    flags = np.frombuffer(unpacked(drawn["links"]), np.uint8).reshape(len(plan.spans), -1)
    pairs = np.stack(np.triu_indices(12, 1), axis=1)
    for row, span in zip(flags, plan.spans, strict=True):
        bits = np.unpackbits(row, bitorder="little")[: len(pairs)] == 1
        assert {(a, b) for a, b in pairs[bits].tolist()} == met(network, *span)


@pytest.mark.parametrize("rounds", [0, 1, 5, 2046, 2047, 2048, 100_000, 10**7])
def test_a_plan_is_bounded_and_pictures_stay_the_same_as_a_run_goes_on(rounds: int) -> None:
    plan = links.frame_plan(Ring(300), rounds)
    ends = [end for _, end in plan.spans]
    assert ends == sorted(set(ends))
    assert (ends[0], ends[-1]) == (0, rounds)
    pair_bytes = 300 * 299 / 16
    assert len(ends) * pair_bytes <= links.MAX_BYTES
    assert sum(end - begin for begin, end in plan.spans) <= links.MAX_LOOKED + len(ends)
    later = links.frame_plan(Ring(300), rounds + 1)
    if later.every == plan.every:
        assert set(plan.spans[:-1]) <= set(later.spans)


def test_a_map_has_its_size_and_the_reach_of_links() -> None:
    network = Mobility(9, radius=0.4) & Churn(0.3, 0.5)
    drawn = links.Drawn(network, [0]).frames(links.frame_plan(network, 30))
    places = np.stack([network.layout(max(0, t - 1)) for t in range(31)])
    sides = np.nanmax(places, axis=(0, 1)) - np.nanmin(places, axis=(0, 1))
    assert drawn["map"]["size"] == pytest.approx(sides.max(), rel=1e-5)
    assert drawn["map"]["radius"] == 0.4
    assert links.Drawn(Ring(3), [0]).frames(links.frame_plan(Ring(3), 1))["map"] is None
