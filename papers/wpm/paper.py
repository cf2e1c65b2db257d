"""The setting of the paper, and the results of its runs.

What the paper leaves open is a named constant here; assumptions.md gives the reasons.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.study import Interval, Study, interval
from papers.score import rounds_to

HERE = Path(__file__).parent

# Of one core, for the list of the parts: measured with softmax regression on MNIST, measured on all
# test samples every 5 rounds (0.9 to 1.1 ms for 10 to 20 devices).
SECONDS_PER_DEVICE_ROUND = 0.001

SPLITS = {"iid": gs.Iid(), "noniid": gs.OneLabel()}
SPLIT_NAMES = {
    "iid": "IID",
    "dirichlet1": "Dirichlet 1",
    "dirichlet0.1": "Dirichlet 0.1",
    "noniid": "one label per device",
}
_ALL_SPLITS = SPLITS | {"dirichlet1": gs.Dirichlet(1.0), "dirichlet0.1": gs.Dirichlet(0.1)}


def random_ring(devices: int, seed: int) -> gs.Network:
    """Return a ring in a new random order every round: the paper's sparsest topology.

    Args:
        devices: Number of devices.
        seed: Seed of the orders.
    """
    return gs.RandomRing(devices, seed=seed)


@dataclass(frozen=True)
class Density:
    """A function that returns the paper's network: every round a random share of all links.

    Attributes:
        share: The density.
    """

    share: float

    def __call__(self, devices: int, seed: int) -> gs.Network:
        return gs.Random(devices, density=self.share, seed=seed)


@dataclass(frozen=True)
class Scale:
    """The size of a reproduction, and how it reads what the paper leaves open."""

    name: str = "paper"
    data: object = field(default_factory=gs.Mnist)
    model: object = field(default_factory=gs.Softmax)
    rounds: int = 500
    every: int = 5
    test: int = 0  # number of test samples; 0 for all
    batch: int = 128
    eta: float = 0.01
    target: float = 0.88
    seeds: int = 5
    first_seed: int = 0
    table_devices: tuple[int, ...] = (10, 15, 20)
    figure_devices: tuple[int, ...] = (10, 20, 100)

    # Readings. The step is "a scaling factor to keep the learning rate …"; the gradient is that of
    # the analysis, while Algorithm 1 says "local".
    step: gs.StepRule = field(default_factory=lambda: gs.Matched(floor=0.01))
    gradient_at: str = "aggregate"
    order: str = "combine-then-adapt"
    measure_at: str = "after_step"
    network: Callable[[int, int], gs.Network] = random_ring

    # Settings of the studies.
    targets: tuple[float, ...] = (0.8, 0.85, 0.88)
    tuning_seeds: tuple[int, ...] = (100, 101, 102)
    study_powers: tuple[float, ...] = (1, 3, 5, 9, 15, 31, 101)
    map_devices: int = 20
    map_densities: tuple[float, ...] = (0.1, 1.0)
    map_rounds: int = 300

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The rounds of Table 4, each a fifth of the run after the one before."""
        return tuple(self.rounds * k // 5 for k in range(1, 6))


# To try the code: `gossamer reproduce wpm --tiny`.
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
    targets=(0.5, 0.6),
    tuning_seeds=(100,),
    study_powers=(1, 15),
    map_devices=10,
    map_densities=(0.2,),
    map_rounds=30,
)


def wpm(scale: Scale, p: float) -> gs.WPM:
    """Return the paper's method with the readings of a scale."""
    return gs.WPM(
        p, scale.eta, scale.step, gradient_at=scale.gradient_at, order=scale.order, anchor=False
    )


def swarm(scale: Scale) -> gs.SwarmSGD:
    """Return the method that the paper compares with."""
    return gs.SwarmSGD(scale.eta, local_steps=1)


def study(scale: Scale, algorithm: gs.Algorithm, devices: int, split: str, seed: int) -> Study:
    """Return one run of the paper's experiments.

    Links and batches depend on the seed alone, never on the method.

    Args:
        scale: The setting.
        algorithm: The method.
        devices: Number of devices.
        split: Name of the split, a key of SPLIT_NAMES.
        seed: Seed of data, links and batches.
    """
    return Study(
        algorithm,
        scale.network(devices, seed),
        scale.data,
        _ALL_SPLITS[split],
        scale.model,
        batch=scale.batch,
        rounds=scale.rounds,
        seed=seed,
        parts_seed=seed,
        measure=gs.Measure(
            every=scale.every,
            at=scale.measure_at,
            test=scale.test,
            targets=(f"accuracy >= {scale.target:g}",),
        ),
        name="wpm",
    )


