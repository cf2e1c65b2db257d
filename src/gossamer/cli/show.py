"""What the commands print: progress while they work, and results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from gossamer.engines import Record
from gossamer.network import Network
from gossamer.study import Method, Run

_LINE_SECONDS = 5.0


class Display:
    """A progress bar for each method in a terminal; a plain line now and then elsewhere; nothing if quiet."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet, self._bars = quiet, self._console.is_terminal and not quiet
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
        )

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bars:
            self._progress.stop()

    def bar(self, label: str, part: int = 0, parts: int = 1) -> Callable[[int, int, Record | None], None]:
        """A bar for one of the runs that share a label; call it with rounds done, rounds in all, the newest measurement."""
        if self._quiet:
            return lambda done, total, record: None
        if self._bars:
            if label not in self._tasks:
                self._tasks[label] = self._progress.add_task(label, total=None, now="")
            task = self._tasks[label]

            def move(done: int, total: int, record: Record | None) -> None:
                self._progress.start()  # the first time; not while data and libraries are still being loaded
                self._progress.update(task, total=parts * total, completed=part * total + done, now=_now(record, done == total))

            return move
        if parts > 1:
            label = f"{label}  {part + 1} of {parts}"
        said = time.monotonic()

        def line(done: int, total: int, record: Record | None) -> None:
            nonlocal said
            finished = done == total and (record is None or record.round == total)
            if finished or time.monotonic() - said > _LINE_SECONDS:
                said = time.monotonic()
                self._console.print(f"{label}  round {done}/{total}  {_now(record, finished)}".rstrip(), highlight=False)

        return line

    def say(self, sentence: str) -> None:
        """A line of its own, above the bars."""
        self._console.print(sentence, highlight=False, soft_wrap=True)


class Share:
    """An overall bar with an estimate of the time left; a line now and then where there is no terminal."""

    def __init__(self, quiet: bool, label: str) -> None:
        self._console, self._quiet, self._label = Console(stderr=True), quiet, label
        self._said = time.monotonic()
        columns = (TextColumn(label), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("left"))
        self._progress = Progress(*columns, TimeRemainingColumn(), console=self._console)
        self._task = self._progress.add_task(label, total=1.0)

    def __enter__(self) -> Callable[[float], None]:
        if self._console.is_terminal and not self._quiet:
            self._progress.start()
        return self._move

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _move(self, share: float) -> None:
        self._progress.update(self._task, completed=share)
        if not (self._quiet or self._console.is_terminal) and (share == 1 or time.monotonic() - self._said > 10):
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
    score = f"loss {record.loss.mean():.3f}" if record.accuracy[0] != record.accuracy[0] else f"{record.accuracy.mean():.1%}"
    return f"{score}  distance {record.distance.mean():.3f}"


def say_result(run: Run) -> None:
    """One run's result and where it is."""
    from gossamer.report.tables import comparison

    console = _console()
    console.print(comparison([Method(run.study.algorithm.label, (run,))], _title(run)))
    share = run.summary["seconds_measuring"] / max(run.summary["seconds"], 1e-9)
    console.print(
        f"{run.summary['seconds']:.1f} s, {share:.0%} of it measuring; everything is in {run.folder}", highlight=False
    )


def say_comparison(methods: Sequence[Method], folder: Path, demo: bool) -> None:
    """The table and the curves of a comparison, and what to do next."""
    from gossamer.report.figures import curves
    from gossamer.report.tables import comparison

    console, title = _console(), _title(methods[0].runs[0], len(methods[0].runs))
    picture = folder / "curves.png"
    curves(methods, picture, title)
    console.print(comparison(methods, title))
    console.print(f"runs: {folder}   curves: {picture}", highlight=False)
    if demo:
        console.print(_NEXT, highlight=False)


_NEXT = """
Next:
  gossamer compare --seeds 5          the same over five seeds, with intervals
  gossamer run --set algorithm.p=5    one method, another p
  gossamer network show               the links that they met over
  gossamer new fleet.toml             a commented spec of your own"""


def say_network(net: Network, rounds: int, picture: Path, name: str) -> None:
    """What a network is like, and its picture."""
    from rich.table import Table

    from gossamer.network import summary
    from gossamer.report.figures import network
    from gossamer.theory import check_assumption1

    facts, assumption = summary(net, rounds), check_assumption1(net, rounds)
    title = f"{name}: {net.devices} devices, {rounds} rounds"
    table = Table(title=title, show_header=False, title_justify="left", title_style="bold")
    for label, value in network_facts(facts, assumption):
        table.add_row(label, value)
    network(net, rounds, picture, title)
    _console().print(table)
    _console().print(f"picture: {picture}", highlight=False)


def network_facts(facts: Any, assumption: Any) -> list[tuple[str, str]]:
    b = assumption.b
    return [
        ("density", f"{facts.density_mean:.4g}"),
        ("links a round", f"{facts.links_mean:.4g} ({facts.links_min} to {facts.links_max})"),
        ("neighbours of a device", f"{facts.degree_mean:.4g} ({facts.degree_min} to {facts.degree_max})"),
        ("devices alone", f"{facts.isolated_share:.1%} of devices and rounds"),
        ("rounds connected", f"{facts.connected_share:.1%}"),
        (
            "smallest B (Assumption 1)",
            "none: never connected" if b is None else f"{b.aligned} (every window: {b.sliding})",
        ),
        ("smallest weight ζ", f"{assumption.zeta:.4g}"),
        ("spectral gap", "not known" if facts.spectral_gap is None else f"{facts.spectral_gap:.4g}"),
    ]


def _title(run: Run, seeds: int = 1) -> str:
    study = run.study
    return f"{study.name}: {study.network.devices} devices, {study.rounds} rounds" + (f", {seeds} seeds" if seeds > 1 else "")


def _console() -> Console:
    console = Console()
    # A file or a pipe has no width of its own: a table is printed whole there, not squeezed into 80 columns.
    return console if console.is_terminal else Console(width=160)
