"""The types that all engines share: a plan goes in, records and snapshots come out."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gossamer._core import checks
from gossamer.algorithms import Algorithm
from gossamer.errors import InputError
from gossamer.network.base import Network
from gossamer.network.timing import Timing
from gossamer.tasks import Task

_SERIAL_WORK = (
    3e7  # multiplications per round, below which a second thread costs more than it saves
)


@dataclass(frozen=True)
class Measure:
    """When and where a run is measured, and which targets are reported.

    Args:
        every: Number of rounds between two measurements. 0: only at the end.
        at: Which models are measured: those after the step, or those after the mix.
        test: Number of test samples per measurement. 0: all.
        accuracy_targets: Mean accuracies for which the first round that reaches them is reported.
        loss_targets: Mean losses for which the first round below them is reported.

    Raises:
        InputError: If a value is not accepted.

    Example:
        >>> Measure(every=20, accuracy_targets=(0.88,)).at
        'after_step'
    """

    every: int = 10
    at: Literal["after_step", "after_mix"] = "after_step"
    test: int = 0
    accuracy_targets: tuple[float, ...] = (0.8, 0.9)
    loss_targets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        checks.whole("every", self.every, 0)
        checks.whole("test", self.test, 0)
        checks.one_of("at", self.at, ("after_step", "after_mix"))
        if not all(0 <= target <= 1 for target in self.accuracy_targets):
            raise InputError("accuracy_targets", list(self.accuracy_targets), "numbers from 0 to 1")
        if not all(math.isfinite(target) for target in self.loss_targets):
            raise InputError("loss_targets", list(self.loss_targets), "finite numbers")


@dataclass(frozen=True)
class Plan:
    """Everything an engine needs to know about a run.

    Args:
        task: What is learned: data, split, model and batch size.
        network: The links of every round.
        algorithm: The method.
        rounds: Number of rounds.
        seed: Seed of all draws: batches, start, weights.
        measure: When and where to measure.
        dtype: Type of the models.
        device: The torch device, for example "cpu" or "cuda:0".
        threads: Number of torch threads. 0: one if a round is little work, else one per core.
        timing: Durations of steps and messages, if simulated seconds are to be reported.

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

    def __post_init__(self) -> None:
        if self.task.devices != self.network.devices:
            raise InputError(
                "network.devices",
                self.network.devices,
                f"{self.task.devices}, as many as the data is split for",
            )
        self.algorithm.check(self.network)
        checks.whole("rounds", self.rounds, 0)
        self._check_network_length()
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

    Args:
        round: Number of rounds done.
        accuracy: Accuracy on the test samples; NaN if the task has no classes.
        loss: Mean loss on the test samples.
        distance: ‖w_i − w̄‖, where w̄ is the arithmetic mean of all models.
        power_distance: The same with the power mean of the method's own p.
        messages: Number of messages that all devices sent so far.
        bytes: Their size in bytes.
        seconds: Simulated time at which the last device finished the round, or None if the plan has
            no timing.
    """

    round: int
    accuracy: NDArray[np.float64]
    loss: NDArray[np.float64]
    distance: NDArray[np.float64]
    power_distance: NDArray[np.float64]
    messages: int
    bytes: int
    seconds: float | None = None


@dataclass(frozen=True)
class Snapshot:
    """The state of a run. Any engine can resume from it.

    Args:
        round: Number of rounds done.
        messages: Number of messages that all devices sent so far.
        bytes: Their size in bytes.
        tensors: The state of the algorithm, the buffers of the model and the clocks, by name. A
            tensor has one row per device, or one row that all devices share.
    """

    round: int
    messages: int
    bytes: int
    tensors: dict[str, Tensor]


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

    def snapshot(self) -> Snapshot:
        """Return a copy of the state, from which a run can be resumed on any engine."""

    def close(self) -> None:
        """Release what the engine holds outside this process."""
