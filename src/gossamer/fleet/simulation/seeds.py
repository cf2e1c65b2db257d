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
from gossamer._core.interrupts import STOP_SIGNALS, defer_interrupts
from gossamer._core.process import configure_own_process
from gossamer.errors import Lost
from gossamer.fleet.simulation.fleet import Result, simulate

_CHUNK = 4  # seeds that a process is given at once: about a second
_POLL_SECONDS = 0.2  # period of checking whether to stop


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
        Lost: If one of the processes is ended by others.
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
    busy: dict[Connection, tuple[int, int]] = {}  # the seeds that each process simulates
    processes = []

    def give(connection: Connection) -> None:
        """Give a process its next seeds, or let it end if there are none."""
        begin = None if stopped.is_set() else next(left, None)
        if begin is None:
            connection.close()
            return
        busy[connection] = (begin, min(begin + _CHUNK, first + seeds))
        with suppress(OSError):  # the process has ended: then nothing is received from it
            connection.send(busy[connection])

    try:
        for _ in range(jobs):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there,), daemon=True)
            with defer_interrupts():  # inherited: Ctrl-C while it loads torch prints no traceback
                process.start()
            there.close()
            processes.append(process)
            give(here)
        while busy:
            for ready in wait(list(busy), _POLL_SECONDS):
                assert isinstance(ready, Connection)
                begin, end = busy.pop(ready)
                yield from _received(ready, begin, end, stopped)
                give(ready)
        for process in processes:
            process.join()
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def _received(
    connection: Connection, begin: int, end: int, stopped: threading.Event
) -> list[Result]:
    """Return the results of seeds from the process that simulates them."""
    try:
        results: list[Result] = connection.recv()
    except (EOFError, OSError):
        if stopped.wait(_POLL_SECONDS):  # a signal to all processes has ended it while it started
            return []
        raise Lost(
            f"the process that simulated seeds {begin} to {end - 1} was ended, perhaps for its"
            " memory: give fewer --jobs"
        ) from None
    return results


def _serve(connection: Connection) -> None:
    """Simulate the seeds that a connection asks for, until its other end is closed."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop
    configure_own_process()
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        while True:
            begin, end = connection.recv()
            connection.send([simulate(seed) for seed in range(begin, end)])
