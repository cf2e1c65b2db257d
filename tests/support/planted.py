"""Cheap searches: measurements that come from a formula, and runs in this process."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer as gs
from gossamer.algorithms import GainControl
from gossamer.algorithms.registry import LogRange, Method
from gossamer.study.sweep import Done, Progress

# The package has a function of the same name, which hides the module.
tuning = importlib.import_module("gossamer.study.tune.search")

STUDY = gs.Study(
    gs.DPSGD(), gs.Random(10, 0.2), split=gs.OneLabel(), rounds=90, measure=gs.Measure(every=10)
)
BASELINE = gs.METHODS["d-psgd"]
FAST = Method("fast", GainControl, "Fast", "", tune={"eta": LogRange(0.01, 1)})
WILD = Method("wild", gs.SwarmSGD, "Wild", "", tune={"eta": LogRange(0.01, 1)})

# The measurements of a study, or None if it diverges.
Formula = Callable[[gs.Study], dict[str, Any] | None]


def curve(rounds: int, speed: float, every: int = 10, end: float = 1.0) -> dict[str, Any]:
    """Return a curve that rises at this speed; the worst device is 0.1 lower."""
    round_ = np.array([*range(0, rounds, every), rounds])
    accuracy = end * (1 - np.exp(-speed * round_))
    return {
        "round": round_,
        "bytes": 1000 * round_,
        "accuracy": accuracy,
        "accuracy_worst": accuracy - 0.1,
    }


def peak(eta: float, best: float, width: float = 1.0) -> float:
    """Return 1 at the best rate, and less the further away a rate is."""
    return float(np.exp(-((np.log(eta / best) / width) ** 2)))


def formula(study: gs.Study) -> dict[str, Any] | None:
    """Fast is best at η = 0.2, D-PSGD at 0.05 and slower; Wild diverges above η = 0.1."""
    eta = vars(study.algorithm)["eta"]
    if isinstance(study.algorithm, gs.SwarmSGD):
        return None if eta > 0.1 else curve(study.rounds, 0.001)
    best_eta = 0.05
    best_speed = 0.04
    if isinstance(study.algorithm, GainControl):
        best_eta = 0.2
        best_speed = 0.08
    noise = 0.002 * (study.seed % 3)
    return curve(study.rounds, best_speed * peak(eta, best_eta) + noise)


def plant(monkeypatch: pytest.MonkeyPatch, measure: Formula = formula) -> list[gs.Study]:
    """Replace `sweep` by a formula; return the list of studies that the search runs."""
    asked: list[gs.Study] = []

    def sweep(
        studies: Sequence[gs.Study], folder: Path, workers: int, progress: Progress
    ) -> list[gs.Run]:
        asked.extend(studies)
        folder.mkdir(parents=True, exist_ok=True)
        progress(Done(0, len(studies), 0.0))
        progress(Done(len(studies), len(studies), 1.0))
        found = []
        for study in studies:
            metrics = measure(study)
            summary: dict[str, Any] = {}
            if metrics is None:
                summary["diverged"] = {"round": 1}
            found.append(gs.Run({}, metrics or {}, summary, study=study))
        return found

    monkeypatch.setattr(tuning, "sweep", sweep)
    return asked


class _HereAndNow:
    """A pool that runs the studies one after the other, without processes that load torch."""

    def each(
        self, studies: Sequence[tuple[Path, gs.Study]], keep_models: bool = False
    ) -> Iterator[tuple[Path, str | None]]:
        for path, study in studies:
            gs.run(study, path, keep_models=keep_models)
            yield path, None


def run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command `gossamer tune` run its studies in this process."""

    @contextmanager
    def pool_on(engine: object, workers: int) -> Iterator[_HereAndNow]:
        yield _HereAndNow()

    monkeypatch.setattr("gossamer.cli.tune.pool_on", pool_on)
