"""Progress of commands on standard error: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from gossamer._core.columns import SAMPLING_ERROR
from gossamer.engines.observer import Observer, Row
from gossamer.results.folder import RunFolder

if TYPE_CHECKING:
    from gossamer.study import Study

# Seconds between two lines about a run, and about the share of a whole sweep.
_LINE_SECONDS = 5.0
SHARE_LINE_SECONDS = 10.0
# Characters of a bar, and of the values to its right.
_BAR_WIDTH = 28
_VALUES_WIDTH = 46


class RunBars(Observer):
    """Follow runs, one after the other: method by method, and seed by seed.

    On a terminal every method has a bar. Elsewhere a line is printed now and then. If quiet, only
    messages are printed.

    Args:
        labels: The methods' labels, in the order in which they run.
        seeds: Runs per method.
        quiet: Whether to show no progress.
    """

    def __init__(self, labels: Sequence[str], seeds: int = 1, *, quiet: bool) -> None:
        self._labels = labels
        self._seeds = seeds
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._has_bars = self._console.is_terminal and not quiet
        self._tasks: dict[str, TaskID] = {}
        self._bar = BarColumn(_BAR_WIDTH)
        self._progress = Progress(
            TextColumn("{task.description}"),
            self._bar,
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
            _TimeLeft(),
            console=self._console,
        )
        self._runs = 0  # started or skipped so far
        self._total = 0  # rounds of the current run
        self._done = 0  # rounds done
        self._newest: Row | None = None
        self._lines: _Lines | None = None
        self._said: set[str] = set()

    def __enter__(self) -> RunBars:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        # A sentence, without the line of source code that Python prints.
        warnings.showwarning = lambda message, *_: self.message(f"gossamer: {message}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._warnings.__exit__(kind, error, trace)
        if self._has_bars:
            self._progress.stop()

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        self._begin(study)
        if rows:
            self._newest = rows[-1]

    def skipped(self, study: Study, folder: Path) -> None:
        self._begin(study)
        self._done = (RunFolder(folder).summary() or {}).get("rounds", study.rounds)
        self._update("done before", ended=True)

    def ended(self, summary: Mapping[str, Any]) -> None:
        if "diverged" in summary:
            self._done = summary["diverged"]["round"]
            self._update(f"diverged at round {self._done}", ended=True)

    def advanced(self, round: int) -> None:
        self._done = round
        self._update(self._measurement(), self._is_measured_to_the_end())

    def measured(self, row: Row) -> None:
        self._newest = row
        self._update(self._measurement(), self._is_measured_to_the_end())

    def _measurement(self) -> str:
        """Return the newest measurement in short; nothing if there is none."""
        row = self._newest
        if row is None:
            return ""
        column = self._measure.columns_in(row)[0]
        text = column.short_text(row[column.name], row.get(column.name + SAMPLING_ERROR))
        return f"{text}  distance {row['distance']:.3f}"

    def message(self, text: str) -> None:
        """Print a line above the bars; what several runs say is printed once."""
        if text not in self._said:
            self._said.add(text)
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _begin(self, study: Study) -> None:
        """Begin with the next run: its label and its number among the runs of the method."""
        method, self._seed_index = divmod(self._runs, self._seeds)
        self._label = f"{self._labels[method]:<{max(map(len, self._labels))}}"
        self._runs += 1
        self._measure = study.measure
        self._total = study.rounds
        self._done = 0
        self._newest = None
        self._lines = None
        if self._has_bars and self._label not in self._tasks:
            self._tasks[self._label] = self._progress.add_task(self._label, total=None, now="")
            room = self._console.width - len(self._label) - _VALUES_WIDTH
            self._bar.bar_width = max(4, min(_BAR_WIDTH, room))
        elif not self._quiet and not self._has_bars:
            label = self._label
            if self._seeds > 1:
                label = f"{label}  {self._seed_index + 1} of {self._seeds}"
            self._lines = _Lines(self._console, label)

    def _is_measured_to_the_end(self) -> bool:
        return self._newest is not None and self._newest["round"] == self._total

    def _update(self, now: str, ended: bool) -> None:
        if self._lines is not None:
            self._lines.update(self._done, self._total, now, ended)
        elif self._has_bars:
            self._progress.start()  # not before: data and libraries are loaded until now
            self._progress.update(
                self._tasks[self._label],
                total=self._seeds * self._total,
                completed=self._seed_index * self._total + self._done,
                now=now,
            )


class _Lines:
    """Print the progress of one run as a line now and then, and at its end."""

    def __init__(self, console: Console, label: str) -> None:
        self._console = console
        self._label = label
        self._first: int | None = None  # the round of the first update

    def update(self, done: int, total: int, now: str, ended: bool) -> None:
        time_now = time.monotonic()
        if self._first is None:
            self._first = done
            self._start = time_now
            self._printed = time_now
        if not ended and time_now - self._printed <= _LINE_SECONDS:
            return
        self._printed = time_now
        words = [self._label, f"round {done}/{total}", now]
        if self._first < done < total and not ended:
            seconds_per_round = (time_now - self._start) / (done - self._first)
            words.append(f"{duration(seconds_per_round * (total - done))} left")
        self._console.print("  ".join(filter(None, words)), highlight=False, soft_wrap=True)


class _TimeLeft(ProgressColumn):
    """The time that is left; at the end, the time that it took."""

    def render(self, task: Task) -> Text:
        if not task.finished:
            if task.time_remaining is None:
                return Text("", "progress.remaining")
            return Text(f"{duration(task.time_remaining)} left", "progress.remaining")
        if task.finished_time is None:
            return Text("", "progress.elapsed")
        return Text(duration(task.finished_time), "progress.elapsed")


class ShareBar:
    """Show the share of the work that is done, with an estimate of the time left.

    Entering it returns the function to call with the share, from 0 to 1. Without a terminal a line
    is printed now and then.

    Args:
        quiet: Whether to show no progress.
        label: What is being done.
    """

    def __init__(self, quiet: bool, label: str) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._label = label
        self._printed = time.monotonic()
        self._progress = Progress(
            TextColumn(label),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._progress.add_task(label, total=1.0)

    def __enter__(self) -> Callable[[float], None]:
        if self._console.is_terminal and not self._quiet:
            self._progress.start()
        return self._update

    def __exit__(self, *_: object) -> None:
        if self._progress.live.is_started:  # else rich prints an empty line, quiet or not
            self._progress.stop()

    def _update(self, share: float) -> None:
        self._progress.update(self._task, completed=share)
        if self._quiet or self._console.is_terminal:
            return
        if share == 1 or time.monotonic() - self._printed > SHARE_LINE_SECONDS:
            self._printed = time.monotonic()
            self._console.print(f"{self._label} {share:.0%}", highlight=False)


class StageBar:
    """Show the share of a search that is done, and its current stage.

    On a terminal it is one bar; elsewhere a line is printed now and then, and for every new stage.

    Args:
        quiet: Whether to show no progress.
    """

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._printed = time.monotonic()
        self._stage = ""
        self._progress = Progress(
            BarColumn(_BAR_WIDTH),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=self._console,
        )
        self._task = self._progress.add_task("", total=1.0)

    def __enter__(self) -> StageBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stage and self._console.is_terminal:  # elsewhere rich prints an empty line
            self._progress.stop()

    def __call__(self, share: float, stage: str) -> None:
        """Show that a share of the work, from 0 to 1, is done, and what is being done."""
        if self._quiet:
            return
        if self._console.is_terminal:
            self._progress.start()  # not before: data and libraries are loaded until now
            self._progress.update(self._task, completed=share, description=stage)
        elif stage != self._stage or time.monotonic() - self._printed > SHARE_LINE_SECONDS:
            self._printed = time.monotonic()
            self._console.print(f"{share:4.0%}  {stage}", highlight=False)
        self._stage = stage


class FileBars:
    """Show files that are read or downloaded: a bar each on a terminal, a line elsewhere.

    Args:
        quiet: Whether to show no progress.
    """

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=_BAR_WIDTH),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._has_lines = not quiet and not self._console.is_terminal
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> FileBars:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._tasks:  # otherwise rich prints an empty line
            self._progress.stop()

    def __call__(self, file: str, done: int, total: int) -> None:
        """Show that `done` of a file's `total` bytes are here."""
        self._progress.start()
        if file not in self._tasks:
            self._tasks[file] = self._progress.add_task(file, total=total)
            if self._has_lines:
                self._console.print(f"{file}  {total / 1e6:.1f} MB", highlight=False)
        self._progress.update(self._tasks[file], completed=done)


def duration(seconds: float) -> str:
    """Return a duration in short.

    >>> duration(8.4), duration(125), duration(7300)
    ('8 s', '2 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
