"""What the commands print: progress while they work, and results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gossamer.engines import Record
from gossamer.network import Network
from gossamer.study import Method, Run

_LINE_SECONDS = 5.0


class Display:
    """A progress bar a run in a terminal; a plain line now and then elsewhere; nothing if quiet."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet, self._bars = quiet, self._console.is_terminal and not quiet
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
        )

    def __enter__(self) -> Display:
        if self._bars:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bars:
            self._progress.stop()

    def bar(self, label: str) -> Callable[[int, int, Record | None], None]:
        """A new bar; call it with rounds done, rounds in all, and the newest measurement."""
        if self._quiet:
            return lambda done, total, record: None
        if self._bars:
            task = self._progress.add_task(label, total=None, now="")

            def move(done: int, total: int, record: Record | None) -> None:
                self._progress.update(task, total=total, completed=done, now=_now(record))

            return move
        said = time.monotonic()

        def line(done: int, total: int, record: Record | None) -> None:
            nonlocal said
            finished = record is not None and record.round == total
            if finished or time.monotonic() - said > _LINE_SECONDS:
                said = time.monotonic()
                self._console.print(f"{label}  round {done}/{total}  {_now(record)}".rstrip(), highlight=False)

        return line


def _now(record: Record | None) -> str:
    if record is None:
        return ""
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

    console, first = _console(), methods[0].runs[0]
    console.print(comparison(methods, _title(first, len(methods[0].runs))))
    picture = folder / "curves.png"
    curves(methods, picture, _title(first, len(methods[0].runs)))
    console.print(f"runs: {folder}   curves: {picture}", highlight=False)
    if demo:
        console.print(_NEXT, highlight=False)


_NEXT = """
Next:
  gossamer compare --seeds 5                         the same over five seeds, with intervals
  gossamer run --set algorithm.p=5 --out runs/p5     one method, another p
  gossamer network show                              the links that they met over
  gossamer new fleet.toml                            a commented spec of your own"""


def say_network(net: Network, rounds: int, picture: Path, name: str) -> None:
    """What a network is like, and its picture."""
    from rich.table import Table

    from gossamer.network import summary
    from gossamer.report.figures import network
    from gossamer.theory import check_assumption1

    facts, assumption = summary(net, rounds), check_assumption1(net, rounds)
    table = Table(title=f"{name}: {net.devices} devices, {rounds} rounds", show_header=False, title_justify="left")
    for label, value in network_facts(facts, assumption):
        table.add_row(label, value)
    _console().print(table)
    network(net, rounds, picture, f"{name}: {net.devices} devices, {rounds} rounds")
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
