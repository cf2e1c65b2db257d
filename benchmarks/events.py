"""Device-steps per second of the events engine, as ratios to the simulator and to a naive loop.

    python benchmarks/events.py [--devices 1000] [--seconds 10]
    python benchmarks/events.py --quick           one second per engine; writes nothing
    python benchmarks/events.py --profile         where the time of the engine goes
    python benchmarks/events.py --minutes 1440    the simulated day is run as a whole

All are measured in turn in one run, on digits with softmax regression and 32 samples per step, over
a random network with about eight neighbours that is redrawn in every round. The naive loop computes
one event after the other, which it finds in plain Python. Then a simulated day of 100,000 devices
that move, each method in a process of its own: a few of its minutes, from which the day is
estimated. Seconds are those of the processor, in one thread, so that a busy machine changes the
ratios little.

The results are written to benchmarks/results/events-PROCESSOR-INSTRUCTIONS.json and .md, and
`python docs/blocks.py docs/speed.md` shows every such file on the speed page.
"""

import own_process  # noqa: F401  # isort: skip

import argparse
import cProfile
import json
import math
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from result_names import file_name, title

import gossamer as gs
from gossamer.backend import versions
from gossamer.engines import Engine, Plan, Simulator
from gossamer.engines.events import start_events

RESULTS = Path(__file__).with_name("results")
SIMULATOR = "simulator, D-PSGD"
OF_SIMULATOR = 0.5  # least share of the simulator's speed
OF_NAIVE = 20.0  # least multiple of the naive loop's speed
DAY_METHODS = {"d-psgd": gs.DPSGD(0.1), "ad-psgd": gs.ADPSGD(0.1)}
DAY_MINUTES = 24 * 60

_NEIGHBOURS = 8
_TURNS = 10
Row = dict[str, Any]


def study(algorithm: gs.Algorithm, devices: int) -> gs.Study:
    """Return the common job: steps of a second, messages of a tenth, rounds of a second."""
    network = gs.Regular(devices, degree=_NEIGHBOURS, seed=0)
    timing = gs.Timing(compute=gs.LogUniform(0.5, 2.0), rate=1e5, latency=0.05)
    return gs.Study(algorithm, network, rounds=10**6, timing=timing, threads=1)


class Measured:
    """An engine whose speed is measured in turns with others, so that other load slows all alike.

    Args:
        engine: The engine.
        steps: Returns the number of steps that all devices have taken.
    """

    def __init__(self, engine: Engine, steps: Callable[[], float]) -> None:
        self.engine = engine
        self.steps = steps
        self.seconds = 0.0
        engine.advance(1)  # to warm up
        self.before = steps()

    def run(self, seconds: float) -> None:
        """Run the engine for some seconds of processor time."""
        begin = time.process_time()
        while time.process_time() - begin < seconds:
            self.engine.advance(self.engine.round + 1)
        self.seconds += time.process_time() - begin

    @property
    def speed(self) -> float:
        """Device-steps per second."""
        return (self.steps() - self.before) / self.seconds


def events_engine(plan: Plan, batched: bool) -> Measured:
    """Return the events engine, or its naive loop."""
    engine = start_events(plan, batched=batched)
    return Measured(engine, lambda: engine._timeline.total_steps)


def measure(devices: int, seconds: float, profile: bool) -> list[Row]:
    """Measure the engines in turn.

    Args:
        devices: Number of devices.
        seconds: Seconds of a processor for each engine.
        profile: Whether to print where the time of the events engine goes.

    Returns:
        One row per engine, without the naive loops.
    """
    gossip = study(gs.DPSGD(0.1), devices).plan()
    background = study(gs.ADPSGD(0.1), devices).plan()
    rounds = Simulator(gossip)
    measured = {SIMULATOR: Measured(rounds, lambda: rounds.round * devices)}
    naive = {}
    for name, plan in (("D-PSGD in pairs", gossip), ("AD-PSGD", background)):
        measured[name] = events_engine(plan, batched=True)
        naive[name] = events_engine(plan, batched=False)
    for _ in range(_TURNS):
        for one in (*measured.values(), *naive.values()):
            one.run(seconds / _TURNS)
    rows: list[Row] = []
    for name, one in measured.items():
        row: Row = {"what": name, "devices": devices, "device_steps_per_s": one.speed}
        if name in naive:
            row["of_simulator"] = one.speed / measured[SIMULATOR].speed
            row["of_naive"] = one.speed / naive[name].speed
        rows.append(row)
    for name in naive if profile else ():
        found = cProfile.Profile()
        found.runcall(measured[name].run, seconds)
        pstats.Stats(found).sort_stats("tottime").print_stats(18)
    return rows


