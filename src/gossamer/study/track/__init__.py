"""Observers that write for experiment trackers: Weights & Biases, MLflow, TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gossamer.errors import InputError, nearest
from gossamer.results.tables import Method
from gossamer.study.observers import ObserverGroup
from gossamer.study.track.base import Tracker
from gossamer.study.track.mlflow import MLflow
from gossamer.study.track.tensorboard import TensorBoard
from gossamer.study.track.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "Tracker", "WandB", "track_finished", "trackers"]

TRACKERS = ("wandb", "mlflow", "tensorboard")
"""The names after `--track`."""


def trackers(name: str | None, group: str | None = None) -> list[Tracker]:
    """Return the observers of `--track NAME`.

    Args:
        name: One of `TRACKERS`, or None for no tracker.
        group: The group of wandb and the experiment of MLflow, unless the environment names one.
            None: the study's name.

    Returns:
        The observers; none if `name` is None.

    Raises:
        InputError: If the tracker is not known.
        MissingExtra: If its package is not installed.
    """
    if name is None:
        return []
    if name == "wandb":
        group = os.environ.get("WANDB_RUN_GROUP") or group
        return [WandB(group=group, settings={"silent": True})]
    if name == "mlflow":
        return [MLflow(os.environ.get("MLFLOW_EXPERIMENT_NAME") or group)]
    if name == "tensorboard":
        return [TensorBoard()]
    raise InputError("track", name, f'"wandb", "mlflow" or "tensorboard"{nearest(name, TRACKERS)}')


def track_finished(methods: Sequence[Method], tracking: Sequence[Tracker]) -> None:
    """Write finished runs for trackers that could not follow them, as those of another process.

    Args:
        methods: The methods of a comparison, with their runs.
        tracking: The trackers.
    """
    observers = ObserverGroup(tracking)
    for method in methods:
        for run in method.runs:
            if run.folder is not None:
                observers.skipped(run.study, run.folder)