Key = tuple[gs.Algorithm, int, str]  # method, devices, split


def studies(scale: Scale, keys: Iterable[Key]) -> list[Study]:
    """Return every key on every seed of a scale.

    Args:
        scale: The setting with the seeds.
        keys: Method, number of devices and split of each run.
    """
    seeds = range(scale.first_seed, scale.first_seed + scale.seeds)
    return [study(scale, *key, seed) for key in keys for seed in seeds]


@dataclass(frozen=True)
class Results:
    """The runs of a sweep, found by key and by the seeds of a scale.

    Attributes:
        scale: The setting.
        by_study: The runs.
    """

    scale: Scale
    by_study: Mapping[Study, gs.Run]

    def under(self, scale: Scale) -> Results:
        """Return the same runs, found by the settings of another scale."""
        return Results(scale, self.by_study)

    def cells(self, key: Key) -> list[gs.Run]:
        """Return the runs of a key in the order of their seeds."""
        return [self.by_study[study] for study in studies(self.scale, [key])]

    def over_seeds(self, key: Key, number: Callable[[gs.Run], float | None]) -> Interval | None:
        """Return the mean of a value over the seeds, with its 95 % confidence interval.

        Args:
            key: Method, number of devices and split.
            number: A function that gives the value of a run, or None.

        Returns:
            The mean; None if one run has no value (a target not reached) or diverged.
        """
        values = []
        for run in self.cells(key):
            value = _unless_diverged(run, number)
            if value is None:
                return None
            values.append(value)
        return interval(values)

    def saved(
        self, base: Key, other: Key, number: Callable[[gs.Run], float | None]
    ) -> Interval | None:
        """Return the share of `base` that `other` saves, paired by seed.

        Runs with the same seed have the same links and batches.

        Args:
            base: The key that is compared with.
            other: The key that saves.
            number: A function that gives the value of a run, or None.

        Returns:
            The mean share; None if one run has no value or diverged.
        """
        shares = []
        for base_run, other_run in zip(self.cells(base), self.cells(other), strict=True):
            before = _unless_diverged(base_run, number)
            after = _unless_diverged(other_run, number)
            if before is None or after is None:
                return None
            shares.append(1 - after / before)
        return interval(shares)


def _unless_diverged(run: gs.Run, number: Callable[[gs.Run], float | None]) -> float | None:
    """Return a value of a run; None if the run diverged, at whatever round."""
    if run.diverged:
        return None
    return number(run)


def rounds_to_target(scale: Scale, target: float | None = None) -> Callable[[gs.Run], int | None]:
    """Return a function that gives the rounds that a run needs to reach a target.

    Args:
        scale: The setting.
        target: The accuracy to reach; the target of the scale by default.

    Returns:
        A function of a run; None if the run does not reach the target, or diverges later.
    """

    def count(run: gs.Run) -> int | None:
        t = rounds_to(run, target or scale.target)
        if math.isinf(t):
            return None
        return int(t)

    return count


def at_round(name: str, t: int) -> Callable[[gs.Run], float]:
    """Return a function that gives the value of a metric of a run in one round.

    Args:
        name: The metric.
        t: The round, which must be a measured one.
    """

    def value(run: gs.Run) -> float:
        row = np.flatnonzero(run.metrics["round"] == t)[0]
        return float(run.metrics[name][row])

    return value


def expected(name: str) -> list[dict[str, str]]:
    """Return the rows of one of the paper's tables.

    Args:
        name: Name of the file in expected/, without its ending.
    """
    with (HERE / "expected" / f"{name}.csv").open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def printed(name: str, scale: Scale) -> list[dict[str, str]]:
    """Return what the paper prints for a scale: its tables are all of MNIST.

    (The tiny scale is shown next to them as well, to try the code.)

    Args:
        name: Name of the file in expected/, without its ending.
        scale: The setting.
    """
    if isinstance(scale.data, gs.Cifar10):
        return []
    return expected(name)


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Write a table with the columns of all rows, in the order in which they occur.

    Args:
        path: The file.
        rows: The values by column.
    """
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows(rows)


def number(value: Interval | None, digits: int = 1, scale: float = 1.0) -> dict[str, object]:
    """Return a mean and half of its 95 % confidence interval as two columns of a table.

    Args:
        value: The mean, or None for empty columns.
        digits: Decimal places.
        scale: Factor, such as 100 for per cent.
    """
    if value is None:
        return {"ours": "", "ours_95": ""}
    half = "" if value.half is None else round(value.half * scale, digits or None)
    return {"ours": round(value.mean * scale, digits or None), "ours_95": half}
