"""Every registered method with settings for tests, and the networks that it accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gossamer import algorithms, testing
from gossamer.algorithms import (
    DABMD,
    METHODS,
    SGD,
    Adam,
    AdamW,
    Algorithm,
    ByDivergence,
    ChocoSGD,
    Composition,
    FastAveraging,
    FedAvg,
    LocalSGD,
    PowerSchedule,
    Quantised,
    QuasiGlobalMomentum,
    RandomK,
    TopK,
)
from gossamer.mirror import PowerMap
from gossamer.network import (
    Laplacian,
    Matching,
)

M = testing.DEVICES


def made(name: str, **settings: Any) -> Algorithm:
    """Return the registered method of this name with other settings than its defaults."""
    make: Callable[..., Algorithm] = METHODS[name].make
    return make(**settings)


EVERY = {
    name: entry.make() if name == "adom" else made(name, eta=0.05)
    for name, entry in METHODS.items()
}


MORE = {
    "fedavg, some, local steps": FedAvg(0.05, local_steps=3, fraction=0.4),
    "dabmd p=3": DABMD(0.005, p=3, max_batches=3, seed=4),
    "choco random-k": ChocoSGD(0.05, RandomK(0.5), 0.5),
    "choco quantised": ChocoSGD(0.05, Quantised(4), 0.8),
    "compressed tracking": Composition(
        eta=0.05,
        direction=algorithms.GradientTracking(),
        gradient_at="local",
        compress=TopK(0.6),
        pull=0.6,
    ),
    "momentum of its own": Composition(eta=0.05, optimizer=SGD(0.5)),
    "local steps in pairs": LocalSGD(0.05, 2, Matching()),
    "laplacian": FastAveraging(0.05, Laplacian(0.1)),
    "laplacian by degree": FastAveraging(0.05, Laplacian()),
    "wpm momentum": Composition(PowerMap(3), 0.02, optimizer=SGD(0.5), local_steps=2, anchor=True),
    "adam": made("d-psgd", eta=0.01, optimizer=Adam(0.8, 0.99), clip_norm=2.0),
    "swarm nesterov": made("swarm-sgd", eta=0.02, local_steps=2, optimizer=SGD(0.5, nesterov=True)),
    "fedavg adamw": FedAvg(0.02, 2, 0.5, optimizer=AdamW(weight_decay=0.1)),
    "gossip learning adam": made("gossip-learning", eta=0.01, optimizer=Adam()),
    "wpm adamw": made("wpm", eta=0.01, p=3, optimizer=AdamW(), weight_decay=0.01),
    "tracking, decay and clip": made("tracking", eta=0.05, weight_decay=0.1, clip_norm=1.0),
    "local p and gain": Composition(
        PowerSchedule(ByDivergence(9)), 0.02, anchor=True, gain=ByDivergence(1.1), local_steps=2
    ),
    "local gain": Composition(
        PowerMap(3), 0.02, anchor=True, gain=ByDivergence(1.2, 0.9), order="adapt-then-combine"
    ),
    "wpm quasi-global, combine-then-adapt": Composition(
        PowerMap(3), 0.02, direction=QuasiGlobalMomentum(0.8), anchor=True
    ),
}


def takes(name: str) -> list[str]:
    """Return the networks of the conformance suite that a method accepts, by what it needs."""
    needs = ""
    if name in METHODS:
        needs = METHODS[name].needs
    elif "fedavg" in name:
        needs = "a server"
    if "static" in needs:
        return ["static"]
    if "nobody away" in needs:
        return ["changing", "static"]
    accepted = ["churn", "changing", "static"]
    if any(word in needs for word in ("one-way", "server", "mean of all")):
        accepted.append("one-way")
    return accepted
