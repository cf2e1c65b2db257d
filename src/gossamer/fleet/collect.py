"""Gather the results of a fleet's devices into one run folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer._core.columns import Column, targets_of
from gossamer.backend import versions
from gossamer.engines import Plan, Record
from gossamer.errors import DataError, GossamerError
from gossamer.fleet import files
from gossamer.fleet.node import make_worker
from gossamer.fleet.received import Received, receive, unlike_the_others
from gossamer.fleet.service import plan_of, read_study
from gossamer.fleet.settings import Device, Fleet, read_devices
from gossamer.mirror import IdentityMap, MirrorMap
from gossamer.network import Links, Network, save
from gossamer.network import Sequence as LinkFile
from gossamer.results.folder import RunFolder, columns
from gossamer.results.statistics import summarise
from gossamer.study import spec
from gossamer.study.study import Study
from gossamer.tasks import Worker

LINKS = "links.parquet"

Line = dict[str, Any]  # one line of a device's log


@dataclass(frozen=True)
class Collected:
    """The devices whose results are collected, and the run folder.

    Args:
        devices: Their numbers.
        missing: Names of the devices without results.
        unfinished: The devices that have not run the last round, by name, and the rounds that they
            have run; their newest models are collected.
        refused: The devices whose files are not what a device writes, by name, and why.
        summary: The summary of the run.
        folder: The run folder.
    """

    devices: list[int]
    missing: list[str]
    unfinished: dict[str, int]
    refused: dict[str, str]
    summary: dict[str, Any]
    folder: Path


def collect(
    folder: Path, out: Path, study: Study | None = None, *, allow_code: bool = False
) -> Collected:
    """Gather the results of a fleet's devices into one run folder.

    Devices without results are left out, and those whose files are not what a device writes. A
    device that was away in a round that others measured has its last earlier measurement there. A
    device that still runs, or was stopped, has its newest model there.

    Args:
        folder: The folder of the fleet, with those of the devices in it.
        out: The run folder to write; it must be empty or missing.
        study: Replaces the spec of the fleet, for a study with parts made in Python.
        allow_code: Import and run the Python code that the spec names.

    Raises:
        DataError: If no device has results, or the run folder is not empty.
    """
    devices = read_devices(folder)
    study = study or read_study(devices[0], allow_code=allow_code)
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} exists and is not empty: give another name by --out")
    received, refused = _receive_all(devices, study.rounds)
    logs = {i: one.log for i, one in received.items()}
    present = [device for device in devices if device.device in received]
    missing = [d.name for d in devices if d.device not in received and d.name not in refused]
    if not present:
        raise DataError(
            f"no device in {folder} has results: copy their folders back, or wait for them"
        )
    unfinished = {}
    for device in present:
        done = logs[device.device][-1]["round"]
        if done < study.rounds:
            unfinished[device.name] = done
    merged = _MergedModel.of(present[0], study)
    records = _records([logs[device.device] for device in present], present, study, merged)
    out.mkdir(parents=True, exist_ok=True)
    fleet = devices[0].fleet
    links = _links(len(devices), logs, study.network.schedule, fleet)
    seconds = _seconds(logs, study.rounds, fleet)
    save(links, out / LINKS, max(study.rounds, 1 + max(links.pairs, default=0)))
    study = _as_it_ran(study, out / LINKS)
    metrics = _metrics(list(logs.values()), study)
    table = columns(records, metrics)
    summary = {
        "name": study.name,
        "method": study.algorithm.label,
        "seed": study.seed,
        "finished": True,
        "rounds": study.rounds,
        **summarise(table, targets_of(spec.to_table(study), [c.name for c in metrics])),
        "devices": [device.device for device in present],
        "missing": missing,
        "unfinished": unfinished,
        "refused": refused,
        "counts": {i: one.counts for i, one in received.items()},
        "seconds": round(seconds, 3),
        "versions": versions(),
    }
    run = RunFolder(out)
    run.create(spec.dumps(study))
    run.write_metrics(table, study.algorithm.label, study.seed)
    run.write_models(_stacked_models([device.folder / files.MODEL for device in present]))
    run.write_summary(summary)
    there = [device.device for device in present]
    return Collected(there, missing, unfinished, refused, summary, out)


def _receive_all(devices: list[Device], rounds: int) -> tuple[dict[int, Received], dict[str, str]]:
    """Return what came back, by device; and by name why the results of others are refused."""
    received: dict[int, Received] = {}
    refused: dict[str, str] = {}
    for device in devices:
        try:
            found = receive(device, rounds)
        except (DataError, OSError) as error:
            refused[device.name] = str(error)
            continue
        if found is not None:
            received[device.device] = found
    present = [device for device in devices if device.device in received]
    unlike = unlike_the_others(present, {i: one.log for i, one in received.items()})
    for device in present:
        if device.device in unlike:
            del received[device.device]
            refused[device.name] = "its model has other names or shapes than those of the others"
    return received, refused


def _as_it_ran(study: Study, links: Path) -> Study:
    """Return the study with the links over which devices exchanged, measured as devices do."""
    at: Any = f"after_{study.algorithm.ends_with}"
    return replace(
        study, network=LinkFile(links, beyond="empty"), measure=replace(study.measure, at=at)
    )


def _stacked_models(paths: list[Path]) -> dict[str, torch.Tensor]:
    models = [files.read_model(path) for path in paths]
    return {name: torch.stack([model[name] for model in models]) for name in models[0]}


@dataclass(frozen=True)
class _Committed(Network):
    """The links over which devices have exchanged, with the weights of their schedule if any."""

    devices: int
    pairs: dict[int, list[tuple[int, int]]]
    followed: Network | None

    @property
    def weighted(self) -> bool:  # type: ignore[override]
        return self.followed is not None

    def links(self, t: int) -> Links:
        links = Links.of(self.devices, self.pairs.get(t, []))
        if self.followed is None:
            return links
        scheduled = self.followed.links(t)
        used = np.isin(scheduled.a * self.devices + scheduled.b, links.a * self.devices + links.b)
        return scheduled.keep(used)


def _links(
    devices: int, logs: dict[int, list[Line]], followed: Network | None, fleet: Fleet
) -> _Committed:
    """Return the links that either end has logged: the other end may be missing.

    At the pace of contacts devices have no common rounds: a round of the links is then a slot of
    the seconds since each device began.
    """
    pairs: dict[int, set[tuple[int, int]]] = {}
    for i, log in logs.items():
        for line in log:
            t = line["round"] - 1
            if fleet.pace == "contacts":
                t = int(line["seconds"] // fleet.slot)
            for j in line["met"]:
                pairs.setdefault(t, set()).add((min(i, j), max(i, j)))
    return _Committed(devices, {t: sorted(found) for t, found in pairs.items()}, followed)


def _seconds(logs: dict[int, list[Line]], rounds: int, fleet: Fleet) -> float:
    """Return how long the run took: by the clock, or as the slowest device has logged."""
    if fleet.pace == "slots":
        return rounds * fleet.slot
    return max(log[-1]["seconds"] for log in logs.values() if log)


@dataclass(frozen=True)
class _MergedModel:
    """Scores the mean of all devices' models on the test samples of one of them."""

    plan: Plan
    worker: Worker

    @classmethod
    def of(cls, device: Device, study: Study) -> _MergedModel | None:
        """Return the scorer; None if the study does without, or the samples are not here."""
        if not study.measure.merged:
            return None
        try:
            plan = plan_of(device, study)
        except (GossamerError, OSError):
            return None
        return cls(plan, make_worker(plan, device.device))

    def scores(self, paths: list[Path], mirror: MirrorMap) -> dict[str, float]:
        """Return loss and metrics of the mean of the models in some files; NaN if there are none.

        Args:
            paths: The models of the devices that took part in the round.
            mirror: The mirror map of the mean.
        """
        if not paths or not all(path.exists() for path in paths):
            return dict.fromkeys(["loss", *(metric.name for metric in self.plan.metrics)], np.nan)
        learner = self.plan.task.learner
        parts = _stacked_models(paths)
        dtype = getattr(torch, self.plan.dtype)
        mean = mirror.mean(learner.stack(parts).to(dtype))
        buffers = {}
        for name, own in self.worker.buffers.items():
            buffers[name] = parts.get(name, own)[:1]
            if own.is_floating_point() and name in parts:
                buffers[name] = parts[name].mean(0, keepdim=True).to(own)
        with torch.no_grad():
            scores = self.worker.scores(mean[None].contiguous(), self.plan.metrics, buffers)
        values = {"loss": float(scores.loss)}
        for name, value in scores.metrics.items():
            values[name] = float(value)
        return values


