"""The weights that a network carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gossamer._core.registry import register
from gossamer.network.base import Links
from gossamer.network.weights.all_links import Metropolis, metropolis
from gossamer.network.weights.base import (
    LinkWeight,
    PeerWeight,
    Sums,
    WeightRule,
    Weights,
    check_symmetric,
)


@register("weights", "network")
@dataclass(frozen=True)
class NetworkWeights(WeightRule):
    """The weights that the network carries; Metropolis weights if it carries none.

    The default of all methods that do not need other weights. The weight of a link that fails goes
    to both of its ends.

    Example:
        >>> from gossamer.network import BaseGraph
        >>> NetworkWeights()(BaseGraph(3).links(1)).value.round(3).tolist()
        [0.667]
    """

    fixed: ClassVar[bool] = True
    local: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        if links.weight is None:
            return metropolis(links)
        check_symmetric(links)
        to_a = np.bincount(links.a, weights=links.weight, minlength=links.devices)
        to_b = np.bincount(links.b, weights=links.weight, minlength=links.devices)
        own = (1.0 - (to_a + to_b)).astype(np.float64, copy=False)
        return Weights(links.devices, links.a, links.b, links.weight, own, links.active)

    def link_weight(self) -> LinkWeight:
        return Metropolis().link_weight()

    def peer_weight(self, carried: Mapping[int, float] | None) -> PeerWeight:
        if carried is None:
            return super().peer_weight(None)
        return lambda neighbour, own, other: carried[neighbour]
