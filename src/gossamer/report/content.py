"""What a page shows, from runs to plain dictionaries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer._core.columns import Column
from gossamer._core.versions import version
from gossamer.errors import GossamerError
from gossamer.network import Network
from gossamer.report import grouping, links, pack, page_tables
from gossamer.report.answer import answer
from gossamer.report.description import describe
from gossamer.report.page_curves import curves
from gossamer.report.page_devices import device_facts
from gossamer.report.page_settings import run_settings, settings_table
from gossamer.report.page_weights import weights
from gossamer.results import palette
from gossamer.results.run import Run
from gossamer.results.tables import Method, runs_of
from gossamer.study import Study

# Largest size of the devices' measurements in a page, before compression.
_DEVICE_BYTES = 64_000_000
_LAYOUT_ROUNDS = 100  # rounds whose links determine the layout of the devices
_MAX_DIFFERENCES = 8  # differences between runs that a note lists


def report_content(runs: Sequence[Run]) -> tuple[dict[str, Any], list[str]]:
    """Return what a report shows, and each run's exact measurements.

    Args:
        runs: Runs as `grouping.read` returns them.

    Returns:
        The content as plain dictionaries, and a packed block of measurements per run.
    """
    methods, notes = grouping.group_by_method(runs)
    kept = runs_of(methods)
    with_devices = _device_bytes(kept) <= _DEVICE_BYTES
    if not with_devices:
        notes.append(
            "There are too many devices and measurements for one page: "
            "each device's own are left in the run folders."
        )
    drawn, networks_of_runs = networks(kept)
    blocks = []
    details = []
    of_devices = device_facts(kept)
    for run, network, facts in zip(kept, networks_of_runs, of_devices.runs, strict=True):
        columns, block = measurements(run, with_devices)
        blocks.append(block)
        details.append({"columns": columns, "weights": weights(run)} | network | facts)
    content = contents(methods, notes, details, drawn)
    return content | {"labels": of_devices.labels}, blocks


def contents(
    methods: Sequence[Method],
    notes: Sequence[str],
    details: Sequence[dict[str, Any]],
    drawn_networks: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return all that a page shows.

    Args:
        methods: The methods, in the order of their colours.
        notes: Sentences to read before the numbers.
        details: More about each run, in the order of the methods and their runs.
        drawn_networks: The networks, which `details` refer to by their index.
    """
    names: dict[str, None] = {}
    ended = []
    facts = []
    more = iter(details)
    for method in methods:
        for run in method.runs:
            names[run.name] = None
            facts.append(run_facts(run, method.label) | next(more))
            if run.status not in ("finished", "running"):
                name = grouping.short_name(run)
                ended.append(f"{name} ({method.label}, seed {run.seed}) {run.status_text}.")
            elif run.finished and not run.metrics:
                name = grouping.short_name(run)
                ended.append(f"{name} is finished, but its metrics.parquet is missing.")
    return {
        "title": ", ".join(names),
        "version": version("gossamer"),
        "answer": answer(methods),
        "notes": [*_difference_notes(methods), *notes, *ended],
        "description": describe(methods),
        "differences": settings_table(methods),
        "settings": run_settings(runs_of(methods)),
        "dashes": [palette.dash_array(dash) for dash in range(len(palette.DASHES))],
        "results": page_tables.results(methods),
        "others": page_tables.other_results(methods),
        "targets": page_tables.targets(methods),
        "metrics": [_metric_facts(metric, methods) for metric in page_tables.metrics_of(methods)],
        "curves": curves(methods),
        "runs": facts,
        "networks": list(drawn_networks),
    }


def _metric_facts(metric: Column, methods: Sequence[Method]) -> dict[str, Any]:
    """Return what a page needs to know of a metric to draw it."""
    targets = [t.value for t in page_tables.all_targets(methods) if t.name == metric.name]
    return {
        "name": metric.name,
        "unit": metric.printed_unit,
        "scale": metric.scale,
        "share": metric.share,
        "rising": metric.rising,
        "targets": targets,
    }


def run_facts(run: Run, label: str) -> dict[str, Any]:
    """Return what a page says about one run.

    Args:
        run: The run.
        label: The label of its method on this page.
    """
    versions = run.summary.get("versions", {})
    return {
        "name": grouping.short_name(run),
        "label": label,
        "seed": run.seed,
        "state": run.status_text or "finished",
        "finished": run.finished,
        "rounds": run.spec.get("rounds"),
        "seconds": pack.drawn_number(float(run.summary.get("seconds") or 0)),
        "versions": {name: str(value) for name, value in versions.items()},
        "command": command_line(str(run.summary.get("command", ""))),
        "spec": run.spec_text,
        "rows": len(run.metrics.get("round", ())),
        # Whether the engine tells what devices do over time.
        "activity": _engine_kind(run) == "events",
    }


