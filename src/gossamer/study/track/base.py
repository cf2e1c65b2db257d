"""What all experiment trackers have in common: names of values, settings, status, run ids."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gossamer._core.columns import ENDINGS
from gossamer._core.files import write_atomically
from gossamer._core.versions import version
from gossamer.engines import Measure
from gossamer.engines.observer import Observer, Row
from gossamer.results.run import Run
from gossamer.results.settings import flat_settings
from gossamer.study import spec
from gossamer.study.compare import slug

if TYPE_CHECKING:
    from gossamer.study.study import Study

Status = Literal["finished", "stopped", "diverged", "failed"]

SCALARS = ("distance", "power_distance", "bytes", "simulated_seconds")
"""Columns that are written beside the metrics and the loss."""

RUNS_FILE = "tracking.json"
"""The file of a run folder that holds the trackers' ids of the run."""

_LONGEST_RUNS_FILE = 65536  # bytes
# Facts of a summary that are no results: those of this machine, and those that are settings too.
_NO_RESULTS = ("command", "versions", "backend", "events", "name", "method", "seed")


class Tracker(Observer):
    """Write the measurements of runs for an experiment tracker; the round is the step.

    Subclasses define `open`, `log` and `close`. A finished run that the tracker has not seen is
    written as a whole, so a comparison can be tracked after it has been run.
    """

    name: ClassVar[str]
    """The name after `--track`, and of the extra that contains the package."""

    @property
    @abstractmethod
    def note(self) -> str:
        """One sentence that says where the runs went and how to look at them."""

    @abstractmethod
    def open(self, study: Study, folder: Path | None) -> int:
        """Start a run of the tracker, or continue it.

        Args:
            study: The study.
            folder: The run folder, if there is one.

        Returns:
            The last round that the tracker holds already; -1 for a new run.
        """

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write one measurement.

        Args:
            values: The measured values by their names in the tracker.
            step: The round.
        """

    @abstractmethod
    def close(self, summary: Mapping[str, Any], status: Status) -> None:
        """End the run of the tracker.

        Args:
            summary: The results that are no measurements, such as rounds to a target, by name.
            status: How the run ended.
        """

    def holds(self, folder: Path) -> bool:
        """Return True if a finished run has been written for the tracker.

        Args:
            folder: The run folder.
        """
        return run_id(folder, self.name) is not None

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        self._folder = folder
        self._measure = study.measure
        self._newest: Row = {}
        last = self.open(study, folder)
        for row in rows:
            if row["round"] > last:
                self.measured(row)

    def skipped(self, study: Study, folder: Path) -> None:
        if self.holds(folder):
            return
        run = Run.read(folder)
        self.started(study, folder, rows_of(run.metrics))
        self.ended(run.summary)

    def measured(self, row: Row) -> None:
        self._newest = row
        self.log(scalars(self._measure, row), int(row["round"]))

    def ended(self, summary: Mapping[str, Any]) -> None:
        results = {}
        for name, value in _plain(flat_settings(summary)).items():
            # The last values of the measurements are in the tracker already.
            if name.split(".")[0] not in _NO_RESULTS and name not in self._newest:
                results[name] = value
        self.close(results, status_of(summary))
        if self._folder is not None and not summary.get("rounds"):
            # Not a round was run: nothing is left to continue, and the folder is removed.
            (self._folder / RUNS_FILE).unlink(missing_ok=True)


def settings(study: Study) -> dict[str, Any]:
    """Return the settings of a study by dotted name, for a tracker's table of runs.

    Args:
        study: The study.

    Returns:
        The label of the method, the version of gossamer, and the values of the spec.
    """
    found: dict[str, Any] = {"method": study.algorithm.label, "gossamer": version("gossamer")}
    found |= _plain(flat_settings(spec.to_table(study)))
    return found


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a tracker can hold: others as text, and none that is not set."""
    found = {}
    for name, value in values.items():
        if isinstance(value, bool | int | float | str):
            found[name] = value
        elif value is not None:
            found[name] = str(value)
    return found


def run_name(study: Study, folder: Path | None) -> str:
    """Return the name of a run: that of its folder, or its method and seed.

    Args:
        study: The study.
        folder: The run folder, if there is one.
    """
    if folder is not None:
        return folder.name
    return f"{slug(study.algorithm.label)}-seed{study.seed}"


def scalars(measure: Measure, row: Row) -> dict[str, float]:
    """Return the values of a measurement by their names in a tracker.

    Args:
        measure: The study's settings of measuring.
        row: The measurement, by the column names of `metrics.parquet`.

    Returns:
        The values that could be measured: "accuracy/mean", "accuracy/worst", "bytes", ….
    """
    names = {name: name for name in SCALARS}
    for column in measure.columns_in(row):
        for ending in ENDINGS:
            names[column.name + ending] = f"{column.name}/{ending.strip('_') or 'mean'}"
    found = {}
    for column_name, name in names.items():
        if column_name in row and row[column_name] == row[column_name]:  # not NaN
            found[name] = float(row[column_name])
    return found


def rows_of(metrics: Mapping[str, Any]) -> list[Row]:
    """Return the measurements of a run, one by one.

    Args:
        metrics: The measurements by column.
    """
    rows: list[Row] = []
    for index in range(len(metrics["round"])):
        rows.append({name: values[index] for name, values in metrics.items()})
    return rows


def status_of(summary: Mapping[str, Any]) -> Status:
    """Return how a run ended.

    Args:
        summary: What an observer is given at the end of a run.

    Example:
        >>> status_of({"finished": False, "rounds": 7})
        'stopped'
    """
    if summary.get("finished"):
        return "finished"
    if "diverged" in summary:
        return "diverged"
    if "failed" in summary:
        return "failed"
    return "stopped"


def run_id(folder: Path | None, tracker: str) -> str | None:
    """Return the id that a tracker gave to the run of a folder.

    Args:
        folder: The run folder, if there is one.
        tracker: The name of the tracker.

    Returns:
        The id; None if the run is new to the tracker.
    """
    found = _run_ids(folder).get(tracker)
    if isinstance(found, str):
        return found
    return None


def keep_run_id(folder: Path | None, tracker: str, value: str) -> None:
    """Write the id of a run into its folder, so that a resumed run continues it.

    Args:
        folder: The run folder, if there is one.
        tracker: The name of the tracker.
        value: The id.
    """
    if folder is None:
        return
    text = json.dumps(_run_ids(folder) | {tracker: value}) + "\n"
    write_atomically(folder / RUNS_FILE, text.encode())


def _run_ids(folder: Path | None) -> dict[str, Any]:
    """Return the ids of a run by tracker; none if the file is missing or damaged."""
    if folder is None:
        return {}
    try:
        path = folder / RUNS_FILE
        if path.stat().st_size > _LONGEST_RUNS_FILE:
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return dict(found) if isinstance(found, dict) else {}
