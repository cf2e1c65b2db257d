"""Measure how fast this machine is.

What is compared runs in turn, a short block each, until the time is up: other work on the machine
affects all of them alike. Times are medians over the blocks; a ratio is the median of the blocks'
ratios.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer import draws
from gossamer._core import checks
from gossamer.algorithms import WPM
from gossamer.engines import Measure, Plan, Simulator
from gossamer.network import ErdosRenyi
from gossamer.study.bench.parts import TimedSimulator
from gossamer.study.bench.result import (
    BATCH,
    MODELS,
    NEIGHBOURS,
    PARTS,
    POWERS,
    Bench,
    Evaluation,
    Parts,
    PowerCost,
    Speed,
    Threads,
)
from gossamer.study.study import Study
from gossamer.tasks import Data
from gossamer.tasks.image_sets import scaled_bytes

# Values per sample, as in MNIST.
_FEATURES = 784
# Test samples of a quick measurement.
_FEW_TESTS = 1000
# Seconds of a block: long for the clock, short enough that all blocks meet the same machine.
_BLOCK_SECONDS = 0.05

Progress = Callable[[float], None]
RunRounds = Callable[[int], object]  # runs so many rounds
Times = NDArray[np.float64]  # seconds per round, by block


def measure(
    seconds: float = 120.0,
    devices: Sequence[int] = (10, 100, 1000),
    samples: int = 60_000,
    tests: int = 10_000,
    progress: Progress = lambda share: None,
) -> Bench:
    """Measure the speed of this machine.

    Args:
        seconds: About how long to measure. Every value takes a few rounds at least.
        devices: Numbers of devices, in ascending order.
        samples: Number of training samples.
        tests: Number of test samples.
        progress: Called with the share that is done, from 0 to 1.

    Returns:
        The measurements.

    Raises:
        InputError: If `seconds` is not a number above 0.

    Example:
        >>> bench = measure(seconds=0.1, devices=(4, 8), samples=200, tests=50)
        >>> [(speed.devices, speed.p) for speed in bench.speeds if speed.model == "softmax"]
        [(4, 1), (4, 15), (8, 1), (8, 15)]
    """
    checks.positive("seconds", seconds)
    cores = os.cpu_count() or 1
    middle = devices[len(devices) // 2]
    busy = None
    if hasattr(os, "getloadavg"):  # not on Windows
        busy = os.getloadavg()[0]
    comparisons = len(devices) * (len(MODELS) + (cores > 1)) + 3
    blocks = _Blocks(seconds, comparisons, progress)
    data = _noise(samples, tests)
    speeds: list[Speed] = []
    costs: list[PowerCost] = []
    gains: list[Threads] = []
    threads = torch.get_num_threads()
    try:
        # The slowest first: they may take more than their share of the time, and the others
        # share what is left.
        for m in sorted(devices, reverse=True):
            for model in reversed(MODELS):
                found, cost = _speeds(blocks, data, m, model)
                speeds.extend(found)
                costs.append(cost)
            if cores > 1:
                gains.append(_thread_gain(blocks, data, m, cores))
        parts = _parts(blocks, data, middle)
        float64 = _float64_cost(blocks, data, middle)
        evaluations = _evaluations(blocks, data, middle)
    finally:
        torch.set_num_threads(threads)
    order = list(MODELS)
    speeds.sort(key=lambda speed: (speed.devices, order.index(speed.model), speed.p))
    costs.sort(key=lambda cost: (cost.devices, order.index(cost.model)))
    return Bench(
        cores=cores,
        busy=busy,
        speeds=tuple(speeds),
        power_costs=tuple(costs),
        parts=parts,
        threads=tuple(reversed(gains)),
        float64=float64,
        evaluations=evaluations,
    )


class _Blocks:
    """Run what is compared in turn, block by block, and share the time among the comparisons."""

    def __init__(self, seconds: float, comparisons: int, progress: Progress) -> None:
        self._comparisons = comparisons
        self._progress = progress
        self._done = 0  # comparisons
        self._begin = time.perf_counter()
        self._end = self._begin + seconds

    def begin(self) -> None:
        """Begin a comparison; its preparation counts as its time too."""
        self._begin = time.perf_counter()

    def time(self, runs: dict[Any, RunRounds]) -> dict[Any, Times]:
        """Return the seconds per round of each, by block."""
        left = self._comparisons - self._done
        until = self._begin + (self._end - self._begin) / left
        lengths = {}
        for name, run in runs.items():
            run(1)  # allocates memory that later rounds use again
            lengths[name] = max(1, math.ceil(_BLOCK_SECONDS / _seconds(run, 1)))
        times: dict[Any, list[float]] = {name: [] for name in runs}
        share = 0.0
        while share < 1:
            for name, run in runs.items():
                times[name].append(_seconds(run, lengths[name]) / lengths[name])
            now = time.perf_counter()
            share = 1.0
            if now < until:
                share = (now - self._begin) / (until - self._begin)
            self._progress((self._done + share) / self._comparisons)
        self._done += 1
        return {name: np.array(seconds) for name, seconds in times.items()}


def _seconds(run: RunRounds, rounds: int) -> float:
    start = time.perf_counter()
    run(rounds)
    return time.perf_counter() - start


def _ratio(above: Times, below: Times) -> float:
    return float(np.median(above / below))


def _noise(samples: int, tests: int) -> Data:
    """Return noise of the shape and size of MNIST.

    The time that it takes to gather a batch depends on whether all samples fit the cache.
    """
    total = samples + tests
    words = draws.bits(0, "bench/x", np.arange(total * _FEATURES // 8))
    x = scaled_bytes(words.view(np.uint8).reshape(-1, _FEATURES), mean=0.5, std=0.29)
    y = torch.from_numpy(draws.below(10, 0, "bench/y", np.arange(total)))
    return Data(x[:samples], y[:samples], x[samples:], y[samples:], "noise", 10)


def _plan(
    data: Data,
    m: int,
    model: str = "softmax",
    p: int = 1,
    dtype: Literal["float32", "float64"] = "float32",
    test: int = 0,
) -> Plan:
    study = Study(
        WPM(p),
        ErdosRenyi(m, probability=min(1.0, NEIGHBOURS / (m - 1))),
        data,
        model=MODELS[model],
        batch=BATCH,
        dtype=dtype,
        measure=Measure(every=0, test=test),
    )
    return study.plan()


def _rounds(simulator: Simulator, threads: int = 0) -> RunRounds:
    """Return a function that runs rounds, with the plan's number of threads or a given one.

    torch has one number of threads per process, so it is set before every block.
    """
    threads = threads or simulator.plan.threads_to_use()

    def run(rounds: int) -> None:
        torch.set_num_threads(threads)
        simulator.advance(simulator.round + rounds)

    return run


def _speeds(blocks: _Blocks, data: Data, m: int, model: str) -> tuple[list[Speed], PowerCost]:
    blocks.begin()
    plans = {p: _plan(data, m, model, p) for p in POWERS}
    times = blocks.time({p: _rounds(Simulator(plan)) for p, plan in plans.items()})
    speeds = []
    for p, seconds in times.items():
        threads = plans[p].threads_to_use()
        speeds.append(Speed(m, model, p, threads, float(np.median(seconds)), len(seconds)))
    return speeds, PowerCost(m, model, _ratio(times[POWERS[-1]], times[POWERS[0]]))


def _thread_gain(blocks: _Blocks, data: Data, m: int, cores: int) -> Threads:
    blocks.begin()
    simulator = Simulator(_plan(data, m))
    times = blocks.time({threads: _rounds(simulator, threads) for threads in (1, cores)})
    return Threads(m, simulator.plan.threads_to_use(), _ratio(times[1], times[cores]))


def _float64_cost(blocks: _Blocks, data: Data, m: int) -> float:
    blocks.begin()
    single = _rounds(Simulator(_plan(data, m, dtype="float32")))
    double = _rounds(Simulator(_plan(data, m, dtype="float64")))
    times = blocks.time({"float32": single, "float64": double})
    return _ratio(times["float64"], times["float32"])


def _evaluations(blocks: _Blocks, data: Data, m: int) -> tuple[Evaluation, ...]:
    blocks.begin()
    all_tests = len(data.y_test)
    few_tests = min(_FEW_TESTS, all_tests)
    on_all = Simulator(_plan(data, m, test=all_tests))
    on_few = Simulator(_plan(data, m, test=few_tests))
    times = blocks.time(
        {
            "round": _rounds(on_all),
            "all": lambda count: [on_all.record() for _ in range(count)],
            "few": lambda count: [on_few.record() for _ in range(count)],
        }
    )
    return (
        Evaluation(m, all_tests, _ratio(times["all"], times["round"])),
        Evaluation(m, few_tests, _ratio(times["few"], times["round"])),
    )


def _parts(blocks: _Blocks, data: Data, m: int) -> tuple[Parts, ...]:
    blocks.begin()
    runs = {p: _PartBlocks(TimedSimulator(_plan(data, m, p=p))) for p in POWERS}
    times = blocks.time(dict(runs))
    found = []
    for p, run in runs.items():
        measured = run.seconds[-len(times[p]) :]  # the blocks before them were to warm up
        medians = {}
        for part in PARTS:
            medians[part] = float(np.median([block[part] for block in measured]))
        found.append(Parts(m, p, medians))
    return tuple(found)


class _PartBlocks:
    """Run blocks of rounds in one thread, and keep the seconds per round of each part."""

    def __init__(self, simulator: TimedSimulator) -> None:
        self.seconds: list[dict[str, float]] = []
        self._timer = simulator.timer
        self._run = _rounds(simulator, threads=1)

    def __call__(self, rounds: int) -> None:
        self._timer.restart()
        self._run(rounds)
        seconds = self._timer.seconds()
        self.seconds.append({part: total / rounds for part, total in seconds.items()})
