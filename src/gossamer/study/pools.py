"""Where the runs of a sweep are done: in processes of this machine, or as tasks on a Ray cluster. One torch thread each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
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
from gossamer.engines import Ray
from gossamer.engines.settings import EngineSpec, check_ray
from gossamer.errors import Diverged, GossamerError
from gossamer.results.folder import RunFolder
from gossamer.study import spec
from gossamer.study.run import Interrupted, run
from gossamer.study.study import Study, load
from gossamer.tasks import Data
from gossamer.tasks.data import Source

Cells = Sequence[tuple[Path, Study]]


class Pool(Protocol):
    """Runs studies into their folders, several at a time."""

    def each(self, cells: Cells, keep_models: bool = False) -> Iterator[tuple[Path, str | None]]:
        """Run them all; each as it ends, with a sentence where it failed. A run that diverges is a result like any other."""


@dataclass(frozen=True)
class Processes:
    """Processes of this machine, `workers` at a time (0: one a core). A run that was stopped goes on where it was."""

    workers: int = 0

    def each(self, cells: Cells, keep_models: bool = False) -> Iterator[tuple[Path, str | None]]:
        context = multiprocessing.get_context("spawn")  # a forked torch may hang
        with ProcessPoolExecutor(
            self.workers or os.cpu_count() or 1,
            context,
            initializer=_worker,
            initargs=(os.getpid(),),
        ) as pool:
            running: dict[Future[str | None], Path] = {}
            try:
                with defer_interrupts():  # the processes start here
                    running |= {
                        pool.submit(_run_cell, spec.dumps(study), path, keep_models): path
                        for path, study in cells
                    }
                while running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(future), future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@dataclass(frozen=True)
class RayTasks:
    """Plain tasks on a Ray cluster, as many at once as it has room for. Folders are written here, as results come."""

    settings: Ray = field(default_factory=Ray)

    def each(self, cells: Cells, keep_models: bool = False) -> Iterator[tuple[Path, str | None]]:
        check_ray()
        import ray

        from gossamer.engines.ray.cluster import connect

        connection = connect(self.settings)
        task = ray.remote(num_cpus=1, max_retries=3)(_files_of)
        try:
            data: dict[Any, Any] = {}
            for _, study in cells:
                if study.data not in data:  # goes to each machine once
                    data[study.data] = ray.put(load(study.data))
            # in a list, a reference is not fetched before it is wanted: most processes have the data already
            running = {
                task.remote(spec.dumps(study), [data[study.data]], keep_models): path
                for path, study in cells
            }
            while running:
                for done in ray.wait(list(running))[0]:
                    path = running.pop(done)
                    try:
                        files, failed = ray.get(done)
                    except ray.exceptions.RayError as error:  # a process that died again and again
                        yield path, str(error).strip().splitlines()[-1]
                        continue
                    if files:
                        path.mkdir(parents=True, exist_ok=True)
                    for name in sorted(
                        files, key=lambda name: name == "summary.json"
                    ):  # which says that it is all there
                        write_atomically(path / name, files[name])
                    yield path, failed
        finally:
            connection.close()


@contextmanager
def pool_on(engine: EngineSpec, workers: int = 0) -> Iterator[Pool]:
    """The pool that goes with an engine: for Ray its cluster, for as long as this lasts; else processes here."""
    checks.whole("workers", workers, 0)
    if not isinstance(engine, Ray):
        yield Processes(workers)
        return
    check_ray()
    from gossamer.engines.ray.cluster import connect

    with connect(engine):
        yield RayTasks(engine)


def done(path: Path) -> bool:
    """Whether a folder holds a run that has come to its end."""
    summary = RunFolder(path).summary() or {}
    return bool(summary.get("finished")) or "diverged" in summary


# -- in a process of its own -----------------------------------------------------------------------------------------------


_stopped = threading.Event()  # in a worker: Ctrl-C has come, and no further cell is begun


def _worker(parent: int) -> None:
    """Each process has one core: threads of a second one would only get in the way of its neighbours."""
    signal.signal(signal.SIGINT, lambda number, frame: _stopped.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    configure_own_process()
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End when the sweep is gone, even if it was killed: a second one may already be at the same cells."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _run_cell(text: str, path: Path, keep_models: bool) -> str | None:
    if _stopped.is_set():
        raise KeyboardInterrupt
    (study,) = spec.studies(spec.parse(text))
    try:
        return _run(study, path, _loaded(cast(Hashable, study.data)), keep_models)
    except Interrupted as error:
        _stopped.set()
        raise KeyboardInterrupt from error


def _files_of(
    text: str, reference: list[Any], keep_models: bool
) -> tuple[dict[str, bytes], str | None]:
    """A run's files, made in a folder that is then gone: the machine of a task shares no disk with the one that asked."""
    (study,) = spec.studies(spec.parse(text))
    with tempfile.TemporaryDirectory(prefix="gossamer-") as folder:
        failed = _run(study, Path(folder) / "cell", _fetched(reference[0]), keep_models)
        return {} if failed else {
            file.name: file.read_bytes() for file in (Path(folder) / "cell").iterdir()
        }, failed


def _run(study: Study, path: Path, data: Data, keep_models: bool) -> str | None:
    try:
        run(study, path, resume=True, data=data, keep_models=keep_models)
    except Diverged:
        pass  # the summary says when
    except Interrupted:
        raise
    except GossamerError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@lru_cache(maxsize=1)
def _loaded(data: Hashable) -> Data:
    """The data of a process's cells, which mostly share one source."""
    return load(cast(Source, data))


@lru_cache(maxsize=1)
def _fetched(reference: Any) -> Data:
    import ray

    data: Data = ray.get(reference)
    return data
