"""Many studies at once: a process a core, one torch thread each, every result kept as it comes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from gossamer.errors import Diverged
from gossamer.study import spec
from gossamer.study.run import Interrupted, run
from gossamer.study.store import RunFolder
from gossamer.study.study import Study, load
from gossamer.tasks import Data
from gossamer.tasks.data import Source


@dataclass(frozen=True)
class Cell:
    """One study of a sweep and what came out; a study that diverged has its measurements until then."""

    study: Study
    metrics: dict[str, Any]
    summary: dict[str, Any]

    @property
    def diverged(self) -> bool:
        return "diverged" in self.summary


def sweep(
    studies: Sequence[Study],
    folder: Path,
    workers: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> list[Cell]:
    """Run every study that `folder` does not hold yet, `workers` at a time (0: one a core), and give all their results.

    Equal studies are run once. A sweep that is stopped goes on where it was: finished cells are read, half-run ones resumed.
    """
    cells = [replace(study, threads=1) for study in studies]
    paths = {cell_path(folder, cell): cell for cell in cells}
    missing = {path: cell for path, cell in paths.items() if not _done(path)}
    work = {path: _work(cell) for path, cell in paths.items()}
    total, done = sum(work.values()), sum(work[path] for path in paths if path not in missing)
    progress(done / total if total else 1.0)
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    with ProcessPoolExecutor(workers or os.cpu_count() or 1, context, initializer=_worker, initargs=(os.getpid(),)) as pool:
        # the longest first, so that no core is left waiting for one at the end
        ordered = sorted(missing, key=lambda path: -work[path])
        running: dict[Future[None], Path] = {}
        try:
            with _interrupts_held():  # the processes start here
                running |= {pool.submit(_run_cell, spec.dumps(missing[path]), path): path for path in ordered}
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    done += work[running.pop(future)]
                    future.result()
                    progress(done / total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [read_cell(cell_path(folder, cell), study) for study, cell in zip(studies, cells, strict=True)]


def cell_path(folder: Path, study: Study) -> Path:
    """Where a study's cell is kept: named by its method and by a digest of all that it says."""
    return folder / f"{type(study.algorithm).__name__.lower()}-{study.network.devices}-{spec.digest(study)}"


def read_cell(path: Path, study: Study) -> Cell:
    """A finished cell."""
    folder = RunFolder(path)
    return Cell(study, folder.metrics(), folder.summary() or {})


def _done(path: Path) -> bool:
    summary = RunFolder(path).summary() or {}
    return bool(summary.get("finished")) or "diverged" in summary


def _work(study: Study) -> float:
    """What a cell costs, roughly, for the progress bar and the order."""
    measured = study.rounds / max(1, study.measure.every)
    return study.network.devices * (study.rounds + 5 * measured) + 100


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait: a process that is started meanwhile holds it until its `_worker` can take it without a traceback."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


_stopped = threading.Event()  # in a worker: Ctrl-C has come, and no further cell is begun


def _worker(parent: int) -> None:
    """Each process has one core: threads of a second one would only get in the way of its neighbours."""
    signal.signal(signal.SIGINT, lambda number, frame: _stopped.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End when the sweep is gone, even if it was killed: a second one may already be at the same cells."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _run_cell(text: str, path: Path) -> None:
    if _stopped.is_set():
        raise KeyboardInterrupt
    (study,) = spec.studies(spec.parse(text))
    data = _loaded(cast(Hashable, study.data))
    try:
        run(study, path, resume=True, data=data, keep_models=False)
    except Diverged:
        pass  # a result like any other: the summary says when
    except Interrupted as error:
        _stopped.set()
        raise KeyboardInterrupt from error


@lru_cache(maxsize=1)
def _loaded(data: Hashable) -> Data:
    """The data of a process's cells, which mostly share one source."""
    return load(cast(Source, data))
