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
from gossamer.cli.part_progress import PartProgress
from gossamer.cli.progress import duration
from gossamer.errors import DataError

if TYPE_CHECKING:
    from gossamer.results.run import Run
    from gossamer.study import Study
    from gossamer.study.pools import Pool

Modules = dict[str, ModuleType]  # the parts of a paper by name


def load_paper(name: str) -> ModuleType:
    """Import the reproduction of a paper.

    Args:
        name: The folder papers/NAME, below the working directory or in the checkout that gossamer
            is installed from.

    Returns:
        The package `papers.NAME`.

    Raises:
        DataError: If there is no such folder.
    """
    for root in (Path.cwd(), Path(gossamer.__file__).parents[2]):
        if (root / "papers" / name / "paper.py").exists():
            sys.path.insert(0, str(root))
            return importlib.import_module(f"papers.{name}")
    raise DataError(f"there is no papers/{name} here: run this in a checkout of the repository")


def parts_of(paper: ModuleType, studies: bool | None = None) -> Modules:
    """Return the parts of a paper by name.

    Args:
        paper: The package of a paper.
        studies: True for the longer studies, False for tables, figures and theory, None for all.
    """
    modules: list[ModuleType] = []
    if not studies:
        modules += [*paper.TABLES_AND_FIGURES, *paper.THEORY]
    if studies is None or studies:
        modules += paper.STUDIES
    return {module.__name__.rpartition(".")[2]: module for module in modules}


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
    """Run the studies that parts of a paper need, each once, and make the parts.

    Args:
        name: The paper.
        parts: Names of tables, figures and studies; empty for all.
        seeds: Number of seeds; None for the paper's own.
        tiny: Whether to run on small data.
        studies: Whether to make the longer studies instead of tables and figures, if `parts` is
            empty.
        out: Where tables and figures go; None for the paper's folder.
        pool: Where the studies run.
        quiet: Whether to show no progress.
    """
    paper = load_paper(name)
    known = parts_of(paper)
    for part in parts:
        checks.one_of("part", part, known)
    if seeds is not None:
        checks.whole("--seeds", seeds, 1)
    setting = importlib.import_module(f"papers.{name}.paper")
    folder = Path("runs") / f"reproduce-{name}"
    if tiny:
        scale = setting.TINY
        results_folder = out or folder / "tiny"
    else:
        scale = setting.Scale()
        results_folder = out or setting.HERE / "results"
    if seeds is not None:
        scale = replace(scale, seeds=seeds)
    if parts:
        chosen = {part: known[part] for part in parts}
    elif tiny:
        chosen = known
    else:
        # A paper may consist of studies only.
        chosen = parts_of(paper, studies) or known
    long_studies = paper.STUDIES
    if tiny:
        long_studies = ()
    origin = _origin(scale.seeds, tiny)
    for group in _groups(chosen, long_studies):
        results = _results(setting, scale, group, folder, pool, quiet)
        for part, module in group.items():
            paths = module.make(scale, results, results_folder)
            _write_origin(results_folder / "made.json", name, part, origin)
            for path in paths:
                typer.echo(f"{part}: {path}")


def _groups(chosen: Modules, long_studies: Any) -> list[Modules]:
    """Divide the parts of a paper into sweeps.

    All tables and figures are one sweep. A study takes long and is a sweep of its own, so that its
    results are on disk before the next begins.
    """
    together: Modules = {}
    single: list[Modules] = []
    for part, module in chosen.items():
        if module in long_studies:
            single.append({part: module})
        else:
            together[part] = module
    if together:
        return [together, *single]
    return single


