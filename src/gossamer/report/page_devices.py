"""What a page knows of single devices beside their measurements: labels and confusion matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.engines import Plan
from gossamer.errors import GossamerError
from gossamer.report.confusion import MAX_PRODUCTS, class_names, confusion, products
from gossamer.results.run import Run
from gossamer.study.study import load

_MAX_COUNTS = 200_000  # devices × classes of all splits of a page
_NOT_LOADED = ("hf",)  # kinds of data that may be downloaded
# Models that were not kept, are of an earlier version, or have other shapes than the spec says.
_UNFIT = (GossamerError, LookupError, ValueError, RuntimeError)


@dataclass
class DeviceFacts:
    """The labels of all splits of a page, and what is known of each run.

    Attributes:
        labels: The names of the classes, and how many samples of each every device has.
        runs: For each run the index of its labels and its confusion matrices, or None.
    """

    labels: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)


def device_facts(runs: Sequence[Run]) -> DeviceFacts:
    """Return the labels and confusion matrices of the devices, as far as data are at hand.

    Args:
        runs: Runs with their studies, where they can be built.
    """
    facts = DeviceFacts()
    loaded: dict[Any, Any] = {}  # the newest data, by their source
    room = _MAX_COUNTS
    left = MAX_PRODUCTS
    for run in runs:
        plan = _plan_of(run, loaded)
        own: dict[str, Any] = {"labels": None, "confusion": None}
        facts.runs.append(own)
        if plan is None or plan.task.data.classes is None or plan.task.data.y.ndim != 1:
            continue
        size = plan.task.devices * plan.task.data.classes
        if size <= room:
            room -= size
            own["labels"] = _index(facts.labels, _labels(plan))
        own["confusion"] = _confusion(run, plan, left)
        if own["confusion"] is not None:
            left -= min(products(plan), left)
    return facts


def _plan_of(run: Run, loaded: dict[Any, Any]) -> Plan | None:
    """Return the plan of a run with its data; None if they are not on this machine."""
    if run.study is None or run.spec.get("data", {}).get("kind") in _NOT_LOADED:
        return None
    try:
        if run.study.data not in loaded:
            loaded.clear()
            loaded[run.study.data] = load(run.study.data)
        plan: Plan = run.study.plan(loaded[run.study.data])
    except (GossamerError, TypeError):  # data that are gone, or that have no hash
        return None
    return plan


def _labels(plan: Plan) -> dict[str, Any]:
    """Return how many training samples of each class every device has."""
    task = plan.task
    assert task.data.classes is not None
    device = np.repeat(np.arange(task.devices), task.split.sizes)
    label = task.data.y.numpy()[task.split.index]
    counts = np.zeros((task.devices, task.data.classes), dtype=np.int64)
    np.add.at(counts, (device, label), 1)
    return {"names": class_names(plan), "counts": counts.tolist()}


def _index(found: list[dict[str, Any]], entry: dict[str, Any]) -> int:
    """Return the index of an entry in a list; it is added if it is not there."""
    if entry not in found:
        found.append(entry)
    return found.index(entry)


def _confusion(run: Run, plan: Plan, max_products: int) -> dict[str, Any] | None:
    if not run.finished:
        return None
    try:
        return confusion(plan, run.models, max_products)
    except _UNFIT:
        return None
