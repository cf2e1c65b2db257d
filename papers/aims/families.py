"""The methods of the comparison, each with the settings that its search may change.

Every form has a control with the same freedom and without a mirror function: a power mean kept for
some rounds beside a gain kept for some rounds, a p that follows the divergence beside a gain that
follows it.
"""

from __future__ import annotations

import gossamer as gs
from papers.families import AGGREGATE, family
from papers.search import Axis, Family, rates

_SCALES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def all_families() -> list[Family]:
    """Return the methods in the order of the tables."""
    known = [family(name) for name in ("d-psgd", AGGREGATE, "wpm", "gain-control")]
    return [
        *known,
        Family("aims", gs.AIMS, (rates(0.04), Axis("p", (2, 3, 5, 9, 15, 31, 101), 3))),
        Family("gain by divergence", _local_gain, (rates(0.04), _GAINS)),
        Family("sinh", _sinh, (rates(0.04), Axis("scale", _SCALES, 3))),
        Family("arcsinh", _arcsinh, (rates(0.04), Axis("scale", _SCALES, 3))),
    ]


_GAINS = Axis("gain", (1.02, 1.05, 1.1, 1.2, 1.4, 1.8, 2.6), 2)


def _local_gain(eta: float, gain: float) -> gs.Algorithm:
    return gs.Composition(eta=eta, anchor=True, gain=gs.ByDivergence(gain))


def _sinh(eta: float, scale: float) -> gs.Algorithm:
    return gs.Composition(gs.SinhMap(scale), eta, gs.Constant(), anchor=True)


def _arcsinh(eta: float, scale: float) -> gs.Algorithm:
    return gs.Composition(gs.ArcsinhMap(scale), eta, gs.Constant(), anchor=True)
