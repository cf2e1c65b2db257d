"""Run the adapter of a tool in the tool's own environment, and print one line of JSON.

    PYTHONSAFEPATH=1 python benchmarks/peers/job.py gossipy.py --data FILE.npz --devices 100

An adapter is a file with `run(x, y, devices, tick)`, which sets the tool up as its documentation
does and calls `tick(steps)` after every round, with the number of steps that the devices took.
THREADS are the thread counts of torch that alternate in short blocks; the faster one counts. NOTES
name the differences from the task.

torchrun can start this file in several processes: torch then has one thread in each, and the first
process counts and prints.

This file does not import gossamer. With PYTHONSAFEPATH no adapter hides the package that it is
named after.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import runpy
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

WARM_UP = 2.0  # seconds after the first round that do not count
BLOCKS = 8  # in which the thread counts alternate


class Clock:
    """Counts steps and seconds by thread count.

    Args:
        seconds: Seconds to measure.
        threads: The thread counts that alternate.
        finish: Called with the result when the time is up.
    """

    def __init__(
        self, seconds: float, threads: tuple[int, ...], finish: Callable[[dict[str, object]], None]
    ) -> None:
        self.seconds = seconds
        self.threads = threads
        self.finish = finish
        self.steps = dict.fromkeys(threads, 0)
        self.spent = dict.fromkeys(threads, 0.0)
        self.rounds = 0
        self.first = 0.0  # end of the first round
        self.last = 0.0  # end of the last round
        self.turn = 0  # index of the current thread count
        self.block = 0.0  # seconds of the current block

    def tick(self, steps: int) -> None:
        """Count a round; the first ones are a warm-up."""
        now = time.perf_counter()
        self.rounds += 1
        if self.rounds == 1:
            self.first = now
        elif now - self.first >= WARM_UP:
            threads = self.threads[self.turn]
            self.steps[threads] += steps
            self.spent[threads] += now - self.last
            self.block += now - self.last
            if sum(self.spent.values()) >= self.seconds and all(self.spent.values()):
                self.finish(self.result())
            if self.block >= self.seconds / BLOCKS and len(self.threads) > 1:
                self.turn = (self.turn + 1) % len(self.threads)
                self.block = 0.0
                set_threads(self.threads[self.turn])
        self.last = time.perf_counter()

    def result(self) -> dict[str, object]:
        """Return the speed of the best thread count, or an error if no round was counted."""
        best = max(self.threads, key=lambda k: self.steps[k] / (self.spent[k] or 1.0))
        if not self.steps[best]:
            return {"error": f"{self.rounds or 'no'} round{'s' * (self.rounds != 1)} done"}
        rates = {str(k): self.steps[k] / self.spent[k] for k in self.threads if self.spent[k]}
        return {
            "device_steps": self.steps[best],
            "seconds": self.spent[best],
            "threads": best,
            "by_threads": rates,
        }


def ignore(steps: int) -> None:
    """Count nothing: another process does."""


def set_threads(number: int) -> None:
    """Set the threads of torch if it is installed, else those of the libraries that NumPy uses."""
    try:
        import torch

        torch.set_num_threads(number)
    except ImportError:
        from threadpoolctl import threadpool_limits

        threadpool_limits(number)


def licence(package: importlib.metadata.PackageMetadata) -> str:
    """Return the licence that a package states: an expression, a short line, or classifiers."""
    for field in ("License-Expression", "License"):
        if field in package:
            if 0 < len(package[field]) < 40:
                return str(package[field])
            break
    names = []
    for classifier in package.get_all("Classifier") or []:
        if classifier.startswith("License ::"):
            names.append(classifier.rsplit(" :: ", 1)[1])
    return ", ".join(names) or "not stated"


def main() -> None:
    """Run an adapter until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adapter", help="a file in the folder of this one")
    parser.add_argument(
        "--data", type=Path, required=True, help="x float32 [samples, …], y int64 [samples]"
    )
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument(
        "--seconds", type=float, default=12.0, help="time to measure, after the warm-up"
    )
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds until the run is aborted"
    )
    parser.add_argument("--package", help="package whose version and licence are reported")
    given = parser.parse_args()

    out = os.dup(1)
    os.dup2(2, 1)  # what the tool prints goes to the log; only the result goes to stdout
    about: dict[str, object] = {"python": platform.python_version()}

    is_first = os.environ.get("RANK", "0") == "0"  # set by torchrun

    def finish(result: dict[str, object]) -> None:
        if is_first:
            os.write(out, (json.dumps(about | result) + "\n").encode())
        os._exit(0)  # the tools have no common way to stop; run.py ends what they started

    try:
        adapter = runpy.run_path(str(Path(__file__).parent / given.adapter))
        about["notes"] = adapter["NOTES"]
        if given.package:
            package = importlib.metadata.metadata(given.package)
            about |= {"version": package["Version"], "licence": licence(package)}
        threads = adapter["THREADS"]
        if "RANK" in os.environ:
            threads = (1,)
        clock = Clock(given.seconds, threads, finish)

        def give_up() -> None:
            result = clock.result()
            if "error" in result:
                result["error"] = f"{result['error']} in {given.limit:.0f} s"
            finish(result)

        timer = threading.Timer(given.limit, give_up)
        timer.daemon = True
        timer.start()

        import numpy as np

        arrays = np.load(given.data)
        set_threads(threads[0])
        tick = clock.tick if is_first else ignore
        adapter["run"](arrays["x"], arrays["y"], given.devices, tick)
        finish(clock.result())
    except Exception as problem:
        traceback.print_exc()
        finish({"error": f"{type(problem).__name__}: {problem}".splitlines()[0]})


if __name__ == "__main__":
    main()
