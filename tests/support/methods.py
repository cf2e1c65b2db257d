"""Every method of the catalogue with settings for tests, and the networks that each accepts."""

from __future__ import annotations

from gossamer import algorithms, testing
from gossamer.algorithms import (
    CATALOGUE,
    DABMD,
    WPM,
    FedAvg,
    Momentum,
    Quantised,
    QuasiGlobal,
    RandomK,
    TopK,
    recipes,
)
from gossamer.network import (
    Laplacian,
    Matching,
)

M = testing.DEVICES


EVERY = {
    name: entry.make() if name == "adom" else entry.make(eta=0.05)
    for name, entry in CATALOGUE.items()
}


MORE = {
    "fedavg, some, local steps": FedAvg(0.05, local_steps=3, fraction=0.4),
    "dabmd p=3": DABMD(0.005, p=3, max_batches=3, seed=4),
    "choco random-k": recipes.choco(0.05, RandomK(0.5), 0.5),
    "choco quantised": recipes.choco(0.05, Quantised(4), 0.8),
    "compressed tracking": WPM(
        1, 0.05, direction=algorithms.Tracking(), gradient_at="local", compress=TopK(0.6), pull=0.6
    ),
    "heavy ball": WPM(1, 0.05, direction=Momentum(0.5)),
    "local steps in pairs": recipes.koloskova(0.05, 2, Matching()),
    "laplacian": recipes.xiao_boyd(0.05, Laplacian(0.1)),
    "laplacian by degree": recipes.xiao_boyd(0.05, Laplacian()),
    "wpm momentum": WPM.robust(3, 0.02, direction=Momentum(0.5), local_steps=2),
    "wpm quasi-global, combine-then-adapt": WPM.robust(3, 0.02, direction=QuasiGlobal(0.8)),
}


def takes(name: str) -> list[str]:
    """The networks of the suite that a method takes, by what it needs; any other it refuses."""
    needs = CATALOGUE[name].needs if name in CATALOGUE else "a server" if "fedavg" in name else ""
    one_way = any(word in needs for word in ("one-way", "server", "mean of all"))
    if "static" in needs:
        return ["static"]
    if "nobody away" in needs:
        return ["changing", "static"]
    return ["churn", "changing", "static", *(["one-way"] if one_way else [])]
