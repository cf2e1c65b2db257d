"""Speed as ratios measured in one run.

    python benchmarks/speed.py [--data DIR] [--quick]
    GOSSAMER_BACKEND=avx2 python benchmarks/speed.py     # as without AVX-512, torch too

The results are written to benchmarks/results/speed-PROCESSOR-INSTRUCTIONS.json and .md, and
`python docs/blocks.py docs/speed.md` shows every such file on the speed page; --quick writes
nothing.

gossamer and any module against the yardstick, any p against p = 1, modules against a plain loop,
evaluation against one matrix product, mixing against the speed of memory.

What a ratio compares alternates in short blocks, many times, in this one process, so that other
load on the machine affects both alike. A ratio is the median over the blocks, with the 10 % and 90
% quantiles.
"""

import own_process  # noqa: F401  # isort: skip

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from result_names import file_name, title
from torch import nn
from yardstick import BATCH, DEGREE, RATE, yardstick

import gossamer as gs
from gossamer.backend import versions
from gossamer.study import Study
from gossamer.tasks.linear import own_is_first, split_outputs

Advance = Callable[[], None]

RESULTS = Path(__file__).with_name("results")


def ours(
    data: gs.Data, m: int, algorithm: gs.Algorithm, threads: int, model: object = None
) -> Advance:
    """Return a function that runs one round of the yardstick's task with gossamer."""
    network = gs.ErdosRenyi(m, probability=min(1.0, DEGREE / (m - 1)))
    study = Study(
        algorithm, network, data, model=model or gs.Softmax(), batch=BATCH, threads=threads
    )
    simulator = gs.Simulator(study.plan(data))
    return lambda: simulator.advance(simulator.round + 1)


def in_turn(
    runs: dict[str, Advance], threads: int, blocks: int, rounds: int
) -> dict[str, np.ndarray]:
    """Return the seconds per round of each function, by block.

    Args:
        runs: The functions, which alternate.
        threads: Number of threads of torch.
        blocks: Number of blocks of each function.
        rounds: Calls per block.
    """
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
    """Return the median and the 10 % and 90 % quantiles of a ratio by block."""
    low, median, high = np.quantile(above / below, [0.1, 0.5, 0.9])
    return {"ratio": float(median), "low": float(low), "high": float(high)}


def linear_module() -> nn.Module:
    """Return softmax regression as a module that gossamer recognises."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


class Own(nn.Module):
    """Softmax regression as a module that gossamer does not recognise."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(784, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1))


def measure(data: gs.Data, blocks: int) -> list[dict[str, object]]:
    """Measure gossamer against the yardstick, and any p against p = 1."""
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
                    "nn.Sequential": ours(data, m, dpsgd, threads, gs.Module(linear_module)),
                    "a user-defined module": ours(data, m, dpsgd, threads, gs.Module(Own)),
                },
                threads,
                blocks,
                rounds,
            )
            for name, wanted in (
                ("ours", 1.0),
                ("nn.Sequential", 0.6),
                ("a user-defined module", 0.6),
            ):
                row = {
                    "what": f"{name} / yardstick, steps per second",
                    "devices": m,
                    "threads": threads,
                    "at_least": wanted,
                }
                speed = m / np.median(times[name])
                rows.append(
                    row
                    | ratio(times["yardstick"], times[name])
                    | {"device_steps_per_s": float(speed)}
                )
        for at in ("aggregate", "local"):
            times = in_turn(
                {
                    "p = 1": ours(data, m, gs.WPM(1, RATE, gradient_at=at, anchor=False), 1),
                    "p = 15 constant": ours(
                        data, m, gs.WPM(15, RATE, gs.Constant(), at, anchor=False), 1
                    ),
                    "p = 101 constant": ours(
                        data, m, gs.WPM(101, RATE, gs.Constant(), at, anchor=False), 1
                    ),
                    "p = 15 matched": ours(
                        data, m, gs.WPM(15, RATE, gs.Matched(), at, anchor=False), 1
                    ),
                    "p = 101 matched": ours(
                        data, m, gs.WPM(101, RATE, gs.Matched(), at, anchor=False), 1
                    ),
                    "p = 15 robust": ours(data, m, gs.WPM(15, RATE, gradient_at=at), 1),
                },
                1,
                blocks,
                rounds,
            )
            for name in list(times)[1:]:
                limit = {"constant": 1.10, "matched": 1.3}.get(name.split()[-1])
                row = {
                    "what": f"{name} / p = 1, time ({at})",
                    "devices": m,
                    "threads": 1,
                    "at_most": limit,
                }
                rows.append(row | ratio(times[name], times["p = 1"]))
    return rows


