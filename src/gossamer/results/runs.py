"""Many runs together: read from disk, listed as a table, turned into data frames."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from gossamer._core.arguments import checked
from gossamer._core.columns import Column
from gossamer._core.warn import warn_user
from gossamer.errors import DataError, DataWarning, GossamerError, MissingExtra
from gossamer.results.find import find_runs
from gossamer.results.live import RunFollower
from gossamer.results.run import Run
from gossamer.results.settings import differing_settings, value_text
from gossamer.results.text import ALWAYS, TableColumn, joined_headings, rows_of, text_table

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

# Settings that a printed table leaves out: other columns show them.
_SHOWN_ANYWAY = ("name", "rounds", "algorithm.kind")
_DESCRIPTION = ".is"  # the key of a part that was made in Python: its description
_MAX_SETTINGS = 6  # columns of settings in a printed table
# A running process writes live.jsonl once per second, or after every round that takes longer.
_SILENT_SECONDS = 60.0
_READ_ERRORS = (GossamerError, OSError, ValueError, TypeError, LookupError, AttributeError)


@checked
def read(*folders: Path | str) -> Runs:
    """Read all runs at or below some folders, finished or not. No code of a spec is executed.

    Args:
        folders: Run folders, or folders with runs up to six levels below them.

    Returns:
        The runs, in natural order of their folders. One that cannot be read has the status
        "broken" and says why in `Run.problem`.

    Raises:
        DataError: One of the folders does not exist.

    Example:
        >>> runs = read("runs/demo")                              # doctest: +SKIP
        >>> print(runs)                                           # doctest: +SKIP
        >>> runs.to_pandas().groupby("method").accuracy.max()     # doctest: +SKIP
    """
    found: dict[Path, Run] = {}
    for folder in folders:
        if not Path(folder).is_dir():
            raise DataError(f"{folder} is not a folder: give one that holds runs")
        for path in find_runs(Path(folder)):
            found.setdefault(path.resolve(), read_any(path))
    return Runs(tuple(found.values()))


def read_any(folder: Path, per_device: bool = True) -> Run:
    """Read a run of any status; a damaged one has the status "broken".

    Args:
        folder: The run folder.
        per_device: Load columns that have a value for each device, too.
    """
    try:
        return RunFollower(folder, per_device).run()
    except _READ_ERRORS as error:
        return Run.broken(folder, str(error))


def shown_status(run: Run) -> str:
    """Return the status of a run; one that has not reported for a minute was killed.

    Args:
        run: A run of any status.
    """
    if run.progress is not None and run.progress.silent >= _SILENT_SECONDS:
        return "stopped"
    return run.status


@checked
@dataclass(frozen=True, repr=False)
class Runs(Sequence[Run]):
    """Several runs, which may be of different studies.

    Printed, and in a notebook, they are a table: one row per run with the settings in which the
    runs differ and the newest values.

    Attributes:
        runs: The runs.

    Example:
        >>> import gossamer as gs
        >>> runs = Runs((gs.run(gs.Study(rounds=20)), gs.run(gs.Study(rounds=20, batch=8))))
        >>> runs.settings
        {'batch': [32, 8]}
        >>> len(runs), runs[1].rounds
        (2, 20)
    """

    runs: tuple[Run, ...] = ()

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> Run: ...

    @overload
    def __getitem__(self, index: slice) -> Runs: ...

    def __getitem__(self, index: int | slice) -> Run | Runs:
        if isinstance(index, slice):
            return replace(self, runs=self.runs[index])
        return self.runs[index]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    @functools.cached_property
    def settings(self) -> dict[str, list[Any]]:
        """The settings in which the runs differ, by dotted key, with one value per run.

        None stands for a key that the spec of a run does not have, and for a run that cannot be
        read. Seeds are no settings, as long as all of them move with the study's.
        """
        readable = [k for k, run in enumerate(self.runs) if not run.problem]
        settings = {}
        for name, values in differing_settings([self.runs[k].spec for k in readable]).items():
            of_all: list[Any] = [None] * len(self.runs)
            for k, value in zip(readable, values, strict=True):
                of_all[k] = value
            settings[name] = of_all
        return settings

    def names(self) -> list[str]:
        """Return a name per run: its folder below the one that all share, or its number."""
        folders = [run.folder for run in self.runs if run.folder is not None]
        if len(folders) < len(self.runs):
            return [str(number) for number in range(len(self.runs))]
        if len(folders) < 2:
            return [folder.name for folder in folders]
        absolute = [str(folder.absolute()) for folder in folders]
        common = os.path.commonpath(absolute)
        return [Path(path).relative_to(common).as_posix() for path in absolute]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and one row per run, as they are printed."""
        columns = self.columns()
        return joined_headings(columns), rows_of(columns)

    def columns(self) -> list[TableColumn]:
        """Return the columns of the printed table."""
        found = [
            TableColumn(("run",), tuple(self.names())),
            self._column("method", lambda run: run.label),
            self._column("seed", lambda run: str(run.seed)),
        ]
        for rank, name in enumerate(self._printed_settings(), 2):
            heading = name.removeprefix("algorithm.")
            cells = tuple(map(_setting_text, self.settings[name]))
            found.append(TableColumn((heading,), cells, rank))
        found.append(self._column("rounds", _rounds_text))
        for column in self._metrics():
            text = functools.partial(_last_text, column=column, name=column.name)
            found.append(self._column(column.heading, text))
        merged = self._column("merged", _merged_text, rank=1)
        if any(merged.cells):
            found.append(merged)
        found.append(self._column("status", shown_status))
        return found

    def _column(self, heading: str, text: Callable[[Run], str], rank: int = ALWAYS) -> TableColumn:
        return TableColumn((heading,), tuple(map(text, self.runs)), rank)

    def _printed_settings(self) -> list[str]:
        """Return the settings that a printed table shows.

        Keys that only some kinds of a part have are left out, unless their values differ; so is
        what differs between two methods, unless it differs within one of them too.
        """
        shown = []
        for name, values in self.settings.items():
            if name in _SHOWN_ANYWAY or name.endswith(_DESCRIPTION):
                continue
            groups = [""] * len(self)
            if name.startswith("algorithm."):
                groups = [run.label for run in self]
            if _differs_within(groups, values):
                shown.append(name)
        return shown[:_MAX_SETTINGS]

    def _metrics(self) -> list[Column]:
        """Return the first metric of every run, each once."""
        found: dict[str, Column] = {}
        for run in self.runs:
            if run.metrics:
                found.setdefault(run.column.name, run.column)
        return list(found.values())

    def to_pandas(self, devices: bool = True) -> pandas.DataFrame:
        """Return all measurements as a pandas data frame in long form.

        Args:
            devices: One row per run, measured round and device, with the device's own values. If
                false, one row per run and measured round, with the means over the devices, the
                worst and the best device, the merged model, messages and bytes.

        Returns:
            The columns are run, method, seed, every setting in which the runs differ, by its
            dotted key, round, device (if `devices`), and the measured values. A run of more than
            1000 devices keeps no values per device: its rows have no device, and hold the means.

        Raises:
            MissingExtra: pandas is not installed.

        Example:
            >>> import gossamer as gs
            >>> runs = Runs((gs.run(gs.Study(rounds=20)),))
            >>> runs.to_pandas(devices=False)[["method", "seed", "round"]]
                method  seed  round
            0  WPM p=3     0      0
            1  WPM p=3     0     10
            2  WPM p=3     0     20
        """
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise MissingExtra("dataframe", "pandas") from None
        frame: pandas.DataFrame = self.to_arrow(devices).to_pandas()
        return frame

    def to_polars(self, devices: bool = True) -> polars.DataFrame:
        """Return all measurements as a polars data frame in long form.

        Args:
            devices: As for `to_pandas`.

        Returns:
            The columns of `to_pandas`.

        Raises:
            MissingExtra: polars is not installed.
        """
        try:
            import polars
        except ImportError:
            raise MissingExtra("dataframe", "polars") from None
        return cast("polars.DataFrame", polars.from_arrow(self.to_arrow(devices)))

    def to_arrow(self, devices: bool = True) -> pyarrow.Table:
        """Return all measurements as an Arrow table in long form.

        Args:
            devices: As for `to_pandas`.

        Returns:
            The columns of `to_pandas`.
        """
        from gossamer.results.long_form import long_form

        broken = []
        for run in self.runs:
            if run.problem:
                broken.append(f"{run.folder} is left out: {run.problem}")
        if broken:
            warn_user("; ".join(broken), DataWarning)
        return long_form(self.runs, self.names(), self.settings, devices)

    def __str__(self) -> str:
        if not self.runs:
            return "no runs"
        return text_table(self.columns(), left=2)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from gossamer.network.notebook import box, table, title

        if not self.runs:
            return box(title("no runs"))
        headings, rows = self.table()
        return box(table(rows, headings))


def _differs_within(groups: Sequence[str], values: Sequence[Any]) -> bool:
    """True if two values of one group differ; None counts as no value."""
    first: dict[str, Any] = {}
    for group, value in zip(groups, values, strict=True):
        if value is not None and first.setdefault(group, value) != value:
            return True
    return False


def _setting_text(value: Any) -> str:
    if value is None:
        return ""
    return value_text(value)


def _rounds_text(run: Run) -> str:
    if run.finished:
        return str(run.rounds)
    return f"{run.round}/{run.rounds}"


def _last_text(run: Run, column: Column, name: str) -> str:
    """Return the newest value of a column of the metrics."""
    if not run.has(name):
        return ""
    return column.text(float(run.metrics[name][-1]), run.sampling_error(name))


def _merged_text(run: Run) -> str:
    if not run.metrics:
        return ""
    return _last_text(run, run.column, f"{run.column.name}_merged")
