"""What the live page costs the study that it follows: its seconds with a page open on it, against those without.

    python benchmarks/watch.py [--blocks N]

Both take turns, many times over. With it: the run writes live.jsonl, `gossamer watch` serves, and a page asks once a second,
also for the measurements of every device. Without: nothing is written, and nobody asks. On a machine whose cores are all
busy otherwise, the seconds of the processor say more than those of the clock; both are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def study() -> object:
    """About ten seconds of 100 devices, measured every fifth round: more to tell than most studies have."""
    from gossamer import WPM, Random, Study
    from gossamer.engines import Measure

    return Study(WPM.robust(p=3), Random(100, density=0.05), rounds=1500, measure=Measure(every=5), threads=1)


def seconds(folder: Path, watched: bool) -> tuple[float, float]:
    """Of the clock and of this process, for one run."""
    from gossamer.study import run
    from gossamer.study.track import Callback

    module = sys.modules["gossamer.study.run"]
    own = module.Live
    over = threading.Event()
    reader = threading.Thread(target=read_along, args=(folder, over))
    if watched:
        reader.start()
    else:
        module.Live = type("Nobody", (Callback,), {})
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        run(study(), folder, keep_models=False)
    finally:
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        module.Live = own
        over.set()
        if watched:
            reader.join()
    return wall, cpu


def read_along(folder: Path, over: threading.Event) -> None:
    """Serve the folder from a process of its own, and ask it once a second from another, as a page does."""
    while not (folder / "spec.toml").exists() and not over.wait(0.01):
        pass
    with subprocess.Popen(
        [sys.executable, "-m", "gossamer", "watch", str(folder)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[3]
        with subprocess.Popen([sys.executable, __file__, "--ask", url]) as page:
            over.wait()
            page.terminate()
        server.terminate()


def ask(url: str) -> None:
    while True:
        for path in ("content.json", "data/0.json"):
            with urllib.request.urlopen(url + path) as answer:
                answer.read()
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        ask(options.ask)
    ratios = []
    with tempfile.TemporaryDirectory() as place:
        seconds(Path(place) / "warm", watched=False)
        for k in range(options.blocks):
            order = (True, False) if k % 2 else (False, True)
            took = {watched: seconds(Path(place) / f"{k}-{watched}", watched) for watched in order}
            ratios.append([took[True][i] / took[False][i] for i in (0, 1)])
            print(f"{took[False][0]:.2f} s alone, {took[True][0]:.2f} s watched", flush=True)
    for name, values in zip(("clock", "processor"), zip(*ratios, strict=True), strict=True):
        cost = 100 * (statistics.median(values) - 1)
        print(f"watched costs {cost:+.1f} % by the {name} (median of {len(values)}; limit 3)")


if __name__ == "__main__":
    main()
