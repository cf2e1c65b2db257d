"""What runs inside a peer's own environment: its adapter, a clock, and one JSON line in the end.

    python -P benchmarks/peers/job.py gossipy.py --data FILE.npz --devices 100 --seconds 12 --limit 90 --package gossipy-dfl

An adapter is a file with `run(x, y, devices, tick)`, which sets the peer up as its own documentation does and calls
`tick(steps)` when a round is over, with the number of steps that the devices took in it. THREADS are the thread counts of
torch that take turns, a short block each; the better one counts. NOTES say what differs from the job.

Nothing of gossamer is imported here, and with -P no adapter hides the package that it is named after.
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

WARM = 2.0  # seconds after the first round that do not count
BLOCKS = 8  # turns of the thread counts


class Clock:
    def __init__(
        self, seconds: float, threads: tuple[int, ...], finish: Callable[[dict[str, object]], None]
    ) -> None:
        self.seconds, self.threads, self.finish = seconds, threads, finish
        self.steps, self.spent, self.rounds = (
            dict.fromkeys(threads, 0),
            dict.fromkeys(threads, 0.0),
            0,
        )
        self.first = self.last = 0.0
        self.turn, self.block = 0, 0.0

    def tick(self, steps: int) -> None:
        """A round is over. The first ones warm up; when the time is up, the line is written and the process ends."""
        now = time.perf_counter()
        self.rounds += 1
        if self.rounds == 1:
            self.first = now
        elif now - self.first >= WARM:
            threads = self.threads[self.turn]
            self.steps[threads] += steps
            self.spent[threads] += now - self.last
            self.block += now - self.last
            if sum(self.spent.values()) >= self.seconds and all(self.spent.values()):
                self.finish(self.result())
            if self.block >= self.seconds / BLOCKS and len(self.threads) > 1:
                self.turn, self.block = (self.turn + 1) % len(self.threads), 0.0
                set_threads(self.threads[self.turn])
        self.last = time.perf_counter()

    def result(self) -> dict[str, object]:
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


def set_threads(number: int) -> None:
    """Of torch where it is installed, else of the libraries that NumPy uses."""
    try:
        import torch

        torch.set_num_threads(number)
    except ImportError:
        from threadpoolctl import threadpool_limits

        threadpool_limits(number)


def licence(package: importlib.metadata.PackageMetadata) -> str:
    """What the package says of itself: an expression, a short line, or the classifiers."""
    stated = next(
        (package[field] for field in ("License-Expression", "License") if field in package), ""
    )
    named = [
        c.rsplit(" :: ", 1)[1]
        for c in package.get_all("Classifier") or []
        if c.startswith("License ::")
    ]
    return stated if 0 < len(stated) < 40 else ", ".join(named) or "not stated"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adapter", help="a file beside this one")
    parser.add_argument(
        "--data", type=Path, required=True, help="x float32 [samples, 784], y int64 [samples]"
    )
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=12.0, help="to measure, after the warm-up")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds until it is given up")
    parser.add_argument("--package", help="whose version and licence to state")
    given = parser.parse_args()

    out = os.dup(1)
    os.dup2(2, 1)  # what the peer prints goes to the log, and the one line is alone
    about: dict[str, object] = {"python": platform.python_version()}

    def finish(result: dict[str, object]) -> None:
        os.write(out, (json.dumps(about | result) + "\n").encode())
        os._exit(
            0
        )  # there is no polite way out that all peers share; what they started is ended by run.py

    try:
        adapter = runpy.run_path(str(Path(__file__).parent / given.adapter))
        about["notes"] = adapter["NOTES"]
        if given.package:
            package = importlib.metadata.metadata(given.package)
            about |= {"version": package["Version"], "licence": licence(package)}
        clock = Clock(given.seconds, adapter["THREADS"], finish)

        def give_up() -> None:
            result = clock.result()
            finish(
                result | {"error": f"{result['error']} in {given.limit:.0f} s"}
                if "error" in result
                else result
            )

        timer = threading.Timer(given.limit, give_up)
        timer.daemon = True
        timer.start()

        import numpy as np

        arrays = np.load(given.data)
        set_threads(adapter["THREADS"][0])
        adapter["run"](arrays["x"], arrays["y"], given.devices, clock.tick)
        finish(clock.result())
    except Exception as problem:
        traceback.print_exc()
        finish({"error": f"{type(problem).__name__}: {problem}".splitlines()[0]})


if __name__ == "__main__":
    main()
