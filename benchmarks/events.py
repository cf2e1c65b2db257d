"""Device-steps per second of the events engine, as ratios to the simulator and to a naive loop.

python benchmarks/events.py [--devices 1000] [--seconds 10] [--day]

All are measured in turn in one run, on digits with softmax regression and 32 samples per step, over
a random network with about eight neighbours that is redrawn in every round. The naive loop computes
one event after the other, which it finds in plain Python. Seconds are those of the processor, in
one thread, so that a busy machine changes the ratios little. Prints a table; with --profile, where
the time of the engine goes. With --day: how long a simulated day of a mobility model takes,
estimated from a few of its minutes.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import pstats
import resource
import time
from collections.abc import Callable

import torch

import gossamer as gs
from gossamer.engines import Engine, Plan, Simulator
from gossamer.engines.events import start_events

_NEIGHBOURS = 8
_TURNS = 10
_MINUTES = 4


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


def estimate_day(devices: int) -> None:
    """Print how long a simulated day takes: links of a minute, steps of half a minute to two."""
    radius = math.sqrt(_NEIGHBOURS / (math.pi * devices))
    network = gs.Mobility(devices, radius=radius, seconds_per_round=60.0)
    timing = gs.Timing(compute=gs.LogUniform(30.0, 120.0), rate=1e5, latency=0.05)
    for algorithm in (gs.DPSGD(0.1), gs.ADPSGD(0.1)):
        made = gs.Study(algorithm, network, split=gs.Drawn(), timing=timing, threads=1)
        engine = start_events(made.plan(), seconds_per_round=60.0)
        engine.advance(1)  # to warm up
        before = engine._timeline.total_steps
        begin = time.process_time()
        engine.advance(1 + _MINUTES)
        seconds = (time.process_time() - begin) / _MINUTES
        steps = (engine._timeline.total_steps - before) / _MINUTES
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{algorithm.label}, {devices:,} devices: {seconds:.2f} s of a processor and "
            f"{steps:,.0f} steps per simulated minute, {seconds * 24 * 60 / 60:.0f} min per day, "
            f"{peak:.2f} GiB at most so far"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0, help="per engine")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--day", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.day:
        estimate_day(given.devices)
        return
    gossip = study(gs.DPSGD(0.1), given.devices).plan()
    background = study(gs.ADPSGD(0.1), given.devices).plan()
    rounds = Simulator(gossip)
    measured = {"simulator, D-PSGD": Measured(rounds, lambda: rounds.round * given.devices)}
    for name, plan in (("D-PSGD in pairs", gossip), ("AD-PSGD", background)):
        measured[name] = events_engine(plan, batched=True)
        measured[f"{name}, naive loop"] = events_engine(plan, batched=False)
    for _ in range(_TURNS):
        for one in measured.values():
            one.run(given.seconds / _TURNS)
    print(f"{given.devices} devices        device-steps/s   of the simulator   of its naive loop")
    for name, one in measured.items():
        of_simulator = one.speed / measured["simulator, D-PSGD"].speed
        naive = measured.get(f"{name}, naive loop")
        of_naive = "" if naive is None else f"{one.speed / naive.speed:.1f}"
        print(f"{name:26} {one.speed:10.0f} {of_simulator:16.2f} {of_naive:>16}")
    if given.profile:
        for name in ("D-PSGD in pairs", "AD-PSGD"):
            profile = cProfile.Profile()
            profile.runcall(measured[name].run, given.seconds)
            pstats.Stats(profile).sort_stats("tottime").print_stats(18)


if __name__ == "__main__":
    main()
