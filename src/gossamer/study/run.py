"""Run a study: advance, measure, write checkpoints and results; stop and resume."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from gossamer import backend
from gossamer._core.arguments import checked
from gossamer._core.columns import ENDINGS, MAX_DEVICE_COLUMNS, Column
from gossamer._core.interrupts import stop_on_signal
from gossamer._core.memory import refuse_too_large
from gossamer._core.spread import first_nan, first_not_finite
from gossamer.engines import Engine, EngineSpec, Events, Plan, Record, Simulation, Snapshot
from gossamer.engines.observer import Observer, Row
from gossamer.errors import DataError, Diverged, GossamerError, InputError, Interrupted
from gossamer.results.folder import RunFolder, columns
from gossamer.results.run import Run
from gossamer.results.statistics import summarise
from gossamer.study import spec
from gossamer.study.live import Live
from gossamer.study.observers import ObserverGroup
from gossamer.study.study import Study
from gossamer.study.warn import warn_of_few_links
from gossamer.tasks import Data
from gossamer.tasks.own_devices import describe_matching

# Seconds between two checkpoints, at least.
_CHECKPOINT_SECONDS = 20.0
# After a checkpoint the run continues for at least this many times as long as writing it took.
_CHECKPOINT_SPACING = 20
# Bytes of a measured value: a Python number in a list.
_BYTES_PER_VALUE = 32
# Seconds between two reports of progress.
_REPORT_SECONDS = 0.2
# Histograms of the weights that a run keeps: a page shows no more.
_MAX_HISTOGRAMS = 256


@checked
def run(
    study: Study,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    engine: EngineSpec = Simulation(),  # noqa: B008 - frozen
    data: Data | None = None,
    keep_models: bool = True,
    observers: Sequence[Observer] = (),
) -> Run:
    """Run a study to its end.

    Ctrl-C stops the run between two rounds and saves its state.

    Args:
        study: What to run.
        out: The run folder. None keeps the results in memory only.
        resume: Continue the run that `out` holds, or return it if it is finished. Without it,
            a folder that holds a run is an error.
        engine: Where the study runs. A run can be resumed on any engine.
        data: The study's data if they are loaded already, so that several runs share one copy.
        keep_models: Whether the folder keeps the final models too.
        observers: Follow the run: progress, measurements, messages of the engine. An observer that
            raises is removed with a warning, and the run continues.

    Returns:
        The finished run.

    Raises:
        Interrupted: If the user stopped the run.
        Diverged: If a model or a loss is no longer finite. What was measured before is kept, and
            is its attribute `run`.
        DataError: If `out` holds a run and `resume` is false, or the run of another study.

    Warns:
        NetworkWarning: If the devices have fewer than one link each in the whole run.

    Example:
        >>> from gossamer import DPSGD, Study, run
        >>> run(Study(DPSGD(eta=0.1), rounds=100)).summary["accuracy"] > 0.8
        True
    """
    if isinstance(engine, Events):
        study = replace(study, events=engine)
        engine = Simulation()
    folder = None
    resumed = False
    if out is not None:
        folder = RunFolder(Path(out))
        resumed = _check_folder(folder, study, resume)
    with ExitStack() as cleanup:
        if folder and resumed:
            cleanup.enter_context(folder.locked())
            summary = folder.summary() or {}
            if summary.get("finished"):
                ObserverGroup(observers).skipped(study, folder.path)
                return replace(Run.read(folder.path), study=study)
            if "diverged" in summary:  # the same rounds would diverge again
                ObserverGroup(observers).skipped(study, folder.path)
                raise _diverged_before(replace(Run.read(folder.path), study=study))
            folder.sweep()
        plan = study.plan(data)
        _check_measurements(plan)
        warned = warn_of_few_links(study)
        measurements = _Measurements({}, plan.measure.columns)
        observing = ObserverGroup(observers)
        if folder:
            observing = ObserverGroup([Live(), *observers])
        # The snapshot is not kept here: a run of many devices needs its memory.
        started = engine.start(plan, _checkpoint(folder, resumed, cleanup), observing)
        cleanup.enter_context(closing(started))
        if folder and resumed and started.round > 0:
            rows = _rows_until(folder.metrics(), started.round)
            measurements = _Measurements(rows, plan.measure.columns, folder.weights())
        if folder and not resumed:  # only now: a study that cannot start leaves no folder
            folder.create(spec.dumps(study))
            cleanup.enter_context(folder.locked())
        session = _Session(study, plan, started, folder, measurements, observing, warned)
        try:
            session.advance_to_end()
            return session.finish(keep_models)
        except BaseException as error:
            reason = str(error) or type(error).__name__
            observing.ended({"finished": False, "rounds": started.round, "failed": reason})
            if folder and not resumed and started.round == 0:  # not a single round was run
                folder.discard()
            raise


def _check_folder(folder: RunFolder, study: Study, resume: bool) -> bool:
    """Return True if the run in a folder is to be resumed, and False if the folder is new.

    Raises:
        DataError: If the folder is not new and `resume` is false, or it is of another study.
    """
    if not (resume and folder.has("spec.toml")):
        folder.check_new()
        return False
    old = spec.read(folder.path / "spec.toml")
    new = spec.to_table(study)
    # The folder may be anybody's: of its code, only that which this study has is run.
    same_code = list(spec.code_tables(old)) == list(spec.code_tables(new))
    with suppress(GossamerError):  # parts made in Python are compared as they were written
        # Build it again, so that options newer than the folder have their defaults.
        old = spec.to_table(spec.studies(old, allow_code=same_code)[0])
    changed = spec.difference(old, new)
    if changed:
        name, before, now = changed
        if name.rpartition(".")[2].startswith("sources"):
            name = f"the code of {name.rpartition('.')[0]}"
        raise DataError(
            f"cannot resume {folder.path}: {name} was {_value(before)} and is now {_value(now)}; "
            "give the spec that it was started with, or another --out"
        )
    return True


def _checkpoint(folder: RunFolder | None, resumed: bool, cleanup: ExitStack) -> Snapshot | None:
    """Return the checkpoint of a run that is resumed; None if there is none.

    Until the cleanup, the backend computes with the implementations of the checkpoint.
    """
    if folder is None or not resumed:
        return None
    snapshot = folder.snapshot()
    if snapshot is not None:
        cleanup.enter_context(backend.using(snapshot.backend))
    return snapshot


def _diverged_before(run: Run) -> Diverged:
    """Return the error of a run that diverged in an earlier session."""
    found = run.summary["diverged"]
    error = Diverged(found["round"], found["device"])
    error.run = run
    return error


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    return repr(value)


class _Session:
    """One session of a run: from its start, or from a checkpoint, to its end or interruption."""

    def __init__(
        self,
        study: Study,
        plan: Plan,
        engine: Engine,
        folder: RunFolder | None,
        measurements: _Measurements,
        observers: ObserverGroup,
        warned: Sequence[str],
    ) -> None:
        self._study = study
        self._settings = plan.measure
        self._matching = describe_matching(plan.task.data, plan.network.names)
        self._engine = engine
        self._folder = folder
        self._measurements = measurements
        self._observers = observers
        self._warned = warned
        self._started = time.perf_counter()
        self._measuring_seconds = 0.0
        self._checkpointed = self._started  # time of the last checkpoint
        self._checkpoint_seconds = 0.0  # duration of writing it

    def advance_to_end(self) -> None:
        """Run all rounds, measuring where the study says so.

        Raises:
            Interrupted: If the user stopped the run.
            Diverged: If a model or a loss is no longer finite.
        """
        path = None
        if self._folder:
            path = self._folder.path
        self._observers.started(self._study, path, self._measurements.rows())
        if self._matching:
            self._observers.message(self._matching)
        self._observers.advanced(self._engine.round)
        self._try_own_metrics()
        rounds = self._study.rounds
        with stop_on_signal() as stopped:
            try:
                for milestone in _milestones(self._engine.round, rounds, self._study.measure.every):
                    self._advance_to(milestone, stopped.is_set)
                    if self._engine.round < milestone:
                        break
                    self._measure()
                    if self._engine.round < rounds:
                        self._checkpoint_if_due()
            except KeyboardInterrupt:  # inside a round, whose state is of no use
                if self._engine.round > 0:
                    self._write_metrics()
                    self._end()
                raise self._interrupted(
                    f"stopped inside round {self._engine.round + 1}", self._engine.round > 0
                ) from None
            except Diverged as error:
                self._write_metrics()
                summary = self._end(diverged={"round": error.round, "device": error.device})
                error.run = self._result(summary)
                raise
        if self._engine.round < rounds:
            self._checkpoint()
            self._end()
            raise self._interrupted(f"stopped after round {self._engine.round}", True)

    def _interrupted(self, when: str, resumable: bool) -> Interrupted:
        """Return the error of a run that was stopped; it says what is kept."""
        kept = ""
        if self._folder and resumable:
            kept = f"; {self._folder.path} is kept and --resume continues it"
        return Interrupted(f"{when} of {self._study.rounds}{kept}")

    def finish(self, keep_models: bool) -> Run:
        """Write the results of a run that has come to its end, and return it."""
        self._write_metrics()  # first: they are small, and a full disk then loses the models only
        models = self._write_models(keep_models)
        summary = self._end()
        if self._folder:
            self._folder.drop_snapshot()
        return self._result(summary, models)

    def _write_models(self, keep_models: bool) -> dict[str, Tensor] | None:
        """Write the models to the folder if they are kept; return them if they are in memory."""
        if self._folder and keep_models:
            parts = self._engine.parts("models")
            if parts is not None:
                self._folder.write_parts_of_models(parts)
                return None
        models = self._engine.state_dict()
        if self._folder and keep_models:
            self._folder.write_models(models)
        return models

    def _result(self, summary: dict[str, Any], models: dict[str, Tensor] | None = None) -> Run:
        path = None
        if self._folder:
            path = self._folder.path
        metrics = {name: np.array(values) for name, values in self._measurements.table().items()}
        return Run(
            spec=spec.to_table(self._study),
            metrics=metrics,
            summary=summary,
            method=self._study.algorithm.label,
            folder=path,
            study=self._study,
            final_models=models,
        )

    def _try_own_metrics(self) -> None:
        """Measure once before a run that measures only at its end: a mistake is found now."""
        own = [metric for metric in self._settings.metrics or () if not metric.built_in]
        if own and not self._settings.every and self._engine.round == 0:
            _check_metrics(self._engine.record())

    def _advance_to(self, milestone: int, stopping: Callable[[], bool]) -> None:
        """Run rounds until a milestone, or until the user stops the run."""
        while self._engine.round < milestone and not stopping():
            deadline = time.perf_counter() + _REPORT_SECONDS

            def pause(deadline: float = deadline) -> bool:
                return stopping() or time.perf_counter() > deadline

            self._engine.advance(milestone, pause)
            self._observers.advanced(self._engine.round)
            if self._engine.round < milestone:
                self._checkpoint_if_due()

    def _measure(self) -> None:
        """Measure, unless this round was measured before a resume."""
        if self._measurements.last_round() >= self._engine.round:
            return
        begin = time.perf_counter()
        record = self._engine.record()
        _check_losses(record)
        _check_metrics(record)
        row = self._measurements.add(record)
        self._measuring_seconds += time.perf_counter() - begin
        self._observers.measured(row)

    def _checkpoint_if_due(self) -> None:
        spacing = max(_CHECKPOINT_SECONDS, _CHECKPOINT_SPACING * self._checkpoint_seconds)
        if time.perf_counter() - self._checkpointed > spacing:
            self._checkpoint()

    def _checkpoint(self) -> None:
        begin = time.perf_counter()
        self._write_metrics()
        if self._folder:
            parts = self._engine.parts("state")
            if parts is None:
                snapshot = replace(self._engine.snapshot(copy=False), backend=backend.choices())
                self._folder.write_snapshot(snapshot)
            else:
                self._folder.write_parts_of_snapshot(parts, backend.choices())
        self._checkpointed = time.perf_counter()
        self._checkpoint_seconds = self._checkpointed - begin

    def _write_metrics(self) -> None:
        if self._folder:
            study = self._study
            self._folder.write_metrics(
                self._measurements.table(),
                study.algorithm.label,
                study.seed,
                self._measurements.histograms(),
            )

    def _end(self, **facts: Any) -> dict[str, Any]:
        """Write the summary, report the end to the observers, and return the summary."""
        study = self._study
        summary: dict[str, Any] = {
            "name": study.name,
            "method": study.algorithm.label,
            "seed": study.seed,
            "finished": self._engine.round >= study.rounds,
            "rounds": self._engine.round,
        }
        table = self._measurements.table()
        if table:
            summary |= summarise(table, self._settings.targets or ())
        summary |= facts
        if self._warned:
            summary["warnings"] = list(self._warned)
        if self._observers.messages:
            summary["events"] = self._observers.messages
        summary["seconds"] = round(time.perf_counter() - self._started, 3)
        summary["seconds_measuring"] = round(self._measuring_seconds, 3)
        summary["versions"] = backend.versions()
        summary["backend"] = backend.choices()
        summary["command"] = " ".join(sys.argv)
        if self._folder:
            self._folder.write_summary(summary)
        self._observers.ended(summary)
        return summary


class _Measurements:
    """The measurements so far: those read from the folder of a resumed run, then new ones."""

    def __init__(
        self,
        table: dict[str, list[Any]],
        metrics: Sequence[Column],
        weights: dict[int, list[int]] | None = None,
    ) -> None:
        self._columns = table
        self._metrics = metrics
        self._weights = weights or {}  # histograms by round

    def last_round(self) -> int:
        """Return the round of the newest measurement, or -1."""
        if not self._columns:
            return -1
        return int(self._columns["round"][-1])

    def add(self, record: Record) -> Row:
        """Add a measurement. Return it as a row of the table.

        Raises:
            DataError: The measurements that were read from the folder have other columns.
        """
        found = columns([record], self._metrics)
        if self._columns and _sizes(found) != _sizes(self._columns):
            raise DataError(
                "the run cannot go on: metrics.parquet in its folder has other columns than this "
                "study measures; start it again with another --out"
            )
        row = {}
        for name, (value,) in found.items():
            self._columns.setdefault(name, []).append(value)
            row[name] = value
        if record.weights is not None:
            self._weights[record.round] = record.weights.tolist()
        return row

    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for values in zip(*self._columns.values(), strict=True):
            rows.append(dict(zip(self._columns, values, strict=True)))
        return rows

    def table(self) -> dict[str, list[Any]]:
        return self._columns

    def histograms(self) -> dict[int, list[int]]:
        """Return the histograms of the weights: of every second, fourth, … of many measurements.

        Which ones are left out depends on their number only, so that a resumed run has the same.
        """
        rounds = self._columns.get("round", [])
        every = 1
        while len(rounds) > every * _MAX_HISTOGRAMS:
            every *= 2
        kept = {t: self._weights[t] for t in rounds[::every] if t in self._weights}
        self._weights = kept
        return kept


def _sizes(table: dict[str, list[Any]]) -> dict[str, int]:
    """Return the number of values that the newest measurement has in each column."""
    return {name: np.size(values[-1]) for name, values in table.items()}


def _check_losses(record: Record) -> None:
    """Raise `Diverged` if a loss is not finite: models fail long before they are infinite."""
    wrong = first_not_finite(record.values("loss"))
    if wrong is not None:
        raise Diverged(record.round, record.device(wrong))


def _check_metrics(record: Record) -> None:
    """Refuse a metric that is NaN though all models have finite losses."""
    accepted = f"a metric that is a number after round {record.round}, where all losses are finite"
    for name in {**record.metrics, **record.spreads}:
        wrong = first_nan(record.values(name))
        if wrong is not None:
            device = record.device(wrong)
            raise InputError("measure.metrics", f"{name} = nan of device {device}", accepted)
        for merged in (record.merged, record.merged_power):
            if np.isnan(merged.get(name, 0.0)):
                raise InputError("measure.metrics", f"{name} = nan of the merged model", accepted)


def _rows_until(table: dict[str, Any], last: int) -> dict[str, list[Any]]:
    """Return the measurements up to a checkpoint's round.

    Metrics are written before the checkpoint, so they may be ahead of it.
    """
    kept = table.get("round", np.empty(0)) <= last
    if not kept.any():
        return {}
    return {name: values[kept].tolist() for name, values in table.items()}


def _milestones(done: int, rounds: int, every: int) -> Iterable[int]:
    """Return the rounds to measure at from `done` on: multiples of `every`, and the last."""
    if not every:
        return [rounds]
    first = -(-done // every) * every
    return chain(range(first, rounds, every), [rounds])


def _check_measurements(plan: Plan) -> None:
    """Refuse measurements that cannot be in memory until the end of the run."""
    every = plan.measure.every
    if not every:
        return
    count = plan.rounds // every + 1
    devices = min(plan.task.devices, MAX_DEVICE_COLUMNS)
    values = len(plan.measure.columns) * (devices + len(ENDINGS))
    refuse_too_large(
        "measure.every",
        every,
        count * values * _BYTES_PER_VALUE,
        f"a larger number, or 0 to measure at the end only: {count:,} measurements take",
    )
