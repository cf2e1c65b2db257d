"""`gossamer bench`: its measurements are consistent, and its advice follows from them."""

from __future__ import annotations

import inspect
import json
import math
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from support import processes
from support.command import REAL, Result, assert_refused, gossamer
from support.listing import attribute, column
from support.processes import DEADLINE, cpu_seconds, needs_proc, started, wait_until

from gossamer.cli.bench import document
from gossamer.engines import Simulator
from gossamer.errors import InputError
from gossamer.study import bench
from gossamer.study.bench import (
    MODELS,
    PARTS,
    POWERS,
    Bench,
    Evaluation,
    Parts,
    PowerCost,
    Speed,
    Threads,
    advice,
    gains_from,
)
from gossamer.study.bench.measure import _noise, _PartBlocks, _plan
from gossamer.study.bench.parts import PartTimer, TimedSimulator

pytestmark = pytest.mark.slow

SMALL = (4, 6, 12)


def made_up(
    cores: int = 4, gains: tuple[float, ...] = (0.5, 2.0, 3.0), chosen: tuple[int, ...] = (1, 4, 4)
) -> Bench:
    sizes = (10, 100, 1000)
    speeds = []
    for m, model, p in product(sizes, MODELS, POWERS):
        speeds.append(Speed(m, model, p, 1, m * p / 1000, 5))
    power_costs = []
    for m, model in product(sizes, MODELS):
        power_costs.append(PowerCost(m, model, 15.0))
    threads = []
    if cores > 1:
        threads = list(map(Threads, sizes, chosen, gains))
    return Bench(
        cores=cores,
        busy=None,
        speeds=tuple(speeds),
        power_costs=tuple(power_costs),
        parts=tuple(Parts(100, p, dict.fromkeys(PARTS, 0.001 * p)) for p in POWERS),
        threads=tuple(threads),
        float64=2.0,
        evaluations=(Evaluation(100, 10_000, 8.0), Evaluation(100, 1000, 0.9)),
    )


def advised(measured: Bench, key: str) -> list[tuple[int | str, str]]:
    return [(one.value, one.sentence) for one in advice(measured) if one.key == key]


# -- what it advises -----------------------------------------------------------------------------


def test_threads_are_kept_where_the_choice_is_right() -> None:
    sentence = (
        "4 threads gain from 100 devices on, where they are 2.0 times as fast as one: "
        "leave threads = 0."
    )
    assert advised(made_up(), "threads") == [(0, sentence)]


@pytest.mark.parametrize(
    ("gains", "chosen", "values", "part"),
    [
        (
            (0.5, 0.5, 3.0),
            (1, 4, 4),
            [1],
            "At 100 devices set threads = 1: one thread is 2.0 times as fast as the 4 that",
        ),
        (
            (1.5, 2.0, 3.0),
            (1, 4, 4),
            [4],
            "At 10 devices set threads = 4: 4 threads are 1.5 times as fast as the one that",
        ),
        ((1.5, 2.0, 0.5), (1, 4, 4), [4, 1], "At 1000 devices set threads = 1"),
        ((0.9, 1.0, 1.01), (1, 4, 4), [1], "4 threads gain nothing over one here"),
    ],
)
def test_threads_where_the_choice_is_wrong(
    gains: tuple[float, ...], chosen: tuple[int, ...], values: list[int], part: str
) -> None:
    found = advised(made_up(gains=gains, chosen=chosen), "threads")
    assert [value for value, _ in found] == values
    assert part in found[-1][1]


def test_one_core_has_nothing_to_choose() -> None:
    assert advised(made_up(cores=1), "threads")[0][0] == 0


@pytest.mark.parametrize(
    ("gains", "first"),
    [
        ((0.5, 2.0, 3.0), 100),
        ((2.0, 2.0, 2.0), 10),
        ((2.0, 0.9, 2.0), 1000),
        ((2.0, 2.0, 1.0), None),
        ((1.0, 1.0, 1.0), None),
    ],
)
def test_from_which_size_threads_gain(gains: tuple[float, ...], first: int | None) -> None:
    rows = made_up(gains=gains).threads
    assert gains_from(rows) == gains_from(rows[::-1]) == first


def test_dtype() -> None:
    assert advised(made_up(), "dtype")[0][0] == "float32"
    assert "2.0 times as long" in advised(made_up(), "dtype")[0][1]
    ((value, sentence),) = advised(replace(made_up(), float64=1.04), "dtype")
    assert value == "float64"
    assert "4% longer" in sentence
    assert "0% longer" in advised(replace(made_up(), float64=0.97), "dtype")[0][1]


@pytest.mark.parametrize("rounds", [0.01, 0.111, 0.9, 1.0, 8.0, 37.123, 1e4])
def test_measuring_costs_less_than_a_tenth_from_the_advised_interval_on(rounds: float) -> None:
    every = Evaluation(100, 1000, rounds).every
    assert rounds / (every + rounds) < 0.1
    assert every == 1 or rounds / (every - 1 + rounds) >= 0.1 * (1 - 1e-12)


def test_measuring() -> None:
    assert advised(made_up(), "measure.every")[0][0] == 73
    assert advised(made_up(), "measure.test") == [
        (
            1000,
            "With measure.test = 1000 it takes as long as 0.9 rounds: "
            "below 10 % from measure.every = 9 on.",
        )
    ]


# -- what it measures ----------------------------------------------------------------------------


