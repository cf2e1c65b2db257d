"""Where the runs of a sweep take place: processes of this machine, or tasks on a Ray cluster.

Every run has one torch thread.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, cast

from gossamer._core import checks
from gossamer._core.interrupts import defer_interrupts
from gossamer._core.process import configure_own_process
from gossamer.engines.settings import EngineSpec
from gossamer.errors import (
    Interrupted,
)
from gossamer.results.folder import RunFolder
from gossamer.study import spec
from gossamer.study.quiet import run_quietly
from gossamer.study.study import Study, load
from gossamer.tasks import Data
from gossamer.tasks.data import Source

Studies = Sequence[tuple[Path, Study]]  # what to run, each with its run folder

# Seconds between two looks at whether the parent process still exists.
_PARENT_CHECK_SECONDS = 0.2


class Pool(Protocol):
    """Runs studies into their folders, several at a time."""

    def each(
        self, studies: Studies, keep_models: bool = False
    ) -> Iterator[tuple[Path, str | None]]:
        """Run all studies, and yield each folder when its run ends.

        Args:
            studies: What to run, with the run folders.
            keep_models: Whether the folders keep the final models too.

        Yields:
            The folder, and a message if the run failed. A run that diverges has not failed.
        """


@dataclass(frozen=True)
class Processes:
    """Run studies in processes of this machine. Interrupted runs are resumed.

    Attributes:
        workers: Runs at a time; 0 means one per core.

    Example:
        >>> Processes(workers=4).workers
        4
    """

    workers: int = 0

    def each(
        self, studies: Studies, keep_models: bool = False
    ) -> Iterator[tuple[Path, str | None]]:
        with self.open() as pool:
            yield from pool.each(studies, keep_models)

    @contextmanager
    def open(self) -> Iterator[Pool]:
        """Keep the processes for several calls of `each`: they need seconds to load torch."""
        context = multiprocessing.get_context("spawn")  # a forked torch may hang
        workers = self.workers or os.cpu_count() or 1
        others = {process.pid for process in multiprocessing.active_children()}
        with ProcessPoolExecutor(
            workers, context, initializer=_start_worker, initargs=(os.getpid(),)
        ) as executor:
            yield _OpenProcesses(executor, others)


@dataclass(frozen=True)
class _OpenProcesses:
    """Processes that are there; they are started when they are needed first."""

    executor: ProcessPoolExecutor
    others: set[int | None]  # processes of this one that are not the pool's

    def each(
        self, studies: Studies, keep_models: bool = False
    ) -> Iterator[tuple[Path, str | None]]:
        running: dict[Future[str | None], Path] = {}
        try:
            with defer_interrupts():  # the processes are started here
                for path, study in studies:
                    text = spec.dumps(study)
                    future = self.executor.submit(_run_to_folder, text, path, keep_models)
                    running[future] = path
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BaseException:
            self.executor.shutdown(wait=False, cancel_futures=True)
            self._stop_workers()
            raise

    def _stop_workers(self) -> None:
        """Let the runs save their states: a signal may have come to this process alone."""
        for process in multiprocessing.active_children():
            if process.pid is not None and process.pid not in self.others:
                with suppress(OSError):  # the process has ended
                    os.kill(process.pid, signal.SIGTERM)


@contextmanager
def pool_on(engine: EngineSpec, workers: int = 0) -> Iterator[Pool]:
    """Open the pool that goes with an engine.

    Args:
        engine: The engine. If it runs on a cluster, that is the pool; otherwise this machine.
        workers: Runs at a time on this machine; 0 means one per core.

    Yields:
        The pool, to be used inside the `with` block.

    Raises:
        InputError: If `workers` is negative.
    """
    checks.whole("workers", workers, 0)
    cluster = engine.cluster()
    if cluster is None:
        with Processes(workers).open() as pool:
            yield pool
        return
    from gossamer.study.ray_tasks import RayTasks

    with RayTasks(cluster).open() as pool:
        yield pool


def is_done(path: Path) -> bool:
    """Return True if a folder holds a run that is finished or diverged.

    Args:
        path: The run folder; it need not exist.
    """
    summary = RunFolder(path).summary() or {}
    return bool(summary.get("finished")) or "diverged" in summary


# -- in a worker process -------------------------------------------------------------------------


_stopped = threading.Event()  # set by Ctrl-C: no further run is started


def _start_worker(parent: int) -> None:
    """Prepare a worker: one torch thread, signals stop it, and it ends with its parent."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: _stopped.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    configure_own_process()
    import torch

    torch.set_num_threads(1)  # each worker has one core: more threads would slow down the others
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    """Exit when the parent process is gone, even if it was killed.

    Another sweep may already be working on the same folders.
    """
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)


def _run_to_folder(text: str, path: Path, keep_models: bool) -> str | None:
    """Run a spec into a folder. Return a message if it failed."""
    if _stopped.is_set():
        raise KeyboardInterrupt
    (study,) = spec.studies(spec.parse(text), allow_code=True)  # the caller has run it
    try:
        return run_quietly(study, path, _loaded(cast(Hashable, study.data)), keep_models)
    except Interrupted as error:
        _stopped.set()
        raise KeyboardInterrupt from error


@lru_cache(maxsize=2)
def _loaded(data: Hashable) -> Data:
    """Load data once per worker: most sweeps have one source, or one and its validation part."""
    return load(cast(Source, data))
