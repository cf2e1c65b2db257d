"""The paper's setting. assumptions.md gives the reasons for what the paper leaves open."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.study import Interval, Study, interval, rounds_to

HERE = Path(__file__).parent

SPLITS = {"iid": gs.Iid(), "noniid": gs.OneLabel()}
SPLIT_NAMES = {
    "iid": "IID",
    "dirichlet1": "Dirichlet 1",
    "dirichlet0.1": "Dirichlet 0.1",
    "noniid": "one label per device",
}
_ALL_SPLITS = SPLITS | {"dirichlet1": gs.Dirichlet(1.0), "dirichlet0.1": gs.Dirichlet(0.1)}


def random_ring(devices: int, seed: int) -> gs.Network:
    """Return a ring in a new random order every round, the paper's sparsest topology."""
    return gs.RandomRing(devices, seed=seed)


@dataclass(frozen=True)
class Density:
    """A random share of all links per round, the paper's density."""

    share: float

    def __call__(self, devices: int, seed: int) -> gs.Network:
        return gs.Random(devices, density=self.share, seed=seed)


@dataclass(frozen=True)
class Scale:
    """The size of a reproduction, and the choices where the paper is open (assumptions.md)."""

    name: str = "paper"
    data: object = field(default_factory=gs.Mnist)
    model: object = field(default_factory=gs.Softmax)
    rounds: int = 500
    every: int = 5
    test: int = 0  # number of test samples; 0: all
    batch: int = 128
    eta: float = 0.01
    target: float = 0.88
    seeds: int = 5
    first_seed: int = 0
    table_devices: tuple[int, ...] = (10, 15, 20)
    figure_devices: tuple[int, ...] = (10, 20, 100)

    # choices where the paper is open
    step: gs.StepRule = field(
        default_factory=lambda: gs.Matched(floor=0.01)
    )  # "a scaling factor to keep the learning rate …"
    gradient_at: str = "aggregate"  # the paper's analysis; its Algorithm 1 says "local"
    order: str = "combine-then-adapt"
    measure_at: str = "after_step"
    network: Callable[[int, int], gs.Network] = random_ring

    # the longer studies
    grid: tuple[float, ...] = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
    targets: tuple[float, ...] = (0.8, 0.85, 0.88)
    tuning_seeds: tuple[int, ...] = (100, 101, 102)
    study_powers: tuple[float, ...] = (1, 3, 5, 9, 15, 31, 101)
    map_devices: tuple[int, ...] = (20, 100)
    map_densities: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0)
    map_rounds: int = 300
    map_seeds: int = 3

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Return the rounds of Table 4, every fifth of the run."""
        return tuple(self.rounds * k // 5 for k in range(1, 6))


TINY = Scale(
    "tiny",
    gs.Digits(),
    rounds=50,
    every=5,
    batch=32,
    eta=0.1,
    target=0.6,
    seeds=2,
    table_devices=(10, 12, 14),
    figure_devices=(10, 12, 20),
    grid=(0.05, 0.2),
    targets=(0.5, 0.6),
    tuning_seeds=(100,),
    study_powers=(1, 15),
    map_devices=(10,),
    map_densities=(0.2, 1.0),
    map_rounds=30,
    map_seeds=1,
)


def wpm(scale: Scale, p: float) -> gs.WPM:
    return gs.WPM(p, scale.eta, scale.step, gradient_at=scale.gradient_at, order=scale.order)


def swarm(scale: Scale) -> gs.SwarmSGD:
    return gs.SwarmSGD(scale.eta, local_steps=1)


def study(scale: Scale, algorithm: gs.Algorithm, devices: int, split: str, seed: int) -> Study:
    """Return one run of the paper; links and batches depend on the seed, not on the method."""
    return Study(
        algorithm,
        scale.network(devices, seed),
        scale.data,
        _ALL_SPLITS[split],
        scale.model,
        batch=scale.batch,
        rounds=scale.rounds,
        seed=seed,
        measure=gs.Measure(
            every=scale.every,
            at=scale.measure_at,
            test=scale.test,
            accuracy_targets=(scale.target,),
        ),
        name="wpm",
    )


Key = tuple[gs.Algorithm, int, str]  # method, devices, split


def studies(scale: Scale, keys: Iterable[Key]) -> list[Study]:
    """Return the runs of every key on every seed."""
    seeds = range(scale.first_seed, scale.first_seed + scale.seeds)
    return [study(scale, *key, seed) for key in keys for seed in seeds]


@dataclass(frozen=True)
class Results:
    """The results of a sweep, looked up by method, devices and split on the seeds of a scale."""

    scale: Scale
    by_study: Mapping[Study, gs.Run]

    def under(self, scale: Scale) -> Results:
        """Return the same results, looked up with another scale."""
        return Results(scale, self.by_study)

    def cells(self, key: Key) -> list[gs.Run]:
        """Return the runs of a key in the order of their seeds."""
        return [self.by_study[study] for study in studies(self.scale, [key])]

    def over_seeds(self, key: Key, number: Callable[[gs.Run], float | None]) -> Interval | None:
        """Return the mean over the seeds; None if a run diverged or missed its target."""
        values = [None if cell.diverged else number(cell) for cell in self.cells(key)]
        return None if None in values else interval([v for v in values if v is not None])

    def saved(
        self, base: Key, other: Key, number: Callable[[gs.Run], float | None]
    ) -> Interval | None:
        """Return the share of `base` that `other` saves, paired by seed."""
        pairs = [
            (number(a), number(b)) for a, b in zip(self.cells(base), self.cells(other), strict=True)
        ]
        shares = [1 - b / a for a, b in pairs if a is not None and b is not None]
        return interval(shares) if len(shares) == len(pairs) else None


def rounds_to_target(scale: Scale, target: float | None = None) -> Callable[[gs.Run], int | None]:
    return lambda cell: rounds_to(
        cell.metrics["round"], cell.metrics["accuracy"], target or scale.target
    )


def at_round(name: str, t: int) -> Callable[[gs.Run], float]:
    return lambda cell: float(cell.metrics[name][np.flatnonzero(cell.metrics["round"] == t)[0]])


def expected(name: str) -> list[dict[str, str]]:
    """Return the rows of a table of the paper."""
    with (HERE / "expected" / f"{name}.csv").open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def printed(name: str, scale: Scale) -> list[dict[str, str]]:
    """Return the rows that the paper prints; it has none for CIFAR-10."""
    return [] if isinstance(scale.data, gs.Cifar10) else expected(name)


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def number(value: Interval | None, digits: int = 1, scale: float = 1.0) -> dict[str, object]:
    """Return mean and half of the 95 % interval as two cells of a table; empty if None."""
    if value is None:
        return {"ours": "", "ours_95": ""}
    half = "" if value.half is None else round(value.half * scale, digits or None)
    return {"ours": round(value.mean * scale, digits or None), "ours_95": half}
