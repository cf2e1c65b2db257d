"""Threads that take whole jobs: faster than that all threads share out every operation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

Result = TypeVar("Result")


def in_threads(jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """What each job gives, in as many threads as torch has, this one among them. An error is told when all have ended.

    >>> in_threads([lambda: 1, lambda: 2])
    [1, 2]
    """
    threads = torch.get_num_threads()
    others = min(threads, len(jobs)) - 1
    if others < 1:
        return [job() for job in jobs]
    results: dict[int, Result] = {}
    todo = iter(enumerate(jobs))

    def work() -> None:
        for number, job in todo:
            results[number] = job()

    torch.set_num_threads(1)  # for all of the process's matrix products; else it is each thread's own
    try:
        running = [_pool(threads).submit(work) for _ in range(others)]
        try:
            work()
        finally:
            wait(running)  # what fails leaves nobody who still writes
        for done in running:
            done.result()
    finally:
        torch.set_num_threads(threads)
    return [results[number] for number in range(len(jobs))]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "gossamer", initializer=lambda: torch.set_num_threads(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a process that is forked has no threads but its first
