"""Where the runs of a sweep take place: processes of this machine, or tasks on a Ray cluster.

Every run has one torch thread.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, cast

from gossamer._core import checks
from gossamer._core.files import write_atomically
from gossamer._core.interrupts import defer_interrupts
from gossamer._core.process import configure_own_process
from gossamer.engines import Events, Ray
from gossamer.engines.settings import EngineSpec, check_ray
from gossamer.errors import (
    Diverged,
    GossamerError,
    InputError,
    Interrupted,
    NetworkWarning,
)
from gossamer.results.folder import RunFolder
from gossamer.study import spec
from gossamer.study.run import run
from gossamer.study.study import Study, load
from gossamer.tasks import Data
from gossamer.tasks.data import Source

Studies = Sequence[tuple[Path, Study]]  # what to run, each with its run folder

# How often Ray starts a task again whose process died.
_RETRIES = 3
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
        with ProcessPoolExecutor(
            workers, context, initializer=_start_worker, initargs=(os.getpid(),)
        ) as executor:
            yield _OpenProcesses(executor)


@dataclass(frozen=True)
class _OpenProcesses:
    """Processes that are there; they are started when they are needed first."""

    executor: ProcessPoolExecutor

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
            raise


@dataclass(frozen=True)
class RayTasks:
    """Run studies as tasks on a Ray cluster, as many at once as it has CPUs for.

    The run folders are written on this machine, as results arrive.

    Attributes:
        settings: The cluster to connect to.
    """

    settings: Ray = field(default_factory=Ray)

    def each(
        self, studies: Studies, keep_models: bool = False
    ) -> Iterator[tuple[Path, str | None]]:
        check_ray()
        import ray

        from gossamer.engines.ray.cluster import connect

        with connect(self.settings):
            task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_run_to_files)
            data: dict[Any, Any] = {}
            running: dict[Any, Path] = {}
            for path, study in studies:
                if study.data not in data:  # copied to every machine once
                    data[study.data] = ray.put(load(study.data))
                # Ray does not resolve references in a list: most workers have the data already.
                reference = [data[study.data]]
                running[task.remote(spec.dumps(study), reference, keep_models)] = path
            while running:
                for done in ray.wait(list(running))[0]:
                    path = running.pop(done)
                    try:
                        files, problem = ray.get(done)
                    except ray.exceptions.RayError as error:  # its process died on every retry
                        yield path, str(error).strip().splitlines()[-1]
                    else:
                        _write_files(path, files)
                        yield path, problem


@contextmanager
def pool_on(engine: EngineSpec, workers: int = 0) -> Iterator[Pool]:
    """Open the pool that goes with an engine.

    Args:
        engine: The engine. If it runs on a cluster, that is the pool; otherwise this machine.
        workers: Runs at a time on this machine; 0 means one per core.

    Yields:
        The pool, to be used inside the `with` block.

    Raises:
        InputError: If `workers` is negative, or the engine takes single runs only.
    """
    checks.whole("workers", workers, 0)
    if isinstance(engine, Events):
        accepted = 'simulator or ray for several runs; `gossamer run` takes "events"'
        raise InputError("engine.kind", "events", accepted)
    cluster = engine.cluster()
    if cluster is None:
        with Processes(workers).open() as pool:
            yield pool
        return
    from gossamer.engines.ray.cluster import connect

    check_ray()
    with connect(cluster):
        yield RayTasks(cluster)


def is_done(path: Path) -> bool:
    """Return True if a folder holds a run that is finished or diverged.

    Args:
        path: The run folder; it need not exist.
    """
    summary = RunFolder(path).summary() or {}
    return bool(summary.get("finished")) or "diverged" in summary


def _write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files of a run; the summary last, since it marks the run as complete."""
    if files:
        folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == "summary.json"):
        write_atomically(folder / name, files[name])


# -- in a worker process -------------------------------------------------------------------------


_stopped = threading.Event()  # set by Ctrl-C: no further run is started


def _start_worker(parent: int) -> None:
    """Prepare a worker: one torch thread, Ctrl-C stops it, and it ends with its parent."""
    signal.signal(signal.SIGINT, lambda number, frame: _stopped.set())
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
        return _run(study, path, _loaded(cast(Hashable, study.data)), keep_models)
    except Interrupted as error:
        _stopped.set()
        raise KeyboardInterrupt from error


def _run_to_files(
    text: str, reference: list[Any], keep_models: bool
) -> tuple[dict[str, bytes], str | None]:
    """Run a spec. Return the files of its folder, and a message if it failed.

    The machine of a task shares no disk with the caller, so the folder is a temporary one.
    """
    (study,) = spec.studies(spec.parse(text), allow_code=True)  # the caller has run it
    with tempfile.TemporaryDirectory(prefix="gossamer-") as temporary:
        folder = Path(temporary) / "run"
        problem = _run(study, folder, _fetched(reference[0]), keep_models)
        if problem:
            return {}, problem
        return {file.name: file.read_bytes() for file in folder.iterdir()}, None


def _run(study: Study, path: Path, data: Data, keep_models: bool) -> str | None:
    """Run a study into a folder. Return a message if it failed; a divergence is a result."""
    try:
        with warnings.catch_warnings():
            # The caller has warned once, of the whole study and not of a short part of it.
            warnings.simplefilter("ignore", NetworkWarning)
            run(study, path, resume=True, data=data, keep_models=keep_models)
    except Diverged:
        return None  # the summary has the round
    except GossamerError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@lru_cache(maxsize=2)
def _loaded(data: Hashable) -> Data:
    """Load data once per worker: most sweeps have one source, or one and its validation part."""
    return load(cast(Source, data))


@lru_cache(maxsize=1)
def _fetched(reference: Any) -> Data:
    """Fetch data from Ray once per worker."""
    import ray

    data: Data = ray.get(reference)
    return data
