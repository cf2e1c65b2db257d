"""Time and memory by the number of devices, from 10 to 100,000: a table and a chart.

    python benchmarks/scale.py [--data DIR] [--most N]

D-PSGD, softmax regression, eight neighbours per device with new links in every round, two threads.
Digits: 650 parameters, 32 samples per device drawn with replacement, all of them in every step.
MNIST: 7,850 parameters, batches of 128 out of 600 such samples. Every size runs in a process of its
own. The time of a round is the median of several, without the first.

Memory is the peak of the process less what it has after the imports. It is compared with
2·state + gradient + data, where data are the samples (once for all devices) and the sample numbers
of each device.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "results"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "scale.svg"
SIZES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
MOST = {"digits": 100_000, "mnist": 10_000}
DEGREE = 8
HEAD = (
    "| task | devices | µs per device-step | links and weights, s | start, s | memory, GB "
    "| of 2·state + gradient + data |",
    "|---|---|---|---|---|---|---|",
)


def peak() -> int:
    """Return the peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(kind: str, devices: int, folder: str | None) -> dict[str, Any]:
    """Measure one number of devices in this process.

    Args:
        kind: "digits" or "mnist".
        devices: Number of devices.
        folder: The folder of MNIST's files; None for the cache.

    Returns:
        A row of the table.
    """
    import own_process  # noqa: F401  # isort: skip

    import numpy as np
    import torch

    import gossamer as gs

    if kind == "digits":
        data = gs.Digits().load()
        split = gs.Drawn(32)
        batch = 0
    else:
        data = gs.Mnist(Path(folder) if folder else None).load()
        split = gs.Drawn(600)
        batch = 128
    torch.ones(100, 100).mm(torch.ones(100, 100))  # loads the libraries of matrix products
    before = peak()
    network = gs.Random(devices, density=min(1.0, DEGREE / (devices - 1)))
    began = time.perf_counter()
    study = gs.Study(
        gs.DPSGD(0.05), network, data, split, batch=batch, threads=2, measure=gs.Measure(every=0)
    )
    plan = study.plan(data)
    simulator = gs.Simulator(plan)
    start = time.perf_counter() - began
    rounds = max(5, min(200, 100_000 // devices))
    seconds = []
    links = []
    for t in range(rounds):
        began = time.perf_counter()
        plan.algorithm.weights(network.links(t), t, 0)
        links.append(time.perf_counter() - began)
        began = time.perf_counter()
        simulator.advance(t + 1)
        seconds.append(time.perf_counter() - began)
    w = simulator.models()
    samples = sum(x.nbytes for x in (data.x, data.x_test, data.y, data.y_test))
    needed = 3 * w.nbytes + samples + plan.task.split.index.nbytes
    step = float(np.median(seconds[1:]))
    return {
        "task": kind,
        "devices": devices,
        "parameters": w.shape[1],
        "seconds to start": start,
        "seconds per round": step,
        "of that, links and weights": float(np.median(links[1:])),
        "microseconds per device-step": 1e6 * step / devices,
        "bytes beyond imports and samples": peak() - before,
        "bytes needed": needed - samples,  # the samples are loaded before
        "memory / needed": (peak() - before + samples) / needed,
    }


def chart(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw time and memory by the number of devices.

    Args:
        rows: The rows of the table.
        path: The SVG file.
    """
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    from gossamer.results.palette import COLOURS

    matplotlib.rcParams["svg.hashsalt"] = "gossamer"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    names = {"digits": "digits, 650 parameters", "mnist": "MNIST, 7,850 parameters"}
    for k, (kind, name) in enumerate(names.items()):
        rows_of_kind = [row for row in rows if row["task"] == kind]
        devices = [row["devices"] for row in rows_of_kind]
        times = [row["microseconds per device-step"] for row in rows_of_kind]
        left.plot(devices, times, "os"[k] + "-", color=COLOURS[k], label=name)
        # Smaller amounts are less than what loading the data took.
        shown = [row for row in rows_of_kind if row["bytes beyond imports and samples"] > 1e6]
        memory = [row["bytes beyond imports and samples"] / 1e9 for row in shown]
        right.plot([row["devices"] for row in shown], memory, "os"[k] + "-", color=COLOURS[k])
        label = "2·state + gradient + lists of samples" if k == 0 else None
        needed = [row["bytes needed"] / 1e9 for row in rows_of_kind]
        right.plot(devices, needed, ":", color=COLOURS[k], label=label)
    left.set_ylabel("time of a device-step, µs")
    right.set_ylabel("memory beyond imports and samples, GB")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="devices")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    right.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure every size, and write the table and the chart."""
    options = argparse.ArgumentParser()
    options.add_argument("--data", help="the folder of MNIST's idx files (default: the cache)")
    options.add_argument(
        "--most",
        type=int,
        default=max(SIZES),
        help="largest number of devices; with less than the default, no file is written",
    )
    options.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]), given.data)))
        return
    rows = []
    lines = [*HEAD]
    print("\n".join(HEAD))
    for kind, most in MOST.items():
        for devices in [size for size in SIZES if size <= min(most, given.most)]:
            command = [sys.executable, __file__, "--one", kind, str(devices)]
            if given.data:
                command += ["--data", given.data]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = done.stderr.strip().splitlines()[-1]
                raise SystemExit(f"{kind}, {devices} devices: {reason}")
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            gigabytes = row["bytes beyond imports and samples"] / 1e9
            lines.append(
                f"| {kind} | {devices:,} | {row['microseconds per device-step']:.1f} "
                f"| {row['of that, links and weights']:.3f} | {row['seconds to start']:.2f} "
                f"| {gigabytes:.2f} | {row['memory / needed']:.2f} |"
            )
            print(lines[-1], flush=True)
    if given.most == max(SIZES):
        (OUT / "scale.json").write_text(
            json.dumps({"rows": rows, "machine": platform.machine()}, indent=2) + "\n"
        )
        (OUT / "scale.md").write_text("\n".join(lines) + "\n")
        chart(rows, PICTURE)


if __name__ == "__main__":
    main()
