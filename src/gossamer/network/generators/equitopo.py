"""EquiTopo: random circulant graphs whose consensus rate does not depend on the number of devices.

Z. Song, W. Li, K. Jin, L. Shi, M. Yan, W. Yin, K. Yuan. "Communication-efficient topologies for
decentralized learning with O(1) consensus rate." NeurIPS 2022.

The basis graph A(u) links every device to the one u places further, with the weight (m-1)/m, and
keeps 1/m. The mean of all m - 1 basis graphs is 11ᵀ/m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.network import limits
from gossamer.network.base import IntArray, Links, Network
from gossamer.network.generators.exponential import circulant
from gossamer.network.generators.fixed import Static
from gossamer.network.generators.pairs import weighted_links


def _steps(devices: int, basis: int, seed: int) -> IntArray:
    """Draw the steps u of the basis graphs, again until these connect all devices.

    The same step may be drawn several times.
    """
    if devices == 1:
        return np.empty(0, dtype=np.int64)
    attempt = 0
    while True:
        steps = 1 + draws.below(devices - 1, seed, "links/equitopo", attempt, np.arange(basis))
        if math.gcd(devices, *steps.tolist()) == 1:
            return steps
        attempt += 1


@register("network", "equi-static")
@dataclass(frozen=True)
class EquiStatic(Static):
    """The mean of a few random basis graphs: D-EquiStatic if directed, else U-EquiStatic.

    The basis graphs are drawn at random, again until they connect all devices. A device sends to at
    most `basis` devices if directed, and has at most twice as many neighbours otherwise. For a
    prime m, directed averaging multiplies the squared distance to consensus by (1 - 2/m)/basis in
    expectation over the graphs.

    Args:
        devices: Number of devices m.
        basis: Number of basis graphs M.
        directed: True for links in the direction of the basis graphs, for push-sum.
        seed: Seed of the basis graphs.

    Example:
        >>> set(EquiStatic(20, basis=3).links(0).degrees.tolist())
        {6}
    """

    weighted = True

    devices: int
    basis: int
    directed: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        checks.whole("basis", self.basis, 1)
        limits.check_drawn(self.seed)
        links = self.devices * min(self.basis, self.devices)
        limits.check_links("basis", self.basis, links)

    def links(self, t: int) -> Links:
        return self._links

    @cached_property
    def _links(self) -> Links:
        m = self.devices
        steps = _steps(m, self.basis, self.seed)
        unit = (1 - 1 / m) / self.basis
        if not self.directed:
            # Half of A(u), half of its transpose. They are the same link if u is m/2.
            steps = np.minimum(steps, m - steps)
        different, count = np.unique(steps, return_counts=True)
        weights = count.astype(np.float64) * unit
        if not self.directed:
            weights[2 * different != m] /= 2
        return circulant(m, different, weights, self.directed)


@register("network", "equi-dyn")
@dataclass(frozen=True)
class EquiDyn(Network):
    """One random basis graph per round: OD-EquiDyn if directed, else OU-EquiDyn.

    Each device sends to one device per round, or exchanges with at most one. Directed, averaging
    multiplies the squared distance to consensus by (1-η)² + η²·(1 - 2/m) per round in expectation,
    with all basis graphs: 1/2 for any number of devices. In the symmetric form, the devices from
    a random one on form pairs of those u places apart; the few that are left over do nothing.

    Args:
        devices: Number of devices m.
        basis: Number of basis graphs M to draw from; 0 for all m - 1.
        directed: True for links in the direction of the basis graphs, for push-sum.
        share: η, above 0 and at most 1: a round is (1-η)·I + η·A(u).
        seed: Seed of the basis graphs and of the rounds.

    Example:
        >>> max(EquiDyn(20).links(3).degrees.tolist())
        1
    """

    weighted = True

    devices: int
    basis: int = 0
    directed: bool = False
    share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)
        checks.whole("basis", self.basis, 0)
        checks.number("share", self.share, above=0, most=1)
        limits.check_drawn(self.seed)

    def links(self, t: int) -> Links:
        m = self.devices
        if m == 1:
            return circulant(1, _steps(1, 0, self.seed), np.empty(0), self.directed)
        weight = self.share * (1 - 1 / m)
        step = self._step(t)
        if self.directed:
            return circulant(m, np.array([step]), np.array([weight]), True)
        begin = int(draws.below(m, self.seed, "links/equi-dyn/begin", t))
        u, v = pairs_apart(m, min(step, m - step), begin)
        return weighted_links(m, u, v, np.full(len(u), weight))

    def _step(self, t: int) -> int:
        """Return the step of the basis graph of round t."""
        purpose = "links/equi-dyn"
        if not self.basis:
            return 1 + int(draws.below(self.devices - 1, self.seed, purpose, t))
        chosen = int(draws.below(self.basis, self.seed, purpose, t))
        return int(_steps(self.devices, self.basis, self.seed)[chosen])


def pairs_apart(devices: int, step: int, begin: int) -> tuple[IntArray, IntArray]:
    """Pair devices that are `step` apart, in the order from `begin` on, each with the first free.

    Counted from `begin`, each second run of `step` devices is paired with the run after it.

    Args:
        devices: Number of devices.
        step: A step of at most half the devices.
        begin: The first device.
    """
    place = np.arange(devices - step)
    place = place[place // step % 2 == 0]
    return (place + begin) % devices, (place + step + begin) % devices
