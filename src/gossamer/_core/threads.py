"""Run whole jobs in threads; splitting every operation across threads is slower.

Threads that wait should sleep: on a shared machine a spinning thread delays all others. Waking a
sleeping thread takes about 0.1 ms, longer than a small operation.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TypeVar

import torch

Result = TypeVar("Result")

_ELEMENTS_WORTH_THREADS = 1 << 20  # elements of an operation from which a second thread pays

_thread_state = threading.local()


def available_threads() -> int:
    """Return the number of threads for jobs: torch's, unless `limit_torch_threads` changed it."""
    return getattr(_thread_state, "available", None) or torch.get_num_threads()


@contextmanager
def _threads(torch_threads: int, available: int) -> Iterator[None]:
    torch_before = torch.get_num_threads()
    available_before = getattr(_thread_state, "available", None)
    torch.set_num_threads(torch_threads)
    _thread_state.available = available
    try:
        yield
    finally:
        torch.set_num_threads(torch_before)
        _thread_state.available = available_before


def use_threads(threads: int) -> AbstractContextManager[None]:
    """Use a number of threads in a block, for torch and for jobs; restore torch's number after it.

    Args:
        threads: The number of threads, at least 1.

    Example:
        >>> with use_threads(3):
        ...     torch.get_num_threads(), available_threads()
        (3, 3)
    """
    return _threads(threads, threads)


def limit_torch_threads(elements: int) -> AbstractContextManager[None]:
    """Give torch one thread in a block if its operations are small. Jobs keep all threads.

    Args:
        elements: Number of elements of the largest operation in the block.

    Example:
        >>> with limit_torch_threads(10):
        ...     torch.get_num_threads()
        1
    """
    available = available_threads()
    if elements < _ELEMENTS_WORTH_THREADS:
        return _threads(1, available)
    return _threads(available, available)


def run_in_threads(jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run jobs in `available_threads()` threads, the calling thread among them.

    Args:
        jobs: Functions without arguments.

    Returns:
        The result of each job, in the order of the jobs.

    Raises:
        Exception: The error of a job, once no job is running any more.

    Example:
        >>> run_in_threads([lambda: 1, lambda: 2])
        [1, 2]
    """
    threads = available_threads()
    helpers = min(threads, len(jobs)) - 1
    if helpers < 1:
        return [job() for job in jobs]
    results: dict[int, Result] = {}
    remaining = iter(enumerate(jobs))

    def work() -> None:
        for number, job in remaining:
            results[number] = job()

    # The thread count of matrix products is the process's; that of other operations the thread's.
    with _threads(1, 1):
        running = [_executor(threads).submit(work) for _ in range(helpers)]
        try:
            work()
        finally:
            wait(running)  # no job may still write when an error is raised
        for future in running:
            future.result()
    return [results[number] for number in range(len(jobs))]


@cache
def _executor(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "gossamer", initializer=lambda: torch.set_num_threads(1))


if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads
    os.register_at_fork(after_in_child=_executor.cache_clear)
