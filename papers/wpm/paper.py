"""The paper's setting. What it leaves open is a named constant here; assumptions.md says why it is as it is."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.study import Interval, Study, interval, rounds_to
from gossamer.study.sweep import Cell

HERE = Path(__file__).parent

STEP = gs.Matched(floor=0.01)  # "a scaling factor to keep the learning rate at the same magnitude"
GRADIENT_AT = "aggregate"  # the paper's analysis; its Algorithm 1 says "local"
MEASURE_AT = "after_step"
SPLITS = {"iid": gs.Iid(), "noniid": gs.OneLabel()}
SPLIT_NAMES = {"iid": "IID", "noniid": "one label a device"}


def _network(devices: int, seed: int) -> gs.Network:
    """A ring in a new random order every round: the paper's sparsest topology, drawn anew."""
    return gs.RandomRing(devices, seed=seed)


@dataclass(frozen=True)
class Scale:
    """How large a reproduction is: the paper's own size, or a tiny one that runs the same code in a minute or two."""

    name: str = "paper"
    data: object = field(default_factory=gs.Mnist)
    rounds: int = 500
    every: int = 5
    batch: int = 128
    eta: float = 0.01
    target: float = 0.88
    seeds: int = 5
    table_devices: tuple[int, ...] = (10, 15, 20)
    figure_devices: tuple[int, ...] = (10, 20, 100)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The rounds of Table 4: a fifth of the run each."""
        return tuple(self.rounds * k // 5 for k in range(1, 6))


TINY = Scale("tiny", gs.Digits(), rounds=50, every=5, batch=32, eta=0.1, target=0.6, seeds=2,
             table_devices=(10, 12, 14), figure_devices=(10, 12, 20))  # fmt: skip


def wpm(scale: Scale, p: float) -> gs.WPM:
    return gs.WPM(p, scale.eta, STEP, gradient_at=GRADIENT_AT)


def swarm(scale: Scale) -> gs.SwarmSGD:
    return gs.SwarmSGD(scale.eta, local_steps=1)


def study(scale: Scale, algorithm: gs.Algorithm, devices: int, split: str, seed: int) -> Study:
    """One run of the paper's experiments: links and batches depend on the seed alone, never on the method."""
    return Study(
        algorithm,
        _network(devices, seed),
        scale.data,
        SPLITS[split],
        gs.Softmax(),
        batch=scale.batch,
        rounds=scale.rounds,
        seed=seed,
        measure=gs.Measure(every=scale.every, at=MEASURE_AT, accuracy_targets=(scale.target,)),
        name="wpm",
    )


Key = tuple[gs.Algorithm, int, str]  # method, devices, split


def studies(scale: Scale, keys: Iterable[Key]) -> list[Study]:
    """Every key on every seed."""
    return [study(scale, algorithm, devices, split, seed) for algorithm, devices, split in keys for seed in range(scale.seeds)]


class Results:
    """The cells of a sweep by what they are of."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells: dict[Key, dict[int, Cell]] = {}
        for cell in cells:
            s = cell.study
            split = next(name for name, rule in SPLITS.items() if rule == s.split)
            self._cells.setdefault((s.algorithm, s.network.devices, split), {})[s.seed] = cell

    def cells(self, key: Key) -> list[Cell]:
        """A key's cells in the order of their seeds."""
        return [cell for _, cell in sorted(self._cells[key].items())]

    def over_seeds(self, key: Key, number: Callable[[Cell], float | None]) -> Interval | None:
        """The mean of a number over the seeds; None if it is missing for one (a target not reached, a run diverged)."""
        values = [None if cell.diverged else number(cell) for cell in self.cells(key)]
        return None if None in values else interval([v for v in values if v is not None])

    def saved(self, base: Key, other: Key, number: Callable[[Cell], float | None]) -> Interval | None:
        """The share of `base` that `other` saves, paired seed by seed: both met the same links and batches."""
        pairs = [(number(a), number(b)) for a, b in zip(self.cells(base), self.cells(other), strict=True)]
        shares = [1 - b / a for a, b in pairs if a is not None and b is not None]
        return interval(shares) if len(shares) == len(pairs) else None


def rounds_to_target(scale: Scale) -> Callable[[Cell], int | None]:
    return lambda cell: rounds_to(cell.metrics["round"], cell.metrics["accuracy"], scale.target)


def at_round(name: str, t: int) -> Callable[[Cell], float]:
    return lambda cell: float(cell.metrics[name][np.flatnonzero(cell.metrics["round"] == t)[0]])


def expected(name: str) -> list[dict[str, str]]:
    """The paper's own numbers."""
    with (HERE / "expected" / f"{name}.csv").open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def number(value: Interval | None, digits: int = 1, scale: float = 1.0) -> dict[str, object]:
    """A mean and the half of its 95 % interval, as two cells of a table; empty where there is none."""
    if value is None:
        return {"ours": "", "ours_95": ""}
    half = "" if value.half is None else round(value.half * scale, digits)
    return {"ours": round(value.mean * scale, digits), "ours_95": half}
