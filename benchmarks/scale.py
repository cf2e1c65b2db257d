"""Time and memory by the number of devices, from 10 to 1,000,000: tables and a chart.

    python benchmarks/scale.py [--data DIR] [--most N] [--task digits] [--again]
    python benchmarks/scale.py --pages        only write tables and chart from the results

D-PSGD, softmax regression, eight neighbours per device with new links in every round, two threads.
Digits: 650 parameters, 32 samples per device drawn with replacement, all of them in every step.
MNIST: 7,850 parameters, batches of 128 out of 600 such samples. Every size runs in a process of its
own: some rounds, a measurement of a sample of 1,000 devices, a checkpoint, and a resumed round,
whose models must be equal bit for bit. Times are processor time, summed over both threads, so that
other work on the machine hardly affects them; that of a round is the median of several, without
the first two, which allocate memory.

Results are kept in results/scale/PROCESSOR.json after every size. A size that is there is not
measured again, unless --again is given: an interrupted benchmark goes on where it stopped, and
another processor adds a file. A million devices need 12 GB of memory
and 3 GB of disk.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scale_page

if TYPE_CHECKING:
    import gossamer as gs
    from gossamer.results.folder import RunFolder

SIZES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
MOST = {"digits": 1_000_000, "mnist": 10_000}
DEGREE = 8
MEASURED = 1_000  # devices of a measurement
TRACED = 100_000  # devices up to which the memory of links is traced, which takes time


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
        A row of the results.
    """
    import own_process  # noqa: F401  # isort: skip

    import torch

    import gossamer as gs
    from gossamer.results.folder import RunFolder

    data, split, batch = _samples(kind, folder)
    torch.ones(100, 100).mm(torch.ones(100, 100))  # loads the libraries of matrix products
    before = peak()
    network = gs.Random(devices, density=min(1.0, DEGREE / (devices - 1)))
    began = time.process_time()
    settings = gs.Measure(every=0, devices=MEASURED)
    study = gs.Study(gs.DPSGD(0.05), network, data, split, batch=batch, threads=2, measure=settings)
    plan = study.plan(data)
    simulator = gs.Simulator(plan)
    start = time.process_time() - began
    seconds, links = _rounds(simulator)
    row = {
        "task": kind,
        "devices": devices,
        "parameters": plan.task.learner.parameters,
        "processor seconds to start": start,
        "processor seconds per round": seconds,
        "of that, links and weights": links,
        "processor microseconds per device-step": 1e6 * seconds / devices,
        "bytes needed": 3 * simulator.models().nbytes + plan.task.split.index.nbytes,
    }
    began = time.process_time()
    record = simulator.record()
    row["processor seconds to measure"] = time.process_time() - began
    row["devices measured"] = len(record.loss)
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path))
        row |= _write(simulator, folder)
        simulator.advance(simulator.round + 1)
        expected = _digest(simulator)
        del simulator  # a resumed run has this memory
        row |= _resume(plan, folder, expected)
    row["bytes beyond imports and samples"] = peak() - before
    row["peak bytes"] = peak()
    if devices <= TRACED:
        row["bytes of links and weights"] = _traced(plan)
    row["version"] = gs.__version__
    return row


def _samples(kind: str, folder: str | None) -> tuple[gs.tasks.Data, gs.Drawn, int]:
    """Return the samples, their split and the size of a batch (0: all of a device's)."""
    import gossamer as gs

    if kind == "digits":
        return gs.Digits().load(), gs.Drawn(32), 0
    path = None
    if folder:
        path = Path(folder)
    return gs.Mnist(path).load(), gs.Drawn(600), 128


def _rounds(simulator: gs.Simulator) -> tuple[float, float]:
    """Return the processor seconds of a round, and of its links and weights alone."""
    import numpy as np

    plan = simulator.plan
    rounds = []
    links = []
    for t in range(max(6, min(200, 100_000 // plan.task.devices))):
        began = time.process_time()
        plan.algorithm.weights(plan.network.links(t), t, 0).csr()
        links.append(time.process_time() - began)
        began = time.process_time()
        simulator.advance(t + 1)
        rounds.append(time.process_time() - began)
    return float(np.median(rounds[2:])), float(np.median(links[2:]))


def _write(simulator: gs.Simulator, folder: RunFolder) -> dict[str, Any]:
    """Write a checkpoint."""
    began = time.process_time()
    folder.write_snapshot(simulator.snapshot(copy=False))
    seconds = time.process_time() - began
    size = (folder.path / "checkpoint.safetensors").stat().st_size
    return {"checkpoint bytes": size, "processor seconds to write": seconds}


def _resume(plan: gs.Plan, folder: RunFolder, expected: str) -> dict[str, Any]:
    """Run a round from the checkpoint; stop if its models are not those of the run before."""
    import gossamer as gs

    began = time.process_time()
    simulator = gs.Simulator(plan, folder.snapshot())
    seconds = time.process_time() - began
    simulator.advance(simulator.round + 1)
    if _digest(simulator) != expected:
        raise SystemExit("the resumed run differs")
    return {"processor seconds to resume": seconds}


def _digest(simulator: gs.Simulator) -> str:
    from gossamer.results.tensor_files import byte_blocks

    digest = hashlib.blake2b()
    for block in byte_blocks(simulator.models()):
        digest.update(block)
    return digest.hexdigest()


def _traced(plan: gs.Plan) -> int:
    """Return the most memory that links and weights of a round take, in bytes."""
    tracemalloc.start()
    try:
        plan.algorithm.weights(plan.network.links(0), 0, 0).csr()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def results_file() -> Path:
    """Return the file of this processor's results."""
    from result_names import slug

    from gossamer._core.processor import processor

    return scale_page.RESULTS / f"{slug(processor())}.json"


def known_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows that a file of results has; none if there is no file."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


def keep(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows of this processor, sorted by task and size."""
    from result_names import short_name

    from gossamer._core.processor import processor
    from gossamer.backend import versions

    rows.sort(key=lambda row: (row["task"], row["devices"]))
    content = {"processor": short_name(processor()), "versions": versions(), "rows": rows}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def run_size(kind: str, devices: int, folder: str | None) -> dict[str, Any]:
    """Measure one number of devices in a process of its own."""
    command = [sys.executable, __file__, "--one", kind, str(devices)]
    if folder:
        command += ["--data", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise SystemExit(f"{kind}, {devices:,} devices: {reason}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def main() -> None:
    """Measure every size that is missing, and write tables and chart."""
    options = argparse.ArgumentParser()
    options.add_argument("--data", help="the folder of MNIST's idx files (default: the cache)")
    options.add_argument("--most", type=int, default=max(SIZES), help="largest number of devices")
    options.add_argument("--task", choices=[*MOST], action="append", help="only this task")
    options.add_argument("--again", action="store_true", help="measure known sizes again")
    options.add_argument("--pages", action="store_true", help="only write tables and chart")
    options.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]), given.data)))
        return
    path = results_file()
    rows = known_rows(path)
    sizes = []
    for kind in given.task or MOST:
        sizes += [(kind, size) for size in SIZES if size <= min(MOST[kind], given.most)]
    for kind, devices in sizes if not given.pages else ():
        same = [row for row in rows if (row["task"], row["devices"]) == (kind, devices)]
        if same and not given.again:
            continue
        row = run_size(kind, devices, given.data)
        rows = [other for other in rows if other not in same] + [row]
        keep(path, rows)
        print(scale_page.line(row), flush=True)
    scale_page.write()


if __name__ == "__main__":
    main()
