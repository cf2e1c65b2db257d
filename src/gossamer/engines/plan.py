"""The types that all engines share: a plan goes in, records and snapshots come out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gossamer import draws
from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer._core.columns import DEFAULT_TARGETS, LOSS, Column, Target, columns_of
from gossamer._core.spread import Spread, Values
from gossamer._core.tensor_files import Layout, Shape
from gossamer.algorithms import Algorithm
from gossamer.errors import InputError
from gossamer.network.base import IntArray, Network
from gossamer.network.energy import Energy
from gossamer.network.timing import Timing
from gossamer.tasks import Data, Metric, Stream, Task
from gossamer.tasks.metrics import as_metrics, default_metrics

if TYPE_CHECKING:
    from gossamer.engines.settings import Events

_SERIAL_WORK = (
    3e7  # multiplications per round, below which a second thread costs more than it saves
)


@checked
@dataclass(frozen=True)
class Measure:
    """What is measured, when and where, and which targets are reported.

    Args:
        every: Number of rounds between two measurements. 0: only at the end.
        at: Which models are measured: those after the step, or those after the mix.
        test: Number of test samples per measurement. 0: all.
        metrics: What is measured beside the loss: metrics, or their kinds. None: the accuracy if
            the targets are classes, the perplexity if they are tokens, the root mean squared error
            if they are numbers.
        targets: Values for which the first round that reaches them is reported, such as
            "accuracy >= 0.9", "mae <= 40" or "loss <= 0.1". None: accuracies of 0.8 and 0.9, if the
            accuracy is measured.
        merged: Measure the merged model too: the mean of all devices' models, and their power mean
            for methods with a mirror map. It takes about as long as one device more.
        devices: Number of devices whose loss and metrics are measured, a random sample that stays
            the same in all rounds. Their means are then estimates with a 95 % interval; merged
            model, distances and traffic are still those of all devices. 0: all. Devices of a fleet
            always measure their own models.

    Raises:
        InputError: If a value is not accepted.

    Example:
        >>> Measure(every=20, metrics=("accuracy", "macro-f1"), targets=("macro-f1 >= 0.88",)).at
        'after_step'
    """

    every: int = 10
    at: Literal["after_step", "after_mix"] = "after_step"
    test: int = 0
    metrics: tuple[Metric, ...] | None = None
    targets: tuple[str, ...] | None = None
    merged: bool = True
    devices: int = 0
    accuracy_targets: InitVar[Any] = None
    loss_targets: InitVar[Any] = None

    def __post_init__(self, accuracy_targets: Any, loss_targets: Any) -> None:
        checks.whole("every", self.every, 0)
        checks.whole("test", self.test, 0)
        checks.whole("devices", self.devices, 0)
        if self.devices == 1:
            raise InputError("devices", 1, "at least 2, for an interval, or 0 for all devices")
        checks.one_of("at", self.at, ("after_step", "after_mix"))
        if accuracy_targets is not None:
            raise InputError("accuracy_targets", accuracy_targets, 'targets = ["accuracy >= 0.9"]')
        if loss_targets is not None:
            raise InputError("loss_targets", loss_targets, 'targets = ["loss <= 0.1"]')
        if self.metrics is not None:
            object.__setattr__(self, "metrics", as_metrics(self.metrics))
        if self.targets is not None:
            self._normalise_targets(self.targets)

    def _normalise_targets(self, targets: Any) -> None:
        if isinstance(targets, str) or not isinstance(targets, Sequence):
            accepted = 'a list of targets, such as ["accuracy >= 0.9", "mae <= 40"]'
            raise InputError("targets", targets, accepted)
        texts = [Target.parse(target).text for target in targets]
        object.__setattr__(self, "targets", tuple(dict.fromkeys(texts)))

    def resolve(self, data: Data) -> Measure:
        """Return the same with the metrics and targets that the data stand for.

        Args:
            data: The data of the study.

        Returns:
            A measure whose metrics and targets are not None.

        Raises:
            InputError: If a metric does not fit the data, or a target names a metric that is not
                measured.

        Example:
            >>> from gossamer import Digits
            >>> Measure().resolve(Digits().load()).targets
            ('accuracy >= 0.8', 'accuracy >= 0.9')
        """
        metrics = self.metrics
        if metrics is None:
            metrics = default_metrics(data)
        for metric in metrics:
            metric.check(data)
        columns = [*(metric.column for metric in metrics), LOSS]
        targets = self.targets
        if targets is None:
            targets = ()
            if any(column.name == "accuracy" for column in columns):
                targets = DEFAULT_TARGETS
        for target in targets:
            Target.parse(target).check(columns, "measure.targets")
        return replace(self, metrics=metrics, targets=targets)

    @property
    def columns(self) -> list[Column]:
        """The columns of the metrics that are given, and of the loss."""
        return [*(metric.column for metric in self.metrics or ()), LOSS]

    def columns_in(self, row: Mapping[str, Any]) -> list[Column]:
        """Return the columns of the metrics in a measurement, and of the loss.

        Args:
            row: A measurement, by the column names of metrics.parquet.
        """
        if self.metrics is None:
            return columns_of({}, list(row))
        return self.columns


@checked
@dataclass(frozen=True)
class Plan:
    """Everything an engine needs to know about a run.

    Args:
        task: What is learned: data, split, model and batch size.
        network: The links of every round.
        algorithm: The method.
        rounds: Number of rounds.
        seed: Seed of all draws: batches, start, weights.
        measure: What to measure, when and where; its metrics and targets are those that the data
            stand for.
        dtype: Type of the models.
        device: The torch device, for example "cpu" or "cuda:0".
        threads: Number of torch threads. 0: one if a round is little work, else one per core.
        timing: Durations of steps and messages, if simulated seconds are to be reported.
        events: The settings of a run without common rounds. None: in rounds.
        energy: What steps and messages cost, if joules are to be reported.
        stream: How the devices' samples arrive over time. None: all are there at the start.

    Raises:
        InputError: If the parts do not fit together, for example if the network has another number
            of devices than the task, or the algorithm needs other links.

    Example:
        >>> from gossamer import DPSGD, Digits, Iid, Ring, Softmax, Task
        >>> data = Digits().load()
        >>> task = Task(data, Iid().make(data.y.numpy(), devices=10, seed=0), Softmax())
        >>> Plan(task, Ring(10), DPSGD(eta=0.1), rounds=100).dtype
        'float32'
    """

    task: Task
    network: Network
    algorithm: Algorithm
    rounds: int = 200
    seed: int = 0
    measure: Measure = field(default_factory=Measure)
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    threads: int = 0
    timing: Timing | None = None
    events: Events | None = None
    energy: Energy | None = None
    stream: Stream | None = None

    def __post_init__(self) -> None:
        if self.task.devices != self.network.devices:
            raise InputError(
                "network.devices",
                self.network.devices,
                f"{self.task.devices}, as many as the data is split for",
            )
        self.algorithm.check(self.network)
        object.__setattr__(self, "measure", self.measure.resolve(self.task.data))
        checks.whole("rounds", self.rounds, 0)
        self._check_network_length()
        if self.energy is not None and self.energy.battery and self.events is None:
            accepted = '0, or engine = "events": in rounds there are no batteries'
            raise InputError("energy.battery", self.energy.battery, accepted)
        if self.stream is not None and self.task.batch == 0:
            accepted = "a whole number of at least 1: with a stream, devices have no fixed number"
            raise InputError("batch", 0, accepted + " of samples")
        checks.whole("threads", self.threads, 0, 1024)

    def _check_network_length(self) -> None:
        """Refuse more rounds than the network has."""
        available = self.network.rounds
        if available is None:
            return
        reason = "the rounds that the network has"
        if self.measures_halfway:
            # The models halfway through a round are those of the next one, which needs its links.
            available -= 1
            reason += ", less one to measure in"
        if self.rounds > available:
            raise InputError("rounds", self.rounds, f"at most {available}, {reason}")

    @property
    def measures_halfway(self) -> bool:
        """True if the models are measured in the middle of a round, not at its end."""
        return self.measure.at != f"after_{self.algorithm.ends_with}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What is measured beside the loss."""
        return self.measure.metrics or ()

    @cached_property
    def measures_power_mean(self) -> bool:
        """True if the power mean of the models is measured: the method has a mirror map."""
        if not self.measure.merged:
            return False
        last = self.rounds
        own = getattr(type(self.algorithm), "mirror_at", None)
        if own is Algorithm.mirror_at:
            return False
        measured = chain(range(0, last, self.measure.every or max(1, last)), [last])
        return any(self.algorithm.mirror_at(t).power != 1 for t in measured)

    @cached_property
    def measured_devices(self) -> IntArray | None:
        """Numbers of the devices whose loss and metrics are measured, ascending; None: all."""
        wanted = self.measure.devices
        if not 0 < wanted < self.task.devices:
            return None
        order = draws.permutation(self.task.devices, self.seed, "measure/devices")
        return np.sort(order[:wanted])

    def threads_to_use(self) -> int:
        """Return the number of torch threads: as set, or chosen by the work of a round."""
        if self.threads:
            return self.threads
        work = self.task.devices * max(1, self.task.batch) * self.task.learner.parameters
        if work < _SERIAL_WORK:
            return 1
        return os.cpu_count() or 1