def plain_loop(data: gs.Data, make: Callable[[], nn.Module], m: int, batch: int) -> Advance:
    """Return a function that runs a round with a module and an optimiser per device, on a ring."""
    modules = [make() for _ in range(m)]
    optimisers = [torch.optim.SGD(module.parameters(), RATE) for module in modules]
    loss = nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        with torch.no_grad():
            before = [[p.clone() for p in module.parameters()] for module in modules]
            for i, module in enumerate(modules):
                neighbourhood = (before[i - 1], before[i], before[(i + 1) % m])
                for p, *values in zip(module.parameters(), *neighbourhood, strict=True):
                    p.copy_(sum(values) / 3)
        for module, optimiser in zip(modules, optimisers, strict=True):
            pick = torch.randint(len(data.x), (batch,), generator=generator)
            optimiser.zero_grad()
            loss(module(data.x[pick]), data.y[pick]).backward()
            optimiser.step()

    return step


def modules(data: gs.Data, blocks: int) -> list[dict[str, object]]:
    """Measure a perceptron and a small convolutional network on CIFAR-10 against a plain loop."""
    rows: list[dict[str, object]] = []
    made = {
        "mlp": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(3072, 64), nn.ReLU(), nn.Linear(64, 10)
        ),
        "cnn": lambda: nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(2048, 10)),
        ),
    }
    for name, make in made.items():
        for threads in (1, 2):
            study = Study(
                gs.DPSGD(RATE), gs.Ring(32), data, model=gs.Module(make), batch=32, threads=threads
            )
            simulator = gs.Simulator(study.plan(data))
            turns = {
                "loop": plain_loop(data, make, 32, 32),
                "ours": lambda s=simulator: s.advance(s.round + 1),
            }
            times = in_turn(turns, threads, max(3, blocks // 5), 2)
            row = {
                "what": f"{name} on CIFAR-10 / a plain loop, steps per second",
                "devices": 32,
                "threads": threads,
                "at_least": 2,
            }
            rows.append(row | ratio(times["loop"], times["ours"]))
    return rows


def evaluation(data: gs.Data, blocks: int) -> list[dict[str, object]]:
    """Measure 100 models on 10,000 images against one matrix product, and the cost to a run."""
    rows: list[dict[str, object]] = []
    learner = gs.Softmax().learner(data)
    x = learner.features(data.x_test)
    y = data.y_test
    w = torch.randn(100, learner.parameters) * 0.05
    weight = w.view(1000, 785)[:, :-1].contiguous()
    outputs = torch.empty(1000, len(x))

    def accuracy() -> None:  # what `scores` does, without the loss
        for part, out in zip(weight.split(150), outputs.split(150), strict=True):
            of_class = torch.mm(part, x.T, out=out).view(-1, 10, len(x))
            labels = y.expand(len(of_class), -1)
            own_is_first(*split_outputs(of_class, labels), labels).float().mean(1)

    for threads in (1, 2):
        turns = {
            "product": lambda: torch.mm(weight, x.T, out=outputs),
            "accuracy": accuracy,
            "scores": lambda: learner.scores(w, x, y, {}, (gs.Accuracy(),)),
        }
        times = in_turn(turns, threads, max(5, blocks // 2), 1)
        for name, what, limit in (
            ("accuracy", "accuracy alone", 1.5),
            ("scores", "accuracy and loss", 2.5),
        ):
            row = {
                "what": f"{what} / one product, time",
                "devices": 100,
                "threads": threads,
                "at_most": limit,
            }
            rows.append(row | ratio(times[name], times["product"]))
    network = gs.ErdosRenyi(100, probability=DEGREE / 99)
    study = Study(
        gs.DPSGD(RATE),
        network,
        data,
        batch=BATCH,
        rounds=300,
        measure=gs.Measure(every=50, test=1000),
    )
    shares = []
    for _ in range(3):
        summary = gs.run(study, data=data).summary
        shares.append(summary["seconds_measuring"] / summary["seconds"])
    row = {
        "what": "measuring 1,000 images every 50 rounds / the run",
        "devices": 100,
        "threads": 0,
        "at_most": 0.15,
    }
    return [*rows, row | ratio(np.array(shares), np.ones(3))]


def mixing(blocks: int) -> list[dict[str, object]]:
    """Measure mixing with eight neighbours against a copy of as many bytes as it moves."""
    from gossamer.engines.mixing import StackedMix, Traffic

    rows: list[dict[str, object]] = []
    for devices, columns in ((1_000, 7_850), (10_000, 650), (100_000, 650)):
        links = gs.Random(devices, density=8 / (devices - 1)).links(0)
        mix = StackedMix(gs.Metropolis()(links, 0, 0), torch.arange(devices), 4, Traffic())
        x = torch.rand(devices, columns)
        other = torch.empty(devices, columns)
        for threads in (1, 2):
            turns = {
                "copy": lambda x=x, other=other: other.copy_(x),
                "mix": lambda mix=mix, x=x: mix(x),
            }
            times = in_turn(turns, threads, max(5, blocks // 2), 2)
            # Rows that mixing reads and writes, relative to those of a copy.
            moved = (2 * len(links) + devices + devices) / (2 * devices)
            row = {
                "what": f"mixing {columns:,} columns / what memory allows",
                "devices": devices,
                "threads": threads,
            }
            rows.append(row | {"at_most": 1.5} | ratio(times["mix"], times["copy"] * moved))
    return rows


def start_up() -> dict[str, object]:
    """Measure a command of one round, from its start to its end, beside an import of torch."""
    seconds: dict[str, list[float]] = {"run": [], "import": []}
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            run = [sys.executable, "-m", "gossamer", "run", "-q"]
            run += ["--set", "rounds=1", "--out", f"{folder}/run"]
            for name, command in (
                ("import", [sys.executable, "-c", "import torch"]),
                ("run", run),
            ):
                began = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                seconds[name].append(time.perf_counter() - began)
    row = {
        "what": "gossamer run with one round / import of torch",
        "devices": 10,
        "threads": 0,
        "at_most": 1.7,
    }
    return row | ratio(np.array(seconds["run"]), np.array(seconds["import"]))


def limit(row: dict[str, object]) -> str:
    """Return the limit of a ratio in words."""
    if row.get("at_least"):
        return f"≥ {row['at_least']:g}"
    if row.get("at_most"):
        return f"≤ {row['at_most']:g}"
    return "–"


def show(rows: list[dict[str, object]]) -> None:
    """Print the ratios."""
    print(f"{'what':<52} {'devices':>8} {'threads':>8} {'ratio':>7}   10–90 %      limit")
    for row in rows:
        span = f"{row['low']:.2f}–{row['high']:.2f}"
        print(
            f"{row['what']:<52} {row['devices']:>8} {row['threads']:>8} {row['ratio']:>7.2f}   "
            f"{span:<12} {limit(row)}"
        )


def write(rows: list[dict[str, object]]) -> None:
    """Write the ratios as JSON and as a section of the speed page."""
    made_by = versions()
    processor = made_by["processor"]
    heading = (
        f"#### {title(processor)}\n\ngossamer {made_by['gossamer']}, torch {made_by['torch']}.\n\n"
    )
    path = RESULTS / f"{file_name('speed', processor)}.json"
    path.write_text(json.dumps({"versions": made_by, "rows": rows}, indent=2) + "\n")
    path.with_suffix(".md").write_text(heading + table(rows))
    print(f"written: {path}")


def table(rows: list[dict[str, object]]) -> str:
    """Return the ratios as Markdown; those that miss their limit are in bold."""
    lines = ["| what | devices | threads | ratio | 10–90 % | limit |", "|---|---|---|---|---|---|"]
    for row in rows:
        least = row.get("at_least")
        most = row.get("at_most")
        found = row["ratio"]
        is_missed = (least and found < least) or (most and found > most)
        cell = f"**{found:.2f}**" if is_missed else f"{found:.2f}"
        span = f"{row['low']:.2f}–{row['high']:.2f}"
        lines.append(
            f"| {row['what']} | {row['devices']:,} | {row['threads'] or '–'} | {cell} | {span} "
            f"| {limit(row)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all ratios, print them, and write them if asked."""
    parser = argparse.ArgumentParser(description="Speed as ratios in one run.")
    parser.add_argument(
        "--data", type=Path, help="the folder of MNIST's idx files (default: the cache)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer blocks, and no files")
    given = parser.parse_args()
    blocks = 8 if given.quick else 30
    data = gs.Mnist(given.data).load()
    rows = [start_up()]
    rows += measure(data, blocks)
    rows += evaluation(data, blocks)
    rows += mixing(blocks)
    rows += modules(gs.Cifar10().load(), blocks)
    show(rows)
    if not given.quick:
        write(rows)


if __name__ == "__main__":
    main()
