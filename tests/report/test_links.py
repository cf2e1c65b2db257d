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
    rounds = [0, 1, 5, 6]
    drawn = links.Drawn(network, rounds).frames(rounds)
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
    drawn = links.Drawn(one_way, [1]).frames([1])
    flags = np.unpackbits(np.frombuffer(unpacked(drawn["links"]), np.uint8), bitorder="little")[
        :9
    ].reshape(3, 3)
    assert flags.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
