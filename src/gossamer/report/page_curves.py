"""The curves of a page: means over the seeds with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gossamer._core.columns import ENDINGS
from gossamer.report import pack
from gossamer.report.page_tables import metrics_of
from gossamer.results.palette import dash_array, line_style
from gossamer.results.run import Run
from gossamer.results.statistics import half_widths
from gossamer.results.tables import Method

# Columns, with their scale.
AXES = {
    "round": 1.0,
    "bytes": 1e-6,
    "simulated_seconds": 1.0,
    "joules": 1.0,
    "steps": 1.0,
}
_MAX_POINTS = 1000  # points of a curve: a screen shows no more


def curves(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Return a line per method.

    Args:
        methods: The methods of the page, in the order of their colours.

    Returns:
        Dictionaries as `chart.js` draws them. Runs that ended before the others are lines of their
        own, under "early".
    """
    names = ["distance"]
    for metric in metrics_of(methods):
        names += [metric.name + ending for ending in ENDINGS]
    lines = []
    for k, method in enumerate(methods):
        shown = method.measured_runs
        early = []
        for run in method.runs:
            if run.metrics and not any(run is other for other in shown):
                line = _line((run,), f"{method.label}, seed {run.seed}", k, names)
                early.append(line | {"ended": _ended(run)})
        ended = [f"seed {run.seed} {_ended(run)}" for run in shown if _ended(run)]
        if not shown:  # no run has a measurement
            continue
        line = _line(shown, method.label, k, names)
        lines.append(line | {"ended": "; ".join(ended), "early": early})
    return lines


def _ended(run: Run) -> str:
    """Return how a run ended before its time; empty if it did not."""
    if run.status == "running":
        return ""
    return run.status_text


def _line(runs: Sequence[Run], label: str, k: int, names: Sequence[str]) -> dict[str, Any]:
    """Return the line of method k with all columns of the names."""
    colour, dash = line_style(k)
    x: dict[str, Any] = {}
    y: dict[str, Any] = {}
    line = {"label": label, "colour": colour, "dash": dash_array(dash), "x": x, "y": y}
    if not runs:
        return line
    rounds = _common_rounds(runs)
    rows = [np.searchsorted(run.metrics["round"], rounds) for run in runs]
    for name in (*AXES, *names):
        if not all(run.has(name) for run in runs):
            continue
        columns = [run.metrics[name][row] for run, row in zip(runs, rows, strict=True)]
        values = np.array(columns, dtype=float)
        if name in AXES:
            x[name] = pack.drawn_numbers(values.mean(0) * AXES[name])
        else:
            half = None
            if len(runs) > 1:
                half = pack.drawn_numbers(half_widths(values))
            y[name] = {"mean": pack.drawn_numbers(values.mean(0)), "half": half}
    return line


def _common_rounds(runs: Sequence[Run]) -> Any:
    """Return the rounds that all runs have measured, at most `_MAX_POINTS` of them."""
    common = set(runs[0].metrics["round"].tolist())
    for run in runs[1:]:
        common &= set(run.metrics["round"].tolist())
    rounds = np.array(sorted(common))
    return rounds[pack.evenly(len(rounds), _MAX_POINTS)]
