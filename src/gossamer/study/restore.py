"""The study of a run that was read from its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gossamer.errors import DataError
from gossamer.results.run import Run
from gossamer.study import spec
from gossamer.study.spec.text import resolve_paths
from gossamer.study.study import Study


def study_of(run: Run, *, allow_code: bool = False) -> Study:
    """Return the study of a run: the one that it was made from, or one built from its spec.

    Args:
        run: A run, made in this process or read from its folder.
        allow_code: Import and run the Python code that the spec names.

    Raises:
        GossamerError: Parts of the study were made in Python, or need code that is not allowed or
            files that are gone.

    Example:
        >>> study_of(Run.read("runs/demo/d-psgd-seed0")).rounds        # doctest: +SKIP
        200
    """
    if isinstance(run.study, Study):
        return run.study
    folder = run.folder or Path.cwd()
    table = resolve_paths(folder.absolute(), run.spec)
    studies = spec.studies(table, allow_code=allow_code)
    if len(studies) != 1:
        raise DataError(f"{folder} is not of one run: its spec has {len(studies)} methods")
    return studies[0]


def with_study(run: Run, *, allow_code: bool = False) -> Run:
    """Return a run with its study, and with the label that the study's method has.

    Args:
        run: A run, made in this process or read from its folder.
        allow_code: As in `study_of`.

    Raises:
        GossamerError: As `study_of`.
    """
    study = study_of(run, allow_code=allow_code)
    return replace(run, study=study, method=study.algorithm.label)
