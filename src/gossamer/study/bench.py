"""This machine's own numbers: how fast a round is, where its time goes, and what to set.

What is compared runs in turn, a short block each, until the time is up: what else the machine does meanwhile hits both
alike. Times are medians over the blocks; a ratio is the median of the blocks' ratios.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer import draws
from gossamer._core import checks
from gossamer.algorithms import WPM
from gossamer.engines import Measure, Plan, Simulator
from gossamer.engines.mixing import StackedMix
from gossamer.network import ErdosRenyi, Network
from gossamer.network.base import Links
from gossamer.study.study import Study
from gossamer.tasks import Data, Mlp, Model, Softmax
from gossamer.tasks.data import scaled_bytes

MODELS: dict[str, Model] = {"softmax": Softmax(), "mlp 64": Mlp((64,))}
POWERS = (1, 15)
BATCH, NEIGHBOURS, FEW_TESTS = 128, 4, 1000
PARTS = ("links and weights", "batches and gradient", "mixing", "step and the rest")

_BLOCK = 0.05  # seconds: long enough for the clock, short enough that what is compared meets the same machine
_WORTH = 1.05  # a smaller gain is noise
_COSTLY = 0.1  # the share of a run's time that measuring may take

Progress = Callable[[float], None]
Rounds = Callable[[int], object]
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Speed:
    """A round of a model at some p: the median of its seconds, over so many blocks."""

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
    """How many times as long a round takes with the largest p as with p = 1."""

    devices: int
    model: str
    ratio: float


@dataclass(frozen=True)
class Parts:
    """The seconds of a round by `PARTS`; each moment belongs to one of them."""

    devices: int
    p: int
    seconds: dict[str, float]

    @property
    def shares(self) -> dict[str, float]:
        total = sum(self.seconds.values())
        return {part: seconds / total for part, seconds in self.seconds.items()}


@dataclass(frozen=True)
class Threads:
    """How many times as fast every core is as one thread, and how many threads gossamer chooses by itself."""

    devices: int
    chosen: int
    gain: float


@dataclass(frozen=True)
class Evaluation:
    """How many rounds one evaluation takes as long as, on so many test samples."""

    devices: int
    test: int
    rounds: float

    @property
    def every(self) -> int:
        """The smallest `measure.every` at which measuring costs less than 10 % of the time of a run."""
        return math.floor(self.rounds * (1 - _COSTLY) / _COSTLY) + 1


@dataclass(frozen=True)
class Bench:
    """All that was measured. `float64`: how many times as long as in float32 a round takes.

    `busy`: how many processes kept the machine busy when it began (None: not known), which all numbers suffer from.
    """

    cores: int
    busy: float | None
    speeds: tuple[Speed, ...]
    power_costs: tuple[PowerCost, ...]
    parts: tuple[Parts, ...]
    threads: tuple[Threads, ...]
    float64: float
    evaluations: tuple[Evaluation, ...]


@dataclass(frozen=True)
class Advice:
    """What to set: a key of the spec, its value, and why in one sentence."""

    key: str
    value: int | str
    sentence: str


def measure(
    seconds: float = 120.0,
    devices: Sequence[int] = (10, 100, 1000),
    samples: int = 60_000,
    tests: int = 10_000,
    progress: Progress = lambda share: None,
) -> Bench:
    """Measure for about so many seconds; every number takes a few rounds at least. `progress` gets the share that is done.

    >>> bench = measure(seconds=0.1, devices=(4, 8), samples=200, tests=50)
    >>> [(speed.devices, speed.p) for speed in bench.speeds if speed.model == "softmax"]
    [(4, 1), (4, 15), (8, 1), (8, 15)]
    """
    checks.positive("seconds", seconds)
    threads, middle, cores = (
        torch.get_num_threads(),
        devices[len(devices) // 2],
        os.cpu_count() or 1,
    )
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    turns = _Turns(seconds, len(devices) * (len(MODELS) + (cores > 1)) + 3, progress)
    data = _data(samples, tests)
    speeds: list[Speed] = []
    costs: list[PowerCost] = []
    gains: list[Threads] = []
    try:
        # The slowest first, which may take more than their share of the time: the others then share what is left.
        for m in sorted(devices, reverse=True):
            for name in reversed(MODELS):
                found, cost = _speeds(turns, data, m, name)
                speeds.extend(found)
                costs.append(cost)
            if cores > 1:
                gains.append(_threads(turns, data, m, cores))
        parts = _parts(turns, data, middle)
        float64 = _float64(turns, data, middle)
        evaluations = _evaluations(turns, data, middle)
    finally:
        torch.set_num_threads(threads)
    order = list(MODELS)
    return Bench(
        cores,
        busy,
        tuple(sorted(speeds, key=lambda speed: (speed.devices, order.index(speed.model), speed.p))),
        tuple(sorted(costs, key=lambda cost: (cost.devices, order.index(cost.model)))),
        parts,
        tuple(reversed(gains)),
        float64,
        evaluations,
    )


# -- what to set -------------------------------------------------------------------------------------------------------


def gains_from(rows: Sequence[Threads]) -> int | None:
    """The number of devices from which every core is faster than one thread; None: at none that was measured."""
    found = None
    for row in sorted(rows, key=lambda row: row.devices, reverse=True):
        if row.gain < _WORTH:
            break
        found = row.devices
    return found


def advice(bench: Bench) -> list[Advice]:
    """What the numbers say about `threads`, `dtype`, `measure.every` and `measure.test`."""
    return [*_on_threads(bench), _on_dtype(bench.float64), *_on_measuring(bench.evaluations)]


def _on_threads(bench: Bench) -> list[Advice]:
    cores, rows = bench.cores, bench.threads
    if cores == 1:
        return [
            Advice(
                "threads",
                0,
                "There is one core here: leave threads = 0, there is nothing to choose.",
            )
        ]
    wrong = [
        row for row in rows if (row.gain > _WORTH if row.chosen == 1 else row.gain < 1 / _WORTH)
    ]
    if wrong:
        return [_other_threads(row, cores) for row in wrong]
    first = gains_from(rows)
    if first is None:
        why = f"{cores} threads gain nothing over one here: threads = 1 leaves the other cores to other runs."
        return [Advice("threads", 1, why)]
    gain = next(row.gain for row in rows if row.devices == first)
    why = f"{cores} threads gain from {first} devices on, where they are {gain:.1f} times as fast as one: leave threads = 0."
    return [Advice("threads", 0, why)]


def _other_threads(row: Threads, cores: int) -> Advice:
    if row.chosen == 1:
        why = f"{cores} threads are {row.gain:.1f} times as fast as the one that threads = 0 takes"
        return Advice("threads", cores, f"At {row.devices} devices set threads = {cores}: {why}.")
    why = (
        f"one thread is {1 / row.gain:.1f} times as fast as the {row.chosen} that threads = 0 takes"
    )
    return Advice("threads", 1, f"At {row.devices} devices set threads = 1: {why}.")


def _on_dtype(float64: float) -> Advice:
    if float64 > 1.1:
        why = f'A round in float64 takes {float64:.1f} times as long: keep dtype = "float32" unless you need the digits.'
        return Advice("dtype", "float32", why)
    why = f'A round in float64 takes {max(0.0, float64 - 1):.0%} longer: dtype = "float64" costs little here.'
    return Advice("dtype", "float64", why)


def _on_measuring(evaluations: Sequence[Evaluation]) -> list[Advice]:
    every, few = evaluations
    return [
        Advice(
            "measure.every",
            every.every,
            f"Measuring on all {every.test:,} test samples takes as long as {every.rounds:.1f} rounds: "
            f"from measure.every = {every.every} on it costs below 10 % of the time.",
        ),
        Advice(
            "measure.test",
            few.test,
            f"With measure.test = {few.test} it takes as long as {few.rounds:.1f} rounds: "
            f"below 10 % from measure.every = {few.every} on.",
        ),
    ]


# -- how it is measured ------------------------------------------------------------------------------------------------


class _Turns:
    """Lets what is compared run in turn, and shares the time among the comparisons."""

    def __init__(self, seconds: float, comparisons: int, progress: Progress) -> None:
        self._end, self._comparisons, self._progress = (
            time.perf_counter() + seconds,
            comparisons,
            progress,
        )
        self._done, self._began = 0, time.perf_counter()

    def begin(self) -> None:
        """A comparison begins; what it prepares counts as its time too."""
        self._began = time.perf_counter()

    def take(self, runs: dict[Any, Rounds]) -> dict[Any, Times]:
        """Seconds a round of each, block by block."""
        until = self._began + (self._end - self._began) / (self._comparisons - self._done)
        lengths = {}
        for name, run in runs.items():
            run(1)  # takes memory that later rounds have
            lengths[name] = max(1, math.ceil(_BLOCK / _seconds(run, 1)))
        taken: dict[Any, list[float]] = {name: [] for name in runs}
        share = 0.0
        while share < 1:
            for name, run in runs.items():
                taken[name].append(_seconds(run, lengths[name]) / lengths[name])
            now = time.perf_counter()
            share = 1.0 if now >= until else (now - self._began) / (until - self._began)
            self._progress((self._done + share) / self._comparisons)
        self._done += 1
        return {name: np.array(times) for name, times in taken.items()}


def _seconds(run: Rounds, rounds: int) -> float:
    start = time.perf_counter()
    run(rounds)
    return time.perf_counter() - start


def _ratio(above: Times, below: Times) -> float:
    return float(np.median(above / below))


def _data(samples: int, tests: int) -> Data:
    """Noise of MNIST's shape and number: how long a batch takes to gather depends on whether all samples fit the cache."""
    words = draws.bits(0, "bench/x", np.arange((samples + tests) * 784 // 8))
    x = scaled_bytes(words.view(np.uint8).reshape(-1, 784), mean=0.5, std=0.29)
    y = torch.from_numpy(draws.below(10, 0, "bench/y", np.arange(samples + tests)))
    return Data(x[:samples], y[:samples], x[samples:], y[samples:], "noise", 10)


def _plan(
    data: Data,
    m: int,
    model: str = "softmax",
    p: int = 1,
    dtype: Literal["float32", "float64"] = "float32",
    test: int = 0,
) -> Plan:
    network = ErdosRenyi(m, probability=min(1.0, NEIGHBOURS / (m - 1)))
    measured = Measure(every=0, test=test)
    return Study(
        WPM.robust(p),
        network,
        data,
        model=MODELS[model],
        batch=BATCH,
        dtype=dtype,
        measure=measured,
    ).plan()


def _rounds(simulator: Simulator, threads: int = 0) -> Rounds:
    """Return a function that runs rounds in as many threads as given (0: as the plan says)."""
    threads = threads or simulator.plan.threads_to_use()

    def run(rounds: int) -> None:
        simulator.threads = threads
        simulator.advance(simulator.round + rounds)

    return run


def _speeds(turns: _Turns, data: Data, m: int, model: str) -> tuple[list[Speed], PowerCost]:
    turns.begin()
    plans = {p: _plan(data, m, model, p) for p in POWERS}
    taken = turns.take({p: _rounds(Simulator(plan)) for p, plan in plans.items()})
    speeds = [
        Speed(m, model, p, plans[p].threads_to_use(), float(np.median(times)), len(times))
        for p, times in taken.items()
    ]
    return speeds, PowerCost(m, model, _ratio(taken[POWERS[-1]], taken[POWERS[0]]))


def _threads(turns: _Turns, data: Data, m: int, cores: int) -> Threads:
    turns.begin()
    simulator = Simulator(_plan(data, m))
    taken = turns.take({threads: _rounds(simulator, threads) for threads in (1, cores)})
    return Threads(m, simulator.plan.threads_to_use(), _ratio(taken[1], taken[cores]))


def _float64(turns: _Turns, data: Data, m: int) -> float:
    turns.begin()
    taken = turns.take(
        {dtype: _rounds(Simulator(_plan(data, m, dtype=dtype))) for dtype in ("float32", "float64")}
    )
    return _ratio(taken["float64"], taken["float32"])


def _evaluations(turns: _Turns, data: Data, m: int) -> tuple[Evaluation, ...]:
    turns.begin()
    samples = len(data.y_test)
    tests = (samples, min(FEW_TESTS, samples))
    whole, few = (Simulator(_plan(data, m, test=test)) for test in tests)
    taken = turns.take(
        {
            "round": _rounds(whole),
            "all": lambda times: [whole.record() for _ in range(times)],
            "few": lambda times: [few.record() for _ in range(times)],
        }
    )
    pairs = zip(("all", "few"), tests, strict=True)
    return tuple(Evaluation(m, test, _ratio(taken[name], taken["round"])) for name, test in pairs)


def _parts(turns: _Turns, data: Data, m: int) -> tuple[Parts, ...]:
    turns.begin()
    watches = {p: _Watch() for p in POWERS}
    runs = {p: watch.over(Simulator(_plan(data, m, p=p))) for p, watch in watches.items()}
    blocks = turns.take(runs)
    found = []
    for p, watch in watches.items():
        counted = watch.blocks[-len(blocks[p]) :]  # those before were to warm up
        found.append(
            Parts(
                m, p, {part: float(np.median([block[part] for block in counted])) for part in PARTS}
            )
        )
    return tuple(found)


class _Watch:
    """Says where the time of one simulator's rounds goes: each moment belongs to the part that was entered last."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, float]] = []  # the seconds a round of each block, by part
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._within, self._since = [PARTS[-1]], 0.0

    def over(self, simulator: Simulator) -> Rounds:
        """What runs rounds of this simulator in one thread, whose own parts are watched from now on."""
        worker, make, run = simulator._worker, simulator._mix, _rounds(simulator, 1)

        def mix(*args: Any) -> StackedMix:
            made = make(*args)
            made.power_mean = self._timed("mixing", made.power_mean)  # type: ignore[method-assign]
            return made

        simulator._mix = self._timed("links and weights", mix)  # type: ignore[method-assign]
        worker.gradient = self._timed("batches and gradient", worker.gradient)  # type: ignore[method-assign]
        network = simulator.plan.network
        simulator.plan = replace(
            simulator.plan,
            network=_Watched(network, self._timed("links and weights", network.links)),
        )

        def block(rounds: int) -> None:
            self._seconds, self._since = dict.fromkeys(PARTS, 0.0), time.perf_counter()
            run(rounds)
            self._switch()
            self.blocks.append({part: seconds / rounds for part, seconds in self._seconds.items()})

        return block

    def _timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            self._switch()
            self._within.append(part)
            try:
                return call(*args, **options)
            finally:
                self._switch()
                self._within.pop()

        return timed

    def _switch(self) -> None:
        now = time.perf_counter()
        self._seconds[self._within[-1]] += now - self._since
        self._since = now


@dataclass(frozen=True)
class _Watched(Network):
    """A network whose links are asked for through `ask`."""

    inner: Network
    ask: Callable[[int], Links]

    @property
    def devices(self) -> int:  # type: ignore[override]
        return self.inner.devices

    @property
    def period(self) -> int | None:
        return self.inner.period

    @property
    def rounds(self) -> int | None:
        return self.inner.rounds

    def links(self, t: int) -> Links:
        return self.ask(t)
