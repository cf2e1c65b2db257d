"""Many studies: each run once, every result kept as it comes, what is there not run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.results.run import Run
from gossamer.study import spec
from gossamer.study.pools import Pool, Processes, done
from gossamer.study.study import Study


class Failed(GossamerError):
    """Some runs of a sweep could not be done; the others are. Exit code 1."""

    exit_code = 1


def sweep(
    studies: Sequence[Study],
    folder: Path,
    pool: Pool | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> list[Run]:
    """Run every study that `folder` does not hold yet (by default in processes, one a core), and give all their results.

    Equal studies are run once. A sweep that is stopped goes on where it was: finished cells are read, half-run ones resumed.
    Where cells fail the others are finished, and `Failed` names them.
    """
    cells = [replace(study, threads=1) for study in studies]
    paths = {cell_path(folder, cell): cell for cell in cells}
    run_all(paths, pool, progress)
    return [
        replace(Run.read(cell_path(folder, cell)), study=study)
        for study, cell in zip(studies, cells, strict=True)
    ]


def run_all(
    cells: dict[Path, Study],
    pool: Pool | None,
    progress: Callable[[float], None] = lambda share: None,
    keep_models: bool = False,
) -> None:
    """Run the studies whose folders hold no finished run."""
    missing = {path: cell for path, cell in cells.items() if not done(path)}
    work = {path: _work(cell) for path, cell in cells.items()}
    total, finished = sum(work.values()), sum(work[path] for path in cells if path not in missing)
    progress(finished / total if total else 1.0)
    failed: dict[Path, str] = {}
    # the longest first, so that no core is left waiting for one at the end
    ordered = sorted(missing.items(), key=lambda cell: -work[cell[0]])
    for path, problem in (pool or Processes()).each(ordered, keep_models) if ordered else ():
        finished += work[path]
        progress(finished / total)
        if problem is not None:
            failed[path] = problem
    if failed:
        (path, problem), *rest = failed.items()
        more = f", and {len(rest)} more" if rest else ""
        raise Failed(
            f"{len(failed)} of {len(cells)} runs failed: {cells[path].algorithm.label}, seed {cells[path].seed} ({path}): "
            f"{problem}{more}; the others are kept, and the same command runs only what is missing"
        )


def cell_path(folder: Path, study: Study) -> Path:
    """Where a study's cell is kept: named by its method and by a digest of all that it says."""
    return (
        folder
        / f"{type(study.algorithm).__name__.lower()}-{study.network.devices}-{spec.digest(study)}"
    )


def _work(study: Study) -> float:
    """What a cell costs, roughly, for the progress bar and the order."""
    measured = study.rounds / max(1, study.measure.every)
    return study.network.devices * (study.rounds + 5 * measured) + 100
