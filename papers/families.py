"""The methods of the comparison, each with the settings that its search may change.

A method and its control have the same freedom: the power mean may change p and the number of rounds
that it is kept, the gain its factor and the number of rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import gossamer as gs
from gossamer.algorithms import METHODS
from gossamer.algorithms.registry import ADAM_RATE
from papers.search import Axis, Family, rates

# Learning rates start here; for steps of Adam, whose length is the rate, here.
_RATES = rates(0.04)
_ADAM_RATES = rates(0.004)

# The first value of these axes switches the setting off, which is another method of the comparison:
# a gain, p or number of local steps of 1, β = 0. The last number of rounds stands for all of them.
ALWAYS = 10**6
_DURATION = Axis("rounds", (1, 3, 5, 10, 20, 40, 80, 160, ALWAYS), 5, True, True)
_GAIN = (Axis("gain", (1, 1.005, 1.01, 1.02, 1.03, 1.05, 1.1, 1.2, 1.4, 1.8), 5, True), _DURATION)
_POWER = (Axis("p", (1, 1.5, 2, 3, 5, 9, 15, 31, 101, 301, 1001), 4, True), _DURATION)
_BETA = Axis("beta", (0.0, 0.3, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995), 4, True)
_LOCAL_STEPS = Axis("local_steps", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64), 3, True)
_EXTRA_AXES: dict[str, tuple[Axis, ...]] = {
    "gain-control": _GAIN,
    "gain-quasi-global": (*_GAIN, _BETA),
    "gain-tracking": _GAIN,
    "wpm": _POWER,
    "wpm-quasi-global": (*_POWER, _BETA),
    "wpm-tracking": _POWER,
    "momentum": (_BETA,),
    "quasi-global": (_BETA,),
    "local-sgd": (_LOCAL_STEPS,),
    "wpm-local-steps": (_LOCAL_STEPS,),
    "k-gt": (_LOCAL_STEPS,),
    "swarm-sgd": (Axis("pairs", ("matching",), 0),),
}

# D-PSGD with the gradient at the mean of the neighbourhood, which is WPM with p = 1.
AGGREGATE = "d-psgd at the mean"
# Methods that need a server or the mean of all devices: references, not candidates.
CENTRAL = ("all-reduce", "fedavg", "diloco")
# Methods that need links that never change.
STATIC = ("d2", "extra", "nids")
# The methods that are run on every cell; all others on some.
CANDIDATES = (
    "d-psgd",
    AGGREGATE,
    "momentum",
    "d-adam",
    "quasi-global",
    "tracking",
    "wpm",
    "gain-control",
    "wpm-quasi-global",
    "gain-quasi-global",
    "gain-tracking",
    "fading-gain",
    "fading-gain-tracking",
)


def family(name: str) -> Family:
    """Return a method of the registry, or `AGGREGATE`, with the settings that are searched.

    Args:
        name: Its name.

    Example:
        >>> family("gain-control").at((8, 5, 2)).gain
        1.05
    """
    if name == AGGREGATE:
        return Family(name, _aggregate, (_RATES,))
    entry = METHODS[name]
    steps = _RATES
    if entry.tune.get("eta") == ADAM_RATE:
        steps = _ADAM_RATES
    axes = (steps, *_EXTRA_AXES.get(name, ()))
    make: Callable[..., gs.Algorithm] = entry.make
    if axes[1:3] == _POWER:
        make = _with_power(entry.make)
    return Family(name, make, axes)


def all_names() -> list[str]:
    """Return the names of all methods with a learning rate, `CANDIDATES` first."""
    names = list(CANDIDATES)
    for name, entry in METHODS.items():
        has_rate = any(field.name == "eta" for field in fields(entry.make))
        if has_rate and name not in names:
            names.append(name)
    return names


def _aggregate(eta: float) -> gs.Algorithm:
    return gs.DPSGD(eta, gradient_at="aggregate")


def _with_power(make: Callable[..., gs.Algorithm]) -> Callable[..., gs.Algorithm]:
    """Return a method as a function of p and of the number of rounds with this p."""

    def with_power(p: float, rounds: int, **settings: float) -> gs.Algorithm:
        power: Any = p
        if rounds < ALWAYS:
            power = gs.Switch(p, rounds)
        return make(p=power, **settings)

    return with_power
