"""Runs of readings: one run gives the curves of all criteria.

A criterion is what the paper may mean by "converged": a column (where in a round, which model,
tested on what, accuracy or loss) and the value to reach.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import gossamer as gs
from gossamer.engines.mixing import Traffic
from gossamer.engines.plan import Snapshot
from gossamer.errors import Diverged
from gossamer.study import Study
from papers.wpm.paper import expected
from papers.wpm.reading_space import (
    NETWORKS,
    Reading,
    activation,
    rescaled,
    sorted_parts,
    start_rows,
)

PLACES = ("after step", "after mix")
# The models, and the images they are tested on.
ACCURACIES = ("device", "device, own label", "merged", "merged by power mean")
LOSSES = ("device", "merged")
ACCURACY_TARGETS = tuple(round(0.8 + 0.005 * k, 3) for k in range(21))
LOSS_TARGETS = tuple(round(0.3 + 0.02 * k, 2) for k in range(26))

# A run whose accuracy is below this at this round is stopped: it does not come back in time.
_HOPELESS_ACCURACY = 0.5
_HOPELESS_ROUND = 100


@dataclass(frozen=True)
class Criterion:
    """What is compared with the paper's rounds.

    Attributes:
        place: Where in a round is measured.
        model: Which model, and on what it is tested.
        metric: "accuracy" or "loss".
        target: The value to reach.
    """

    place: str
    model: str
    metric: str
    target: float

    @property
    def column(self) -> str:
        """The name of its curve."""
        return f"{self.place}/{self.model}/{self.metric}"

    @property
    def label(self) -> str:
        """The criterion in words."""
        if self.metric == "loss":
            return f"loss ≤ {self.target:g}, {self.model}, {self.place}"
        return f"accuracy ≥ {self.target:.1%}, {self.model}, {self.place}"


def _criteria() -> Iterator[Criterion]:
    for place in PLACES:
        for model in ACCURACIES:
            for target in ACCURACY_TARGETS:
                yield Criterion(place, model, "accuracy", target)
        for model in LOSSES:
            for target in LOSS_TARGETS:
                yield Criterion(place, model, "loss", target)


CRITERIA = tuple(_criteria())
COLUMNS = tuple(dict.fromkeys(criterion.column for criterion in CRITERIA))
_COLUMN_OF = np.array([COLUMNS.index(criterion.column) for criterion in CRITERIA])
# Losses are negated, so that larger is better everywhere.
_SIGNS = np.array([-1.0 if column.endswith("loss") else 1.0 for column in COLUMNS])
_TARGETS = np.array([c.target for c in CRITERIA]) * _SIGNS[_COLUMN_OF]


@dataclass(frozen=True)
class Cell:
    """One cell of Table 2.

    Attributes:
        split: "iid" or "noniid".
        p: The exponent.
        paper: The rounds that the paper prints.
    """

    split: str
    p: int
    paper: float


def table2() -> list[Cell]:
    """Return the ten cells of Table 2."""
    rows = expected("table2_convergence_by_p")
    return [Cell(row["split"], int(row["p"]), float(row["iterations"])) for row in rows]


@dataclass(frozen=True)
class Setting:
    """The size of a run.

    Attributes:
        data: The images.
        mean: The mean with which they are normalised.
        std: The standard deviation.
        devices: Number of devices.
        batch: Samples per step.
        test_every: Every n-th test image is used.
        measured: Rounds between two measurements.
    """

    data: gs.Mnist | gs.Digits = field(default_factory=gs.Mnist)
    mean: float = 0.1307
    std: float = 0.3081
    devices: int = 10
    batch: int = 128
    test_every: int = 5
    measured: int = 20


@dataclass(frozen=True)
class Curves:
    """The measurements of a run.

    Attributes:
        rounds: The measured rounds.
        values: One row per column; larger is better.
    """

    rounds: NDArray[np.float64]
    values: NDArray[np.float64]

    def reached(self, length: float) -> NDArray[np.float64]:
        """Return the round at which each criterion is reached, interpolated between measurements.

        Args:
            length: What a criterion counts as that is not reached.
        """
        values = self.values[_COLUMN_OF]
        above = values >= _TARGETS[:, None]
        first = above.argmax(1)
        every = np.arange(len(first))
        before = np.maximum(first - 1, 0)
        low = values[every, before]
        high = values[every, first]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(first > 0, (_TARGETS - low) / (high - low), 1.0)
        rounds = self.rounds[before] + share * (self.rounds[first] - self.rounds[before])
        return np.where(above.any(1), rounds, length)

    def missing(self) -> NDArray[np.float64]:
        """Return how far the best value of each criterion is from its target; 0 if reached."""
        best = self.values.max(1)[_COLUMN_OF]
        return np.maximum(_TARGETS - best, 0.0)

    def at(self, column: str, t: float) -> float:
        """Return the value of a column at the last measurement up to a round."""
        index = max(0, int(np.searchsorted(self.rounds, t, side="right")) - 1)
        row = COLUMNS.index(column)
        return float(self.values[row, index] * _SIGNS[row])


@dataclass
class Runs:
    """Runs of readings, kept in a file of one line per run: nothing is run twice.

    Attributes:
        setting: The size of the runs.
        path: The file; it need not exist.
        made: Number of runs that were not in the file.
        used: The runs that were asked for.
    """

    setting: Setting
    path: Path
    made: int = 0
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._known: dict[str, Curves] = {}
        self._scaled: dict[str, gs.Data] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                self._read(line)

    def curves(
        self, reading: Reading, cell: Cell, seed: int, rounds: int, stop: bool = True
    ) -> Curves:
        """Return the curves of a run.

        Args:
            reading: The reading.
            cell: Split and exponent.
            seed: Seed of links, batches and start.
            rounds: Number of rounds.
            stop: Whether to stop a run that is hopeless.
        """
        key = json.dumps(self._key(reading, cell, seed, rounds, stop), sort_keys=True)
        self.used.add(key)
        if key not in self._known:
            measured = self._run(reading, cell, seed, rounds, stop)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            line = json.dumps({"key": key, **measured})
            with self.path.open("a") as file:
                file.write("\n" + line)  # the last line may be incomplete
            self._read(line)
            self.made += 1
        return self._known[key]

    def _read(self, line: str) -> None:
        """Add a line of the file, unless it is incomplete: the run was stopped while writing."""
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            return
        values = np.array(found["values"], dtype=np.float64).reshape(-1, len(COLUMNS)).T
        curves = Curves(np.array(found["rounds"], dtype=np.float64), values)
        self._known[found["key"]] = curves

    def _key(
        self, reading: Reading, cell: Cell, seed: int, rounds: int, stop: bool
    ) -> dict[str, object]:
        """Return all that the result of a run depends on."""
        setting = asdict(self.setting) | {"data": repr(self.setting.data)}
        one_label = reading.one_label if cell.split == "noniid" else ""
        return setting | {
            "method": repr(reading.algorithm(cell.p)),
            "start": [reading.start, reading.own_start],
            "pixels": reading.pixels,
            "outputs": reading.outputs,
            "network": reading.network,
            "split": [cell.split, one_label],
            "seed": seed,
            "rounds": rounds,
            "stop": stop,
        }

    def _data(self, pixels: str) -> gs.Data:
        if pixels not in self._scaled:
            mean = self.setting.mean
            self._scaled[pixels] = rescaled(self._normalised, pixels, mean, self.setting.std)
        return self._scaled[pixels]

    @cached_property
    def _normalised(self) -> gs.Data:
        return self.setting.data.load()

    def _run(
        self, reading: Reading, cell: Cell, seed: int, rounds: int, stop: bool
    ) -> dict[str, list[float] | list[list[float]]]:
        simulator = self.simulator(reading, cell, seed, rounds)
        meter = Meter(simulator, reading, cell, self.setting.test_every)
        at = []
        values = []
        for t in range(self.setting.measured, rounds + 1, self.setting.measured):
            try:
                simulator.advance(t)
            except Diverged:
                break
            at.append(float(t))
            values.append(meter.measure())
            if stop and t >= _HOPELESS_ROUND and meter.best < _HOPELESS_ACCURACY:
                break
        if not at:
            at = [float(rounds)]
            values = [[-math.inf] * len(COLUMNS)]
        return {"rounds": at, "values": values}

    def simulator(self, reading: Reading, cell: Cell, seed: int, rounds: int) -> gs.Simulator:
        data = self._data(reading.pixels)
        setting = self.setting
        split: gs.SplitRule | object = gs.Iid()
        if cell.split == "noniid":
            split = gs.OneLabel()
            if reading.one_label == "sorted":
                split = sorted_parts(data.y, setting.devices)
        study = Study(
            reading.algorithm(cell.p),
            NETWORKS[reading.network](setting.devices, seed),
            data,
            split,
            _model(reading, data),
            batch=setting.batch,
            rounds=rounds,
            seed=seed,
            parts_seed=seed,
            threads=1,
        )
        plan = study.plan(data)
        start = start_rows(reading, seed, setting.devices, plan.task.learner.parameters)
        state = plan.algorithm.first_state(start)
        return gs.Simulator(plan, Snapshot(0, 0, 0, state))


def _model(reading: Reading, data: gs.Data) -> gs.Softmax | gs.Module:
    if activation(reading.outputs) is None:
        return gs.Softmax()

    def make() -> nn.Module:
        features = math.prod(data.shape)
        squash = activation(reading.outputs)
        assert squash is not None
        return nn.Sequential(nn.Flatten(), nn.Linear(features, data.classes or 0), squash)

    return gs.Module(make)


class Meter:
    """Measures the models of a simulator: all columns at once.

    Args:
        simulator: The simulator.
        reading: The reading that it runs.
        cell: Split and exponent.
        test_every: Every n-th test image is used.
    """

    def __init__(
        self, simulator: gs.Simulator, reading: Reading, cell: Cell, test_every: int
    ) -> None:
        task = simulator.plan.task
        self.best = 0.0  # accuracy of a device or of the merged model in the last measurement
        self._simulator = simulator
        self._mirror = simulator.plan.algorithm.mirror_at(0)
        self._squash = activation(reading.outputs)
        self._x = task.data.x_test[::test_every].flatten(1)
        self._y = task.data.y_test[::test_every]
        # The test images of each device: those with a label that it has a tenth of its images of.
        self._own = torch.ones(task.devices, len(self._y))
        if cell.split == "noniid":
            for device in range(task.devices):
                count = torch.bincount(task.data.y[task.split.of(device)], minlength=10)
                self._own[device] = (count * 10 >= count.sum())[self._y].float()

    @torch.no_grad()
    def measure(self) -> list[float]:
        """Return the values of all columns, larger for better, rounded to six digits."""
        simulator = self._simulator
        w = simulator.models()
        t = simulator.round
        links = simulator.plan.network.links(t)
        mixed = simulator.make_mix(links, t, Traffic()).mean(w.clone(), self._mirror)
        values: dict[str, float] = {}
        for place, models in zip(PLACES, (w, mixed), strict=True):
            for name, value in self._scores(models).items():
                values[f"{place}/{name}"] = value
        accuracies = [values[f"{place}/{name}/accuracy"] for place in PLACES for name in LOSSES]
        self.best = max(accuracies)
        return [round(float(_SIGNS[k]) * values[name], 6) for k, name in enumerate(COLUMNS)]

    def _scores(self, w: Tensor) -> dict[str, float]:
        merged = [gs.IdentityMap().mean(w), self._mirror.mean(w)]
        correct, loss = self._judge(torch.cat([w, torch.stack(merged)]))
        own = (correct[:-2] * self._own).sum(1) / self._own.sum(1)
        return {
            "device/accuracy": float(correct[:-2].mean()),
            "device, own label/accuracy": float(own.mean()),
            "merged/accuracy": float(correct[-2].mean()),
            "merged by power mean/accuracy": float(correct[-1].mean()),
            "device/loss": float(loss[:-2].mean()),
            "merged/loss": float(loss[-2]),
        }

    def _judge(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Return which images each model has right [models, images], and its mean loss."""
        weight, bias = self._simulator.plan.task.learner.unstack(models).values()
        outputs = torch.matmul(weight, self._x.T) + bias[:, :, None]
        own = self._y.expand(len(models), -1)[:, None]
        correct = outputs.max(1).indices == own[:, 0]
        if self._squash is not None:
            outputs = self._squash(outputs)
        loss = torch.logsumexp(outputs, 1) - outputs.gather(1, own)[:, 0]
        return correct.float(), loss.mean(1)
