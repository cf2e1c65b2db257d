"""Weights on all links of a round: Metropolis, or the same weight on every link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gossamer._core.arguments import checked
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network.base import Links
from gossamer.network.weights.base import LinkWeight, Sums, WeightRule, Weights, check_symmetric

_NOT_LOCAL = (
    "weights that two devices can compute, such as Metropolis;"
    " these need the links of the whole network"
)
_MAX_EIGENVALUES = 4000  # devices for which `BestConstant` computes all eigenvalues


@checked
def metropolis(links: Links, t: int = 0, seed: int = 0) -> Weights:
    """Return Metropolis weights: a_ij = min(1/(|N_i|+1), 1/(|N_j|+1)), a_ii the rest up to 1.

    Args:
        links: Symmetric links.
        t: Not used; all rules take it.
        seed: Not used; all rules take it.

    Returns:
        The weights, symmetric and doubly stochastic.

    Raises:
        InputError: If the links are directed.

    Example:
        >>> metropolis(Links.of(2, [(0, 1)])).own.tolist()
        [0.5, 0.5]
    """
    check_symmetric(links)
    a = links.a
    b = links.b
    size = links.degrees + 1
    value = 1.0 / np.maximum(size[a], size[b])
    to_a = np.bincount(a, weights=value, minlength=links.devices)
    to_b = np.bincount(b, weights=value, minlength=links.devices)
    own = (1.0 - (to_a + to_b)).astype(np.float64, copy=False)
    return Weights(links.devices, a, b, value, own, links.active)


@register("weights", "metropolis")
@dataclass(frozen=True)
class Metropolis(WeightRule):
    """Metropolis weights: a_ij = min(1/(|N_i|+1), 1/(|N_j|+1)).

    A device needs to know only how many neighbours its neighbours have.

    Example:
        >>> Metropolis()(Links.of(2, [(0, 1)])).value.tolist()
        [0.5]
    """

    fixed: ClassVar[bool] = True
    local: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        return metropolis(links)

    def link_weight(self) -> LinkWeight:
        return lambda own, other: 1.0 / (1 + max(own, other))


@register("weights", "laplacian")
@dataclass(frozen=True)
class Laplacian(WeightRule):
    """W = I − α·L: the same weight α on every link (Xiao and Boyd 2004).

    All devices must agree on α. Above 2/λ_max(L) averaging diverges.

    Args:
        alpha: The weight; 0 for 1/(1 + the largest degree of the round).

    Example:
        >>> Laplacian(0.25)(Links.of(2, [(0, 1)])).own.tolist()
        [0.75, 0.75]
    """

    alpha: float = 0.0
    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < math.inf:
            accepted = "a number above 0, or 0 for 1/(1 + the largest degree)"
            raise InputError("alpha", self.alpha, accepted)

    @property
    def local(self) -> bool:
        return self.alpha > 0

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        return _laplacian(links, self.alpha or 1.0 / (1 + int(links.degrees.max(initial=0))))

    def link_weight(self) -> LinkWeight:
        if not self.alpha:
            raise InputError("weights", "Laplacian", _NOT_LOCAL)
        return lambda own, other: self.alpha


@register("weights", "best-constant")
@dataclass(frozen=True)
class BestConstant(WeightRule):
    """W = I − α·L with the α for which averaging is fastest.

    α = 2/(λ_max + λ_min) over the nonzero eigenvalues of the Laplacian. It needs the whole graph
    of the round, so that it runs in simulations only.

    L. Xiao, S. Boyd. "Fast linear iterations for distributed averaging." Systems & Control
    Letters 53, 2004.

    Example:
        >>> BestConstant()(Links.of(2, [(0, 1)])).value.tolist()
        [0.5]
    """

    fixed: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    sums: ClassVar[Sums] = "both"

    def __call__(self, links: Links, t: int = 0, seed: int = 0) -> Weights:
        if links.devices > _MAX_EIGENVALUES:
            accepted = (
                f"another rule for more than {_MAX_EIGENVALUES} devices: it needs all eigenvalues"
            )
            raise InputError("weights", "best-constant", accepted)
        if not len(links):
            return metropolis(links)
        unit = _laplacian(links, 1.0).dense()
        eigenvalues = np.linalg.eigvalsh(np.eye(links.devices) - unit)  # W = I − L at α = 1
        nonzero = eigenvalues[eigenvalues > 1e-9 * eigenvalues[-1]]
        return _laplacian(links, 2.0 / float(nonzero[0] + nonzero[-1]))

    def link_weight(self) -> LinkWeight:
        raise InputError("weights", "BestConstant", _NOT_LOCAL)


def _laplacian(links: Links, alpha: float) -> Weights:
    check_symmetric(links)
    own = (1.0 - alpha * links.degrees).astype(np.float64, copy=False)
    return Weights(links.devices, links.a, links.b, np.full(len(links), alpha), own, links.active)
