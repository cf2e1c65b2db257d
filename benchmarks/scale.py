"""Time and memory against the number of devices, from 10 to 100,000: numbers, and a chart.

    python benchmarks/scale.py [--data DIR] [--most N]

D-PSGD, softmax regression, eight neighbours a device drawn anew in every round, two threads. Digits: 650 parameters, 32 samples
a device drawn with replacement, all of them in every step. MNIST: 7,850 parameters, batches of 128 of 600 such samples. Every
size runs in a process of its own. Of a round the median of several is taken, without the first.

Memory is the peak of the process, less what it has after the imports. It is compared with 2·state + gradient + data, where data
are the samples (once for all devices) and the numbers of each device's own.
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
    "| task | devices | µs a device-step | links and weights, s | start, s | memory, GB | of 2·state + gradient + data |",
    "|---|---|---|---|---|---|---|",
)


def peak() -> int:
    """Bytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def here(kind: str, devices: int, folder: str | None) -> dict[str, Any]:
    """One size, in this process."""
    import gossamer as gs

    import numpy as np  # isort: skip
    import torch  # isort: skip

    data = (gs.Digits() if kind == "digits" else gs.Mnist(Path(folder) if folder else None)).load()
    torch.ones(100, 100).mm(torch.ones(100, 100))  # libraries that the first product loads
    before = peak()
    split, batch = (gs.Drawn(32), 0) if kind == "digits" else (gs.Drawn(600), 128)
    network = gs.Random(devices, density=min(1.0, DEGREE / (devices - 1)))
    began = time.perf_counter()
    study = gs.Study(
        gs.DPSGD(0.05), network, data, split, batch=batch, threads=2, measure=gs.Measure(every=0)
    )
    plan = study.plan(data)
    simulator = gs.Simulator(plan)
    start = time.perf_counter() - began
    rounds = max(5, min(200, 100_000 // devices))
    seconds, links = [], []
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
        "seconds a round": step,
        "of that, links and weights": float(np.median(links[1:])),
        "microseconds a device-step": 1e6 * step / devices,
        "bytes beyond imports and samples": peak() - before,
        "bytes needed": needed - samples,  # the samples are there before
        "memory / needed": (peak() - before + samples) / needed,
    }


def chart(rows: list[dict[str, Any]], path: Path) -> None:
    """Both against the number of devices."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    from gossamer.results.palette import COLOURS

    matplotlib.rcParams["svg.hashsalt"] = "gossamer"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for k, (kind, name) in enumerate(
        {"digits": "digits, 650 parameters", "mnist": "MNIST, 7,850 parameters"}.items()
    ):
        own = [row for row in rows if row["task"] == kind]
        x = [row["devices"] for row in own]
        left.plot(
            x,
            [row["microseconds a device-step"] for row in own],
            "os"[k] + "-",
            color=COLOURS[k],
            label=name,
        )
        seen = [
            row for row in own if row["bytes beyond imports and samples"] > 1e6
        ]  # else less than reading the data took
        memory = [row["bytes beyond imports and samples"] / 1e9 for row in seen]
        right.plot([row["devices"] for row in seen], memory, "os"[k] + "-", color=COLOURS[k])
        needed = "2·state + gradient + lists of samples" if k == 0 else None
        right.plot(
            x, [row["bytes needed"] / 1e9 for row in own], ":", color=COLOURS[k], label=needed
        )
    for axes, label in (
        (left, "time of a device-step, µs"),
        (right, "memory beyond imports and samples, GB"),
    ):
        axes.set(xscale="log", yscale="log", xlabel="devices", ylabel=label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    right.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--data", help="the folder of MNIST's idx files (default: the cache)")
    options.add_argument(
        "--most",
        type=int,
        default=max(SIZES),
        help="devices; beyond it nothing is measured or written",
    )
    options.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(json.dumps(here(given.one[0], int(given.one[1]), given.data)))
        return
    rows, lines = [], [*HEAD]
    print("\n".join(HEAD))
    for kind, most in MOST.items():
        for devices in [size for size in SIZES if size <= min(most, given.most)]:
            words = [
                sys.executable,
                __file__,
                "--one",
                kind,
                str(devices),
                *(["--data", given.data] if given.data else []),
            ]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(
                    f"{kind}, {devices} devices: {done.stderr.strip().splitlines()[-1]}"
                )
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            lines.append(
                f"| {kind} | {devices:,} | {row['microseconds a device-step']:.1f} | {row['of that, links and weights']:.3f} "
                f"| {row['seconds to start']:.2f} | {row['bytes beyond imports and samples'] / 1e9:.2f} "
                f"| {row['memory / needed']:.2f} |"
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
