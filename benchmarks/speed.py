"""Speed, as ratios measured in one run: ours against the bare yardstick, any module against it, any p against p = 1.

    python benchmarks/speed.py [--data DIR] [--quick] [--json FILE]

Every ratio is taken between things that ran in turn, a short block each, many times over, in this one process: what the
machine does meanwhile hits both alike. The number is the median over the blocks, with the 10 % and 90 % points beside it.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gossamer as gs  # first: it sets how waiting threads wait

import numpy as np  # isort: skip
import torch  # isort: skip
from torch import nn  # isort: skip

from gossamer.study import Study  # isort: skip
from yardstick import BATCH, DEGREE, RATE, yardstick  # isort: skip

Advance = Callable[[], None]


def ours(data: gs.Data, m: int, algorithm: gs.Algorithm, threads: int, model: object = None) -> Advance:
    """A function that runs one round of ours: the yardstick's job."""
    network = gs.ErdosRenyi(m, probability=min(1.0, DEGREE / (m - 1)))
    study = Study(algorithm, network, data, model=model or gs.Softmax(), batch=BATCH, threads=threads)
    simulator = gs.Simulator(study.plan(data))
    return lambda: simulator.advance(simulator.round + 1)


def in_turn(runs: dict[str, Advance], threads: int, blocks: int, rounds: int) -> dict[str, np.ndarray]:
    """Seconds a round of each, block by block, in turn."""
    torch.set_num_threads(threads)
    for run in runs.values():
        for _ in range(3):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(blocks):
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(rounds):
                run()
            seconds[name].append((time.perf_counter() - start) / rounds)
    return {name: np.array(values) for name, values in seconds.items()}


def ratio(above: np.ndarray, below: np.ndarray) -> dict[str, float]:
    low, middle, high = np.quantile(above / below, [0.1, 0.5, 0.9])
    return {"ratio": float(middle), "low": float(low), "high": float(high)}


def linear_module() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def measure(data: gs.Data, blocks: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    x = torch.cat([data.x.reshape(len(data.x), -1), torch.ones(len(data.x), 1)], 1)
    for m in (10, 100):
        rounds = max(2, 400 // m)
        for threads in (1, 2):
            dpsgd = gs.DPSGD(RATE)
            times = in_turn(
                {
                    "yardstick": yardstick(x, data.y, m),
                    "ours": ours(data, m, dpsgd, threads),
                    "module": ours(data, m, dpsgd, threads, gs.Module(linear_module)),
                },
                threads,
                blocks,
                rounds,
            )
            for name, wanted in (("ours", 0.8), ("module", 0.45)):
                row = {"what": f"{name} / yardstick, steps a second", "devices": m, "threads": threads, "at_least": wanted}
                speed = m / np.median(times[name])
                rows.append(row | ratio(times["yardstick"], times[name]) | {"device_steps_per_s": float(speed)})
        for at in ("aggregate", "local"):
            times = in_turn(
                {
                    "p = 1": ours(data, m, gs.WPM(1, RATE, gradient_at=at), 1),
                    "p = 15 constant": ours(data, m, gs.WPM(15, RATE, gs.Constant(), at), 1),
                    "p = 101 constant": ours(data, m, gs.WPM(101, RATE, gs.Constant(), at), 1),
                    "p = 15 matched": ours(data, m, gs.WPM(15, RATE, gs.Matched(), at), 1),
                    "p = 101 matched": ours(data, m, gs.WPM(101, RATE, gs.Matched(), at), 1),
                    "p = 15 robust": ours(data, m, gs.WPM.robust(15, RATE, gradient_at=at), 1),
                },
                1,
                blocks,
                rounds,
            )
            for name in list(times)[1:]:
                limit = {"constant": 1.15, "matched": 1.5}.get(name.split()[-1])
                row = {"what": f"{name} / p = 1, time ({at})", "devices": m, "threads": 1, "at_most": limit}
                rows.append(row | ratio(times[name], times["p = 1"]))
    return rows


def scale(devices: int = 10_000, rounds: int = 20) -> dict[str, object]:
    """The memory of very many devices, in a process of its own."""
    out = subprocess.run([sys.executable, __file__, "--scale", str(devices), str(rounds)], capture_output=True, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def scale_here(devices: int, rounds: int) -> None:
    network = gs.Random(devices, density=8 / (devices - 1))
    study = Study(gs.DPSGD(0.05), network, split=gs.Drawn(32), rounds=rounds, measure=gs.Measure(every=0))
    start = time.perf_counter()
    run = gs.run(study)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = {"what": f"{devices:,} devices, digits, {rounds} rounds: peak GiB", "devices": devices, "threads": 0, "at_most": 4.0}
    print(json.dumps(row | {"ratio": peak, "low": peak, "high": peak, "seconds": seconds, "accuracy": run.summary["accuracy"]}))


def show(rows: list[dict[str, object]]) -> None:
    print(f"{'what':<44} {'devices':>8} {'threads':>8} {'ratio':>7}   10–90 %      asked")
    for row in rows:
        asked = f">= {row['at_least']}" if row.get("at_least") else f"<= {row['at_most']}" if row.get("at_most") else ""
        span = f"{row['low']:.2f}–{row['high']:.2f}"
        print(f"{row['what']:<44} {row['devices']:>8} {row['threads']:>8} {row['ratio']:>7.2f}   {span:<12} {asked}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed as ratios in one run.")
    parser.add_argument("--data", type=Path, help="the folder of MNIST's idx files (default: the cache)")
    parser.add_argument("--quick", action="store_true", help="fewer blocks")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    parser.add_argument("--scale", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.scale:
        scale_here(*given.scale)
        return
    rows = [*measure(gs.Mnist(given.data).load(), 8 if given.quick else 30), scale()]
    show(rows)
    if given.json:
        from gossamer.study.run import versions

        given.json.write_text(json.dumps({"versions": versions(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
