"""The methods of the comparison, each with the settings that its search may change."""

from __future__ import annotations

from collections.abc import Iterator

import gossamer as gs
from papers.asynchronous.setting import ALONE, IN_BACKGROUND, IN_PAIRS, IN_ROUNDS
from papers.families import family
from papers.search import Axis, Family, rates

# With common rounds, and as they are with a round for each pair that meets.
_OF_ROUNDS = ("d-psgd", "momentum", "quasi-global", "tracking", "fading-gain")
# The number of steps between two messages.
_LOCAL_STEPS = Axis("local_steps", (1, 2, 4, 8), 0)
_FRAGMENTS = Axis("fragments", (1, 2), 1)
_BETA = Axis("beta", (0.3, 0.5, 0.8, 0.9, 0.95), 2)
_IN_BACKGROUND: dict[str, tuple[Axis, ...]] = {
    "ad-psgd": (),
    "swarm-sgd": (_LOCAL_STEPS,),
    "swift": (_LOCAL_STEPS,),
    "divshare": (_FRAGMENTS,),
    "gossip-learning": (),
    "push-sum": (),
}
_POWERS = Axis("p", (1.5, 2, 3, 5, 9), 2)


def all_families() -> Iterator[tuple[str, Family]]:
    """Yield the methods in the order of the tables, each with the form in which it runs."""
    yield ALONE, family("d-psgd")
    for form in (IN_ROUNDS, IN_PAIRS):
        for name in _OF_ROUNDS:
            yield form, family(name)
        yield form, Family("wpm", gs.WPM, (rates(0.04), _POWERS))
    for name, axes in _IN_BACKGROUND.items():
        yield IN_BACKGROUND, Family(name, gs.METHODS[name].make, (rates(0.04), *axes))
    yield IN_BACKGROUND, Family("ad-psgd, momentum", _ad_psgd_momentum, (rates(0.04), _BETA))


def _ad_psgd_momentum(eta: float, beta: float) -> gs.Algorithm:
    return gs.ADPSGD(eta, optimizer=gs.SGD(momentum=beta))
