"""Compare methods: the same links, batches and start for all, over several seeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer.engines.observer import Observer
from gossamer.errors import Diverged, InputError, Interrupted
from gossamer.results.order import PlannedRun, write_comparison
from gossamer.results.tables import Comparison, Method
from gossamer.study import spec
from gossamer.study.pools import Pool
from gossamer.study.run import run
from gossamer.study.study import Study, load
from gossamer.study.sweep import run_all
from gossamer.study.warn import warn_of_few_links

MAX_SEEDS = 100_000  # of a comparison: their runs are held in memory together


@checked
def compare(
    studies: Sequence[Study],
    seeds: int = 1,
    out: Path | str | None = None,
    *,
    pool: Pool | None = None,
    progress: Callable[[float], None] = lambda share: None,
    observers: Sequence[Observer] = (),
) -> Comparison:
    """Run several methods on the same links, batches and start.

    Args:
        studies: One study per method; they may differ in the algorithm only.
        seeds: Number of seeds. Results are means with 95 % confidence intervals.
        out: Keep every run in a folder of its own below this one. Finished runs found there are
            not run again; interrupted ones are resumed.
        pool: Run several studies at once, in other processes; needs `out`. Without a pool they run
            one after the other.
        progress: Called with the share of the work that is done, from 0 to 1, if there is a pool.
        observers: Follow every run in turn, method by method and seed by seed. They cannot follow
            the runs of a pool.

    Returns:
        One `Method` per study, in the order given. Runs that diverged end there, the others go on;
        `Method.diverged` has them.

    Raises:
        InputError: If the studies differ in more than the algorithm.
        Interrupted: If the user stops a run.

    Example:
        >>> from gossamer import DPSGD, SwarmSGD
        >>> [m.label for m in compare([Study(DPSGD(), rounds=5), Study(SwarmSGD(), rounds=5)])]
        ['D-PSGD', 'SwarmSGD']
    """
    checks.whole("seeds", seeds, 1, MAX_SEEDS)
    if pool is not None and observers:
        names = [type(observer).__name__ for observer in observers]
        raise InputError("observers", names, "none if a pool runs the studies")
    _check_comparable(studies)
    named = list(zip(labels(studies), studies, strict=True))
    if out is not None:
        write_comparison(Path(out), _planned_runs(named, seeds))
    if pool is not None and out is not None:
        warn_of_few_links(studies[0])  # the pool's processes do not
        runs = {}
        for label, study in named:
            for seed in range(study.seed, study.seed + seeds):
                runs[_run_folder(out, label, seed)] = study.with_seed(seed)
        run_all(runs, pool, lambda done: progress(done.share), keep_models=True)
    comparison = Comparison()
    loaded: dict[Any, Any] = {}  # the data of the newest run, by their source
    for label, study in named:
        runs_of_method = []
        for seed in range(study.seed, study.seed + seeds):
            seeded = study.with_seed(seed)
            if seeded.data not in loaded:
                loaded = {seeded.data: load(seeded.data)}
            folder = None
            if out is not None:
                folder = _run_folder(out, label, seed)
            try:
                with _name_in_errors(label, seed):
                    ended = run(
                        seeded,
                        folder,
                        resume=True,
                        data=loaded[seeded.data],
                        observers=observers,
                    )
            except Diverged as error:  # a result like any other: the other runs go on
                ended = error.run
            runs_of_method.append(ended)
        comparison.append(Method(label, tuple(runs_of_method)))
    return comparison


def labels(studies: Sequence[Study]) -> list[str]:
    """Return a label per study, for tables. Equal labels are told apart by the fields that differ.

    Args:
        studies: Studies that differ in the algorithm only.

    Returns:
        The labels, all different.

    Example:
        >>> from gossamer import DPSGD
        >>> labels([Study(DPSGD(eta=0.1)), Study(DPSGD(eta=0.2))])
        ['D-PSGD (eta=0.1)', 'D-PSGD (eta=0.2)']
    """
    names = [study.algorithm.label for study in studies]
    described = []
    for index, name in enumerate(names):
        if names.count(name) > 1:
            name = f"{name} ({_distinct_fields(studies, index)})"
        described.append(name)
    unique = []
    for number, name in enumerate(described, 1):
        if described.count(name) > 1:
            name = f"{name} #{number}"
        unique.append(name)
    return unique


def slug(label: str) -> str:
    """Return a label in the form of a folder's name.

    Args:
        label: A method's label.

    Returns:
        Lower-case letters, digits, dots and hyphens.

    Example:
        >>> slug("WPM p=15")
        'wpm-p-15'
    """
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-")


def _planned_runs(named: Sequence[tuple[str, Study]], seeds: int) -> list[PlannedRun]:
    """Return the runs of a comparison, method by method and seed by seed."""
    planned = []
    for label, study in named:
        for seed in range(study.seed, study.seed + seeds):
            folder = _run_folder("", label, seed).name
            planned.append(PlannedRun(folder, label, seed, study.rounds))
    return planned


def _run_folder(out: Path | str, label: str, seed: int) -> Path:
    return Path(out) / f"{slug(label)}-seed{seed}"


@contextmanager
def _name_in_errors(label: str, seed: int) -> Iterator[None]:
    """Name the run in the message of an error; the same command resumes a comparison."""
    try:
        yield
    except Interrupted as error:
        message = str(error).replace("--resume", "the same command")
        error.args = (f"{label}, seed {seed}: {message}",)
        raise


def _distinct_fields(studies: Sequence[Study], index: int) -> str:
    """Return the fields of an algorithm in which others of the same label differ."""
    algorithm = studies[index].algorithm
    others = [vars(s.algorithm) for s in studies if s.algorithm.label == algorithm.label]
    distinct = []
    for name, value in vars(algorithm).items():
        is_public = not name.startswith("_")
        if is_public and any(other.get(name) != value for other in others):
            distinct.append(f"{name}={value}")
    return ", ".join(distinct) or "same"


def _check_comparable(studies: Sequence[Study]) -> None:
    """Raise an error unless the studies differ in the algorithm and the name only."""
    if not studies:
        raise InputError("studies", [], "at least one study")
    first = studies[0]
    for other in studies[1:]:
        same_method = replace(other, algorithm=first.algorithm, name=first.name)
        # The seeds of the parts follow the study's: if it differs, they are not the reason.
        for name, value in ({"seed": other.seed} | vars(same_method)).items():
            if value == getattr(first, name):
                continue
            field: str = name
            expected = getattr(first, name)
            given = value
            changed = spec.difference(
                spec.to_table(first).get(name), spec.to_table(same_method).get(name), name
            )
            if changed:
                field, expected, given = changed
            raise InputError(
                field, given, f"{expected!r} as in the first study, so that the comparison is fair"
            )
