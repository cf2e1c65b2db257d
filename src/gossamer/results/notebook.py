"""Show studies, runs and comparisons in a notebook: a table with the curves below it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gossamer.network.notebook import box, table, ticks, title
from gossamer.results import palette
from gossamer.results.statistics import interval

if TYPE_CHECKING:
    from gossamer.results.tables import Method

FloatArray = NDArray[np.float64]
# The chart, in pixels.
_WIDTH = 520
_HEIGHT = 240
_LEFT = 52
_RIGHT = 12
_TOP = 10
_BOTTOM = 38
_LINE_WIDTH = 1.8
_MAX_POINTS = 400  # points of a line
_TEXT = 'font-size="11" fill="currentColor"'


def show_parts(heading: str, parts: Mapping[str, Any]) -> str:
    """Return a table of named parts in HTML, each as Python writes it.

    Args:
        heading: The title above the table.
        parts: The parts by name.
    """
    return box(title(heading), table((name, _cut(repr(value))) for name, value in parts.items()))


def show_methods(
    methods: Sequence[Method], heading: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    """Return the table of some methods in HTML, with their curves.

    Args:
        methods: The methods. Curves are the first metric by round, its mean over the devices, with
            the 95 % interval of the seeds.
        heading: The headings of the table.
        rows: The rows of the table.
    """
    if not methods:
        return box(title("no methods"))
    runs = [run for method in methods for run in method.runs]
    what = runs[0].title(len(methods[0].runs))
    folders = [str(run.folder) for run in runs if run.folder is not None]
    where = ""
    if len(folders) > 1:
        where = f"<p>{escape(folders[0])} and {len(folders) - 1} more</p>"
    elif folders:
        where = f"<p>{escape(folders[0])}</p>"
    return box(title(what), table(rows, heading), _chart(methods), where)


@dataclass(frozen=True)
class _Curve:
    """The mean over the seeds with the ends of its interval."""

    rounds: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray


def _curve(method: Method, column: str, scale: float) -> _Curve:
    metrics = [run.metrics for run in method.runs]
    rounds = np.asarray(metrics[0]["round"])
    count = min(len(rounds), _MAX_POINTS)
    kept = np.unique(np.linspace(0, len(rounds) - 1, count).astype(int))
    means = []
    halves = []
    for k in kept:
        point = interval([own[column][k] for own in metrics])
        means.append(point.mean)
        halves.append(point.half or 0.0)
    mean = np.array(means) * scale
    half = np.array(halves) * scale
    return _Curve(rounds[kept], mean, mean - half, mean + half)


def _chart(methods: Sequence[Method]) -> str:
    column = methods[0].runs[0].column
    label = f"mean test {column.heading}"
    curves = {}
    for k, method in enumerate(methods):
        if all(run.has(column.name) for run in method.runs):
            curves[k] = _curve(method, column.name, column.scale)
    if not curves:
        return ""
    values = np.concatenate([np.concatenate([c.mean, c.low, c.high]) for c in curves.values()])
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    low = float(values.min())
    high = float(values.max())
    if column.share:  # an interval may reach beyond, a share cannot
        low = max(0.0, low)
        high = min(100.0, high)
    high = max(high, low + 1e-9)
    last = max(1.0, *(float(curve.rounds.max()) for curve in curves.values()))

    def x(value: Any) -> Any:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / last

    def y(value: Any) -> Any:
        share = (np.clip(value, low, high) - low) / (high - low)
        return _TOP + (_HEIGHT - _BOTTOM - _TOP) * (1 - share)

    shapes = [*_grid(x, y, low, high, last), *_axes(label)]
    for k, curve in curves.items():
        across = x(curve.rounds)
        if (curve.high > curve.low).any():
            upper = _points(across, y(curve.high))
            lower = _points(across[::-1], y(curve.low[::-1]))
            shapes.append(
                f'<polygon points="{upper} {lower}" fill="{_colour(k)}" fill-opacity="0.15"/>'
            )
        shapes.append(f'<polyline points="{_points(across, y(curve.mean))}" {_stroke(k)}/>')
    chart = (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{label} by round">'
        f"{''.join(shapes)}</svg>"
    )
    if len(methods) > 1:
        chart += _legend(methods)
    return chart


def _grid(
    x: Callable[[Any], Any], y: Callable[[Any], Any], low: float, high: float, last: float
) -> list[str]:
    shapes = []
    for value in ticks(low, high):
        shapes.append(
            f'<path d="M{_LEFT} {y(value):.1f}H{_WIDTH - _RIGHT}" stroke="currentColor" '
            'stroke-opacity="0.15"/>'
        )
        shapes.append(
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end" {_TEXT}>'
            f"{value:g}</text>"
        )
    for value in ticks(0, last):
        shapes.append(
            f'<text x="{x(value):.1f}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="middle" {_TEXT}>'
            f"{value:g}</text>"
        )
    return shapes


def _axes(label: str) -> list[str]:
    middle = (_HEIGHT - _BOTTOM + _TOP) / 2
    return [
        f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" '
        'stroke="currentColor" fill="none"/>',
        f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 6}" text-anchor="middle" {_TEXT}>'
        "round</text>",
        f'<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle" {_TEXT}>'
        f"{label}</text>",
    ]


def _legend(methods: Sequence[Method]) -> str:
    items = []
    for k, method in enumerate(methods):
        line = f'<path d="M0 5H36" {_stroke(k)}/>'
        sample = f'<svg width="36" height="10" aria-hidden="true">{line}</svg>'
        items.append(
            f'<span style="white-space:nowrap;margin-right:1.5em">{sample} '
            f"{escape(method.label)}</span>"
        )
    return f'<div style="font-size:90%">{" ".join(items)}</div>'


def _colour(k: int) -> str:
    return palette.NOTEBOOK[palette.line_style(k)[0]]


def _stroke(k: int) -> str:
    """Return the attributes of method k's line."""
    dashes = palette.dash_array(palette.line_style(k)[1], _LINE_WIDTH) or "none"
    return (
        f'stroke="{_colour(k)}" stroke-dasharray="{dashes}" '
        f'stroke-width="{_LINE_WIDTH}" fill="none"'
    )


def _points(x: FloatArray, y: FloatArray) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True) if np.isfinite(b))


def _cut(text: str, limit: int = 300) -> str:
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"
