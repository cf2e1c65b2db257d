"""Cost of the live page to the run that it follows, as a ratio measured in one run.

    python benchmarks/watch.py [--blocks N]

Blocks of a run with an open page alternate with blocks without. With the page, the run writes
live.jsonl, `gossamer watch` serves it from another process, and a third process requests it once
per second, including the measurements of every device, as the page does. Without the page, nothing
is written or requested. Other load on the machine affects both alike. The start of `gossamer
watch`, a few seconds, is not measured. If all cores are busy, processor time is more reliable than
elapsed time; both are printed.
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

EVERY = 5  # rounds per measurement
BLOCK = 80  # measurements per block: about two seconds


class AlternatingLive(Observer):
    """Replaces `Live`: active in every other block; measures the time of all blocks."""

    def __init__(self) -> None:
        self._live = Live()
        self._on = True
        self._count = 0
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
        time.sleep(2)  # until the page is open too
        self._clock = time.perf_counter(), time.process_time()

    def advanced(self, round: int) -> None:
        if self._on:
            self._live.advanced(round)

    def measured(self, row: Row) -> None:
        if self._on:
            self._live.measured(row)
        self._count += 1
        if self._count % BLOCK == 0:
            elapsed = time.perf_counter() - self._clock[0]
            processor = time.process_time() - self._clock[1]
            self.seconds[self._on].append((elapsed, processor))
            self._on = not self._on
            self._page.send_signal(signal.SIGCONT if self._on else signal.SIGSTOP)
            self._clock = time.perf_counter(), time.process_time()

    def ended(self, summary: Mapping[str, Any]) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._live.ended(summary)


def request_repeatedly(url: str) -> None:
    """Request what the page requests, once per second, until the process is killed."""
    while True:
        for path in ("content.json", "data/0.json"):
            with urllib.request.urlopen(url + path) as answer:
                answer.read()
        time.sleep(1)


def main() -> None:
    """Run the benchmark and print the costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=20, help="number of blocks of each kind")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        request_repeatedly(options.ask)
    alternating = AlternatingLive()
    sys.modules["gossamer.study.run"].Live = lambda: alternating  # type: ignore[attr-defined]
    rounds = 2 * options.blocks * BLOCK * EVERY
    study = Study(
        WPM(p=3),
        Random(100, density=0.05),
        rounds=rounds,
        measure=Measure(every=EVERY),
        threads=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        run(study, Path(folder) / "run", keep_models=False)
    pairs = list(zip(alternating.seconds[True], alternating.seconds[False], strict=False))
    for k, name in enumerate(("elapsed time", "processor time")):
        ratios = [with_page[k] / without[k] for with_page, without in pairs]
        low, median, high = (100 * (ratio - 1) for ratio in statistics.quantiles(ratios, n=4))
        print(
            f"the live page costs {median:+.1f} % of {name} (median of {len(ratios)}; "
            f"quartiles {low:+.1f} %, {high:+.1f} %; limit 3 %)"
        )


if __name__ == "__main__":
    main()
