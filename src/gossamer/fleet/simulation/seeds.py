"""Simulate many seeds, in this process or in several."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

import torch

from gossamer._core import checks
from gossamer._core.process import configure_own_process
from gossamer.fleet.simulation.fleet import Result, simulate

_CHUNK = 4  # seeds that a process is given at once: about a second
_POLL_SECONDS = 0.2  # between two looks at whether to stop


@dataclass
class Total:
    """What many seeds have come to. Its size does not grow with their number."""

    seeds: int = 0
    failures: int = 0
    events: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Add the result of a seed.

        Args:
            result: The result.
        """
        self.seeds += 1
        self.failures += bool(result.violation)
        self.events += result.events
        self.seconds += result.seconds
        self.counts.update(result.counts)


def simulate_seeds(first: int, seeds: int, jobs: int, stopped: threading.Event) -> Iterator[Result]:
    """Yield the result of each seed; with several processes in any order.

    Args:
        first: The first seed.
        seeds: Number of seeds.
        jobs: Number of processes.
        stopped: Set it to end after the seeds that are being simulated.

    Raises:
        InputError: If a number is out of range.
    """
    checks.whole("--first", first, 0)
    checks.whole("--seeds", seeds, 1)
    checks.whole("--jobs", jobs, 1, 1024)
    if jobs > 1:
        yield from _simulate_in_processes(first, seeds, jobs, stopped)
        return
    torch.set_num_threads(1)
    for seed in range(first, first + seeds):
        if stopped.is_set():
            return
        yield simulate(seed)


def _simulate_in_processes(
    first: int, seeds: int, jobs: int, stopped: threading.Event
) -> Iterator[Result]:
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    left = iter(range(first, first + seeds, _CHUNK))
    busy: list[Connection] = []
    processes = []

    def give(connection: Connection) -> bool:
        """Give a process its next seeds; return False if there are none."""
        begin = None if stopped.is_set() else next(left, None)
        if begin is None:
            connection.close()
            return False
        connection.send((begin, min(begin + _CHUNK, first + seeds)))
        return True

    try:
        for _ in range(jobs):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            there.close()
            processes.append(process)
            if give(here):
                busy.append(here)
        while busy:
            for ready in wait(busy, _POLL_SECONDS):
                assert isinstance(ready, Connection)
                yield from ready.recv()
                if not give(ready):
                    busy.remove(ready)
        for process in processes:
            process.join()
    finally:
        for process in processes:
            process.terminate()


def _serve(connection: Connection) -> None:
    """Simulate the seeds that a connection asks for, until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    configure_own_process()
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        while True:
            begin, end = connection.recv()
            connection.send([simulate(seed) for seed in range(begin, end)])