@dataclass(frozen=True)
class Record:
    """One measurement. Arrays have one entry per device.

    Of more than 1000 devices the Ray engine gathers no arrays, only `spreads`.

    Args:
        round: Number of rounds done.
        loss: Mean loss on the test samples, of each measured device.
        metrics: The values of the metrics on the test samples, by name, of each measured device.
        distance: ‖w_i − w̄‖, where w̄ is the arithmetic mean of all models.
        power_distance: The same with the power mean of the method's own p.
        messages: Number of messages that all devices sent so far.
        bytes: Their size in bytes.
        seconds: Simulated time at which the last device finished the round, or None if the plan has
            no timing.
        steps: Number of rounds or steps of their own that all devices ended so far, or None if the
            engine has common rounds.
        staleness: How many exchanges changed a device's model while it computed a gradient, on
            average, or None if the method has rounds.
        joules: What all devices' steps and messages cost so far, or None if the plan has no energy.
        merged: Loss and metrics of the mean of all devices' models, by name; empty if the plan does
            not measure it.
        merged_power: The same of their power mean; empty if the method has no mirror map.
        devices: Numbers of the measured devices, if they are a sample; None: all. Distances are
            those of all devices.
        activity: Seconds since the start that each device was computing, exchanging, waiting and
            away, by these words; empty if the engine has common rounds.
        spreads: Mean, smallest and largest value of loss, metrics and distances, by name, whose
            arrays are then empty: see `values`.
        weights: How many weights of all devices, or of a sample, are in each bin of
            `_core.weight_bins`; None if they were not counted.
    """

    round: int
    loss: NDArray[np.float64]
    metrics: dict[str, NDArray[np.float64]]
    distance: NDArray[np.float64]
    power_distance: NDArray[np.float64]
    messages: int
    bytes: int
    seconds: float | None = None
    steps: int | None = None
    staleness: float | None = None
    joules: float | None = None
    merged: dict[str, float] = field(default_factory=dict)
    merged_power: dict[str, float] = field(default_factory=dict)
    devices: IntArray | None = None
    activity: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    spreads: dict[str, Spread] = field(default_factory=dict)
    weights: IntArray | None = None

    def device(self, position: int) -> int:
        """Return the number of the device at a position of `loss`.

        Args:
            position: The position.
        """
        if self.devices is None:
            return position
        return int(self.devices[position])

    def values(self, name: str) -> Values:
        """Return one value per device, or what is kept of them.

        Args:
            name: "loss", "distance", "power_distance" or the name of a metric.
        """
        if name in self.spreads:
            return self.spreads[name]
        if name in self.metrics:
            return self.metrics[name]
        values: NDArray[np.float64] = getattr(self, name)
        return values

    def reduced(self, devices: IntArray) -> Record:
        """Return the same without the values of single devices, except those of a sample.

        Args:
            devices: Numbers of the devices.
        """
        names = ["distance", "power_distance"]
        if self.devices is None:
            names += ["loss", *self.metrics]
        spreads = {}
        for name in names:
            spreads[name] = Spread.of(np.asarray(self.values(name)), devices)
        return self.with_spreads(spreads)

    def with_spreads(self, spreads: dict[str, Spread]) -> Record:
        """Return the same with means and extremes instead of the values of single devices.

        Args:
            spreads: What is kept, by name.
        """
        none = np.empty(0)
        loss = none if "loss" in spreads else self.loss
        metrics = {name: x for name, x in self.metrics.items() if name not in spreads}
        return replace(
            self,
            loss=loss,
            metrics=metrics,
            distance=none,
            power_distance=none,
            spreads=spreads,
        )