def _engine_kind(run: Run) -> str:
    """Return the kind of the engine in a run's spec; empty if it has none."""
    engine = run.spec.get("engine", {})
    return str(engine.get("kind", "")) if isinstance(engine, dict) else str(engine)


def measurements(run: Run, with_devices: bool = True) -> tuple[list[dict[str, Any]], str]:
    """Return a run's exact measurements, packed.

    Args:
        run: The run.
        with_devices: True to include the measurements of single devices.

    Returns:
        A description of the columns, and their values (see `pack.table`).
    """
    columns = {}
    for name, values in run.metrics.items():
        if with_devices or values.ndim == 1:
            columns[name] = values
    return pack.table(columns)


def command_line(words: str) -> str:
    """Return a command as it was given, without where Python lies on this machine.

    Args:
        words: The command with its arguments.

    Example:
        >>> command_line("/home/ada/.venv/bin/gossamer run a.toml")
        'gossamer run a.toml'
    """
    first, _, rest = words.partition(" ")
    if Path(first).name in ("gossamer", "__main__.py"):
        return f"gossamer {rest}".strip()
    return words


@dataclass
class _Drawing:
    """A network that is drawn for some runs, until the last round that any of them has done."""

    network: Network
    measured_after_mix: bool
    rounds: int = 0


def networks(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draw the networks of some runs, each once.

    Args:
        runs: The runs, with their studies where they can be built.

    Returns:
        The networks as pages draw them; and for each run the index of its own under "network", or
        None with the reason under "why".
    """
    drawings: dict[str, _Drawing] = {}
    keys = []
    for run in runs:
        key = ""
        if run.study is not None and run.metrics:
            halfway = measured_halfway(run.study)
            key = json.dumps([run.spec.get("network"), halfway], sort_keys=True, default=str)
            drawing = drawings.setdefault(key, _Drawing(run.study.network, halfway))
            drawing.rounds = max(drawing.rounds, int(run.metrics["round"][-1]))
        keys.append(key)
    drawn: list[dict[str, Any]] = []
    indices: dict[str, int] = {}
    problems: dict[str, str] = {}
    for key, drawing in drawings.items():
        plan = links.frame_plan(
            drawing.network,
            drawing.rounds,
            links.MAX_BYTES // len(drawings),
            links.MAX_LOOKED // len(drawings),
        )
        ends = [end for _, end in plan.spans]
        layout_rounds = [ends[k] for k in pack.evenly(len(ends), _LAYOUT_ROUNDS)]
        try:
            picture = links.Drawn(drawing.network, layout_rounds, drawing.measured_after_mix)
            frames = picture.frames(plan)
        except GossamerError as error:  # such as a trace that has become shorter
            problems[key] = str(error)
            continue
        indices[key] = len(drawn)
        drawn.append(frames)
    networks_of_runs: list[dict[str, Any]] = []
    for run, key in zip(runs, keys, strict=True):
        if key in indices:
            networks_of_runs.append({"network": indices[key]})
            continue
        why = grouping.missing_study(run) or problems.get(key, "nothing has been measured yet")
        networks_of_runs.append({"network": None, "why": why})
    return drawn, networks_of_runs


def measured_halfway(study: Study) -> bool:
    """True if models are measured in the middle of a round, between its two steps.

    Args:
        study: The study of a run.
    """
    return study.measure.at != f"after_{study.algorithm.ends_with}"


def _device_bytes(runs: Sequence[Run]) -> int:
    """Return the bytes of all devices' measurements in float32."""
    total = 0
    for run in runs:
        for values in run.metrics.values():
            if values.ndim > 1:
                total += int(values.size) * 4
    return total


def _difference_notes(methods: Sequence[Method]) -> list[str]:
    """Return a note if the runs differ in more than their method."""
    found = grouping.differences([method.runs[0] for method in methods])
    if not found:
        return []
    more = "; …" if len(found) > _MAX_DIFFERENCES else ""
    listed = "; ".join(found[:_MAX_DIFFERENCES])
    return [f"The runs differ in more than their method: {listed}{more}."]
