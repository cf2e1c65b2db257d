"""Threads that take whole jobs: faster than that all threads share out every operation.

A thread that waits does so asleep, since on a machine that is shared one that spins holds up all others. To wake it takes a
tenth of a millisecond, and so longer than a small operation.
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
_LARGE = 1 << 20  # numbers of an operation that is worth a second thread
_own = threading.local()


def available() -> int:
    """How many threads there are for jobs: as many as torch has, or had before `fit`."""
    return getattr(_own, "available", None) or torch.get_num_threads()


@contextmanager
def _torch_has(threads: int, available: int) -> Iterator[None]:
    before = torch.get_num_threads(), getattr(_own, "available", None)
    torch.set_num_threads(threads)
    _own.available = available
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        _own.available = before[1]


def fit(numbers: int) -> AbstractContextManager[None]:
    """Within, torch has one thread for operations on so few numbers, else all; jobs have all in any case.

    >>> with fit(10):
    ...     torch.get_num_threads()
    1
    """
    return _torch_has(1 if numbers < _LARGE else available(), available())


def in_threads(jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """What each job gives, in as many threads as are `available`, this one among them. An error is told when all have ended.

    >>> in_threads([lambda: 1, lambda: 2])
    [1, 2]
    """
    threads = available()
    others = min(threads, len(jobs)) - 1
    if others < 1:
        return [job() for job in jobs]
    results: dict[int, Result] = {}
    todo = iter(enumerate(jobs))

    def work() -> None:
        for number, job in todo:
            results[number] = job()

    with _torch_has(1, 1):  # for all of the process's matrix products; else it is each thread's own
        running = [_pool(threads).submit(work) for _ in range(others)]
        try:
            work()
        finally:
            wait(running)  # what fails leaves nobody who still writes
        for done in running:
            done.result()
    return [results[number] for number in range(len(jobs))]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "gossamer", initializer=lambda: torch.set_num_threads(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=_pool.cache_clear
    )  # a process that is forked has no threads but its first
