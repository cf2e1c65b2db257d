"""What a benchmark measures, and the settings that it is measured with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.tasks import Mlp, Model, Softmax

MODELS: dict[str, Model] = {"softmax": Softmax(), "mlp 64": Mlp((64,))}
POWERS = (1, 15)
# Samples per step and device.
BATCH = 128
# Neighbours per device and round, on average.
NEIGHBOURS = 4
# The parts of a round; what belongs to no other part is in the last.
PARTS = ("links and weights", "batches and gradient", "mixing", "step and the rest")

# The share of a run's time that measuring may take.
_MEASURING_SHARE = 0.1


@dataclass(frozen=True)
class Speed:
    """The duration of a round.

    Attributes:
        devices: Number of devices.
        model: A key of `MODELS`.
        p: The power of the mean.
        threads: Number of torch threads.
        seconds: The median over the blocks.
        blocks: Number of blocks of rounds that were timed.
    """

    devices: int
    model: str
    p: int
    threads: int
    seconds: float
    blocks: int

    @property
    def rounds_per_second(self) -> float:
        return 1 / self.seconds

    @property
    def device_steps_per_second(self) -> float:
        return self.devices / self.seconds


@dataclass(frozen=True)
class PowerCost:
    """The duration of a round with the largest p, as a multiple of the duration with p = 1."""

    devices: int
    model: str
    ratio: float


@dataclass(frozen=True)
class Parts:
    """The seconds of a round by `PARTS`; every moment belongs to one of them."""

    devices: int
    p: int
    seconds: dict[str, float]

    @property
    def shares(self) -> dict[str, float]:
        total = sum(self.seconds.values())
        return {part: seconds / total for part, seconds in self.seconds.items()}


@dataclass(frozen=True)
class Threads:
    """The gain of one thread per core over a single thread.

    Attributes:
        devices: Number of devices.
        chosen: Number of threads that `threads = 0` chooses.
        gain: How many times as fast a round is with one thread per core.
    """

    devices: int
    chosen: int
    gain: float


@dataclass(frozen=True)
class Evaluation:
    """The cost of one measurement.

    Attributes:
        devices: Number of devices.
        test: Number of test samples.
        rounds: Its duration as a multiple of a round's.
    """

    devices: int
    test: int
    rounds: float

    @property
    def every(self) -> int:
        """The smallest `measure.every` at which measuring takes less than 10 % of a run's time."""
        return math.floor(self.rounds * (1 - _MEASURING_SHARE) / _MEASURING_SHARE) + 1


@dataclass(frozen=True)
class Bench:
    """All measurements of a benchmark.

    Attributes:
        cores: Number of cores of the machine.
        busy: The load average at the start, or None if it is not known. A busy machine makes all
            times longer.
        speeds: The duration of a round, by devices, model and p.
        power_costs: What the largest p costs, by devices and model.
        parts: Where the time of a round goes, by p.
        threads: What several threads gain, by devices.
        float64: The duration of a round in float64, as a multiple of that in float32.
        evaluations: The cost of a measurement on all test samples, and on few.
    """

    cores: int
    busy: float | None
    speeds: tuple[Speed, ...]
    power_costs: tuple[PowerCost, ...]
    parts: tuple[Parts, ...]
    threads: tuple[Threads, ...]
    float64: float
    evaluations: tuple[Evaluation, ...]
