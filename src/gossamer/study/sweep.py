"""Run many studies, each once; keep every result, and run only what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.results.run import Run
from gossamer.study import spec
from gossamer.study.pools import Pool, Processes, is_done
from gossamer.study.study import Study

# The cost of a run in device-rounds: one measurement costs about as much as this many rounds.
_ROUNDS_PER_MEASUREMENT = 5
# The cost of starting a run, in device-rounds.
_START = 100


class Failed(GossamerError):
    """Raised when some runs of a sweep failed; the others are done. Exit code 1."""

    exit_code = 1


@dataclass(frozen=True)
class Done:
    """How much of a sweep is done.

    Attributes:
        runs: Number of finished runs, those of earlier sweeps included.
        of: Number of all runs.
        share: Share of the work, from 0 to 1; long runs count more than short ones.
    """

    runs: int
    of: int
    share: float


Progress = Callable[[Done], None]


def _no_progress(done: Done) -> None:
    """Show nothing."""


def sweep(
    studies: Sequence[Study],
    folder: Path,
    pool: Pool | None = None,
    progress: Progress = _no_progress,
) -> list[Run]:
    """Run every study that a folder does not hold yet, and return the runs of all.

    Equal studies are run once. A sweep that was stopped continues where it was: finished runs are
    read, interrupted ones resumed.

    Args:
        studies: What to run.
        folder: Where the runs are kept, each in a folder of its own.
        pool: Where they run. None: in processes of this machine, one per core.
        progress: Called with what is done: at the start, and after every run.

    Returns:
        One run per study, in order. One that diverged has its measurements until then.

    Raises:
        Failed: If some runs failed; the others are finished first.

    Example:
        >>> sweep([Study(seed=seed) for seed in range(5)], Path("runs"))      # doctest: +SKIP
    """
    paths = []
    missing = {}
    for study in studies:
        single = replace(study, threads=1)
        path = run_path(folder, single)
        paths.append(path)
        missing[path] = single
    run_all(missing, pool, progress)
    runs = []
    for path, study in zip(paths, studies, strict=True):
        runs.append(replace(Run.read(path), study=study))
    return runs


def run_all(
    studies: dict[Path, Study],
    pool: Pool | None,
    progress: Progress = _no_progress,
    keep_models: bool = False,
) -> None:
    """Run the studies whose folders hold no finished run.

    Args:
        studies: What to run, by run folder.
        pool: Where they run. None: in processes of this machine, one per core.
        progress: Called with what is done: at the start, and after every run.
        keep_models: Whether the folders keep the final models too.

    Raises:
        Failed: If some runs failed; the others are finished first.
    """
    costs = {path: _cost(study) for path, study in studies.items()}
    missing = [(path, study) for path, study in studies.items() if not is_done(path)]
    left = {path: costs[path] for path, _ in missing}

    def report() -> None:
        share = 1.0
        if left:
            share -= sum(left.values()) / sum(costs.values())
        progress(Done(len(costs) - len(left), len(costs), share))

    report()
    if not missing:
        return
    # The longest first, so that no core waits for a long run at the end.
    missing.sort(key=lambda pair: -costs[pair[0]])
    failed: dict[Path, str] = {}
    for path, problem in (pool or Processes()).each(missing, keep_models):
        del left[path]
        report()
        if problem is not None:
            failed[path] = problem
    if failed:
        raise Failed(_failure(failed, studies))


def _failure(failed: dict[Path, str], studies: dict[Path, Study]) -> str:
    """Return the message for failed runs; it names the first of them."""
    path, problem = next(iter(failed.items()))
    more = ""
    if len(failed) > 1:
        more = f", and {len(failed) - 1} more"
    study = studies[path]
    return (
        f"{len(failed)} of {len(studies)} runs failed: {study.algorithm.label}, "
        f"seed {study.seed} ({path}): {problem}{more}; "
        "the others are kept, and the same command runs only what is missing"
    )


def run_path(folder: Path, study: Study) -> Path:
    """Return the folder of a study's run in a sweep.

    Args:
        folder: The folder of the sweep.
        study: The study.

    Returns:
        A path that names the method and contains a digest of the whole study, which a sweep runs
        with one thread.
    """
    method = type(study.algorithm).__name__.lower()
    digest = spec.digest(replace(study, threads=1))
    return folder / f"{method}-{study.network.devices}-{digest}"


def _cost(study: Study) -> float:
    """Estimate the cost of a run in device-rounds, for the progress bar and the order."""
    measurements = study.rounds / max(1, study.measure.every)
    rounds = study.rounds + _ROUNDS_PER_MEASUREMENT * measurements
    return study.network.devices * rounds + _START