@dataclass(frozen=True)
class Snapshot:
    """The state of a run. Any engine can resume from it.

    Args:
        round: Number of rounds done.
        messages: Number of messages that all devices sent so far.
        bytes: Their size in bytes.
        tensors: The state of the algorithm, the buffers of the model and the clocks, by name. A
            tensor has one row per device, or one row that all devices share.
        backend: The implementations that the run computes with, as `backend.choices` has them.
            Empty: not known.
    """

    round: int
    messages: int
    bytes: int
    tensors: dict[str, Tensor]
    backend: dict[str, str] = field(default_factory=dict)


class Parts(Protocol):
    """The state or the models of a run in the processes that hold them.

    Each process writes the rows of its own devices into a file of all rows.
    """

    snapshot: Snapshot
    """Round and traffic; no tensors."""

    shapes: dict[str, Shape]
    """The tensors of all devices, by name."""

    def write(self, path: Path, layout: Layout) -> int:
        """Write all tensors into a file.

        Args:
            path: The file, which has the header of the layout already.
            layout: Where the tensors begin.

        Returns:
            The sum of the digests of all rows: see `gossamer._core.tensor_files.digest_of_rows`.
        """


class Engine(Protocol):
    """Runs a plan. `EngineSpec.start` makes one.

    Engines agree on the same plan: reruns on one engine are equal bit for bit, and different
    engines differ by rounding only.

    Example:
        >>> from gossamer import Simulator, Study
        >>> engine: Engine = Simulator(Study(rounds=20).plan())
        >>> engine.advance(20)
        >>> engine.record().round
        20
        >>> engine.close()
    """

    round: int  # number of rounds done

    def advance(self, until: int, stop: Callable[[], bool] = ...) -> None:
        """Run rounds.

        Args:
            until: Number of rounds after which to stop.
            stop: Called between two rounds; True stops earlier.

        Raises:
            Diverged: If a model is not finite.
            Lost: If the processes of the engine are lost for good.
        """

    def record(self) -> Record:
        """Measure the models now. This does not change the run."""

    def models(self) -> Tensor:
        """Return all models [devices, parameters]."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return all models by the names of their parameters and buffers, each [devices, ...]."""

    def snapshot(self, copy: bool = True) -> Snapshot:
        """Return the state, from which a run can be resumed on any engine.

        Args:
            copy: Copy the state. False saves the memory of the copy: the tensors may be those of
                the engine, and the next round may overwrite them.
        """

    def parts(self, what: Literal["state", "models"]) -> Parts | None:
        """Return the state or the models without gathering them; None: this process has them.

        Args:
            what: Which of the two: the tensors of `snapshot`, or those of `state_dict`.
        """

    def close(self) -> None:
        """Release what the engine holds outside this process."""
