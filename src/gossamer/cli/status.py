"""The command `gossamer fleet status`: a table with a row for each device."""

from __future__ import annotations

import json as json_text
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gossamer._core.columns import Column
from gossamer.fleet.status import FleetStatus
from gossamer.results import palette

_REFRESH_SECONDS = 1.0
_LINE_SECONDS = 5.0  # period of plain lines
_NARROW_NAME = 4  # characters of a metric's name in a narrow table
_PLAIN_WIDTH = 160  # characters, if the output is not a terminal


class _Count(NamedTuple):
    """A column of the table: key of a row, heading, short heading, and if it is always shown."""

    key: str
    heading: str
    short: str
    always: bool = False


_COUNTS = (
    _Count("committed", "exchanges", "exch", always=True),
    _Count("failed", "failed", "fail"),
    _Count("in_doubt", "in doubt", "doubt"),
    _Count("late", "late", "late"),
    _Count("missed", "missed", "miss"),
    _Count("pending", "pending", "pend"),
    _Count("refused", "refused", "ref"),
)


class _Layout(NamedTuple):
    """What a table shows: names of neighbours or their number; and all in 80 columns if narrow."""

    names: bool
    narrow: bool
    counts: list[_Count]
    metric: Column


def table(fleet: FleetStatus, console: Console) -> Group:
    """Return the status of a fleet: one line about all devices, and a row for each.

    Args:
        fleet: The status.
        console: Where it is printed; the widest layout that fits is chosen.
    """
    rows = fleet.rows()
    counts = [c for c in _COUNTS if c.always or any(row.get(c.key) for row in rows)]
    unlimited = console.options.update(width=1000)
    for names, narrow in ((True, False), (False, False), (False, True)):
        grid = _grid(rows, _Layout(names, narrow, counts, fleet.column))
        if console.measure(grid, options=unlimited).maximum <= console.width:
            break
    notices = []
    for row in rows:
        if row.get("notices"):
            notices.append(Text(f"{row['name']}: {', '.join(row['notices'])}", "yellow"))
    return Group(Text(fleet.summary(), style="bold"), grid, *notices)


def _grid(rows: list[dict[str, Any]], layout: _Layout) -> Table:
    gap = 1 if layout.narrow else 2
    grid = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    grid.add_column("device", no_wrap=True)
    grid.add_column("doing", no_wrap=True)
    grid.add_column("round", no_wrap=True, justify="right")
    if layout.narrow:
        grid.add_column("met", no_wrap=True, justify="right")
        grid.add_column(layout.metric.name[:_NARROW_NAME], no_wrap=True, justify="right")
    else:
        for heading in ("sees", "met"):
            grid.add_column(heading, no_wrap=True, justify="left" if layout.names else "right")
        grid.add_column(layout.metric.name, no_wrap=True, justify="right")
    for count in layout.counts:
        heading = count.short if layout.narrow else count.heading
        grid.add_column(heading, no_wrap=True, justify="right")
    grid.add_column("sent", no_wrap=True, justify="right")
    for row in rows:
        grid.add_row(Text(row["name"]), *_cells(row, layout))
    return grid


def _cells(row: dict[str, Any], layout: _Layout) -> list[Text]:
    words = row["doing"]
    if row.get("why"):
        words += f" ({row['why']})"
    doing = Text(words, palette.STATUS.get(row["doing"], ""))
    if row.get("silent") is not None:
        doing = Text(f"silent {_duration(row['silent'])}", palette.STATUS["silent"])
    if row["doing"] in ("not seen", "unreadable"):
        return [doing]
    cells = [doing]
    if layout.narrow:
        cells.append(Text(str(row["round"])))
        cells.append(Text(f"{len(row['met'])}/{len(row['sees'])}"))
    else:
        cells.append(Text(f"{row['round']}/{row['rounds']}"))
        for key in ("sees", "met"):
            names = " ".join(row[key]) or "–"
            cells.append(Text(names if layout.names else str(len(row[key]))))
    cells.append(Text(_score(row, layout)))
    for count in layout.counts:
        trouble = row[count.key] and not count.always
        cells.append(Text(str(row[count.key]), "yellow" if trouble else ""))
    cells.append(Text(_size(row["bytes_sent"])))
    return cells


def _score(row: dict[str, Any], layout: _Layout) -> str:
    """Return the last measurement of the first metric with its unit."""
    metric = layout.metric
    value = row["metrics"].get(metric.name)
    if metric.name == "loss":
        value = row["loss"]
    if value is None:
        return "–"
    if metric.share:
        return f"{100 * value:.1f}%" if layout.narrow else f"{100 * value:.1f} %"
    return metric.text(value)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def status(folder: Path, connect: list[str], once: bool, json: bool) -> None:
    """Show the status of a fleet until all devices are done, or Ctrl-C.

    Args:
        folder: The folder of the fleet.
        connect: Hosts to dial.
        once: True to print it once, as where the output is no terminal.
        json: True to print it once as JSON.
    """
    fleet = FleetStatus(folder)
    console = Console()
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        observer = fleet.observe(connect)
        if observer is not None:
            stack.enter_context(closing(observer))
        if json or once or not console.is_terminal:
            if observer is not None:
                fleet.wait_for_all()
            _print_once(fleet, console, json)
            return
        stack.callback(console.show_cursor)  # Ctrl-C may come just when the table has hidden it
        with Live(table(fleet, console), console=console, auto_refresh=False) as live:
            while not fleet.all_done():
                time.sleep(_REFRESH_SECONDS)
                live.update(table(fleet, console), refresh=True)


def _print_once(fleet: FleetStatus, console: Console, json: bool) -> None:
    if json:
        content = {"summary": fleet.summary(), "devices": fleet.rows()}
        typer.echo(json_text.dumps(content, indent=2, allow_nan=False))
        return
    wide = console if console.is_terminal else Console(width=_PLAIN_WIDTH)
    wide.print(table(fleet, wide), highlight=False)


class LiveStatus:
    """The status of a rehearsal while it runs: a live table in a terminal, plain lines elsewhere.

    Args:
        folder: The folder of the fleet.
        quiet: True to print nothing.
    """

    def __init__(self, folder: Path, quiet: bool) -> None:
        self._fleet = FleetStatus(folder)
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._live: Live | None = None
        if self._console.is_terminal and not quiet:
            self._live = Live(console=self._console, auto_refresh=False)
        self._printed = time.monotonic()

    def __enter__(self) -> LiveStatus:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.update(force=True)
        if self._live is not None:
            self._live.stop()

    def update(self, force: bool = False) -> None:
        """Show the current status.

        Args:
            force: True to print a line even if one was printed a moment ago.
        """
        if self._live is not None:
            self._live.update(table(self._fleet, self._console), refresh=True)
        elif not self._quiet and (force or time.monotonic() - self._printed > _LINE_SECONDS):
            self._printed = time.monotonic()
            self._console.print(self._fleet.summary(), highlight=False)
