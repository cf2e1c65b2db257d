"""Networks in a notebook."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from support.html import parse_html, text_of

import gossamer as gs
from gossamer.network import Links, Network
from gossamer.network.notebook import ticks

NETWORKS = {
    "random": gs.Random(10, 0.2),
    "static": gs.Ring(12),
    "moving and away": gs.Mobility(15, radius=0.3) & gs.Churn(0.2, 0.3),
    "one": gs.Full(1),
    "many": gs.Random(3000, 0.0005),
    "few rounds": gs.Callback(4, lambda t: [(0, 1)]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_shows_itself(name: str) -> None:
    net = NETWORKS[name]
    html = net._repr_html_()
    assert f"{net.devices:,}" in text_of(html)
    pictures = []
    for picture in parse_html(html).iter("svg"):
        pictures.append(picture.attrib["aria-label"])
    assert pictures == [
        f"links of round {t}"
        for t in range(0 if net.devices > 200 else 1 if net.period == 1 else 4)
    ]
    if pictures:
        first = next(parse_html(html).iter("path")).attrib["d"]
        assert first.count("M") == len(net.links(0))


def test_a_name_in_a_network_is_escaped() -> None:
    @dataclass(frozen=True)
    class Sly(Network):
        devices: int = 3
        name: str = "<img src=x onerror=alert(1)>"

        def links(self, t: int) -> Links:
            return Links.of(3, [(0, 1)])

    assert "<img" not in Sly()._repr_html_()
    parse_html(Sly()._repr_html_())


def test_ticks_are_round_and_within() -> None:
    for low, high in ((0, 1), (0.13, 0.97), (0, 12345), (-3, 4), (1e-6, 2e-6), (99.2, 99.9)):
        found = ticks(low, high)
        assert 2 <= len(found) <= 7
        assert low - 1e-9 <= found[0]
        assert found[-1] <= high + 1e-9
    assert ticks(5, 5) == [5]
