"""What the commands print: progress while they work, and results."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import typer
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

from gossamer.engines import Record
from gossamer.network import Network
from gossamer.results.run import Run
from gossamer.results.statistics import Interval
from gossamer.results.tables import Method

_LINE_SECONDS = 5.0
_BAR, _BESIDE = 28, 46  # the width of a bar, and of the numbers beside it


class Display:
    """A progress bar for each method in a terminal; a plain line now and then elsewhere; nothing if quiet."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet, self._bars = quiet, self._console.is_terminal and not quiet
        self._tasks: dict[str, TaskID] = {}
        self._bar = BarColumn(_BAR)
        now = TextColumn("{task.fields[now]}")
        self._progress = Progress(
            TextColumn("{task.description}"),
            self._bar,
            MofNCompleteColumn(),
            now,
            _Left(),
            console=self._console,
        )

    def __enter__(self) -> Display:
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.showwarning = lambda message, *_: self.say(
            f"gossamer: {message}"
        )  # a sentence, not a line of our source
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._caught.__exit__(kind, error, trace)
        if self._bars:
            self._progress.stop()

    def bar(
        self, label: str, part: int = 0, parts: int = 1
    ) -> Callable[[int, int, Record | None], None]:
        """A bar for one of the runs that share a label; call it with rounds done, rounds in all, the newest measurement."""
        if self._quiet:
            return lambda done, total, record: None
        if self._bars:
            if label not in self._tasks:
                self._tasks[label] = self._progress.add_task(label, total=None, now="")
                self._bar.bar_width = max(4, min(_BAR, self._console.width - len(label) - _BESIDE))
            task = self._tasks[label]

            def move(done: int, total: int, record: Record | None) -> None:
                self._progress.start()  # the first time; not while data and libraries are still being loaded
                self._progress.update(
                    task,
                    total=parts * total,
                    completed=part * total + done,
                    now=_now(record, done == total),
                )

            return move
        if parts > 1:
            label = f"{label}  {part + 1} of {parts}"
        said = began = 0.0
        first: int | None = None

        def line(done: int, total: int, record: Record | None) -> None:
            nonlocal said, began, first
            now = time.monotonic()
            if first is None:
                first, began, said = done, now, now
            finished = done == total and (record is None or record.round == total)
            if finished or now - said > _LINE_SECONDS:
                said = now
                left = (
                    f"{_duration((now - began) / (done - first) * (total - done))} left"
                    if first < done < total
                    else ""
                )
                words = (label, f"round {done}/{total}", _now(record, finished), left)
                self._console.print("  ".join(filter(None, words)), highlight=False, soft_wrap=True)

        return line

    def say(self, sentence: str) -> None:
        """A line of its own, above the bars."""
        self._console.print(sentence, highlight=False, soft_wrap=True)


class _Left(ProgressColumn):
    """The time that is left; when all is done, the time that it took."""

    def render(self, task: Task) -> Text:
        if task.finished:
            return Text(
                "" if task.finished_time is None else _duration(task.finished_time),
                "progress.elapsed",
            )
        left = task.time_remaining
        return Text("" if left is None else f"{_duration(left)} left", "progress.remaining")


class Share:
    """An overall bar with an estimate of the time left; a line now and then where there is no terminal."""

    def __init__(self, quiet: bool, label: str) -> None:
        self._console, self._quiet, self._label = Console(stderr=True), quiet, label
        self._said = time.monotonic()
        columns = (
            TextColumn(label),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
        )
        self._progress = Progress(*columns, TimeRemainingColumn(), console=self._console)
        self._task = self._progress.add_task(label, total=1.0)

    def __enter__(self) -> Callable[[float], None]:
        if self._console.is_terminal and not self._quiet:
            self._progress.start()
        return self._move

    def __exit__(self, *_: object) -> None:
        if (
            self._progress.live.is_started
        ):  # else rich ends with an empty line where there is no terminal, quiet or not
            self._progress.stop()

    def _move(self, share: float) -> None:
        self._progress.update(self._task, completed=share)
        if not (self._quiet or self._console.is_terminal) and (
            share == 1 or time.monotonic() - self._said > 10
        ):
            self._said = time.monotonic()
            self._console.print(f"{self._label} {share:.0%}", highlight=False)


class Downloads:
    """A bar for each file that is downloaded, in a terminal; a plain line elsewhere; nothing if quiet."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._plain = not quiet and not self._console.is_terminal
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Downloads:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def __call__(self, file: str, done: int, total: int) -> None:
        if file not in self._tasks:
            self._tasks[file] = self._bars.add_task(file, total=total)
            if self._plain:
                self._console.print(f"{file}  {total / 1e6:.1f} MB", highlight=False)
        self._bars.update(self._tasks[file], completed=done)


def _now(record: Record | None, finished: bool = False) -> str:
    if record is None:
        return "done before" if finished else ""
    score = (
        f"loss {record.loss.mean():.3f}"
        if record.accuracy[0] != record.accuracy[0]
        else f"{record.accuracy.mean():.1%}"
    )
    return f"{score}  distance {record.distance.mean():.3f}"


def _duration(seconds: float) -> str:
    """A time that is to be waited for.

    >>> _duration(8.4), _duration(125), _duration(7300)
    ('8 s', '2 min', '2.0 h')
    """
    return (
        f"{seconds:.0f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 6000
        else f"{seconds / 3600:.1f} h"
    )


def _document(facts: dict[str, Any]) -> None:
    """What `--json` prints, and nothing else: one document."""
    typer.echo(
        json.dumps(
            facts,
            indent=2,
            ensure_ascii=False,
            allow_nan=False,
            default=lambda number: number.item(),
        )
    )


def say_result(run: Run, as_json: bool = False) -> None:
    """One run's result and where it is."""
    from gossamer.report.tables import comparison

    if as_json:
        _document(_facts(run))
        return
    console = _console()
    console.print(comparison([Method(run.label, (run,))], run.title()))
    share = run.summary["seconds_measuring"] / max(run.summary["seconds"], 1e-9)
    console.print(
        f"{run.summary['seconds']:.1f} s, {share:.0%} of it measuring; everything is in {run.folder}",
        highlight=False,
    )


