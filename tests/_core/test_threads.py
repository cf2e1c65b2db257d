"""Jobs in threads: each runs once, in order, and none still runs when an error is raised."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from gossamer._core.threads import available_threads, limit_torch_threads, run_in_threads


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("jobs", [0, 1, 2, 17])
def test_each_job_runs_once_and_results_are_in_order(threads: int, jobs: int) -> None:
    ran: list[int] = []

    def job(number: int) -> int:
        ran.append(number)
        time.sleep(0.001 * (number % 3))
        return number

    assert run_in_threads([partial(job, number) for number in range(jobs)]) == list(range(jobs))
    assert sorted(ran) == list(range(jobs))
    assert torch.get_num_threads() == threads


def test_jobs_run_at_once_with_one_torch_thread_each() -> None:
    torch.set_num_threads(2)
    try:
        met = threading.Barrier(2, timeout=30)

        def job() -> int:
            met.wait()  # returns only if the other job runs at the same time
            return torch.get_num_threads()

        assert run_in_threads([job, job]) == [1, 1]
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("wrong", [0, 3, 7])
def test_an_error_is_raised_when_all_jobs_have_ended(threads: int, wrong: int) -> None:
    working: set[int] = set()

    def job(number: int) -> None:
        working.add(number)
        time.sleep(0.002)
        working.discard(number)
        if number == wrong:
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run_in_threads([partial(job, number) for number in range(8)])
    assert not working
    assert torch.get_num_threads() == threads


def test_a_job_has_no_further_threads() -> None:
    """Jobs that run jobs of their own must not wait for each other."""
    torch.set_num_threads(2)
    try:
        inner = partial(run_in_threads, [threading.get_ident, threading.get_ident])
        for first, second in run_in_threads([inner, inner, inner]):
            assert first == second
    finally:
        torch.set_num_threads(1)


def test_small_operations_get_one_thread_and_jobs_all() -> None:
    torch.set_num_threads(3)
    try:
        with limit_torch_threads(1000):
            assert (torch.get_num_threads(), available_threads()) == (1, 3)
            with limit_torch_threads(1 << 24):  # as a gradient within a round
                assert (torch.get_num_threads(), available_threads()) == (3, 3)
            met = threading.Barrier(3, timeout=30)

            def job() -> tuple[int, int]:
                met.wait()  # returns only if two other jobs run at the same time
                with limit_torch_threads(1 << 24):
                    return torch.get_num_threads(), available_threads()

            assert run_in_threads([job] * 3) == [(1, 1)] * 3
            assert (torch.get_num_threads(), available_threads()) == (1, 3)
        assert (torch.get_num_threads(), available_threads()) == (3, 3)
        torch.set_num_threads(2)  # as a caller may do between two rounds
        assert available_threads() == 2
    finally:
        torch.set_num_threads(1)
