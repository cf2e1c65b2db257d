"""Exponential graphs: links to the devices 1, 2, 4, 8, … places further.

B. Ying, K. Yuan, Y. Chen, H. Hu, P. Pan, W. Yin. "Exponential graph is provably efficient for
decentralized deep training." NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gossamer._core.registry import register
from gossamer.network import limits
from gossamer.network.base import FloatArray, IntArray, Links, Network
from gossamer.network.generators.fixed import Static
from gossamer.network.generators.pairs import weighted_links


def powers_of_two(devices: int) -> IntArray:
    """Return the powers of two below the number of devices.

    Args:
        devices: Number of devices.

    Example:
        >>> powers_of_two(10).tolist()
        [1, 2, 4, 8]
    """
    return 2 ** np.arange((devices - 1).bit_length())


def circulant(devices: int, steps: IntArray, weights: FloatArray, directed: bool) -> Links:
    """Return the links of every device to those a few steps further.

    Args:
        devices: Number of devices.
        steps: Different steps from 1 to devices - 1, if symmetric up to devices / 2.
        weights: Mixing weight of the links of each step.
        directed: True if each device only sends to those further.
    """
    device = np.arange(devices)
    u = np.tile(device, len(steps))
    step = np.repeat(steps, devices)
    weight = np.repeat(weights, devices)
    v = (u + step) % devices
    if not directed:  # half the way around is the same link from both ends
        once = (2 * step != devices) | (u < v)
        u = u[once]
        v = v[once]
        weight = weight[once]
    return weighted_links(devices, u, v, weight, directed)


@register("network", "exponential")
@dataclass(frozen=True)
class Exponential(Static):
    """The static exponential graph: links to the devices 1, 2, 4, 8, … places further.

    Each device has about 2·log₂ m neighbours, or sends to ⌈log₂ m⌉ devices if directed, which is
    the graph of the paper. All weights are equal: 1/(1 + neighbours).

    Args:
        devices: Number of devices m.
        directed: True if devices only send to those further, for push-sum.

    Example:
        >>> Exponential(8, directed=True).links(0).degrees.tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]
    """

    weighted = True

    devices: int
    directed: bool = False

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)

    def links(self, t: int) -> Links:
        return self._links

    @cached_property
    def _links(self) -> Links:
        m = self.devices
        steps = powers_of_two(m)
        if self.directed:
            return circulant(m, steps, np.full(len(steps), 1 / (1 + len(steps))), True)
        steps = np.unique(np.minimum(steps, m - steps))
        neighbours = 2 * len(steps) - np.count_nonzero(2 * steps == m)
        return circulant(m, steps, np.full(len(steps), 1 / (1 + neighbours)), False)


@register("network", "one-peer-exponential")
@dataclass(frozen=True)
class OnePeerExponential(Network):
    """One link of the exponential graph per device and round, in turn: one message per round.

    In round t the step is s = 2^(t mod ⌈log₂ m⌉). Directed, device i sends to i + s, which is the
    graph of the paper, for push-sum. Symmetric, device i exchanges with the device whose number
    differs in the bit s, if there is one: a hypercube, one dimension per round. All weights are
    1/2. If m is a power of two, both average exactly in log₂ m rounds.

    Args:
        devices: Number of devices m.
        directed: True if devices only send to those further.

    Example:
        >>> [OnePeerExponential(4).links(t).pairs.tolist() for t in range(2)]
        [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    """

    weighted = True

    devices: int
    directed: bool = False

    def __post_init__(self) -> None:
        limits.check_devices(self.devices)

    @property
    def period(self) -> int | None:
        return max(1, len(powers_of_two(self.devices)))

    def links(self, t: int) -> Links:
        m = self.devices
        device = np.arange(m)
        step = 1 << t % max(1, len(powers_of_two(m)))
        u = device
        v = (device + step) % m
        if not self.directed:
            v = device ^ step
            paired = (u < v) & (v < m)
            u = u[paired]
            v = v[paired]
        loop = u == v  # a single device
        u = u[~loop]
        v = v[~loop]
        return weighted_links(m, u, v, np.full(len(u), 0.5), self.directed)
