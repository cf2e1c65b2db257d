"""How fast networks average, at equal numbers of messages: a table.

    python benchmarks/consensus.py

Every device has eight random values. A round averages them with the neighbours: by the weights that
the network carries, by Metropolis weights, or by push-sum if links are one-way. The table has the
number of rounds until the distance to consensus is 1e-6 of that at the start, the mean over five
seeds of values and links. Nothing is measured in seconds, so that every processor gives the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.network import rounds_to_consensus

OUT = Path(__file__).parent / "results" / "consensus.md"
SIZES = (64, 100)
SEEDS = range(5)
Make = Callable[[int, int], gs.Network]  # from the number of devices and the seed
NETWORKS: dict[str, Make] = {
    "`regular`, degree 1": lambda m, seed: gs.Regular(m, 1, seed),
    "`equi-dyn`": lambda m, seed: gs.EquiDyn(m, seed=seed),
    "`one-peer-exponential`": lambda m, seed: gs.OnePeerExponential(m),
    "`base-graph`, degree 1": lambda m, seed: gs.BaseGraph(m),
    "`epidemic`, degree 1, one-way": lambda m, seed: gs.Epidemic(m, 1, seed),
    "`equi-dyn`, directed": lambda m, seed: gs.EquiDyn(m, directed=True, seed=seed),
    "`one-peer-exponential`, directed": lambda m, seed: gs.OnePeerExponential(m, directed=True),
    "`ring`": lambda m, seed: gs.Ring(m),
    "`random-ring`": lambda m, seed: gs.RandomRing(m, seed),
    "`base-graph`, degree 2": lambda m, seed: gs.BaseGraph(m, 2),
    "`torus`": lambda m, seed: gs.Torus(m),
    "`small-world`, rewire 0.1, one graph": lambda m, seed: gs.SmallWorld(m, 4, 0.1, seed, 0),
    "`regular`, degree 4, one graph": lambda m, seed: gs.Regular(m, 4, seed, 0),
    "`regular`, degree 4": lambda m, seed: gs.Regular(m, 4, seed),
    "`equi-static`, basis 2": lambda m, seed: gs.EquiStatic(m, 2, seed=seed),
    "`base-graph`, degree 4": lambda m, seed: gs.BaseGraph(m, 4),
    "`exponential`": lambda m, seed: gs.Exponential(m),
    "`exponential`, directed": lambda m, seed: gs.Exponential(m, directed=True),
    "`equi-static`, basis 6": lambda m, seed: gs.EquiStatic(m, 6, seed=seed),
    "`base-graph`, degree 12": lambda m, seed: gs.BaseGraph(m, 12),
}


def messages(network: gs.Network) -> float:
    """Return the mean number of messages that a device sends per round, over some rounds."""
    rounds = network.period or 20
    return float(np.mean([network.links(t).degrees.mean() for t in range(rounds)]))


def mean_rounds(make: Make, devices: int) -> str:
    """Return the mean number of rounds to consensus, or a dash if it is never reached."""
    found = [rounds_to_consensus(make(devices, seed), seed=seed) for seed in SEEDS]
    reached = [rounds for rounds in found if rounds is not None]
    if len(reached) < len(found):
        return "–"
    return f"{np.mean(reached):,.0f}"


def row(name: str, make: Make) -> str:
    """Return the row of a network."""
    cells = [name, f"{messages(make(SIZES[-1], 0)):.1f}"]
    for devices in SIZES:
        period = make(devices, 0).period
        cells.append("–" if period is None else str(period))
    for devices in SIZES:
        cells.append(mean_rounds(make, devices))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the table."""
    lines = [
        "| network | messages per device and round (100 devices) | period, 64 devices "
        "| period, 100 | rounds to 1e-6, 64 devices | 100 |",
        "|---|---|---|---|---|---|",
    ]
    for name, make in NETWORKS.items():
        lines.append(row(name, make))
    OUT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
