"""Run the studies of a sweep as tasks on a Ray cluster."""

from __future__ import annotations

import copy
import queue
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from gossamer._core.files import write_atomically
from gossamer.engines import Ray
from gossamer.engines.settings import check_ray
from gossamer.errors import Lost
from gossamer.study import spec
from gossamer.study.quiet import run_quietly
from gossamer.study.study import Study, load

# How often Ray starts a task again whose process died.
_RETRIES = 3
_POLL_SECONDS = 1.0
_SAME_COMMAND = "what is done is kept, and the same command runs what is missing"


@dataclass(frozen=True)
class RayTasks:
    """Run studies as tasks on a Ray cluster, as many at once as it has CPUs for.

    Studies are sent as objects, so that they may have parts that no spec can describe. The run
    folders are written on this machine, as results arrive.

    Attributes:
        settings: The cluster to connect to, and what each run reserves.
    """

    settings: Ray = field(default_factory=Ray)

    @contextmanager
    def open(self) -> Iterator[RayTasks]:
        """Stay connected for several calls of `each`."""
        check_ray()
        from gossamer.engines.ray.cluster import connect

        with connect(self.settings, report=_warn):
            yield self

    def each(
        self, studies: Sequence[tuple[Path, Study]], keep_models: bool = False
    ) -> Iterator[tuple[Path, str | None]]:
        """Run all studies, and yield each folder when its run ends.

        Args:
            studies: What to run, with the run folders.
            keep_models: Whether the folders keep the final models too.

        Yields:
            The folder, and a message if the run failed. A run that diverges has not failed.

        Raises:
            InputError: If the cluster has no room for a run.
            Lost: If all machines with room for a run leave, or the cluster is gone.
        """
        check_ray()
        import ray

        from gossamer.engines.ray.cluster import connect
        from gossamer.engines.ray.heartbeat import ControlProcess
        from gossamer.engines.ray.placement import Request, wait_for_place

        messages: queue.SimpleQueue[str] = queue.SimpleQueue()  # filled by any thread
        with connect(self.settings, report=messages.put):
            request = Request.of_run(self.settings, studies[0][1].device)
            wait_for_place(request, self.settings.wait, _warn)
            running = self._submit(studies, keep_models, request)
            watch = _Room(request, self.settings.wait)
            control = ControlProcess(_SAME_COMMAND)
            while running:
                for done in ray.wait(list(running), timeout=_POLL_SECONDS)[0]:
                    yield _finish(done, running.pop(done))
                if control.check():  # else the question would wait for it
                    watch.check()
                while not messages.empty():
                    _warn(f"Ray: {messages.get()}")

    def _submit(
        self, studies: Sequence[tuple[Path, Study]], keep_models: bool, request: Any
    ) -> dict[Any, tuple[Path, Study]]:
        """Start a task per study. Return the run folders by task."""
        import ray

        from gossamer.engines.ray.cluster import sending_code

        task = ray.remote(max_retries=_RETRIES, **request.options())(_run_to_files)
        references: dict[Any, list[Any]] = {}
        running = {}
        with sending_code(self.settings):
            for path, study in studies:
                data = study.data
                if data not in references:  # copied to every machine once
                    references[data] = [ray.put(data), ray.put(load(data))]
                bare = copy.copy(study)
                object.__setattr__(bare, "data", None)  # data are sent once, not with every study
                # Ray does not resolve references in a list: most workers have the data already.
                running[task.remote(bare, references[data], keep_models)] = (path, study)
        return running


class _Room:
    """Whether the cluster still has room for a run.

    Args:
        request: What a run reserves.
        wait: Seconds without room after which a sweep ends.
    """

    def __init__(self, request: Any, wait: float) -> None:
        self._request = request
        self._wait = wait
        self._seen = time.monotonic()

    def check(self) -> None:
        """Raise Lost if no machine has had room for a run for too long."""
        now = time.monotonic()
        if self._request.places_when_idle():
            self._seen = now
        if now - self._seen > self._wait:
            raise Lost(
                f"no machine of the Ray cluster has had room for a run for {self._wait:g} s "
                f"(engine.wait); {_SAME_COMMAND}"
            )


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def _finish(done: Any, place: tuple[Path, Study]) -> tuple[Path, str | None]:
    """Write the files of a finished task. Return the folder, and a message if the run failed."""
    import ray

    from gossamer.engines.ray.adapter import cause_in_creation

    path, study = place
    try:
        files, problem = ray.get(done)
    except ray.exceptions.RayError as error:  # the study cannot be loaded, or every retry died
        return path, cause_in_creation(error)
    if files:
        # Paths in it are those of this machine.
        files["spec.toml"] = spec.dumps(study).encode()
        path.mkdir(parents=True, exist_ok=True)
    # The summary last, since it marks the run as complete.
    for name in sorted(files, key=lambda name: name == "summary.json"):
        write_atomically(path / name, files[name])
    return path, problem


# -- in a task -----------------------------------------------------------------------------------


def _run_to_files(
    study: Study, references: list[Any], keep_models: bool
) -> tuple[dict[str, bytes], str | None]:
    """Run a study. Return the files of its folder, and a message if it failed.

    The machine of a task shares no disk with the caller, so the folder is a temporary one.
    """
    source, data = references
    object.__setattr__(study, "data", _fetched(source))
    with tempfile.TemporaryDirectory(prefix="gossamer-") as temporary:
        folder = Path(temporary) / "run"
        problem = run_quietly(study, folder, _fetched(data), keep_models)
        if problem:
            return {}, problem
        return {file.name: file.read_bytes() for file in folder.iterdir()}, None


@lru_cache(maxsize=2)
def _fetched(reference: Any) -> Any:
    """Fetch an object from Ray once per worker."""
    import ray

    return ray.get(reference)