def measure_day(name: str, devices: int, minutes: int) -> Row:
    """Simulate minutes of a day: links of a minute, steps of half a minute to two.

    Args:
        name: A key of DAY_METHODS.
        devices: Number of devices, which move.
        minutes: Simulated minutes that are measured, after one that is not.
    """
    radius = math.sqrt(_NEIGHBOURS / (math.pi * devices))
    network = gs.Mobility(devices, radius=radius, seconds_per_round=60.0)
    timing = gs.Timing(compute=gs.LogUniform(30.0, 120.0), rate=1e5, latency=0.05)
    made = gs.Study(DAY_METHODS[name], network, split=gs.Drawn(), timing=timing, threads=1)
    engine = start_events(made.plan(), seconds_per_round=60.0)
    engine.advance(1)  # to warm up
    before = engine._timeline.total_steps
    begin = time.process_time()
    engine.advance(1 + minutes)
    return {
        "what": DAY_METHODS[name].label,
        "devices": devices,
        "minutes": minutes,
        "seconds_per_minute": (time.process_time() - begin) / minutes,
        "steps_per_minute": (engine._timeline.total_steps - before) / minutes,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def days(devices: int, minutes: int) -> list[Row]:
    """Measure a day of every method, each in a process of its own."""
    rows = []
    for name in DAY_METHODS:
        command = [sys.executable, __file__, "--one-day", name]
        command += ["--day-devices", str(devices), "--minutes", str(minutes)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    return rows


def table(rows: list[Row]) -> str:
    """Return the speeds as Markdown; those that miss their limit are in bold."""
    lines = [
        f"| {rows[0]['devices']:,} devices | device-steps per second | of the simulator, "
        f"limit ≥ {OF_SIMULATOR:g} | of the naive loop, limit ≥ {OF_NAIVE:g} |",
        "|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["what"], f"{row['device_steps_per_s']:,.0f}", "1", "–"]
        if "of_naive" in row:
            cells[2] = _cell(row["of_simulator"], OF_SIMULATOR, 2)
            cells[3] = _cell(row["of_naive"], OF_NAIVE, 0)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def day_table(rows: list[Row]) -> str:
    """Return what a simulated day takes as Markdown."""
    lines = [
        f"| a simulated day, {rows[0]['devices']:,} devices | measured minutes | "
        "processor s per minute | device-steps per minute | processor minutes per day | peak GB |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        a_day = row["seconds_per_minute"] * DAY_MINUTES / 60
        cells = [
            row["what"],
            f"{row['minutes']:,}",
            f"{row['seconds_per_minute']:.2f}",
            f"{row['steps_per_minute']:,.0f}",
            f"{a_day:.0f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(value: float, limit: float, digits: int) -> str:
    """Return a ratio, in bold if it misses its limit."""
    text = f"{value:.{digits}f}"
    if value < limit:
        return f"**{text}**"
    return text


def write(rows: list[Row], day_rows: list[Row]) -> None:
    """Write the results as JSON and as a section of the speed page."""
    made_by = versions()
    processor = made_by["processor"]
    path = RESULTS / f"{file_name('events', processor)}.json"
    found = {"versions": made_by, "rows": rows, "days": day_rows}
    path.write_text(json.dumps(found, indent=2) + "\n")
    heading = (
        f"#### {title(processor)}\n\ngossamer {made_by['gossamer']}, torch {made_by['torch']}.\n\n"
    )
    path.with_suffix(".md").write_text(f"{heading}{table(rows)}\n{day_table(day_rows)}")
    print(f"written: {path}")


def main() -> None:
    """Measure, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0, help="per engine")
    parser.add_argument("--day-devices", type=int, default=100_000)
    parser.add_argument("--minutes", type=int, default=4, help="of the simulated day")
    parser.add_argument("--quick", action="store_true", help="a second each, and no files")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one-day", choices=DAY_METHODS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.one_day:
        print(json.dumps(measure_day(given.one_day, given.day_devices, given.minutes)))
        return
    if given.quick:
        given.seconds = 1.0
        given.minutes = 1
    rows = measure(given.devices, given.seconds, given.profile)
    print(table(rows))
    day_rows = days(given.day_devices, given.minutes)
    print(day_table(day_rows))
    if not given.quick:
        write(rows, day_rows)


if __name__ == "__main__":
    main()