def _results(
    setting: ModuleType, scale: Any, group: Modules, folder: Path, pool: Pool, quiet: bool
) -> Any:
    """Run what the parts of a group need: `cells`, then what `then` asks for until that is all."""
    from gossamer.study.sweep import sweep

    label = "runs"
    expected = None
    if len(group) == 1:
        label, module = next(iter(group.items()))
        expected = expected_runs(module, scale)
    has_waves = any(hasattr(module, "then") for module in group.values())
    results = setting.Results(scale, {})
    needed: list[Study] = []
    for module in group.values():
        needed += module.cells(scale)
    with PartProgress(label, has_waves, expected, quiet) as progress:
        while needed:
            results = _with(results, sweep(needed, folder, pool, progress))
            needed = []
            for module in group.values():
                if hasattr(module, "then"):  # optional: studies that depend on the results so far
                    needed += module.then(scale, results)
            needed = [study for study in needed if study not in results.by_study]
    return results


def _with(results: Any, runs: list[Run]) -> Any:
    """Return the results with runs added."""
    by_study = dict(results.by_study)
    for run in runs:
        by_study[run.study] = run
    return replace(results, by_study=by_study)


def list_parts(name: str) -> str:
    """Return the parts of a paper, a line each: name, number of runs, time on two cores, title.

    The time follows from what one core was measured to need: `SECONDS_PER_RUN` of a part, or else
    `SECONDS_PER_DEVICE_ROUND` of the paper. Without either, no time is shown.

    Args:
        name: The paper.
    """
    paper = load_paper(name)
    setting = importlib.import_module(f"{paper.__name__}.paper")
    lines = []
    for part, module in parts_of(paper).items():
        rate = getattr(setting, "SECONDS_PER_DEVICE_ROUND", None)
        size = _size(module, setting.Scale(), rate)
        lines.append(f"{part:<16} {size:<20} {module.TITLE}")
    return "\n".join(lines)


def _size(part: ModuleType, scale: Any, seconds_per_device_round: float | None) -> str:
    """Return the number of runs of a part, and how long they take on two cores."""
    if hasattr(part, "expected_runs"):
        runs = part.expected_runs(scale)
        return f"{runs} runs {duration(runs * part.SECONDS_PER_RUN / 2)}"
    studies = set(part.cells(scale))
    if not studies:
        return "no runs"
    more = ""
    if hasattr(part, "then"):
        more = "+"  # the number of further runs depends on the results
    if hasattr(part, "SECONDS_PER_RUN"):
        seconds = len(studies) * part.SECONDS_PER_RUN
    elif seconds_per_device_round is None:
        return f"{len(studies)}{more} runs"
    else:
        device_rounds = sum(study.network.devices * study.rounds for study in studies)
        seconds = device_rounds * seconds_per_device_round
    return f"{len(studies)}{more} runs {duration(seconds / 2)}{more}"


def expected_runs(part: ModuleType, scale: Any) -> int | None:
    """Return about how many runs a part needs.

    Args:
        part: The part.
        scale: The setting.

    Returns:
        What the part's function `expected_runs` says, if there is one; otherwise the number of
        its cells; None if the part asks for more runs when it knows the results of the first.
    """
    if hasattr(part, "expected_runs"):
        return int(part.expected_runs(scale))
    if hasattr(part, "then"):
        return None
    return len(set(part.cells(scale)))


def _origin(seeds: int, tiny: bool) -> dict[str, object]:
    """Return what made a result: the commit of the checkout, the options, and the versions."""
    from gossamer.backend import versions

    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(gossamer.__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "commit": described.stdout.strip() or "unknown",
        "seeds": seeds,
        "tiny": tiny,
        "versions": versions(),
    }


def _write_origin(path: Path, name: str, part: str, origin: dict[str, object]) -> None:
    """Write beside the results what made each of them."""
    origins = {}
    if path.exists():
        origins = json.loads(path.read_text())
    command = f"gossamer reproduce {name} {part} --seeds {origin['seeds']}"
    if origin["tiny"]:
        command += " --tiny"
    origins[part] = {
        "command": command,
        "commit": origin["commit"],
        "versions": origin["versions"],
    }
    write_atomically(path, (json.dumps(origins, indent=2, sort_keys=True) + "\n").encode())