def _facts(run: Run) -> dict[str, Any]:
    return run.summary | {"folder": str(run.folder)}


def say_comparison(
    methods: Sequence[Method], folder: Path, demo: bool, as_json: bool = False
) -> None:
    """The table and the curves of a comparison, and what to do next."""
    from gossamer.report.figures import curves
    from gossamer.report.tables import comparison

    console, title = _console(), methods[0].runs[0].title(len(methods[0].runs))
    picture = folder / "curves.png"
    curves(methods, picture, title)
    if as_json:
        rows = [comparison_facts(method) for method in methods]
        _document(
            {
                "name": methods[0].runs[0].name,
                "folder": str(folder),
                "curves": str(picture),
                "methods": rows,
            }
        )
        return
    console.print(comparison(methods, title))
    console.print(f"runs: {folder}   curves: {picture}", highlight=False)
    if demo:
        console.print(_NEXT, highlight=False)


def comparison_facts(method: Method) -> dict[str, Any]:
    """A method's row as data: means over the seeds with the half-widths of their 95 % intervals, and every run."""
    summary = method.runs[0].summary
    last = [
        name
        for name in ("accuracy", "accuracy_worst", "loss", "distance", "bytes")
        if summary[name] is not None
    ]
    targets = {
        f"{unit}_to_{kind}": {
            target: _interval(to(kind, target)) for target in summary[f"{unit}_to_{kind}"]
        }
        for unit, to in (("rounds", method.rounds_to), ("seconds", method.seconds_to))
        for kind in ("accuracy", "loss")
        if f"{unit}_to_{kind}" in summary
    }
    means = {name: _interval(method.value(name)) for name in last}
    return {
        "method": method.label,
        **means,
        **targets,
        "runs": [_facts(run) for run in method.runs],
    }


def _interval(value: Interval | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


_NEXT = """
Next:
  gossamer compare --seeds 5          the same over five seeds, with intervals
  gossamer run --set algorithm.p=5    one method, another p
  gossamer network show               the links that they met over
  gossamer new fleet.toml             a commented spec of your own"""


def say_network(
    net: Network, rounds: int, picture: Path, name: str, as_json: bool = False, **files: Path | None
) -> None:
    """What a network is like, and its picture."""
    from rich.table import Table

    from gossamer.network import summary
    from gossamer.report.figures import network
    from gossamer.theory import check_assumption1

    facts, assumption = summary(net, rounds), check_assumption1(net, rounds)
    title = f"{name}: {net.devices} devices, {rounds} rounds"
    network(net, rounds, picture, title)
    written = {"picture": str(picture)} | {
        kind: str(file) for kind, file in files.items() if file is not None
    }
    if as_json:
        held = asdict(assumption) | {"holds": assumption.holds}
        _document({"name": name, **asdict(facts), "assumption1": held, **written})
        return
    table = Table(title=title, show_header=False, title_justify="left", title_style="bold")
    for label, value in network_facts(facts, assumption):
        table.add_row(label, value)
    _console().print(table)
    for kind, file in written.items():
        use = (
            f'   (use them by [network] kind = "file", path = "{file}")' if kind == "links" else ""
        )
        _console().print(f"{kind}: {file}{use}", highlight=False, soft_wrap=True, markup=False)


def network_facts(facts: Any, assumption: Any) -> list[tuple[str, str]]:
    b = assumption.b
    return [
        ("density", f"{facts.density_mean:.4g}"),
        ("links a round", f"{facts.links_mean:.4g} ({facts.links_min} to {facts.links_max})"),
        (
            "neighbours of a device",
            f"{facts.degree_mean:.4g} ({facts.degree_min} to {facts.degree_max})",
        ),
        ("devices alone", f"{facts.isolated_share:.1%} of devices and rounds"),
        ("rounds connected", f"{facts.connected_share:.1%}"),
        (
            "smallest B (Assumption 1)",
            "none: never connected" if b is None else f"{b.aligned} (every window: {b.sliding})",
        ),
        ("smallest weight ζ", f"{assumption.zeta:.4g}"),
        (
            "spectral gap",
            "not known" if facts.spectral_gap is None else f"{facts.spectral_gap:.4g}",
        ),
    ]


def _console() -> Console:
    console = Console()
    # A file or a pipe has no width of its own: a table is printed whole there, not squeezed into 80 columns.
    return console if console.is_terminal else Console(width=160)
