"""`gossamer reproduce`: the tables and figures of a paper, from a checkout of the repository."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import typer

import gossamer
from gossamer._core import checks
from gossamer._core.files import write_atomically
from gossamer.cli.progress import ShareBar
from gossamer.errors import DataError

if TYPE_CHECKING:
    from gossamer.study import Study
    from gossamer.study.pools import Pool


def load_paper(name: str) -> ModuleType:
    """The reproduction of a paper: papers/NAME in this folder, or in the checkout that gossamer is installed from."""
    for root in (Path.cwd(), Path(gossamer.__file__).parents[2]):
        if (root / "papers" / name / "paper.py").exists():
            sys.path.insert(0, str(root))
            return importlib.import_module(f"papers.{name}")
    raise DataError(f"there is no papers/{name} here: run this in a checkout of the repository")


def parts_of(paper: ModuleType, studies: bool | None = None) -> dict[str, ModuleType]:
    """A paper's parts by name: its tables, figures and theory, its studies, or (None) both."""
    itself, beyond = (*paper.TABLES_AND_FIGURES, *paper.THEORY), paper.STUDIES
    chosen = {None: (*itself, *beyond), False: itself, True: beyond}[studies]
    return {module.__name__.rpartition(".")[2]: module for module in chosen}


def reproduce(
    name: str,
    parts: list[str],
    seeds: int | None,
    tiny: bool,
    studies: bool,
    out: Path | None,
    pool: Pool,
    quiet: bool,
) -> None:
    """Run the cells that the parts need, each once, and make the parts."""
    paper = load_paper(name)
    known = parts_of(paper)
    for part in parts:
        checks.one_of("part", part, known)
    if seeds is not None:
        checks.whole("--seeds", seeds, 1)
    setting = importlib.import_module(f"papers.{name}.paper")
    scale = setting.TINY if tiny else setting.Scale()
    scale = scale if seeds is None else replace(scale, seeds=seeds)
    chosen = {part: known[part] for part in parts} or parts_of(paper, None if tiny else studies)
    folder = Path("runs") / f"reproduce-{name}"
    where = out or (folder / "tiny" if tiny else setting.HERE / "results")
    made = _made(scale.seeds, tiny)
    # All tables and figures are one sweep, and a second where some runs need what the first found. A study is long, and has
    # its own: what is done is then on the disk before the next begins.
    long = () if tiny else paper.STUDIES
    groups = [{part: module for part, module in chosen.items() if module not in long}]
    groups += [{part: module} for part, module in chosen.items() if module in long]
    for group in filter(None, groups):
        label = next(iter(group)) if len(group) == 1 else "runs"
        how = (folder, pool, quiet, label)
        first = [study for module in group.values() for study in module.cells(scale)]
        results = _swept(setting.Results(scale, {}), first, *how)
        then = [
            study
            for module in group.values()
            if hasattr(module, "then")
            for study in module.then(scale, results)
        ]
        results = _swept(results, then, *how)
        for part, module in group.items():
            paths = module.make(scale, results, where)
            _note(where / "made.json", name, part, made)
            for path in paths:
                typer.echo(f"{part}: {path}")


def _swept(
    results: Any, studies: list[Study], folder: Path, pool: Pool, quiet: bool, label: str
) -> Any:
    """The results, and the cells of these studies."""
    from gossamer.study.sweep import sweep

    if not studies:
        return results
    with ShareBar(quiet, label) as bar:
        cells = sweep(studies, folder, pool, bar)
    return replace(results, by_study={**results.by_study, **{cell.study: cell for cell in cells}})


def _made(seeds: int, tiny: bool) -> dict[str, object]:
    """What made a result: the commit of the checkout, what was asked for, and the versions that the numbers depend on."""
    from gossamer.study.versions import versions

    root = Path(gossamer.__file__).parents[2]
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "commit": asked.stdout.strip() or "unknown",
        "seeds": seeds,
        "tiny": tiny,
        "versions": versions(),
    }


def _note(path: Path, name: str, part: str, made: dict[str, object]) -> None:
    """Keep beside the results what made each of them."""
    notes = json.loads(path.read_text()) if path.exists() else {}
    command = f"gossamer reproduce {name} {part} --seeds {made['seeds']}" + (
        " --tiny" if made["tiny"] else ""
    )
    notes[part] = {"command": command, "commit": made["commit"], "versions": made["versions"]}
    write_atomically(path, (json.dumps(notes, indent=2, sort_keys=True) + "\n").encode())
