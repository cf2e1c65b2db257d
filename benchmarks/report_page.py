"""Size and opening time of a large report page: 20 runs × 500 rounds × 100 devices.

    python benchmarks/report_page.py [--keep report.html]

The runs are synthetic, with every round measured and with noise, so that they do not compress
better than real measurements. Opening is timed in a real browser, from the first byte to the page
with all tables, curves, the network and the small charts of 100 devices.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

METHODS = 4
SEEDS = 5
ROUNDS = 500
DEVICES = 100


def made_up(
    folder: Path,
    methods: int = METHODS,
    seeds: int = SEEDS,
    rounds: int = ROUNDS,
    devices: int = DEVICES,
) -> Path:
    """Write synthetic runs, measured every round.

    Args:
        folder: The folder to write to.
        methods: Number of methods.
        seeds: Number of seeds per method.
        rounds: Number of rounds.
        devices: Number of devices.

    Returns:
        The folder.
    """
    from gossamer import WPM, Random, Study
    from gossamer.engines import Measure, Record
    from gossamer.results.folder import RunFolder, columns
    from gossamer.results.statistics import summarise
    from gossamer.study import spec

    rng = np.random.default_rng(0)
    for method in range(methods):
        for seed in range(seeds):
            study = Study(
                WPM(p=2 * method + 1),
                Random(devices, density=0.2),
                rounds=rounds,
                seed=seed,
                measure=Measure(every=1),
            )
            run = RunFolder(folder / f"method{method}-seed{seed}")
            run.create(spec.dumps(study))
            rate = 40 + 10 * method
            spread = rng.normal(0, 0.02, devices)
            records = []
            for t in range(rounds + 1):
                done = 1 - np.exp(-t / rate)
                noise = rng.normal(0, 0.004, (3, devices))
                accuracy = np.round((0.1 + 0.8 * done + (spread + noise[0]) * done) * 3000) / 3000
                loss = 2.3 - 2.0 * done - spread + noise[1]
                distance = np.abs(0.5 * np.exp(-t / 200) * done + noise[2])
                sent = 990 * t
                values = {"accuracy": accuracy}
                size = 31_400 * sent
                records.append(Record(t, loss, values, distance, distance, sent, size))
            table = columns(records, Measure(metrics=("accuracy",)).columns)
            run.write_metrics(table, study.algorithm.label, seed)
            facts = {
                "name": "made up",
                "method": study.algorithm.label,
                "seed": seed,
                "finished": True,
                "rounds": rounds,
            }
            run.write_summary(
                facts
                | summarise(table, ("accuracy >= 0.8", "accuracy >= 0.9"))
                | {"seconds": 60.0, "command": "made up"}
            )
    return folder


def opening(report: Path, times: int = 5) -> list[float]:
    """Return the seconds until the page is complete, in a browser that has just started.

    Args:
        report: The page.
        times: Number of measurements.
    """
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from support.browser import chromium

    seconds = []
    with chromium() as browser:
        for _ in range(times):
            page = browser.new_page()
            began = time.perf_counter()
            page.goto(report.as_uri(), wait_until="commit")
            page.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
            # Wait until it is painted.
            page.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
            )
            seconds.append(time.perf_counter() - began)
            page.close()
    return seconds


def main() -> None:
    """Run the benchmark and print size and times."""
    from gossamer.report.page import page

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="keep the report here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = made_up(Path(folder) / "runs")
        out = options.keep or Path(folder) / "report.html"
        began = time.perf_counter()
        page([runs], out)
        size = out.stat().st_size / 1e6
        runs_text = f"{METHODS * SEEDS} runs × {ROUNDS} rounds × {DEVICES} devices"
        print(f"{runs_text}: {size:.1f} MB (limit 15)")
        print(f"written in {time.perf_counter() - began:.1f} s")
        seconds = opening(out)
        median = statistics.median(seconds)
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        print(f"opens in {median:.2f} s (median of {len(seconds)}; {spread}; limit 3)")


if __name__ == "__main__":
    main()
