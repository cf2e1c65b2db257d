"""`gossamer reproduce`: the tables and figures of a paper, from a checkout of the repository."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import typer

import gossamer
from gossamer.errors import DataError, InputError, nearest
from gossamer.study.store import write_atomically


def load_paper(name: str) -> ModuleType:
    """The reproduction of a paper: papers/NAME in this folder, or in the checkout that gossamer is installed from."""
    for root in (Path.cwd(), Path(gossamer.__file__).parents[2]):
        if (root / "papers" / name / "paper.py").exists():
            sys.path.insert(0, str(root))
            return importlib.import_module(f"papers.{name}")
    raise DataError(f"there is no papers/{name} here: run this in a checkout of the repository")


def reproduce(name: str, parts: list[str], seeds: int | None, tiny: bool, out: Path | None, workers: int, quiet: bool) -> None:
    """Run the cells that the parts need, each once, and make the parts."""
    from gossamer.study.sweep import sweep

    paper = load_paper(name)
    for part in parts:
        if part not in paper.PARTS:
            known = ", ".join(paper.PARTS)
            raise InputError("part", part, f"one of {known}{nearest(part, paper.PARTS)}")
    setting = importlib.import_module(f"papers.{name}.paper")
    scale = setting.TINY if tiny else setting.Scale()
    if seeds is not None:
        if seeds < 1:
            raise InputError("--seeds", seeds, "a whole number of at least 1")
        scale = replace(scale, seeds=seeds)
    chosen = {part: module for part, module in paper.PARTS.items() if not parts or part in parts}
    studies = [study for module in chosen.values() for study in module.cells(scale)]
    folder = Path("runs") / f"reproduce-{name}"
    with _bar(quiet) as bar:
        cells = sweep(studies, folder, workers, bar)
    results = setting.Results(cells)
    where = out or (folder / "tiny" if tiny else setting.HERE / "results")
    made = _made(scale.seeds, tiny)
    for part, module in chosen.items():
        paths = module.make(scale, results, where)
        _note(where / "made.json", name, part, made)
        for path in paths:
            typer.echo(f"{part}: {path}")


def _made(seeds: int, tiny: bool) -> dict[str, object]:
    """What made a result: the commit of the checkout, what was asked for, and the versions that the numbers depend on."""
    from gossamer.study.run import versions

    root = Path(gossamer.__file__).parents[2]
    asked = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, check=False)
    return {"commit": asked.stdout.strip() or "unknown", "seeds": seeds, "tiny": tiny, "versions": versions()}


def _note(path: Path, name: str, part: str, made: dict[str, object]) -> None:
    """Keep beside the results what made each of them."""
    notes = json.loads(path.read_text()) if path.exists() else {}
    command = f"gossamer reproduce {name} {part} --seeds {made['seeds']}" + (" --tiny" if made["tiny"] else "")
    notes[part] = {"command": command, "commit": made["commit"], "versions": made["versions"]}
    write_atomically(path, (json.dumps(notes, indent=2, sort_keys=True) + "\n").encode())


class _bar:
    """An overall bar with an estimate of the time left; a line now and then where there is no terminal."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._console, self._quiet, self._said = Console(stderr=True), quiet, time.monotonic()
        columns = (TextColumn("runs"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("left"))
        self._progress = Progress(*columns, TimeRemainingColumn(), console=self._console)
        self._task = self._progress.add_task("runs", total=1.0)

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
            self._console.print(f"runs {share:.0%}", highlight=False)
