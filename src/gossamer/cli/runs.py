"""Runs that are there: `gossamer runs` lists them without loading what a run needs; `gossamer figure` draws them."""

from __future__ import annotations

import json
import math
import os
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from gossamer.errors import DataError
from gossamer.results.order import natural

_DEPTH = 6  # folders within folders that are looked into
_LIVE_SECONDS = 60.0  # a run that goes writes every second, or after every round that takes longer
BLOCKS, LETTERS = "▁▂▃▄▅▆▇█", "_.:-=+*#"


@dataclass(frozen=True)
class Listed:
    """A run as it is listed. `accuracy` and the rest are of its newest measurement; `curve` is every one."""

    folder: str
    name: str
    method: str
    seed: int
    state: str  # finished, stopped, diverged, running or broken
    round: int
    rounds: int
    accuracy: float | None
    loss: float | None
    when: str
    curve: list[float | None]
    of: str  # what the curve is of: accuracy, or loss where there is none


def runs(folder: Path, as_json: bool) -> None:
    """Print the runs at or below a folder."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: give one that holds runs")
    found = [listed(path) for path in run_folders(folder)]
    if as_json:
        typer.echo(
            json.dumps(
                {"folder": str(folder), "runs": [asdict(run) for run in found]},
                indent=2,
                allow_nan=False,
            )
        )
    elif not found:
        typer.echo(f"no runs in {folder}")
    else:
        _print(found, folder)


def figure(paths: Sequence[Path], out: Path, x: str, y: str, width: str) -> None:
    """Draw finished runs for a paper."""
    from gossamer.report.figures import paper
    from gossamer.report.gather import folders, grouped, read

    groups, notes = grouped(
        [read(folder) for folder in folders([path for path in paths if not path.is_file()])]
    )
    for group in groups:
        notes += [
            f"{run.name} is left out: it {run.state}" for run in group.runs if not run.finished
        ]
    named = {group.label: [run.metrics for run in group.runs if run.finished] for group in groups}
    named = {label: runs for label, runs in named.items() if runs}
    for note in notes:
        typer.echo(note, err=True)
    if not named:
        raise DataError("none of these runs is finished: there is nothing to draw")
    paper(named, out, x, y, width)
    methods, seeds = len(named), max(map(len, named.values()))
    bands = f", bands of 95 % over {seeds} seeds" if seeds > 1 else ""
    typer.echo(f"{out}: {methods} method{'s' if methods > 1 else ''}{bands}")


def run_folders(path: Path) -> list[Path]:
    """Every run folder at or below a folder, in the order of their names with numbers by size."""
    found = []
    for folder, inner, files in os.walk(path):
        if "spec.toml" in files:
            found.append(Path(folder))
            inner.clear()
        elif len(Path(folder).relative_to(path).parts) >= _DEPTH:
            inner.clear()
    return sorted(found, key=natural)


def listed(path: Path) -> Listed:
    """What can be said of a run without loading it: from its summary, else from its spec and what it measured so far."""
    try:
        return _look(path)
    except (
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
    ):  # damaged, or gone meanwhile
        return Listed(
            str(path), path.name, "", 0, "broken", 0, 0, None, None, _when(path), [], "accuracy"
        )


def _look(path: Path) -> Listed:
    spec = tomllib.loads((path / "spec.toml").read_text())
    summary = _json(path / "summary.json")
    live, alive = _live(path / "live.jsonl")
    columns = _of_records(live) if live else _columns(path / "metrics.parquet")
    if alive:
        state, done = "running", live[-1]["round"]
    elif "diverged" in summary:
        state, done = "diverged", summary["diverged"]["round"]
    else:
        state = "finished" if summary.get("finished") else "stopped"
        done = (
            live[-1]["round"] if live else summary.get("rounds", max(columns["round"], default=0))
        )
    of = "accuracy" if any(value is not None for value in columns["accuracy"]) else "loss"
    accuracy, loss = (next(reversed(columns[key]), None) for key in ("accuracy", "loss"))
    method = summary.get("method") or _method(spec)
    name, seed, rounds = spec.get("name", path.name), spec["seed"], spec["rounds"]
    return Listed(
        str(path),
        name,
        method,
        seed,
        state,
        int(done),
        rounds,
        accuracy,
        loss,
        _when(path),
        columns[of],
        of,
    )


def spark(
    values: Sequence[float | None], of: str = "accuracy", width: int = 16, ascii_only: bool = False
) -> str:
    """A curve as a line of blocks: accuracy from 0 to 1, so that lines can be compared; a loss from 0 to its largest.

    >>> spark([0.1, 0.5, 0.9, 1.0]), spark([0.1, 0.5, 0.9, 1.0], ascii_only=True)
    ('▁▅██', '_=##')
    """
    shades = LETTERS if ascii_only else BLOCKS
    known = [value for value in values if value is not None]
    if (
        len(known) > width
    ):  # those nearest to evenly spaced places, the first and the last among them
        known = [known[round(k * (len(known) - 1) / (width - 1))] for k in range(width)]
    top = 1.0 if of == "accuracy" else max([*known, 1e-12])
    return "".join(
        shades[min(len(shades) - 1, max(0, int(len(shades) * value / top)))] for value in known
    )


def _print(found: Sequence[Listed], folder: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console = console if console.is_terminal else Console(width=160)
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in ("run", "method", "seed", "rounds", "accuracy", "", "state", "when"):
        right, folds = heading in ("seed", "rounds", "accuracy"), heading in ("run", "method")
        table.add_column(
            heading, justify="right" if right else "left", overflow="fold", no_wrap=not folds
        )
    above = ""
    for run in found:
        parent, name = os.path.split(os.path.relpath(run.folder, folder))
        if parent and parent != above:  # the folder of a comparison, once above its runs
            table.add_row(Text(f"{parent}/", "bold"))
        above = parent
        score = "" if run.accuracy is None else f"{run.accuracy:.1%}"
        if run.of == "loss" and run.loss is not None:
            score = f"loss {run.loss:.3g}"
        progress = str(run.rounds) if run.state == "finished" else f"{run.round}/{run.rounds}"
        line = spark(
            run.curve, run.of, 16 if console.width >= 100 else 8, console.options.ascii_only
        )
        state = Text(
            run.state,
            {"finished": "green", "running": "cyan", "stopped": "yellow"}.get(run.state, "red"),
        )
        cells = (
            run.folder if name == "." else f" {name}" if parent else name,
            run.method,
            str(run.seed),
            progress,
            score,
            line,
        )
        table.add_row(*map(Text, cells), state, _moment(run.when))
    console.print(table)


def _moment(when: str) -> str:
    """A time of today by the clock, another by its date."""
    local, now = datetime.fromisoformat(when).astimezone(), datetime.now().astimezone()
    if local.date() == now.date():
        return local.strftime("%H:%M")
    return local.strftime("%d %b" if local.year == now.year else "%Y-%m-%d")


def _json(path: Path) -> dict[str, Any]:
    loaded = json.loads(path.read_bytes()) if path.exists() else {}
    if not isinstance(loaded, dict):
        raise ValueError
    return loaded


def _live(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The lines of a run that has not ended, and whether it still goes."""
    if not path.exists():
        return [], False
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    return lines, bool(lines) and time.time() - path.stat().st_mtime < _LIVE_SECONDS


def _of_records(lines: list[dict[str, Any]]) -> dict[str, list[Any]]:
    records = [line["record"] for line in lines if "record" in line]
    return {
        name: [record.get(name) for record in records] for name in ("round", "accuracy", "loss")
    }


def _columns(path: Path) -> dict[str, list[Any]]:
    if not path.exists():
        return {"round": [], "accuracy": [], "loss": []}
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["round", "accuracy", "loss"]).to_pydict()
    return {
        name: [value if math.isfinite(value) else None for value in values]
        for name, values in table.items()
    }


def _method(spec: dict[str, Any]) -> str:
    """The name of a method whose run has no summary yet; this loads what methods need."""
    from gossamer.errors import GossamerError
    from gossamer.study.spec import studies

    try:
        return studies(spec)[0].algorithm.label
    except GossamerError:
        return ""


def _when(path: Path) -> str:
    """When something was last written there."""
    newest = max(
        (file.stat().st_mtime for file in path.iterdir() if file.is_file()),
        default=path.stat().st_mtime,
    )
    return datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")
