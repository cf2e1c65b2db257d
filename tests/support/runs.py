"""Small runs for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.results.run import Run
from gossamer.results.tables import Comparison, Method
from support.command import gossamer

# A study of all that a run folder can hold: faults, targets that are and are not reached.
SPEC = """
rounds = 20
batch = 8
[split]
kind = "one-label"
[network]
kind = "random"
devices = 10
density = 0.2
[[network.faults]]
kind = "churn"
leave = 0.1
come_back = 0.5
[measure]
every = 8
targets = ["accuracy >= 0.3", "accuracy >= 1", "loss <= 100"]
[algorithm]
kind = "wpm"
p = 15
eta = 0.05
"""


def run_spec(*options: object) -> None:
    """Run the spec a.toml of the working directory by the command, without messages."""
    done = gossamer("run", "a.toml", "-q", *options)
    assert (done.code, done.err) == (0, "")


def compare_two_methods(out: Path) -> None:
    """Run two methods on three seeds, with simulated seconds."""
    study = gs.Study(
        gs.DPSGD(eta=0.1),
        gs.Ring(5),
        rounds=12,
        measure=gs.Measure(every=4),
        timing=gs.Timing(0.1, rate=1e6),
    )
    gs.compare([study, replace(study, algorithm=gs.SwarmSGD(eta=0.1))], seeds=3, out=out)


def read_comparison(out: Path) -> Comparison:
    """Read what `compare_two_methods` has written."""
    runs = [Run.read(path) for path in sorted(out.glob("*-seed*"))]
    first = Method(runs[0].label, tuple(runs[:3]))
    second = Method(runs[3].label, tuple(runs[3:]))
    return Comparison([first, second])
