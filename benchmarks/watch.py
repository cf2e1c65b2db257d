"""What the live page costs the study that it follows, as a ratio measured in one run.

    python benchmarks/watch.py [--blocks N]

Blocks of a run with a page open on it and blocks without take turns: with it, the run writes live.jsonl, `gossamer watch`
serves it from a process of its own, and another asks once a second, also for every device's measurements, as the page does.
Without, nothing is written, and nobody asks. What the machine does meanwhile hits both alike. Starting the watcher, which
takes a few seconds once as every command does, is not in it. On a machine whose cores are all busy, the seconds of the
processor say more than those of the clock; both are printed.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from gossamer import WPM, Random, Study
from gossamer.engines import Measure
from gossamer.engines.observer import Observer, Row
from gossamer.study import run
from gossamer.study.live import Live

EVERY, BLOCK = 5, 80  # rounds to a measurement, measurements to a block: about two seconds


class Turns(Observer):
    """Takes the place of `Live`: on in every other block, off in the others, and times them."""

    def __init__(self) -> None:
        self._live, self._on, self._count = Live(), True, 0
        self.seconds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        self._processes: list[subprocess.Popen[str]] = []

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        assert folder is not None
        self._live.started(study, folder, rows)
        words = [sys.executable, "-m", "gossamer", "watch", str(folder)]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        url = server.stdout.readline().split()[3]
        self._page = subprocess.Popen([sys.executable, __file__, "--ask", url], text=True)
        self._processes = [self._page, server]
        time.sleep(2)  # until the page, too, is there
        self._clock = time.perf_counter(), time.process_time()

    def advanced(self, round: int) -> None:
        if self._on:
            self._live.advanced(round)

    def measured(self, row: Row) -> None:
        if self._on:
            self._live.measured(row)
        self._count += 1
        if self._count % BLOCK == 0:
            now = time.perf_counter(), time.process_time()
            self.seconds[self._on].append((now[0] - self._clock[0], now[1] - self._clock[1]))
            self._on = not self._on
            self._page.send_signal(signal.SIGCONT if self._on else signal.SIGSTOP)
            self._clock = time.perf_counter(), time.process_time()

    def ended(self, summary: Mapping[str, Any]) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._live.ended(summary)


def ask(url: str) -> None:
    while True:
        for path in ("content.json", "data/0.json"):
            with urllib.request.urlopen(url + path) as answer:
                answer.read()
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=20, help="of each kind")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        ask(options.ask)
    turns = Turns()
    sys.modules["gossamer.study.run"].Live = lambda: turns  # type: ignore[attr-defined]
    rounds = 2 * options.blocks * BLOCK * EVERY
    study = Study(
        WPM(p=3),
        Random(100, density=0.05),
        rounds=rounds,
        measure=Measure(every=EVERY),
        threads=1,
    )
    with tempfile.TemporaryDirectory() as place:
        run(study, Path(place) / "run", keep_models=False)
    pairs = list(zip(turns.seconds[True], turns.seconds[False], strict=False))
    for k, name in enumerate(("clock", "processor")):
        ratios = [with_it[k] / without[k] for with_it, without in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        cost = [f"{100 * (ratio - 1):+.1f} %" for ratio in (middle, low, high)]
        print(
            f"being watched costs {cost[0]} by the {name} (median of {len(ratios)}; quartiles {cost[1]}, {cost[2]}; limit 3 %)"
        )


if __name__ == "__main__":
    main()
