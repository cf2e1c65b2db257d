"""A plan is all that an engine needs to know; a record is what it reports. Every engine takes and gives the same."""

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


@dataclass(frozen=True)
class Measure:
    """What is measured: every so many rounds (0: only at the end), where in the round, on how many test samples (0: all).

    The targets are what "rounds to a target" counts to: a mean accuracy reached, a mean loss undercut.
    """

    every: int = 10
    at: Literal["after_step", "after_mix"] = "after_step"
    test: int = 0
    accuracy_targets: tuple[float, ...] = (0.8, 0.9)
    loss_targets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("every", "test"):
            checks.whole(name, getattr(self, name), 0)
        checks.one_of("at", self.at, ("after_step", "after_mix"))
        if not all(0 <= target <= 1 for target in self.accuracy_targets):
            raise InputError("accuracy_targets", list(self.accuracy_targets), "numbers from 0 to 1")
        if not all(math.isfinite(target) for target in self.loss_targets):
            raise InputError("loss_targets", list(self.loss_targets), "finite numbers")


@dataclass(frozen=True)
class Plan:
    """One run: what is learned, over which links, how, for how long. `threads` 0: chosen by the size of the work.

    `timing`: how long devices and links take, if simulated seconds are to be reported too.
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
        # In the middle of a round means in the middle of the coming one: the last measurement needs the links of one more.
        within = self.measure.at != f"after_{self.algorithm.ends_with}"
        if self.network.rounds is not None and self.network.rounds < self.rounds + within:
            reason = (
                f"the rounds that the network has{', less one to measure in' if within else ''}"
            )
            raise InputError(
                "rounds", self.rounds, f"at most {self.network.rounds - within}, {reason}"
            )
        checks.whole("threads", self.threads, 0, 1024)

    def threads_to_use(self) -> int:
        """One thread where the work of a round is too little to share out, else every core."""
        if self.threads:
            return self.threads
        work = self.task.devices * max(1, self.task.batch) * self.task.learner.parameters
        return 1 if work < 3e7 else os.cpu_count() or 1


@dataclass(frozen=True)
class Record:
    """What was measured after `round` rounds; one number a device, and what was sent so far by all of them."""

    round: int
    accuracy: NDArray[np.float64]
    loss: NDArray[np.float64]
    distance: NDArray[np.float64]  # ‖w_i − mean‖, the arithmetic mean of the models
    power_distance: NDArray[np.float64]  # ‖w_i − power mean‖, with the method's own p
    messages: int
    bytes: int
    seconds: float | None = (
        None  # simulated: when the last device ended the round (None: the plan has no timing)
    )


@dataclass(frozen=True)
class Snapshot:
    """All that a run needs to go on: tensors by name, and what was counted."""

    round: int
    messages: int
    bytes: int
    tensors: dict[str, Tensor]


class Engine(Protocol):
    """Runs a plan. `advance` goes on to a round, or stops earlier, between two rounds, when `stop` says so.

    `events` are sentences about what happened to the engine itself, such as a shard that was lost.
    """

    round: int
    events: list[str]

    def advance(self, until: int, stop: Callable[[], bool] = ...) -> None: ...

    def record(self) -> Record: ...

    def models(self) -> Tensor: ...

    def parts(self) -> dict[str, Tensor]: ...

    def snapshot(self) -> Snapshot: ...

    def close(self) -> None:
        """Let go of what the engine holds outside this process."""
