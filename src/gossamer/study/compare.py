"""Compare methods: the same links, batches and start for all, over several seeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gossamer._core import checks
from gossamer.errors import Diverged, InputError
from gossamer.results.tables import Comparison, Method
from gossamer.study import spec
from gossamer.study.pools import Pool
from gossamer.study.run import Interrupted, Progress, run
from gossamer.study.study import Study, load
from gossamer.study.sweep import run_all
from gossamer.study.track import Callback


def compare(
    studies: Sequence[Study],
    seeds: int = 1,
    out: Path | str | None = None,
    progress: Callable[[str, int], Progress] = lambda label, seed: lambda done, total, record: None,
    pool: Pool | None = None,
    share: Callable[[float], None] = lambda done: None,
    callbacks: Sequence[Callback] = (),
) -> Comparison:
    """Run every study on every seed. In `out` each run has its folder; what is finished there is not run again.

    One run after the other, each with its `progress`; with a `pool` (and an `out`) several at once, with the `share` done.
    The `callbacks` follow each run in turn; they cannot follow those of a pool, which are elsewhere.

    >>> from gossamer import DPSGD, SwarmSGD
    >>> [m.label for m in compare([Study(DPSGD(), rounds=5), Study(SwarmSGD(), rounds=5)])]
    ['D-PSGD', 'SwarmSGD']
    """
    checks.whole("seeds", seeds, 1)
    if pool is not None and callbacks:
        raise InputError(
            "callbacks",
            [type(c).__name__ for c in callbacks],
            "none where the runs are in other processes",
        )
    _same_but_for_the_method(studies)
    names = labels(studies)
    if pool is not None and out is not None:
        cells = {
            _folder(out, label, seed): study.with_seed(seed)
            for study, label in zip(studies, names, strict=True)
            for seed in range(study.seed, study.seed + seeds)
        }
        run_all(
            cells, pool, share, keep_models=True
        )  # one that diverged says so when it is looked at again, below
    data: dict[Any, Any] = {}
    methods = Comparison()
    for study, label in zip(studies, names, strict=True):
        runs = []
        for seed in range(study.seed, study.seed + seeds):
            seeded = study.with_seed(seed)
            if seeded.data not in data:  # loaded once, shared by all runs
                data = {seeded.data: load(seeded.data)}
            folder = _folder(out, label, seed) if out is not None else None
            with _named(label, seed):
                shown, loaded = progress(label, seed), data[seeded.data]
                runs.append(
                    run(
                        seeded,
                        folder,
                        resume=True,
                        progress=shown,
                        data=loaded,
                        callbacks=callbacks,
                    )
                )
        methods.append(Method(label, tuple(runs)))
    return methods


def _folder(out: Path | str, label: str, seed: int) -> Path:
    return Path(out) / f"{slug(label)}-seed{seed}"


@contextmanager
def _named(label: str, seed: int) -> Iterator[None]:
    """Say which of the runs it was that stopped; a comparison always resumes what is there."""
    try:
        yield
    except (Diverged, Interrupted) as error:
        error.args = (
            f"{label}, seed {seed}: {str(error).replace('--resume', 'the same command')}",
        )
        raise


def labels(studies: Sequence[Study]) -> list[str]:
    """A name for each method in a table; methods that share one are told apart by what differs in them."""
    plain = [study.algorithm.label for study in studies]
    named = [
        label if plain.count(label) == 1 else f"{label} ({_difference(studies, k)})"
        for k, label in enumerate(plain)
    ]
    return [
        label if named.count(label) == 1 else f"{label} #{k + 1}" for k, label in enumerate(named)
    ]


def _difference(studies: Sequence[Study], k: int) -> str:
    own = vars(studies[k].algorithm)
    others = [vars(s.algorithm) for s in studies if s.algorithm.label == studies[k].algorithm.label]
    return (
        ", ".join(
            f"{name}={value}"
            for name, value in own.items()
            if any(o.get(name) != value for o in others)
        )
        or "same"
    )


def slug(label: str) -> str:
    """A label as a folder's name."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-")


def _same_but_for_the_method(studies: Sequence[Study]) -> None:
    """Refuse to compare what is not comparable: every field but the algorithm (and the name) must be the same."""
    if not studies:
        raise InputError("studies", [], "at least one study")
    first = studies[0]
    for other in studies[1:]:
        alike = replace(other, algorithm=first.algorithm, name=first.name)
        for name, value in vars(alike).items():
            if value != getattr(first, name):
                wanted, given = (spec.to_table(study).get(name) for study in (first, alike))
                field, wanted, given = spec.difference(wanted, given, name) or (
                    name,
                    getattr(first, name),
                    value,
                )
                raise InputError(
                    field,
                    given,
                    f"{wanted!r} as in the first study, so that the comparison is fair",
                )
