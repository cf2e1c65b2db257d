"""Run a study: with progress, measurements, checkpoints, a folder; interrupted and resumed at will."""

from __future__ import annotations

import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from gossamer import backend as kernels
from gossamer._core.versions import version
from gossamer.engines import Engine, EngineSpec, Record, Simulation
from gossamer.errors import DataError, Diverged, GossamerError
from gossamer.results.folder import RunFolder, columns
from gossamer.results.run import Run
from gossamer.results.statistics import summarise
from gossamer.study import spec
from gossamer.study.live import Live
from gossamer.study.study import Study
from gossamer.study.track import Callback, Callbacks, Row
from gossamer.tasks import Data

Progress = Callable[
    [int, int, Record | None], None
]  # rounds done, rounds in all, the newest measurement
_CHECKPOINT_SECONDS = 20.0
_SPARED = 20  # the state is not kept again for so many times as long as that took
_REPORT_SECONDS = 0.2


class Interrupted(GossamerError):
    """The user stopped the run; what is done is kept and `--resume` goes on."""

    exit_code = 130


def run(
    study: Study,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    engine: EngineSpec = Simulation(),  # noqa: B008 - frozen
    progress: Progress = lambda done, total, record: None,
    say: Callable[[str], None] = lambda sentence: None,
    data: Data | None = None,
    keep_models: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run a study to its end. With `out` everything is kept there; with `resume` a run that is there goes on.

    Ctrl-C stops between two rounds, saves, and raises `Interrupted`. A run that diverges raises `Diverged`; what was
    measured until then is kept. `engine`: where it runs; a run that was begun on one engine goes on on any. `say` is told
    what happens to the engine, such as a shard that is lost. `keep_models`: whether the folder holds the final models too.
    `callbacks` are told what is measured as it comes (see `gossamer.study.track`).
    """
    folder = None if out is None else RunFolder(Path(out))
    resumed = folder is not None and _goes_on(folder, study, resume)
    if folder and resumed:
        if (folder.summary() or {}).get("finished"):
            progress(study.rounds, study.rounds, None)
            return replace(Run.read(folder.path), study=study)
        folder.sweep()
    plan = study.plan(data)
    snapshot = folder.snapshot() if folder and resumed else None
    with closing(engine.start(plan, snapshot)) as running:
        measured = _Measurements(
            _up_to(folder.metrics(), running.round) if folder and snapshot else {}
        )
        if folder and not resumed:  # only now: what cannot be run leaves nothing behind
            folder.create(spec.dumps(study))
        told = Callbacks([*([Live()] if folder else []), *callbacks])
        try:
            return _to_the_end(study, running, measured, folder, progress, say, keep_models, told)
        except BaseException as error:
            told.ended(
                {
                    "finished": False,
                    "rounds": running.round,
                    "failed": str(error) or type(error).__name__,
                }
            )
            if folder and not resumed and running.round == 0:  # not even one round could be run
                folder.discard()
            raise


def _to_the_end(
    study: Study,
    running: Engine,
    measured: _Measurements,
    folder: RunFolder | None,
    progress: Progress,
    say: Callable[[str], None],
    keep_models: bool,
    told: Callbacks,
) -> Run:
    said, keeping = 0, 0.0
    started, saved, spent = time.perf_counter(), time.perf_counter(), 0.0

    def save() -> None:
        nonlocal saved, keeping
        before = time.perf_counter()
        if folder:
            folder.write_metrics(measured.table())
            folder.write_snapshot(running.snapshot())
        saved = time.perf_counter()
        keeping = saved - before

    def save_if_due() -> None:
        if time.perf_counter() - saved > max(_CHECKPOINT_SECONDS, _SPARED * keeping):
            save()

    def tell() -> None:
        nonlocal said
        for sentence in running.events[said:]:
            say(sentence)
        said = len(running.events)

    def finish(**facts: Any) -> dict[str, Any]:
        summary = {
            "name": study.name,
            "method": study.algorithm.label,
            "seed": study.seed,
            "finished": running.round >= study.rounds,
            "rounds": running.round,
            **(summarise(measured.table(), study.measure) if measured.table() else {}),
            **facts,
            **({"events": running.events} if running.events else {}),
            "seconds": round(time.perf_counter() - started, 3),
            "seconds_measuring": round(spent, 3),
            "versions": versions(),
            "command": " ".join(sys.argv),
        }
        if folder:
            folder.write_summary(summary)
        told.ended(summary)
        return summary

    told.started(study, folder.path if folder else None, measured.rows())
    told.advanced(running.round)
    with _stop_on_signal() as stopping:
        try:
            for milestone in _milestones(running.round, study.rounds, study.measure.every):
                while running.round < milestone and not stopping():
                    _advance(running, milestone, stopping)
                    tell()
                    told.advanced(running.round)
                    progress(running.round, study.rounds, measured.last)
                    if running.round < milestone:
                        save_if_due()
                if running.round < milestone:
                    break
                if measured.newest() < running.round:
                    before = time.perf_counter()
                    row = measured.add(_finite(running.record()))
                    spent += time.perf_counter() - before
                    told.measured(row)
                tell()
                progress(running.round, study.rounds, measured.last)
                if running.round < study.rounds:
                    save_if_due()
        except Diverged as error:
            if folder:
                folder.write_metrics(measured.table())
            finish(diverged={"round": error.round, "device": error.device})
            raise
    if running.round < study.rounds:
        save()
        finish()
        kept = f"; {folder.path} is kept and --resume goes on" if folder else ""
        raise Interrupted(f"stopped after round {running.round} of {study.rounds}{kept}")
    models = running.state_dict()
    if folder:
        folder.write_metrics(measured.table())
        if keep_models:
            folder.write_models(models)
    summary = finish()
    if folder:
        folder.drop_snapshot()
    return Run(
        spec=spec.to_table(study),
        metrics={name: np.array(values) for name, values in measured.table().items()},
        summary=summary,
        method=study.algorithm.label,
        folder=folder.path if folder else None,
        study=study,
        final_models=models,
    )


def versions() -> dict[str, str]:
    """What the numbers depend on."""
    packages = {name: version(name) for name in ("gossamer", "torch", "numpy")}
    made = (
        "compiled"
        if kernels.library
        else "none: gossamer was installed without GCC, or for a processor without AVX2"
    )
    return {
        **packages,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kernels": made,
    }


def _goes_on(folder: RunFolder, study: Study, resume: bool) -> bool:
    """Whether the run in this folder goes on; refuses a folder that is there otherwise, and another study's."""
    if not (resume and folder.has("spec.toml")):
        folder.check_new()
        return False
    then = spec.read(folder.path / "spec.toml")
    with suppress(
        GossamerError
    ):  # what was made in Python, in part, is compared as it was written down
        then = spec.to_table(
            spec.studies(then)[0]
        )  # with the defaults of options that are newer than the folder
    changed = spec.difference(then, spec.to_table(study))
    if changed:
        name, old, new = changed
        was, now = (f"{value!r}" if value is not None else "not set" for value in (old, new))
        raise DataError(
            f"cannot go on with {folder.path}: {name} was {was} and is now {now}; "
            "give the spec that it was started with, or another --out"
        )
    return True


class _Measurements:
    """The rows measured so far: those read from a folder, then this run's own."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._rows = {name: list(values) for name, values in table.items()}
        self.last: Record | None = None

    def newest(self) -> int:
        return int(self._rows["round"][-1]) if self._rows else -1

    def add(self, record: Record) -> Row:
        """Take a measurement in; it is given back as a row."""
        self.last = record
        new = columns([record])
        for name, values in new.items():
            self._rows.setdefault(name, []).extend(values)
        return {name: value for name, (value,) in new.items()}

    def rows(self) -> list[Row]:
        return [
            dict(zip(self._rows, values, strict=True))
            for values in zip(*self._rows.values(), strict=True)
        ]

    def table(self) -> dict[str, Any]:
        return self._rows


def _finite(record: Record) -> Record:
    """Refuse a loss that is not finite: models can be too large to be of use long before they are infinite."""
    wrong = ~np.isfinite(record.loss)
    if wrong.any():
        raise Diverged(record.round, int(np.argmax(wrong)))
    return record


def _up_to(table: dict[str, Any], t: int) -> dict[str, Any]:
    """The measurements that the checkpoint has seen: metrics are written before it, and may be ahead."""
    kept = table.get("round", np.empty(0)) <= t
    return {name: values[kept].tolist() for name, values in table.items()}


def _milestones(done: int, rounds: int, every: int) -> list[int]:
    """The rounds to measure at, from where the run stands: multiples of `every`, and the last."""
    measured = range(-(-done // every) * every, rounds, every) if every else []
    return [*measured, rounds]


def _advance(engine: Engine, until: int, stopping: Callable[[], bool]) -> None:
    """Go on for as long as the progress display can wait."""
    deadline = time.perf_counter() + _REPORT_SECONDS
    engine.advance(until, lambda: stopping() or time.perf_counter() > deadline)


@contextmanager
def _stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM stop the run between two rounds; a second Ctrl-C stops at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped.is_set
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