def _records(
    logs: list[list[Line]], devices: list[Device], study: Study, merged: _MergedModel | None
) -> list[Record]:
    """Return a record for every round that any device has measured."""
    rounds: set[int] = set()
    for log in logs:
        rounds.update(line["round"] for line in log if "loss" in line)
    records = []
    for t in sorted(rounds):
        record, paths = _record(t, logs, devices, study)
        if merged is not None:
            mirror = study.algorithm.mirror_at(t)
            record = replace(record, merged=merged.scores(paths, IdentityMap()))
            if merged.plan.measures_power_mean:
                record = replace(record, merged_power=merged.scores(paths, mirror))
        records.append(record)
    return records


def _record(
    t: int, logs: list[list[Line]], devices: list[Device], study: Study
) -> tuple[Record, list[Path]]:
    """Return the record of a round, and the models of the devices that took part in it."""
    measured = []  # the last measurement of each device
    messages = 0
    sent_bytes = 0
    seconds = None
    for log in logs:
        until = [line for line in log if line["round"] <= t]
        measured.append(next((line for line in reversed(until) if "loss" in line), {}))
        if until:
            messages += until[-1]["messages"]
            sent_bytes += until[-1]["bytes"]
            if "seconds" in until[-1]:
                seconds = max(seconds or 0.0, until[-1]["seconds"])
    loss = _filled([line.get("loss", np.nan) for line in measured])
    metrics = {}
    for column in _metrics(logs, study)[:-1]:
        values = [line.get("metrics", {}).get(column.name, np.nan) for line in measured]
        metrics[column.name] = _filled(values)
    paths = []
    taking_part = []
    for device, line in zip(devices, measured, strict=True):
        path = files.history_file(device.folder, line.get("round", -1))
        paths.append(path)
        if line.get("round") == t:
            taking_part.append(path)
    distance, to_power = _distances(paths, study.algorithm.mirror_at(t))
    record = Record(t, loss, metrics, distance, to_power, messages, sent_bytes, seconds)
    return record, taking_part


def _metrics(logs: list[list[Line]], study: Study) -> list[Column]:
    """Return the metrics that the devices have measured, and the loss."""
    names: dict[str, None] = {}
    for log in logs:
        for line in log:
            names |= dict.fromkeys(line.get("metrics", {}))
    return [column for column in study.measure.columns_in(names) if column.name in (*names, "loss")]


def _filled(values: list[float]) -> Any:
    """Replace the values of devices that have yet to join by the mean of the others."""
    found = np.array(values)
    known = found[~np.isnan(found)]
    if not len(known):
        return found
    return np.where(np.isnan(found), known.mean(), found)


def _distances(paths: list[Path], mirror: MirrorMap) -> tuple[Any, Any]:
    """Return the distances from the mean and from the power mean; NaN if a model is missing."""
    if not all(path.exists() for path in paths):
        unknown = np.full(len(paths), np.nan)
        return unknown, unknown
    flat = []
    for path in paths:
        flat.append(torch.cat([x.flatten() for x in files.read_model(path).values()]))
    w = torch.stack(flat).double()
    distance = (w - w.mean(0)).norm(dim=1).numpy()
    if mirror.power == 1:
        return distance, distance
    return distance, (w - mirror.mean(w)).norm(dim=1).numpy()