def check(document: dict[str, Any], sizes: tuple[int, ...]) -> None:
    """Check that all measurements exist and agree with each other."""
    several = document["cores"] > 1
    assert document["versions"].keys() >= {"gossamer", "torch", "numpy"}
    rows = []
    for row in document["speeds"]:
        rows.append((row["devices"], row["model"], row["p"]))
    assert rows == list(product(sizes, MODELS, POWERS))
    for row in document["speeds"]:
        assert row["blocks"] >= 1
        assert row["threads"] in (1, document["cores"])
        assert math.isclose(row["rounds_per_second"] * row["seconds"], 1)
        assert math.isclose(
            row["device_steps_per_second"], row["devices"] * row["rounds_per_second"]
        )
    costs = []
    for row in document["power_costs"]:
        costs.append((row["devices"], row["model"]))
    assert costs == list(product(sizes, MODELS))
    assert column(document["parts"], "devices") == [sizes[1]] * len(POWERS)
    assert column(document["parts"], "p") == list(POWERS)
    for row in document["parts"]:
        assert list(row["seconds"]) == list(row["shares"]) == list(PARTS)
        assert min(row["seconds"].values()) > 0
        assert math.isclose(sum(row["shares"].values()), 1)
    assert column(document["threads"], "devices") == (list(sizes) if several else [])
    ratios = column(document["power_costs"], "ratio") + column(document["threads"], "gain")
    ratios += [*column(document["evaluations"], "rounds"), document["float64"]]
    for ratio in ratios:
        assert 0 < ratio < math.inf
    keys = column(document["advice"], "key")
    assert set(keys) == {
        "threads",
        "dtype",
        "measure.every",
        "measure.test",
    }
    advised = dict(zip(keys, document["advice"], strict=True))
    assert advised["measure.every"]["value"] == document["evaluations"][0]["every"]
    assert advised["measure.test"]["value"] == document["evaluations"][1]["test"]


def test_all_measurements_exist_and_agree() -> None:
    shares: list[float] = []
    before = torch.get_num_threads()
    measured = bench.measure(0.01, SMALL, samples=300, tests=60, progress=shares.append)
    assert torch.get_num_threads() == before
    check(json.loads(json.dumps(document(measured))), SMALL)
    assert attribute(measured.evaluations, "test") == [60, 60]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert shares.count(1) == 1


def test_a_timed_run_is_the_same_run() -> None:
    plan = _plan(_noise(300, 60), 6, p=15)
    timed = TimedSimulator(plan)
    plain = Simulator(plan)
    blocks = _PartBlocks(timed)
    blocks(2)
    blocks(3)
    plain.advance(5)
    assert torch.equal(timed.models(), plain.models())
    assert len(blocks.seconds) == 2
    for block in blocks.seconds:
        for part in PARTS:
            assert block[part] > 0


def test_each_moment_belongs_to_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(now)))
    timer = PartTimer()
    inner = timer.timed("mixing", lambda: None)
    outer = timer.timed("batches and gradient", lambda: (inner(), inner()))
    outer()
    # The clock advances by one per reading:
    # rest | gradient | mixing | gradient | mixing | gradient | rest
    assert timer.seconds() == {
        "links and weights": 0.0,
        "step and the rest": 2.0,
        "batches and gradient": 3.0,
        "mixing": 2.0,
    }


def test_an_interrupt_restores_the_number_of_threads() -> None:
    def stop(share: float) -> None:
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        bench.measure(0.01, SMALL, samples=300, tests=60, progress=stop)
    assert torch.get_num_threads() == before


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the command in this process, with few devices and samples."""

    def measure(seconds: float, **options: Any) -> Bench:
        return bench.measure(seconds, SMALL, samples=300, tests=60, **options)

    monkeypatch.setattr("gossamer.cli.bench.measure", measure)


def done(*words: object) -> Result:
    result = gossamer("bench", "--seconds", "0.01", *words)
    assert result.code == 0, result.err
    return result


def test_the_output_fits_80_columns(small: None) -> None:
    result = done("-q")
    assert result.err == ""
    assert max(map(len, result.out.splitlines())) <= 80
    for part in (
        *PARTS,
        *MODELS,
        "p = 15",
        "float64 against float32",
        "measure.every =",
        "dtype =",
        "threads",
    ):
        assert part in result.out
    assert "bench 100%" in done().err


def test_json_is_one_document(small: None) -> None:
    check(json.loads(done("--json", "-q").out), SMALL)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_bad_seconds_are_refused(seconds: str) -> None:
    assert_refused(gossamer("bench", "--seconds", seconds), "seconds", "a number above 0")
    with pytest.raises(InputError):
        bench.measure(float(seconds))


def test_seconds_that_are_no_number_are_refused() -> None:
    assert_refused(gossamer("bench", "--seconds", "long"), "--seconds", "number")


# The command with fewer devices and samples: 1,000 devices take a quarter of a minute.
SMALL_BENCH = """
import functools, sys
import gossamer.cli.bench as command
command.measure = functools.partial(command.measure, devices=(10, 100), samples=3000, tests=200)
sys.argv = ["gossamer", "bench", "--seconds", "0.1", "--json", "-q"]
from gossamer.cli import main
main()
"""


@pytest.mark.slow
def test_the_command_as_a_process() -> None:
    done = processes.run([sys.executable, "-c", SMALL_BENCH])
    assert (done.returncode, done.stderr) == (0, "")
    check(json.loads(done.stdout), (10, 100))


def test_the_default_sizes() -> None:
    assert inspect.signature(bench.measure).parameters["devices"].default == (10, 100, 1000)


@needs_proc
@pytest.mark.slow
def test_ctrl_c_ends_it_cleanly() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started([*REAL, "bench", "--seconds", "600", "-q"], **pipes) as process:
        wait_until(lambda: cpu_seconds(process.pid) > 3, "the benchmark begins to measure")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
    assert_refused(Result(process.returncode, out, err), "stopped", code=130)
